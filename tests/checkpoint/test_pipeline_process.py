"""A pipeline in a process that is interrupted, told to end, ends by itself, or forks: it goes on elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pipeline_job import expected, written
from tests.support.pipeline_kills import tables
from tests.support.script import STORES, run_script

SEED = 77
PRELUDE = (
    STORES
    + f"""
from tests.support.pipeline_kills import Gated, live, tables
from tests.support.pipeline_job import pipeline
root, (left, right) = sys.argv[1], tables({SEED})
def job(share=None):
    return pipeline(root, "left", left, right, sources=lambda name, table: Gated(table, share))
def some_epochs(job):
    while job.epoch < 3:
        time.sleep(0.002)  # the job has its own threads, and tells nobody of its epochs
def own_threads():
    return [t.name for t in threading.enumerate() if t is not threading.main_thread() and t.name != "iopool-ahead"]
"""
)


def goes_on(path: Path) -> None:
    """Another process takes the job to its end."""
    run_script("job().run()\nassert not own_threads(), own_threads()", path, prelude=PRELUDE)
    assert written(path / "out") == expected("left", *tables(SEED))


def test_interrupted_run_ends_its_threads_and_another_goes_on(tmp_path: Path) -> None:
    script = """
running = job(200)
def strike():
    while running._run is None:
        os.sched_yield()
    some_epochs(running)
    os.kill(os.getpid(), signal.SIGINT)
striker = threading.Thread(target=strike)
striker.start()
try:
    running.run()
except KeyboardInterrupt:
    print("interrupted")
striker.join()
assert not own_threads(), own_threads()
"""
    assert run_script(script, tmp_path, prelude=PRELUDE) == "interrupted"
    goes_on(tmp_path)


@pytest.mark.parametrize("handler", ["signal.SIG_DFL", "lambda *_: sys.exit(9)"])
def test_sigterm_ends_a_running_job_and_another_process_goes_on(handler: str, tmp_path: Path) -> None:
    script = f"""
signal.signal(signal.SIGTERM, {handler})
running = job(200)
running.start()
some_epochs(running)
signal.raise_signal(signal.SIGTERM)
"""
    run_script(script, tmp_path, prelude=PRELUDE, code=-15 if "DFL" in handler else 9)
    goes_on(tmp_path)


def test_interpreter_ends_though_a_job_runs_and_another_process_goes_on(tmp_path: Path) -> None:
    script = """
running = job(200)
running.start()
some_epochs(running)
print("end")
"""
    assert run_script(script, tmp_path, prelude=PRELUDE) == "end"
    goes_on(tmp_path)


def test_children_of_a_process_whose_job_runs_end_and_the_job_does_too(tmp_path: Path) -> None:
    script = """
running = job()
running.start()
def child():
    gc.collect()
codes = [in_child(child) for _ in range(10)]
running.wait()
assert codes == [0] * 10, codes
assert not own_threads(), own_threads()
"""
    run_script(script, tmp_path, prelude=PRELUDE)
    assert written(tmp_path / "out") == expected("left", *tables(SEED))


def test_runs_leave_no_thread_no_descriptor_and_no_mapping(tmp_path: Path) -> None:
    script = """
home = root
def life(number):
    global root
    root = f"{home}/{number}"
    os.mkdir(root)
    pipeline(root, "left", left.slice(0, 300), right.slice(0, 300)).run()
life(0)
gc.collect()
before = descriptors()
for number in range(1, 6):
    life(number)
gc.collect()
assert descriptors() == before, (descriptors(), before)
assert mapped_files() == 0, mapped_files()
assert not own_threads(), own_threads()
"""
    run_script(script, tmp_path, prelude=PRELUDE)
