"""SIGINT and SIGTERM at any moment of a store's work: nothing hangs, and what was acknowledged is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Figures
from tests.support.script import run_script

# A child strikes its parent again and again; the parent lets itself be struck while it works, and only then.
STORM = """
under_fire, hits = False, 0
def strike(*_):
    if under_fire:
        raise KeyboardInterrupt
def interrupted(act):
    global under_fire, hits
    try:
        try:
            under_fire = True
            act()
        finally:
            under_fire = False
    except KeyboardInterrupt:
        hits += 1
        return True
    return False
# A strike inside a callback of a weak reference is told there: to no code of Python, which could be struck in its turn.
sys.unraisablehook = collections.deque(maxlen=0).append
signal.signal(signal.SIGINT, strike)
target = os.getpid()
storm = os.fork()
if storm == 0:
    while os.getppid() == target:
        os.kill(target, signal.SIGINT)
        time.sleep(0.0003 + random.random() * 0.02)  # the pace of the storm; nobody waits for it
    os._exit(0)
"""

CALM = """
os.kill(storm, signal.SIGKILL)
os.waitpid(storm, 0)
"""


@pytest.mark.parametrize("durability", ["epoch", "wal"])
def test_storm_of_interrupts_loses_no_acknowledged_epoch_and_leaves_no_thread(
    durability: str, tmp_path: Path, figures: Figures
) -> None:
    script = """
path, options = sys.argv[1], Options(retain=3, memtable_bytes=1, durability=sys.argv[2])
told = [0]  # epochs that were acknowledged
def work(store):
    last = store.epochs()[-1] if store.epochs() else 0
    told[0] = max(told[0], last)
    for epoch in range(last + 1, last + 4):
        write(store, epoch)
        list(store.probe(0, batch((epoch, epoch * EPOCH_US, "ask")), 0, 0))
        keys(store)
        store.snapshot_epoch(epoch)
        told[0] = epoch
    store.compact()
    with store.at_epoch(told[0]) as view:
        keys(view)
lives = 0
while hits < 150 and lives < 1500:
    lives += 1
    store = opened(path, options)
    assert not store.epochs() or store.epochs()[-1] in (told[0], told[0] + 1), (store.epochs(), told)
    for side in (0, 1):
        rows = keys(store, side)
        last = store.epochs()[-1] if store.epochs() else 0
        assert set(range(max(1, last - 2), last + 1)) <= set(rows), (last, rows)  # with a log there may be more
    if lives % 3 == 0:
        work(store)  # in peace: where no epoch is ever complete, a log only grows
    while not interrupted(lambda: work(store)):
        pass
    for act in (lambda: work(store), lambda: store.close()):
        with contextlib.suppress(LsmStateError):  # it may be fenced by itself, poisoned, or in the middle of an epoch
            interrupted(act)
    store.close()
"""
    tail = """
assert told[0] > 5, told
gc.collect()
with opened(path, options) as store:
    assert store.epochs()[-1] in (told[0], told[0] + 1), (store.epochs(), told)
    assert store.verify() == []
    epoch = store.epochs()[-1] + 1
    commit(store, epoch, epoch + 5)
    assert store.verify() == []
del store
gc.collect()
while pool_threads():  # of pools whose close was interrupted: they end by themselves
    os.sched_yield()
print(hits, flush=True)
os._exit(0)  # Python ends by SIGINT if one ever struck inside an exec of text, handled or not
"""
    hits = int(run_script(STORM + script + CALM + tail, tmp_path / "state", durability))
    assert hits >= 150
    figures.add("interrupts in the middle of a store's work", hits)


def test_sigterm_that_raises_systemexit_closes_the_store_and_the_state_is_at_its_last_epoch(tmp_path: Path) -> None:
    script = """
path = sys.argv[1]
def leave(*_):
    raise SystemExit(7)
signal.signal(signal.SIGTERM, leave)
def life():
    with opened(path) as store:
        first = store.epochs()[-1] + 1 if store.epochs() else 1
        for epoch in range(first, first + 1000):
            commit(store, epoch, epoch)
            os.write(told, epoch.to_bytes(4, "little"))
for round in range(12):
    reading, told = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            life()
        except SystemExit as error:
            code = error.code if not pool_threads() else 2
        finally:
            os._exit(code)
    os.close(told)
    for _ in range(1 + round % 4):
        last = int.from_bytes(os.read(reading, 4), "little")
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    while part := os.read(reading, 4):
        last = int.from_bytes(part, "little")
    os.close(reading)
    with StateStore.open(path, KINDS, read_only=True) as store:
        now = store.epochs()[-1]
        assert now in (last, last + 1), (now, last)
    check(path, now)
"""
    run_script(script, tmp_path / "state")


def test_sigterm_without_a_handler_ends_the_process_and_the_state_is_at_its_last_epoch(tmp_path: Path) -> None:
    script = """
path, (reading, told) = sys.argv[1], os.pipe()
child = os.fork()
if child == 0:
    store = opened(path)
    for epoch in range(1, 1000):
        commit(store, epoch, epoch)
        os.write(told, epoch.to_bytes(4, "little"))
os.close(told)
for _ in range(5):
    last = int.from_bytes(os.read(reading, 4), "little")
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
while part := os.read(reading, 4):
    last = int.from_bytes(part, "little")
with StateStore.open(path, KINDS, read_only=True) as store:
    now = store.epochs()[-1]
    assert now in (last, last + 1), (now, last)
check(path, now)
"""
    run_script(script, tmp_path / "state")
