"""The lock of the real file system: one holder, until it lets go or dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from iopool import LocalFileSystem

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fs() -> LocalFileSystem:
    return LocalFileSystem()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_lock_has_one_holder_until_it_is_released(fs: LocalFileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held = fs.lock(path)
    assert held is not None
    before = open_descriptors()
    assert fs.lock(path) is None
    assert open_descriptors() == before
    held.release()
    again = fs.lock(path)
    assert again is not None
    again.release()
    assert fs.kind(path) == "file"


def test_lock_ends_with_its_process(fs: LocalFileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    script = (
        "import sys; from iopool import LocalFileSystem; lock = LocalFileSystem().lock(sys.argv[1]);"
        "print(lock is not None, flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        assert fs.lock(path) is None
        holder.kill()
        holder.wait(30)
        lock = fs.lock(path)
    assert lock is not None
    lock.release()


def test_lock_is_released_while_a_forked_child_lives(fs: LocalFileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = fs.lock(path)
    assert lock is not None
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent closes its end
        os._exit(0)
    try:
        lock.release()
        again = fs.lock(path)
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
    assert again is not None
    again.release()
