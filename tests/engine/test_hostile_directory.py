"""A state directory that somebody else has prepared: what stands in it is refused by name or read rightly, in a process
that does not crash, hang or grow; and nothing outside of it is read, written or removed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iopool import LocalFileSystem
from lsmstate import LsmStateError, NotAStateError, Options, StateStore
from lsmstate.manifest import names
from lsmstate.manifest.codec import VERSION, digest_of, encode
from tests.support.join_home import JoinHome, join_spec
from tests.support.small_store import SIDES, build, left_rows

HANGS_AFTER_SECONDS = 120
JUNK = {"pins/{}~x~1": 20_000, "sst/{}": 100_000, "manifest/{}": 100_000}
DIRECTORIES = ("manifest", "sst", "pins", "merges")
Plant = Callable[[Path], None]


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "state"
    build(LocalFileSystem(), str(path))
    return path


@pytest.fixture
def state(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "state"))


def ends_of(*paths: Path) -> list[dict[str, str]]:
    """How all that readers and writers do ends, in a process of its own that neither a signal nor a traceback ends."""
    command = [sys.executable, "-m", "tests.support.reader", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    told: list[dict[str, str]] = json.loads(done.stderr.splitlines()[-1])
    return told


def ends(path: Path) -> dict[str, str]:
    return ends_of(path)[0]


def tree(path: Path) -> dict[str, tuple[bytes | str, int]]:
    """All that lies in a directory: content or target, and times of change."""
    found = {}
    for each in sorted(path.rglob("*")):
        what: bytes | str = os.readlink(each) if each.is_symlink() else each.read_bytes() if each.is_file() else "dir"
        found[str(each.relative_to(path))] = (what, each.lstat().st_mtime_ns)
    return found


@pytest.mark.parametrize("name", [*DIRECTORIES, "wal"])
def test_directory_that_is_a_link_is_refused_and_nothing_happens_behind_it(
    state: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    (state / name).mkdir(exist_ok=True)
    (state / name).rename(outside)
    (state / name).symlink_to(outside)
    (outside / names.pin("000000000001-000001-x-000001.full", "x", 1)).touch()  # a collector would remove it
    before = tree(outside)
    for read_only in (True, False):
        with pytest.raises(NotAStateError, match=f"{name}: is not a directory; links inside a state"):
            StateStore.open(state, read_only=read_only)
    assert tree(outside) == before


@pytest.mark.parametrize("name", ["p-00000", "barriers", "runs", "lines", "locks", "drafts", "checkpoints"])
def test_directory_of_a_join_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    join = JoinHome(tmp_path / "home", join_spec(str(tmp_path / "home"), partitions=1)).epochs(2)
    outside = tmp_path / "outside"
    (join.path / name).mkdir(exist_ok=True)
    (join.path / name).rename(outside)
    (join.path / name).symlink_to(outside)
    before = tree(outside)
    with pytest.raises(NotAStateError, match=f"{name}: is not a directory; links inside a state"):
        JoinHome(join.path, join.spec)
    assert "NotAStateError" in ends(join.path)["read_state"]
    assert tree(outside) == before


def link_elsewhere(path: Path) -> None:
    """A link to the same bytes outside: to follow it would do no harm here, and does elsewhere."""
    outside = path.parents[2] / f"outside-{path.name}"
    shutil.move(path, outside)
    path.symlink_to(outside)


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("/does/not/exist")


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def listening(path: Path) -> None:
    path.unlink()
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def sparse(path: Path) -> None:
    os.truncate(path, 1 << 40)


def large(path: Path) -> None:
    os.truncate(path, 255 << 20)


def nested(path: Path) -> None:
    text = b"[" * 100_000 + b"]" * 100_000
    path.write_bytes(encode("x", {}).split(b"\n")[0] + b"\n" + text + b"\n")


PLANTS: list[Plant] = [
    link_elsewhere, dangling, loop, fifo, listening, device, directory, empty, sparse, large, nested,
]  # fmt: skip


@pytest.mark.parametrize("place", ["STATE", "manifest/head-*", "manifest/*.full", "sst/*.sst"])
def test_file_that_is_something_else_is_refused_by_name(sound: Path, tmp_path: Path, place: str) -> None:
    targets = []
    for plant in PLANTS:
        state = Path(shutil.copytree(sound, tmp_path / plant.__name__ / "state"))
        targets.append(max(state.glob(place)))
        plant(targets[-1])
    for plant, target, told in zip(PLANTS, targets, ends_of(*_states(tmp_path, PLANTS)), strict=True):
        assert not told["scan"].startswith("done"), (plant, told)
        assert target.name.split("-")[0] in told["scan"], (plant, told)
        assert told["verify"] in ("done: 1", "done: 2"), (plant, told)
        assert told["inspect"] in ("done: 0", "done: 2"), (plant, told)


@pytest.mark.parametrize(
    "place", ["pins/000000000001-000001-x-000001.full~x~1", "merges/000000000009-000001-x-000001.merge", "compacting"]
)
def test_what_stands_where_only_the_engine_writes_stops_no_reader(sound: Path, tmp_path: Path, place: str) -> None:
    plants = [fifo, listening, dangling, loop, directory, sparse]
    for plant in plants:
        state = Path(shutil.copytree(sound, tmp_path / plant.__name__ / "state"))
        (state / place).touch()
        plant(state / place)
    for plant, told in zip(plants, ends_of(*_states(tmp_path, plants)), strict=True):
        assert told["scan"].startswith("done"), (plant, told)
        assert told["verify"] == "done: 0", (plant, told)


def test_segment_of_a_log_that_is_something_else_stops_writers_by_name_and_no_reader(tmp_path: Path) -> None:
    logged = tmp_path / "logged"
    with StateStore.open(logged, SIDES, Options(durability="wal")) as store:
        store.append(0, left_rows(1, 5))
        store.snapshot_epoch(1)
        store.append(0, left_rows(10, 5))
    for plant in PLANTS:
        state = Path(shutil.copytree(logged, tmp_path / plant.__name__ / "state"))
        plant(max((state / "wal").iterdir()))
    for plant, told in zip(PLANTS, ends_of(*_states(tmp_path, PLANTS)), strict=True):
        assert told["scan"].startswith("done"), (plant, told)
        if plant is not large:  # zeros after the last record are what a crash may leave
            assert "/wal/log-" in told["write"], (plant, told)
            assert not told["write"].startswith("done"), (plant, told)


def _states(directory: Path, plants: list[Plant]) -> list[Path]:
    return [directory / plant.__name__ / "state" for plant in plants]


@pytest.mark.parametrize("place", JUNK)
def test_a_hundred_thousand_files_of_junk_are_survived(state: Path, place: str) -> None:
    for number in range(JUNK[place]):
        os.close(os.open(state / place.format(f"junk-{number:06d}"), os.O_CREAT | os.O_WRONLY))
    told = ends(state)
    assert told["scan"].startswith("done"), told
    assert told["write"].startswith("done"), told


@pytest.fixture
def as_nobody() -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else and come back")
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_state_of_another_user_that_is_private_is_refused_with_the_path(state: Path, as_nobody: None) -> None:
    os.seteuid(0)
    for parent in state.parents[:-2]:
        parent.chmod(parent.stat().st_mode | 0o005)
    state.chmod(0o700)
    os.seteuid(65534)
    for read_only in (True, False):
        with pytest.raises(PermissionError, match="state"):
            StateStore.open(state, read_only=read_only)


def test_hard_link_to_a_file_of_somebody_else_is_no_sstable(state: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"do not read me " * 1000)
    target = max((state / "sst").iterdir())
    target.unlink()
    os.link(secret, target)
    told = ends(state)
    assert told["scan"].startswith("CorruptionError")
    assert not any("do not read me" in text for text in told.values())
    assert secret.read_bytes() == b"do not read me " * 1000


@pytest.mark.parametrize(
    "name", ["../../outside", "/etc/passwd", "a/b", "..", "x" * 129, "UPPER", "a\x1b[2J", "a b", ""]
)
def test_manifest_that_names_what_is_no_name_is_refused(state: Path, name: str) -> None:
    head = max((state / "manifest").glob("head-*"))
    own, _, text = head.read_bytes().partition(b"\n")
    body = json.loads(text)
    for entry in body.get("files", []) + body.get("added", []):
        entry[0] = name
    head.unlink()
    head.write_bytes(encode(own.split(b" ")[2].decode(), body))
    with pytest.raises(LsmStateError, match="a name that is not allowed"):
        StateStore.open(state, read_only=True)


def test_document_with_more_values_than_memory_should_hold_is_refused(state: Path) -> None:
    text = b'{"sides":[' + b"{}," * (9 << 20) + b'{}],"store":"x"}'
    (state / "STATE").write_bytes(f"lsmstate {VERSION} STATE {digest_of('STATE', text)}\n".encode() + text + b"\n")
    assert ends(state)["scan"].startswith("CorruptionError")
