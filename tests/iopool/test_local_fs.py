"""The real file system: new files are exclusive, private and complete; links and odd files are refused."""

from __future__ import annotations

import errno
import gc
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from iopool import LocalFileSystem


@pytest.fixture
def fs() -> LocalFileSystem:
    return LocalFileSystem()


def put(fs: LocalFileSystem, path: Path, *views: bytes) -> str:
    """Creates a file with the fs under test; gives its path as the engine writes it."""
    file = fs.create(str(path))
    file.write(views)
    file.sync()
    file.close()
    return str(path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_file_is_read_and_mapped_as_written(fs: LocalFileSystem, tmp_path: Path) -> None:
    path = put(fs, tmp_path / "a", b"one", b"", b"two")
    assert fs.read(path, 6) == b"onetwo"
    assert bytes(fs.map(path)) == b"onetwo"
    assert fs.map(path).readonly


def test_views_of_any_shape_are_written_as_their_bytes(fs: LocalFileSystem, tmp_path: Path) -> None:
    file = fs.create(str(tmp_path / "a"))
    words = memoryview(bytearray(16)).cast("Q")
    words[0] = words[1] = 1
    file.write([bytearray(b"ab"), words, memoryview(b"cd")])
    file.close()
    one = (1).to_bytes(8, sys.byteorder)
    assert fs.read(str(tmp_path / "a"), 20) == b"ab" + one + one + b"cd"


def test_create_refuses_a_name_that_is_taken(fs: LocalFileSystem, tmp_path: Path) -> None:
    path = put(fs, tmp_path / "a", b"first")
    with pytest.raises(FileExistsError):
        fs.create(path)
    assert fs.read(path, 10) == b"first"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_files_and_directories_are_private(fs: LocalFileSystem, tmp_path: Path, mask: int) -> None:
    with umask(mask):
        put(fs, tmp_path / "file", b"x")
        fs.make_dir(str(tmp_path / "dir"))
        lock = fs.lock(str(tmp_path / "lock"))
    assert lock is not None
    lock.release()
    assert (mode(tmp_path / "file"), mode(tmp_path / "lock")) == (0o600, 0o600)
    assert mode(tmp_path / "dir") == 0o700


def test_group_access_lets_the_group_in_and_nobody_else(tmp_path: Path) -> None:
    fs = LocalFileSystem(group_access=True)
    with umask(0):
        put(fs, tmp_path / "file", b"x")
        fs.make_dir(str(tmp_path / "dir"))
    assert (mode(tmp_path / "file"), mode(tmp_path / "dir")) == (0o660, 0o770)


def test_group_access_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    fs = LocalFileSystem(group_access=True)
    with umask(0o022):
        put(fs, tmp_path / "file", b"x")
        fs.make_dir(str(tmp_path / "dir"))
    assert (mode(tmp_path / "file"), mode(tmp_path / "dir")) == (0o660, 0o770)


def test_make_dir_accepts_only_a_directory_that_is_there(fs: LocalFileSystem, tmp_path: Path) -> None:
    fs.make_dir(str(tmp_path / "dir"))
    fs.make_dir(str(tmp_path / "dir"))
    put(fs, tmp_path / "file", b"")
    (tmp_path / "link").symlink_to(tmp_path / "dir")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            fs.make_dir(str(tmp_path / name))


def test_links_are_not_followed(fs: LocalFileSystem, tmp_path: Path) -> None:
    put(fs, tmp_path / "secret", b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere")
    link, dangling = str(tmp_path / "link"), str(tmp_path / "dangling")
    opens: list[Callable[[], object]] = [
        lambda: fs.read(link, 100),
        lambda: fs.map(link),
        lambda: fs.lock(link),
    ]
    for act in opens:
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is checked
            act()
        assert caught.value.errno == errno.ELOOP
    for path in (link, dangling):
        with pytest.raises(FileExistsError):
            fs.create(path)
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize("act", ["read", "map"])
def test_what_is_not_a_regular_file_is_refused_without_hanging(
    fs: LocalFileSystem, tmp_path: Path, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket has a short limit
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("socket")
    before = open_descriptors()
    with listener:
        for path in (tmp_path / "fifo", tmp_path / "dir", tmp_path / "socket", Path("/dev/zero")):
            with pytest.raises(OSError):  # noqa: PT011 - EINVAL, or ENXIO for the socket
                fs.read(str(path), 100) if act == "read" else fs.map(str(path))
        assert open_descriptors() == before


def test_kind_tells_what_is_there(fs: LocalFileSystem, tmp_path: Path) -> None:
    put(fs, tmp_path / "file", b"")
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    names = ("file", "dir", "link", "fifo", "nothing")
    assert [fs.kind(str(tmp_path / name)) for name in names] == ["file", "dir", "other", "other", None]


def test_short_writes_are_continued(fs: LocalFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.writev, []

    def short(fd: int, views: Sequence[memoryview]) -> int:
        calls.append(len(views))
        return real(fd, [b"".join(views)[: 1 + len(calls) % 5]])

    monkeypatch.setattr("os.writev", short)
    path = put(fs, tmp_path / "a", b"abc", b"d", b"", b"efghij", b"kl")
    monkeypatch.undo()
    assert len(calls) > 2
    assert fs.read(path, 12) == b"abcdefghijkl"


def test_more_views_than_one_call_takes_are_all_written(fs: LocalFileSystem, tmp_path: Path) -> None:
    views = [number.to_bytes(2, "big") for number in range(5000)]
    assert fs.read(put(fs, tmp_path / "a", *views), 10_000) == b"".join(views)


def test_failed_write_passes_the_system_error_on(
    fs: LocalFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = fs.create(str(tmp_path / "a"))
    monkeypatch.setattr("os.writev", full)
    with pytest.raises(OSError, match="No space") as caught:
        file.write([b"x"])
    assert caught.value.errno == errno.ENOSPC
    file.close()


def test_file_above_the_cap_is_not_read(fs: LocalFileSystem, tmp_path: Path) -> None:
    path = put(fs, tmp_path / "a", b"12345")
    assert fs.read(path, 5) == b"12345"
    with pytest.raises(OSError, match="4 bytes") as caught:
        fs.read(path, 4)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, path)


def test_file_that_grows_while_it_is_read_stays_below_the_cap(
    fs: LocalFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(fs, tmp_path / "a", b"12345")
    real = os.read

    def grow_then_read(fd: int, size: int) -> bytes:
        with open(path, "ab") as file:
            file.truncate(1000)
        return real(fd, size)

    monkeypatch.setattr("os.read", grow_then_read)
    with pytest.raises(OSError, match="bytes") as caught:
        fs.read(path, 5)
    assert caught.value.errno == errno.EFBIG


def test_empty_file_is_read_and_mapped_as_nothing(fs: LocalFileSystem, tmp_path: Path) -> None:
    path = put(fs, tmp_path / "a")
    assert fs.read(path, 0) == b""
    assert bytes(fs.map(path)) == b""


def test_map_outlives_the_name_and_frees_its_descriptor(fs: LocalFileSystem, tmp_path: Path) -> None:
    path = put(fs, tmp_path / "a", b"still here")
    gc.collect()
    before = open_descriptors()
    view = fs.map(path)
    fs.unlink(path)
    part = view[6:]
    del view
    assert bytes(part) == b"here"
    del part
    assert open_descriptors() == before


def test_link_has_exactly_one_winner(fs: LocalFileSystem, tmp_path: Path) -> None:
    one, two = put(fs, tmp_path / "one", b"one"), put(fs, tmp_path / "two", b"two")
    target = str(tmp_path / "target")
    fs.link(one, target)
    with pytest.raises(FileExistsError):
        fs.link(two, target)
    assert fs.read(target, 3) == b"one"
    fs.unlink(one)
    assert fs.read(target, 3) == b"one"


def test_unlink_and_list_dir_see_names_come_and_go(fs: LocalFileSystem, tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(fs, tmp_path / name, b"")
    assert sorted(fs.list_dir(str(tmp_path))) == ["a", "b"]
    fs.unlink(str(tmp_path / "a"))
    fs.sync_dir(str(tmp_path))
    assert fs.list_dir(str(tmp_path)) == ["b"]
    with pytest.raises(FileNotFoundError):
        fs.unlink(str(tmp_path / "a"))


def test_closing_twice_closes_no_strange_descriptor(fs: LocalFileSystem, tmp_path: Path) -> None:
    lock = fs.lock(str(tmp_path / "lock"))
    file = fs.create(str(tmp_path / "a"))
    assert lock is not None
    for close in (file.close, lock.release):
        close()
        stranger = os.open(tmp_path, os.O_RDONLY)  # gets the number that was just freed
        close()
        os.fstat(stranger)
        os.close(stranger)
