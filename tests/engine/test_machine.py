"""Machines that lack something: room on the disk or in memory, a disk that can be written, calls of a file system.

Errors name the file and what to do; what was committed stays readable."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iopool import LocalFileSystem
from lsmstate import Options, StateStore
from tests.support.simfs import SimFileSystem
from tests.support.small_store import SIDES, build, left_rows, open_store, read_all

CHANGES = ("create", "write", "link", "make_dir", "lock", "unlink", "sync", "sync_dir")


def on_mount(what: str, tmp_path: Path, options: str) -> dict[str, Any]:
    """What `tests.support.odd_disk` tells of a small mount that no other process sees."""
    mount = tmp_path / "mount"
    mount.mkdir()
    script = f'mount -t tmpfs -o {options} none "$0" && exec "$1" -m tests.support.odd_disk {what} "$0"'
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", str(mount)], check=False).returncode:
        pytest.skip("this user may not mount")
    command = ["unshare", "-m", "sh", "-c", script, str(mount), sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_full_disk_fails_the_epoch_by_name_and_older_ones_stay(tmp_path: Path) -> None:
    told = on_mount("full", tmp_path, "size=4m")
    assert "No space left on device" in told["failed"]
    assert "/state/" in told["failed"]
    assert (told["same"], told["last"]) == (True, 1)


def test_read_only_disk_is_read_in_full_and_refuses_to_be_written_by_name(tmp_path: Path) -> None:
    told = on_mount("read_only", tmp_path, "size=8m")
    assert told["same"]
    assert told["codes"] == {"inspect": 0, "verify": 0, "doctor": 0}
    assert told["recover"] == 2
    for act in ("write", "create"):
        assert told[act].startswith("OSError: [Errno 30] Read-only file system: ")


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTSUP, errno.ENOLCK, errno.EACCES])
def test_reader_needs_nothing_that_changes_the_disk(code: int) -> None:
    def fault(op: str, path: str, at: int) -> None:
        if op in CHANGES:
            raise OSError(code, os.strerror(code), path)

    fs = SimFileSystem()
    build(fs)
    before = read_all(fs)
    fs.fault = fault
    assert read_all(fs) == before
    with open_store(fs, read_only=True) as store, store.snapshot() as view:
        assert store.verify() == []
        assert sum(batch.num_rows for batch in view.scan(0)) > 0


@pytest.mark.parametrize(
    ("call", "code"),
    [("fsync", errno.EINVAL), ("fsync", errno.ENOTSUP), ("link", errno.EPERM), ("link", errno.ENOTSUP)],
)
def test_file_system_without_a_call_that_is_needed_is_refused_when_a_state_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def lacking(*arguments: object, **more: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(f"iopool.fs.os.{call}", lacking)
    with pytest.raises(OSError, match="a state needs a POSIX file system with hard links and with fsync") as caught:
        StateStore.open(tmp_path / "state", SIDES)
    assert caught.value.errno == code
    assert str(tmp_path) in str(caught.value)
    assert not (tmp_path / "state" / "STATE").exists()


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_state_that_came_to_such_a_file_system_is_read_and_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    fs, path = LocalFileSystem(), str(tmp_path / "state")
    build(fs, path)
    before = read_all(fs, path)

    def lacking(*arguments: object, **more: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    with monkeypatch.context() as patch:
        patch.setattr(f"iopool.fs.os.{call}", lacking)
        assert read_all(fs, path) == before
        with pytest.raises(OSError, match="a state needs a POSIX file system"):
            write(path)
    assert read_all(fs, path) == before


def write(path: str) -> None:
    with StateStore.open(path) as store:
        store.append(0, left_rows(500, 3))
        store.snapshot_epoch(9)


LIMITED = """
import resource, sys
from lsmstate import StateStore
store = StateStore.open(sys.argv[1], read_only=True)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), used + (16 << 20)))
try:
    sum(batch.num_rows for batch in store.scan(0))
except OSError as error:
    sys.stdout.write(f"{error.errno} {error}")
"""


def test_mapping_that_does_not_fit_names_the_file_and_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with StateStore.open(path, SIDES, Options(memtable_bytes=1 << 30)) as store:
        store.append(0, left_rows(0, 400_000))
        store.snapshot_epoch(1)
    (file,) = (path / "sst").iterdir()
    assert file.stat().st_size > 20 << 20
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{errno.ENOMEM} ")
    for words in (str(file), "address space", "ulimit -v", "spark.executor.pyspark.memory"):
        assert words in done.stdout
