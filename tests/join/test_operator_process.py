"""Join operators in a process that forks, is interrupted, or ends."""

from __future__ import annotations

from pathlib import Path

from tests.support.script import STORES, run_script

PRELUDE = (
    STORES
    + """
from pathlib import Path
from lsmstate.checkpoint import OperatorContext
from tests.support.join_operator import checkpoint, feed, interval, taken
def started(pool=None, memory=None):
    join = interval()
    join.on_start(OperatorContext(Path(sys.argv[1]), pool=pool, memory=memory))
    return join
"""
)


def test_child_cannot_use_its_parents_operator_and_closing_it_harms_nothing(tmp_path: Path) -> None:
    script = """
pool = WorkerPool()
join = started(pool, MemoryController(1 << 20, 1 << 22))
feed(join, 0, (1, 10, 1, "a"), (2, 10, 2, "b"))
checkpoint(join, 1)
feed(join, 0, (3, 11, 3, "c"))
def child():
    assert refused(lambda: feed(join, 1, (1, 12, 4, "r"))) == "StoreClosedError"
    assert refused(lambda: checkpoint(join, 2)) == "StoreClosedError"
    join.on_close()
assert in_child(child) == 0
assert len(feed(join, 1, (1, 12, 4, "r"), (3, 12, 5, "s"))) == 2
checkpoint(join, 2)
join.on_close()
join = started()
alone = taken(join.process_watermark(1000))
assert alone == [(2, 10, 2, "b", None, None, None)], alone
join.on_close()
assert pool.close(30) and not pool_threads()
"""
    run_script(script, tmp_path / "state", prelude=PRELUDE)


def test_interpreter_ends_with_a_started_operator_and_prints_nothing(tmp_path: Path) -> None:
    script = """
join = started()
feed(join, 0, (1, 10, 1, "a"))
checkpoint(join, 1)
unfinished = join.process_batch(0, batch_of(0, ((2, 11, 2, "b"),)))
print("end")
"""
    with_batches = PRELUDE + "from tests.support.join_cases import batch_of\n"
    assert run_script(script, tmp_path / "state", prelude=with_batches) == "end"
    again = 'join = started()\nassert len(feed(join, 1, (1, 12, 4, "r"))) == 1\njoin.on_close()'
    run_script(again, tmp_path / "state", prelude=PRELUDE)


def test_operators_leave_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    script = """
def life(epoch):
    join = started()
    feed(join, 0, (epoch, 10 * epoch, epoch, "a"))
    feed(join, 1, (epoch, 10 * epoch, epoch, "b"))
    checkpoint(join, epoch)
    join.on_close()
life(1)
gc.collect()
before = descriptors()
for epoch in range(2, 16):
    life(epoch)
gc.collect()
assert descriptors() == before, (descriptors(), before)
assert mapped_files() == 0, mapped_files()
assert not pool_threads()
"""
    run_script(script, tmp_path / "state", prelude=PRELUDE)
