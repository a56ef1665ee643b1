"""The memory controller in a process that is interrupted, or forks: no byte is lost, and nobody waits for a ghost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_script(body: str) -> str:
    """Runs Python code in a process of its own; gives its output."""
    prelude = "import os, signal, sys, threading, time\nfrom iopool import *\nmemory = MemoryController(60, 100)\n"
    prelude += "a, b, c = map(memory.account, 'abc')\n"
    prelude += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # jobs in the background ignore it
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", prelude + body]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_interrupt_leaves_no_reservation_and_no_ghost_in_the_queue() -> None:
    script = """
a.reserve(100)
def strike():
    while memory.usage().waiting != 1:
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=strike).start()
try:
    b.reserve(101)
except KeyboardInterrupt:
    print("interrupted")
assert (memory.usage().accounts, memory.usage().waiting) == ({"a": 100, "b": 0, "c": 0}, 0)
a.release(1)
c.reserve(1, 0)
"""
    assert run_script(script) == "interrupted"


def test_two_interrupts_on_the_way_out_give_the_reservation_back() -> None:
    script = """
count, tell = MemoryController._count, MemoryController._tell_first
def strike_again(memory):
    MemoryController._tell_first = tell
    signal.raise_signal(signal.SIGINT)
def strike_when_admitted(memory, counter, more=1):
    count(memory, counter, more)
    if counter == "waited_s":
        assert memory.usage().accounts["b"] == 100
        MemoryController._tell_first = strike_again
        signal.raise_signal(signal.SIGINT)
MemoryController._count = strike_when_admitted
a.reserve(100)
a.on_pressure(lambda: a.release(100))
try:
    b.reserve(100)
except KeyboardInterrupt:
    print("interrupted")
assert MemoryController._tell_first is tell
assert (b.used_bytes, memory.usage().waiting) == (0, 0)
c.reserve(100, 0)
"""
    assert run_script(script) == "interrupted"


def test_storm_of_interrupts_loses_no_byte() -> None:
    script = """
under_fire = False
def strike(_, frame):
    while frame is not None and under_fire:
        if frame.f_code.co_filename.endswith("memory.py"):  # once reserve has returned, the bytes are the caller's
            raise KeyboardInterrupt
        frame = frame.f_back
signal.signal(signal.SIGINT, strike)
stop = threading.Event()
def keep_taking():
    while not stop.is_set():
        c.reserve(60)
        c.release(60)
others = [threading.Thread(target=keep_taking) for _ in range(2)]
for other in others:
    other.start()
target = os.getpid()
storm = os.fork()
if storm == 0:
    while os.getppid() == target:
        os.kill(target, signal.SIGINT)
        time.sleep(0.0002)
    os._exit(0)
hits, end = 0, time.monotonic() + 30
while hits < 1000 and time.monotonic() < end:
    expected = size = 1 if hits % 3 else 50
    try:
        try:
            under_fire = True
            a.reserve(size)
        finally:
            under_fire = False
    except KeyboardInterrupt:
        hits, expected = hits + 1, 0
    assert a.used_bytes == expected, (a.used_bytes, expected)
    a.release(expected)
os.kill(storm, signal.SIGKILL)
os.waitpid(storm, 0)
stop.set()
for other in others:
    other.join()
usage = memory.usage()
assert hits > 20 and (usage.used_bytes, usage.waiting) == (0, 0) and usage.peak_bytes <= 100, (hits, usage)
"""
    run_script(script)


def test_forked_child_has_an_empty_controller_and_the_parent_keeps_its_own() -> None:
    script = """
a.reserve(100)
waiter = threading.Thread(target=lambda: b.reserve(50))
waiter.start()
while memory.usage().waiting != 1:
    os.sched_yield()
with memory._lock:  # the worst moment: as if another thread were in the middle of a change
    child = os.fork()
if child == 0:
    code = 1
    try:
        usage = memory.usage()
        assert usage == MemoryUsage(60, 100, accounts={"a": 0, "b": 0, "c": 0}), usage
        a.reserve(100)
        a.on_pressure(lambda: a.release(100))
        c.reserve(100)
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
assert memory.usage().accounts == {"a": 100, "b": 0, "c": 0}
a.release(50)
waiter.join()
assert memory.usage().accounts == {"a": 50, "b": 50, "c": 0}
"""
    run_script(script)


def test_writer_that_forks_while_it_waits_is_admitted_in_the_child() -> None:
    script = """
children = []
def fork():
    if not children:
        children.append(os.fork())
a.reserve(100)
a.on_pressure(fork)
try:
    b.reserve(100, 0.001)
except MemoryTimeout:
    assert children[0] > 0 and os.waitpid(children[0], 0)[1] == 0
    print("parent")
else:
    os._exit(0 if memory.usage().accounts == {"a": 0, "b": 100, "c": 0} else 1)
"""
    assert run_script(script) == "parent"
