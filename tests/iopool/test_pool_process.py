"""The worker pool in a process that forks, gets signals or ends: each test starts one of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(body: str) -> str:
    """Runs Python code in a process of its own, from the root of the repository; gives its output."""
    prelude = "import os, signal, sys, threading, time\nfrom iopool import *\n"
    prelude += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # jobs in the background ignore it
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", prelude + body],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_forked_child_has_an_empty_pool_and_lost_tickets() -> None:
    script = """
pool, gate, begun = WorkerPool(), threading.Event(), threading.Event()
ended = pool.submit("spill", lambda: "before")
ended.result(30)
running = pool.submit("spill", lambda: (begun.set(), gate.wait(30), "parent")[-1])
queued = pool.submit("spill", lambda: "parent too")
begun.wait(30)
child = os.fork()
if child == 0:
    code = 1
    try:
        assert ended.result(0) == "before"
        for ticket in (running, queued):
            try:
                ticket.result()
            except JobLost as error:
                assert "fork" in str(error)
            else:
                raise AssertionError("no JobLost")
        assert pool.metrics()["spill"] == LaneMetrics()
        assert threading.active_count() == 1
        assert pool.submit("spill", lambda: "child").result(30) == "child"
        assert pool.close(30)
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
gate.set()
assert (running.result(30), queued.result(30)) == ("parent", "parent too")
assert pool.close(30)
"""
    run_script(script)


def test_forks_while_other_threads_submit_leave_usable_pools() -> None:
    script = """
pool, stop = WorkerPool(queue_depth=2), threading.Event()
def submit_all_the_time():
    while not stop.is_set():
        pool.submit("spill", int)
submitters = [threading.Thread(target=submit_all_the_time) for _ in range(2)]
for submitter in submitters:
    submitter.start()
for _ in range(40):
    child = os.fork()
    if child == 0:
        fine = pool.submit("spill", lambda: 1).result(30) == 1 and pool.close(30)
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for submitter in submitters:
    submitter.join()
assert pool.close(30)
"""
    run_script(script)


def test_job_that_forks_ends_once_in_each_process() -> None:
    script = """
pool = WorkerPool()
child = pool.submit("spill", os.fork).result(30)
assert child > 0 and os.waitpid(child, 0)[1] == 0
assert pool.submit("spill", int).result(30) == 0 and pool.close(30)
print("parent")
"""
    assert run_script(script) == "parent"


def test_interrupt_reaches_the_waiter_and_the_job_goes_on() -> None:
    script = """
pool, gate, main = WorkerPool(), threading.Event(), threading.get_ident()
def interrupt_the_waiter():
    while sys._current_frames()[main].f_code.co_name != "result":
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGINT)
    gate.wait(30)
    return "went on"
ticket = pool.submit("spill", interrupt_the_waiter)
try:
    ticket.result()
except KeyboardInterrupt:
    print("interrupted")
gate.set()
assert ticket.result(30) == "went on"
assert pool.submit("spill", int).result(30) == 0
assert pool.close(30)
"""
    assert run_script(script) == "interrupted"


def test_storm_of_interrupts_breaks_nothing() -> None:
    script = """
under_fire = False
def strike(*_):
    if under_fire:
        raise KeyboardInterrupt
def interrupted(act):
    global under_fire
    try:
        try:
            under_fire = True
            act()
        finally:
            under_fire = False
    except KeyboardInterrupt:
        return True
    return False
signal.signal(signal.SIGINT, strike)
target = os.getpid()
storm = os.fork()
if storm == 0:
    while os.getppid() == target:
        os.kill(target, signal.SIGINT)
        time.sleep(0.0002)
    os._exit(0)
hits = 0
for _ in range(150):
    pool = WorkerPool(queue_depth=1, spill_workers=2)
    def round_trip():
        ticket = pool.submit("spill", int)
        pool.submit("compaction", int)
        ticket.result()
    hits += sum(interrupted(round_trip) for _ in range(20))
    hits += interrupted(lambda: pool.close(30))
    try:
        assert pool.submit("spill", lambda: "alive").result(30) == "alive"
    except PoolClosed:
        pass
    assert pool.close(30), pool.metrics()
os.kill(storm, signal.SIGKILL)
os.waitpid(storm, 0)
assert hits > 20, hits
while threading.active_count() > 1:  # threads whose start was interrupted end by themselves
    os.sched_yield()
"""
    run_script(script)


def test_signal_handler_may_close_the_pool_in_the_middle_of_a_submit() -> None:
    script = """
from iopool.lane import JobLane
pool, closed, staff = WorkerPool(), [], JobLane._staff
pool.submit("spill", int).result(30)
def strike_while_the_lock_is_held(lane):
    JobLane._staff = staff
    staff(lane)
    signal.raise_signal(signal.SIGTERM)
JobLane._staff = strike_while_the_lock_is_held
signal.signal(signal.SIGTERM, lambda *_: closed.append(pool.close(0.05)))
ticket = pool.submit("spill", lambda: "accepted before")
assert closed == [False], closed
assert ticket.result(30) == "accepted before"
assert pool.close(30)
"""
    run_script(script)


def test_interpreter_waits_for_jobs_that_run_and_are_queued() -> None:
    script = """
pool, begun, gate = WorkerPool(), threading.Event(), threading.Event()
pool.submit("spill", lambda: (begun.set(), gate.wait(30), os.write(1, b"first ")))
pool.submit("spill", lambda: os.write(1, b"second"))
begun.wait(30)
timer = threading.Timer(0.3, gate.set)
timer.daemon = True  # nobody waits for it: the interpreter is ending when it rings
timer.start()
"""
    assert run_script(script) == "first second"


def test_interpreter_ends_while_a_job_never_does() -> None:
    script = """
pool, begun = WorkerPool(), threading.Event()
pool.submit("spill", lambda: (begun.set(), threading.Event().wait()))
pool.submit("spill", int)
begun.wait(30)
print("end")
"""
    assert run_script(script) == "end"


def test_lanes_are_counted_while_others_are_made() -> None:
    script = """
from iopool.lane import JobLane, _LANES, members
kept, done = [], threading.Event()
def make():
    while not done.is_set():
        kept.append(JobLane("more", 1, 1))
        if len(kept) > 500:
            kept.clear()
maker = threading.Thread(target=make)
maker.start()
for _ in range(300):
    members(_LANES)
done.set()
maker.join()
print("end")
"""
    assert run_script(script) == "end"
