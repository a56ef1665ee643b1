"""Kills real writers with -9 again and again: `python -m tests.support.kill_loop DIR KILLS SEED`.

Each writer is a forked process that opens the state, commits epochs (and at times goes back) and acknowledges each
publication through a pipe. After the kill, the state must be at the last acknowledged publication, or at the one that
was under way, with exactly the rows of that epoch.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from datetime import timedelta

import pyarrow as pa

from lsmstate import Options, Side, StateStore

SECOND = 1_000_000
KEEP = 12  # epochs whose rows the watermark keeps alive
SIDE = Side(
    "events",
    pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("text", pa.string())]),
    keys=["k"],
    time="ts",
    retention=timedelta(seconds=KEEP),
)
OPTIONS = Options(retain=3)


def rows_of(epoch: int) -> pa.RecordBatch:
    """What an epoch appends: always the same."""
    data = {"k": [epoch, -epoch], "ts": [epoch * SECOND] * 2, "text": [f"epoch {epoch}", None]}
    return pa.RecordBatch.from_pydict(data, schema=SIDE.schema)


def expected(epoch: int) -> list[dict[str, object]]:
    """The rows of the state at an epoch."""
    first = max(1, epoch - KEEP + 1)
    return [row for number in range(first, epoch + 1) for row in rows_of(number).to_pylist()]


def schedule(start: int, seed: int) -> list[tuple[str, int]]:
    """What a writer does, known to both sides: commits, and now and then a step back."""
    rng, at, steps = random.Random(seed), start, []
    for _ in range(200):
        if at > start + 1 and rng.random() < 0.15:
            at -= 1
            steps.append(("restore", at))
        else:
            at += 1
            steps.append(("commit", at))
    return steps


def write(path: str, seed: int, pipe: int) -> None:
    """The writer; it never ends by itself before its schedule does."""
    spill = Options(retain=3, memtable_bytes=1 if seed % 3 == 0 else 1 << 20)
    store = StateStore.open(path, [SIDE], spill)
    start = (store.epochs() or [0])[-1]
    os.write(pipe, start.to_bytes(8, "little"))
    for act, epoch in schedule(start, seed):
        if act == "restore":
            store.restore(epoch)
        else:
            store.append(0, rows_of(epoch))
            store.advance_watermark(epoch * SECOND)
            store.snapshot_epoch(epoch)
        os.write(pipe, epoch.to_bytes(8, "little"))


def kill_once(path: str, rng: random.Random, pace: float) -> tuple[int, float]:
    """One writer, killed at a random moment of a random epoch; gives the acknowledged epochs and their pace."""
    seed = rng.randrange(1 << 30)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            write(path, seed, writing)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    data, wanted, begun = b"", rng.randrange(4) * 8, time.monotonic()
    while len(data) < wanted:
        part = os.read(reading, wanted - len(data))
        assert part, "the writer failed by itself"
        data += part
    if wanted > 8:
        pace = (time.monotonic() - begun) / (wanted // 8)
    time.sleep(rng.random() * 1.2 * pace)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while part := os.read(reading, 1 << 16):
        data += part
    os.close(reading)
    acks = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) - 7, 8)]
    check(path, acks, seed)
    return max(0, len(acks) - 1), pace


def check(path: str, acks: list[int], seed: int) -> None:
    """The state is at the last acknowledged publication, or at the next one."""
    with StateStore.open(path, [SIDE], OPTIONS) as store:
        known = store.epochs()
        at = known[-1] if known else 0
        if acks:
            steps = schedule(acks[0], seed)
            allowed = {acks[-1], steps[len(acks) - 1][1]}
            assert at in allowed, f"state at {at}, acknowledged {acks[-1]}, seed {seed}"
        for epoch in known:
            with store.at_epoch(epoch) as view:
                rows = [row for batch in view.scan(0, ordered=True) for row in batch.to_pylist()]
            assert rows == expected(epoch), f"epoch {epoch} holds other rows, seed {seed}"


def main(path: str, kills: int, seed: int) -> None:
    """Runs the loop and prints one line of figures."""
    rng = random.Random(seed)
    epochs, pace = 0, 0.01
    for _ in range(kills):
        acked, pace = kill_once(path, rng, pace)
        epochs += acked
    with StateStore.open(path, [SIDE], OPTIONS) as store:
        assert store.verify() == []
    sys.stdout.write(f"kills {kills} epochs {epochs}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
