"""Stores in a process that forks: the child may not use what its parent opened, harms nothing, and can open its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.script import run_script

DURABILITY = ["epoch", "wal"]


@pytest.mark.parametrize("durability", DURABILITY)
def test_child_is_refused_by_its_parents_store_and_closing_it_harms_nothing(durability: str, tmp_path: Path) -> None:
    script = """
path, options = sys.argv[1], Options(retain=3, memtable_bytes=1, durability=sys.argv[2])
memory = MemoryController(1 << 20, 1 << 22)
store = opened(path, options, memory=memory)
commit(store, 1, 8)
write(store, 9)
view = store.snapshot()
def child():
    acts = {
        "append": lambda: write(store, 10), "scan": lambda: keys(store), "prepare": lambda: store.prepare(9),
        "restore": lambda: store.restore(7), "compact": store.compact, "verify": store.verify, "stats": store.stats,
        "snapshot": store.snapshot, "at_epoch": lambda: store.at_epoch(8), "epochs": store.epochs,
        "remove": lambda: store.remove(0, 0, 1), "branch": lambda: store.branch(8, path + "-branch"),
    }
    told = {name: refused(act) for name, act in acts.items()}
    assert set(told.values()) == {"StoreClosedError"}, told
    view.close()
    store.close()
    store.close()
    gc.collect()
assert in_child(child) == 0
assert keys(view) == keys(store) == [6, 7, 8, 9]
assert os.listdir(path + "/pins")  # the child has not given up the parent's
store.snapshot_epoch(9)
commit(store, 10, 16)
assert keys(view) == [6, 7, 8, 9]
view.close()
store.close()
assert os.listdir(path + "/pins") == []
check(path, 16)
"""
    run_script(script, tmp_path / "state", durability)


@pytest.mark.parametrize("durability", DURABILITY)
def test_child_opens_the_state_with_its_parents_pool_cache_and_memory_and_the_parent_is_fenced(
    durability: str, tmp_path: Path
) -> None:
    script = """
from lsmstate.sstable.cache import FileCache
path, options = sys.argv[1], Options(retain=3, memtable_bytes=1, durability=sys.argv[2])
shared = {"pool": WorkerPool(), "cache": FileCache(), "memory": MemoryController(1 << 20, 1 << 22)}
store = opened(path, options, **shared)
commit(store, 1, 8)
keys(store)
def child():
    with opened(path, options, **shared) as mine:
        assert keys(mine) == [5, 6, 7, 8]
        commit(mine, 9, 14)
        assert keys(mine) == [11, 12, 13, 14]
    assert shared["pool"].close(30)
assert in_child(child) == 0
assert refused(lambda: commit(store, 9, 9)) == "FencedError"
store.close()
with opened(path, options, **shared) as again:
    assert keys(again) == [11, 12, 13, 14]
    commit(again, 15, 15)
assert shared["pool"].close(30) and not pool_threads()
check(path, 15)
"""
    run_script(script, tmp_path / "state", durability)


def test_forks_while_threads_write_read_and_compact_leave_children_that_can_read(tmp_path: Path) -> None:
    script = """
path, done = sys.argv[1], threading.Event()
store = opened(path)
commit(store, 1, 4)
errors = []
def guarded(act):
    try:
        while not done.is_set():
            act()
    except BaseException as error:
        errors.append(error)
def write_next():
    commit(store, store.epochs()[-1] + 1, store.epochs()[-1] + 1)
threads = [threading.Thread(target=guarded, args=(act,)) for act in (write_next, lambda: keys(store))]
for thread in threads:
    thread.start()
def child():
    store.close()
    with StateStore.open(path, KINDS, read_only=True) as mine:
        last = mine.epochs()[-1]
        assert keys(mine) == list(range(max(1, last - ALIVE + 1), last + 1))
codes = [in_child(child) for _ in range(20)]
done.set()
for thread in threads:
    thread.join()
assert not errors, errors
assert codes == [0] * 20, codes
last = store.epochs()[-1]
store.close()
check(path, last)
"""
    run_script(script, tmp_path / "state")


def test_child_of_a_process_that_is_compacting_compacts_once_its_parent_is_done(tmp_path: Path) -> None:
    script = """
path, begun, gate = sys.argv[1], threading.Event(), threading.Event()
write_sstable = lsmstate.engine.compactor.write_sstable
def held(*arguments):
    begun.set()
    assert gate.wait(60)
    return write_sstable(*arguments)
lsmstate.engine.compactor.write_sstable = held
store = opened(path)
epoch = 0
while not begun.is_set():
    epoch += 1
    commit(store, epoch, epoch)
    if epoch > 12:
        assert begun.wait(60)
def child():
    lsmstate.engine.compactor.write_sstable = write_sstable
    store.close()
    with opened(path, Options(retain=3)) as mine:
        mine.compact(major=True)  # leaves it to the parent, which holds the lock
        commit(mine, epoch + 1, epoch + 1)
assert in_child(child) == 0
gate.set()
assert refused(lambda: commit(store, epoch + 1, epoch + 1)) == "FencedError"
store.close()
with opened(path) as again:
    again.compact(major=True)
    commit(again, epoch + 2, epoch + 2)
    assert again.stats().compaction.last_error is None
check(path, epoch + 2)
"""
    run_script(script, tmp_path / "state")
