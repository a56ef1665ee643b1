"""The contract of `FileSystem`, run over the real file system and the simulated one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from iopool.fs import FileSystem, LocalFileSystem
from tests.support.simfs import SimFileSystem


def put(fs: FileSystem, path: str, data: bytes) -> None:
    """Writes a file."""
    file = fs.create(path)
    file.write([data])
    file.sync()
    file.close()


@pytest.fixture(params=["local", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    """A file system, and a directory in it that holds the file f ("content") and the directory d."""
    fs: FileSystem = LocalFileSystem() if request.param == "local" else SimFileSystem()
    root = str(tmp_path) if request.param == "local" else "/root"
    fs.make_dir(root)
    fs.make_dir(f"{root}/d")
    put(fs, f"{root}/f", b"content")
    return fs, root


Call = Callable[[FileSystem, str], object]
FAILURES: list[tuple[str, Call, int]] = [
    ("kind below a file", lambda fs, r: fs.kind(f"{r}/f/x"), errno.ENOTDIR),
    ("kind of a long name", lambda fs, r: fs.kind(f"{r}/{'x' * 256}"), errno.ENAMETOOLONG),
    ("make_dir over a file", lambda fs, r: fs.make_dir(f"{r}/f"), errno.EEXIST),
    ("make_dir in nothing", lambda fs, r: fs.make_dir(f"{r}/no/x"), errno.ENOENT),
    ("make_dir below a file", lambda fs, r: fs.make_dir(f"{r}/f/x"), errno.ENOTDIR),
    ("list_dir of nothing", lambda fs, r: fs.list_dir(f"{r}/no"), errno.ENOENT),
    ("list_dir of a file", lambda fs, r: fs.list_dir(f"{r}/f"), errno.ENOTDIR),
    ("list_dir deep below a file", lambda fs, r: fs.list_dir(f"{r}/f/x/y"), errno.ENOTDIR),
    ("create over a file", lambda fs, r: fs.create(f"{r}/f"), errno.EEXIST),
    ("create over a directory", lambda fs, r: fs.create(f"{r}/d"), errno.EEXIST),
    ("create in nothing", lambda fs, r: fs.create(f"{r}/no/x/y"), errno.ENOENT),
    ("create below a file", lambda fs, r: fs.create(f"{r}/f/x"), errno.ENOTDIR),
    ("create without a name", lambda fs, r: fs.create(""), errno.ENOENT),
    ("read of nothing", lambda fs, r: fs.read(f"{r}/no", 9), errno.ENOENT),
    ("read of a directory", lambda fs, r: fs.read(f"{r}/d", 9), errno.EINVAL),
    ("read below a file", lambda fs, r: fs.read(f"{r}/f/x", 9), errno.ENOTDIR),
    ("read of too much", lambda fs, r: fs.read(f"{r}/f", 6), errno.EFBIG),
    ("map of nothing", lambda fs, r: fs.map(f"{r}/no"), errno.ENOENT),
    ("map of a directory", lambda fs, r: fs.map(f"{r}/d"), errno.EINVAL),
    ("link of nothing", lambda fs, r: fs.link(f"{r}/no", f"{r}/f"), errno.ENOENT),
    ("link over a file", lambda fs, r: fs.link(f"{r}/f", f"{r}/f"), errno.EEXIST),
    ("link over a directory", lambda fs, r: fs.link(f"{r}/f", f"{r}/d"), errno.EEXIST),
    ("link into nothing", lambda fs, r: fs.link(f"{r}/f", f"{r}/no/x"), errno.ENOENT),
    ("link of a directory", lambda fs, r: fs.link(f"{r}/d", f"{r}/x"), errno.EPERM),
    ("unlink of nothing", lambda fs, r: fs.unlink(f"{r}/no"), errno.ENOENT),
    ("unlink of a directory", lambda fs, r: fs.unlink(f"{r}/d"), errno.EISDIR),
    ("sync_dir of nothing", lambda fs, r: fs.sync_dir(f"{r}/no"), errno.ENOENT),
    ("sync_dir of a file", lambda fs, r: fs.sync_dir(f"{r}/f"), errno.ENOTDIR),
    ("lock of a directory", lambda fs, r: fs.lock(f"{r}/d"), errno.EISDIR),
    ("lock in nothing", lambda fs, r: fs.lock(f"{r}/no/x"), errno.ENOENT),
]


@pytest.mark.parametrize(("call", "code"), [f[1:] for f in FAILURES], ids=[f[0] for f in FAILURES])
def test_failure_has_the_errno_and_changes_nothing(disk: tuple[FileSystem, str], call: Call, code: int) -> None:
    fs, root = disk
    with pytest.raises(OSError, match=r".") as caught:
        call(fs, root)
    assert caught.value.errno == code
    assert type(caught.value) is type(OSError(code, ""))
    assert sorted(fs.list_dir(root)) == ["d", "f"]
    assert fs.read(f"{root}/f", 7) == b"content"


def test_names_and_kinds_are_reported(disk: tuple[FileSystem, str]) -> None:
    fs, root = disk
    paths = (root, f"{root}/f", f"{root}/d/", f"{root}//d/../f", f"{root}/no", f"{root}/no/x", "")
    assert [fs.kind(path) for path in paths] == ["dir", "file", "dir", "file", None, None, None]
    fs.make_dir(f"{root}/d")
    assert fs.list_dir(f"{root}/d") == []
    fs.sync_dir(f"{root}/d")
    with pytest.raises(ValueError, match="null"):
        fs.kind(f"{root}/a\0b")


def test_written_views_are_read_in_order(disk: tuple[FileSystem, str]) -> None:
    fs, root = disk
    file = fs.create(f"{root}/x")
    assert fs.read(f"{root}/x", 0) == b""
    assert bytes(fs.map(f"{root}/x")) == b""
    file.write([b"ab", bytearray(b""), memoryview(b"cdef").cast("H"), memoryview(b"g-h-")[:3]])
    file.write([])
    assert fs.read(f"{root}/x", 9) == b"abcdefg-h"
    file.sync()
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write([b"x"])
    with pytest.raises(ValueError, match="file"):
        file.sync()


def test_link_shares_content_that_outlives_its_first_name(disk: tuple[FileSystem, str]) -> None:
    fs, root = disk
    file = fs.create(f"{root}/x")
    fs.link(f"{root}/x", f"{root}/d/y")
    file.write([b"later"])
    file.close()
    fs.unlink(f"{root}/x")
    assert (fs.kind(f"{root}/x"), fs.read(f"{root}/d/y", 5)) == (None, b"later")


def test_map_is_read_only_and_outlives_its_name(disk: tuple[FileSystem, str]) -> None:
    fs, root = disk
    view = fs.map(f"{root}/f")
    fs.unlink(f"{root}/f")
    put(fs, f"{root}/f", b"another")
    assert (bytes(view), view.readonly, view.format, view.nbytes) == (b"content", True, "B", 7)


def test_lock_has_one_holder_and_belongs_to_the_file(disk: tuple[FileSystem, str]) -> None:
    fs, root = disk
    first = fs.lock(f"{root}/lock")
    assert first is not None
    assert fs.kind(f"{root}/lock") == "file"
    assert fs.lock(f"{root}/lock") is None
    first.release()
    second = fs.lock(f"{root}/lock")
    assert second is not None
    first.release()
    assert fs.lock(f"{root}/lock") is None
    fs.link(f"{root}/lock", f"{root}/d/lock")
    fs.unlink(f"{root}/lock")
    assert fs.lock(f"{root}/d/lock") is None
    third = fs.lock(f"{root}/lock")
    assert third is not None
    for lock in (second, third):
        lock.release()
    assert fs.kind(f"{root}/lock") == "file"
