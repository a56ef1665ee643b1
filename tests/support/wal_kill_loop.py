"""Kills real writers of a state with a log, with -9: `python -m tests.support.wal_kill_loop DIR KILLS SEED`.

Each writer is a forked process that appends numbered rows, commits an epoch now and then, and acknowledges each append
through a pipe. After the kill all acknowledged rows must be there, in order and without a gap, and at most the one more
that was under way.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import pyarrow as pa

from lsmstate import Options, Side, StateStore

SIDE = Side("events", pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("text", pa.string())]), keys=["k"], time="ts")


def opened(path: str, durability: str = "wal") -> StateStore:
    """The state."""
    return StateStore.open(path, [SIDE], Options(retain=2, durability=durability, auto_compact=False))


def rows(store: StateStore) -> list[int]:
    """The numbers of all rows, ascending."""
    return sorted(n for batch in store.scan(0) for n in batch.column(0).to_pylist())


def write(path: str, seed: int, pipe: int) -> None:
    """The writer; it goes on until it is killed."""
    rng = random.Random(seed)
    store = opened(path)
    number, epoch = len(rows(store)), (store.epochs() or [0])[-1]
    while True:
        data = {"k": [number], "ts": [number], "text": ["x" * rng.randrange(200)]}
        store.append(0, pa.RecordBatch.from_pydict(data, schema=SIDE.schema))
        number += 1
        os.write(pipe, number.to_bytes(8, "little"))
        if rng.random() < 0.2:
            epoch += 1
            store.prepare(epoch)
            if rng.random() < 0.8:
                store.commit(epoch)
            else:
                store.abort(epoch)


def kill_once(path: str, rng: random.Random) -> int:
    """One writer, killed at a random moment; gives the rows that it acknowledged."""
    seed = rng.randrange(1 << 30)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            write(path, seed, writing)
        finally:
            os._exit(1)
    os.close(writing)
    data, wanted = b"", 8 * rng.randrange(1, 6)
    while len(data) < wanted:
        part = os.read(reading, 8)
        assert part, f"the writer failed by itself, seed {seed}"
        data += part
    time.sleep(rng.random() * 0.004)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while part := os.read(reading, 1 << 16):
        data += part
    os.close(reading)
    acked = int.from_bytes(data[len(data) // 8 * 8 - 8 : len(data) // 8 * 8], "little")
    with opened(path, rng.choice(["wal", "epoch"])) as store:
        found = rows(store)
        assert found == list(range(len(found))), f"rows are lost or come twice, seed {seed}"
        assert acked <= len(found) <= acked + 1, f"{acked} acknowledged, {len(found)} found, seed {seed}"
    return len(data) // 8


def main(path: str, kills: int, seed: int) -> None:
    """Runs the loop and prints one line of figures."""
    rng = random.Random(seed)
    acked = sum(kill_once(path, rng) for _ in range(kills))
    with opened(path) as store:
        assert store.verify() == []
    sys.stdout.write(f"kills {kills} appends {acked}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
