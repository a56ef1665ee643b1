"""The end of a store's process, threads and handles: nothing hangs, and no thread, descriptor or mapping is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.script import run_script


def test_interpreter_ends_with_an_open_store_and_prints_nothing(tmp_path: Path) -> None:
    script = """
store = opened(sys.argv[1], Options(retain=3, memtable_bytes=1))
commit(store, 1, 8)
write(store, 9)
view, rows = store.snapshot(), store.scan(0)
next(rows)
print("end")
"""
    assert run_script(script, tmp_path / "state") == "end"
    assert run_script("check(sys.argv[1], 8)", tmp_path / "state") == ""


def test_interpreter_ends_in_the_middle_of_a_compaction_and_a_flush(tmp_path: Path) -> None:
    script = """
from lsmstate.engine import compactor, flush
compacting, flushing, never = threading.Event(), threading.Event(), threading.Event()
def stuck(begun):
    def write_sstable(*_):
        begun.set()
        never.wait()
    return write_sstable
compactor.write_sstable = stuck(compacting)
store = opened(sys.argv[1])
commit(store, 1, 8)
assert compacting.wait(60)
store._core.options = Options(retain=3, memtable_bytes=1)
flush.write_sstable = stuck(flushing)
write(store, 9)
assert flushing.wait(60)
print("end")
"""
    assert run_script(script, tmp_path / "state") == "end"
    assert run_script("check(sys.argv[1], 8)", tmp_path / "state") == ""


def test_interpreter_that_ends_gives_up_a_merge_and_waits_for_its_thread(tmp_path: Path) -> None:
    """A thread that comes back from compiled code after the end would abort the process."""
    script = """
from lsmstate.engine import compactor
compacting, write_sstable = threading.Event(), compactor.write_sstable
def slow(*arguments):
    compacting.set()
    while not store._core.compactor._stopping.wait(0.01):
        pass
    try:
        write_sstable(*arguments)
    except compactor.Abandoned:
        os.write(1, b"abandoned")
compactor.write_sstable = slow
store = opened(sys.argv[1])
commit(store, 1, 8)
assert compacting.wait(60)
"""
    assert run_script(script, tmp_path / "state") == "abandoned"
    assert run_script("check(sys.argv[1], 8)", tmp_path / "state") == ""


def test_close_is_bounded_though_a_compaction_never_ends(tmp_path: Path) -> None:
    script = """
from lsmstate.engine import compactor, store as store_module
store_module._CLOSE_SECONDS = 0.2
compacting, gate = threading.Event(), threading.Event()
write_sstable = compactor.write_sstable
def stuck(*arguments):
    compacting.set()
    gate.wait()
    return write_sstable(*arguments)
compactor.write_sstable = stuck
store = opened(sys.argv[1])
commit(store, 1, 8)
assert compacting.wait(60)
store.close()
assert refused(lambda: keys(store)) == "StoreClosedError"
assert pool_threads() == ["iopool-compaction"]
check(sys.argv[1], 8)
gate.set()
while pool_threads():  # the thread ends after its job
    os.sched_yield()
with opened(sys.argv[1]) as again:
    commit(again, 9, 16)
check(sys.argv[1], 16)
"""
    run_script(script, tmp_path / "state")


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt", "MemoryError", "GeneratorExit"])
@pytest.mark.parametrize("lane", ["flush", "compactor"])
def test_job_that_dies_of_anything_costs_its_caller_an_error_at_most(lane: str, error: str, tmp_path: Path) -> None:
    script = """
from lsmstate.engine import compactor, flush
module, error = {"flush": flush, "compactor": compactor}[sys.argv[2]], getattr(__builtins__, sys.argv[3])
path, write_sstable, died = sys.argv[1], module.write_sstable, []
def dies(*arguments):
    if len(died) < 3:
        died.append(1)
        raise error("a worker was told to die")
    return write_sstable(*arguments)
module.write_sstable = dies
store = opened(path, Options(retain=3, memtable_bytes=1 if sys.argv[2] == "flush" else 1 << 20))
epoch = 0
while epoch < 12:
    try:
        write(store, epoch + 1)
        store.snapshot_epoch(epoch + 1)
    except Exception as raised:
        assert sys.argv[2] == "flush", raised
        assert isinstance(raised, (JobLost, MemoryError)), repr(raised)
        store.close()
        store = opened(path)
        continue
    epoch += 1
assert died
store.close()
assert not pool_threads()
check(path, 12)
"""
    run_script(script, tmp_path / "state", lane, error)


@pytest.mark.parametrize("lane", ["spill", "compaction"])
def test_thread_that_dies_is_replaced_and_the_store_goes_on(lane: str, tmp_path: Path) -> None:
    script = """
from iopool.lane import JobLane
path, lane, run_current, died = sys.argv[1], sys.argv[2], JobLane._run_current, []
threading.excepthook = lambda told: None  # what a dead thread says
def dies(self, worker):
    if self.name == lane and len(died) < 3:
        died.append(1)
        raise SystemExit("a thread was told to die")
    return run_current(self, worker)
JobLane._run_current = dies
store = opened(path)
epoch = 0
while epoch < 16:
    last = epoch
    try:
        if epoch == (store.epochs() or [0])[-1] and keys(store)[-1:] != [epoch + 1]:
            write(store, epoch + 1)
        store.snapshot_epoch(epoch + 1)
    except JobLost:
        assert lane == "spill"
        continue
    epoch += 1
assert len(died) == 3, died
store.close()
assert not pool_threads()
check(path, 16)
"""
    run_script(script, tmp_path / "state", lane)


@pytest.mark.parametrize("durability", ["epoch", "wal"])
def test_handles_leave_no_thread_no_descriptor_and_no_mapping(durability: str, tmp_path: Path) -> None:
    script = """
path, options = sys.argv[1], Options(retain=3, memtable_bytes=1, durability=sys.argv[2])
def life(first):
    with opened(path, options, memory=MemoryController(1 << 20, 1 << 22)) as store:
        commit(store, first, first + 7)
        with store.snapshot() as view, store.at_epoch(first + 7) as then:
            assert keys(view) == keys(then)
        rows = store.scan(0)  # never read to its end
        next(rows)
        store.compact(major=True)
        store.restore(first + 6)
        with StateStore.open(path, KINDS, read_only=True) as reader:
            assert keys(reader)
life(1)  # what a process keeps for good is there after the first life
gc.collect()
before = descriptors()
assert mapped_files() == 0, mapped_files()
for number in range(12):
    life(8 + 7 * number)
gc.collect()
assert descriptors() == before, (descriptors(), before)
assert mapped_files() == 0, mapped_files()
assert not pool_threads()
assert os.listdir(path + "/pins") == []
"""
    run_script(script, tmp_path / "state", durability)
