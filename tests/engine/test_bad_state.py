"""Paths that hold no state, or not this one: refused by name, with the way out, and without a byte being written."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from lsmstate import CorruptionError, FormatVersionError, LsmStateError, NotAStateError, SchemaError, Side, StateStore
from lsmstate.manifest.codec import PLAIN, VERSION
from lsmstate.sstable.format import FOOTER_BYTES, MAGIC
from lsmstate.sstable.format import VERSION as SSTABLE_VERSION
from tests.support.simfs import SimFileSystem
from tests.support.states import PATH, SCHEMA, US, World, batch, rows_of, sides

Tree = dict[str, bytes | None]


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


@pytest.fixture
def tree(world: World) -> Tree:
    """A small, sound state."""
    with world.open() as store:
        store.append(0, batch((1, 1, "a")))
        store.snapshot_epoch(1)
        store.append(0, batch((1, 2, "b")))
        store.snapshot_epoch(2)
    return world.fs.tree()


def check_refused(world: World, tree: Tree, error: type[Exception], message: str, **how: Any) -> None:
    """Opening fails, for reading and writing, and changes nothing."""
    fs = SimFileSystem.of(tree)
    before = fs.tree()
    with pytest.raises(error, match=message):
        world.open(fs=fs, **how)
    assert fs.tree() == before


NO_STATES: dict[str, tuple[Tree, str]] = {
    "a file": ({PATH: b"x"}, "is not a directory; a state is one"),
    "someone's directory": ({f"{PATH}/photos/cat.jpg": b"x"}, "holds 'photos' and no STATE file: not a state"),
    "someone's file": ({f"{PATH}/notes.txt": b"x"}, "name an empty or a new directory"),
    "directories with foreign content": ({f"{PATH}/sst/x": b"x"}, "holds 'sst' and no STATE file"),
    "STATE is a directory": ({f"{PATH}/STATE": None}, "not"),
    "STATE is a file named like a directory of ours": ({f"{PATH}/sst": b""}, "holds 'sst'"),
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("case", NO_STATES)
def test_path_that_is_no_state_is_refused(world: World, case: str, read_only: bool) -> None:
    tree, message = NO_STATES[case]
    check_refused(world, tree, NotAStateError, message, read_only=read_only)


@pytest.mark.parametrize("tree", [{}, {PATH: None}], ids=["nothing there", "empty directory"])
def test_nothing_is_created_without_sides_or_read_only(tree: Tree) -> None:
    fs = SimFileSystem.of(tree)
    with pytest.raises(NotAStateError, match="give sides= to create one"):
        StateStore.open(PATH, fs=fs)
    with pytest.raises(NotAStateError, match="a read-only handle cannot create one"):
        StateStore.open(PATH, sides(), fs=fs, read_only=True)
    assert fs.tree() == tree


def test_creation_that_was_cut_short_is_finished(world: World) -> None:
    fs = SimFileSystem.of({f"{PATH}/sst": None, f"{PATH}/STATE.0123": b"half"})
    store = world.open(fs=fs)
    store.append(0, batch((1, 1, "a")))
    store.snapshot_epoch(1)
    assert rows_of(world.open(fs=fs).scan(0)) == [(1, 1, "a")]


def newer_document(data: bytes) -> bytes:
    return data.replace(f"lsmstate {PLAIN} ".encode(), f"lsmstate {VERSION + 1} ".encode(), 1)


def newer_table(data: bytes) -> bytes:
    """The footer says a newer version, and its checksum is right."""
    at = len(data) - FOOTER_BYTES
    body = bytearray(data[at:-8])
    assert bytes(body[:8]) == MAGIC
    struct.pack_into("<I", body, 8, SSTABLE_VERSION + 1)
    return data[:at] + bytes(body) + struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(body)))


@pytest.mark.parametrize("part", ["/STATE", "/head-", ".full"])
def test_newer_document_is_refused_with_the_way_out(world: World, tree: Tree, part: str) -> None:
    changed = {path: newer_document(data) if data and part in path else data for path, data in tree.items()}
    assert changed != tree
    check_refused(
        world, changed, FormatVersionError, f"format {VERSION + 1}, this lsmstate reads format {VERSION}; open it with"
    )


def test_newer_table_is_refused_with_the_way_out(world: World, tree: Tree) -> None:
    changed = {path: newer_table(data) if data and path.endswith(".sst") else data for path, data in tree.items()}
    fs = SimFileSystem.of(changed)
    store = world.open(fs=fs)
    with pytest.raises(FormatVersionError, match=rf"\.sst: written in format {SSTABLE_VERSION + 1}"):
        rows_of(store.scan(0))
    assert all(f"format {SSTABLE_VERSION + 1}" in problem.what for problem in store.verify())
    assert {path: data for path, data in fs.tree().items() if data is not None} == {
        path: data for path, data in changed.items() if data is not None
    }


def like(side: Side, **changes: Any) -> Side:
    told = {
        "name": side.name,
        "schema": side.schema,
        "keys": side.keys,
        "time": side.time,
        "retention": side.retention,
        "bucket": side.bucket,
    }
    return Side(**{**told, **changes})


WIDER = SCHEMA.append(pa.field("new", pa.int64(), nullable=False))
OTHER_TYPE = SCHEMA.set(2, pa.field("v", pa.binary()))
OTHER_KEY = SCHEMA.set(0, pa.field("k", pa.string()))
STRICT = SCHEMA.set(2, pa.field("v", pa.string(), nullable=False))
ONE, TWO = sides()
OTHER_SIDES: dict[str, tuple[list[Any], str]] = {
    "too few": ([ONE], "the state has 2 sides, not 1"),
    "too many": (sides(3), "the state has 2 sides, not 3"),
    "other name": ([ONE, like(TWO, name="x")], r"side 1 \(side1\).*name was 'side1' and is now 'x'"),
    "other order": ([TWO, ONE], "name was 'side0'"),
    "a column that is never NULL": ([like(ONE, schema=WIDER), TWO], "'new' is new and not nullable"),
    "other type": ([like(ONE, schema=OTHER_TYPE), TWO], "'v' is binary instead of string"),
    "other key": ([like(ONE, schema=OTHER_KEY), TWO], "'k' is string instead of int64.*need a migration"),
    "not nullable": ([like(ONE, schema=STRICT), TWO], "'v' was nullable and is not any more"),
    "other retention": ([like(ONE, retention=5 * US), TWO], "retention_us was None and is now 5"),
    "other bucket": ([like(ONE, bucket=5 * US), TWO], "bucket_us was 10 and is now 5"),
    "no sides": ([], "sides"),
    "not a list": (ONE, "sides must be"),  # type: ignore[dict-item]
    "a generator": (iter([ONE, TWO]), "sides must be"),  # type: ignore[dict-item]
    "not sides": (["side0", "side1"], "must be lsmstate.Side"),
}


@pytest.mark.parametrize("case", OTHER_SIDES)
def test_state_opened_with_other_sides_is_refused(tree: Tree, case: str) -> None:
    given, message = OTHER_SIDES[case]
    fs = SimFileSystem.of(tree)
    before = fs.tree()
    with pytest.raises(SchemaError, match=message):
        StateStore.open(PATH, given, fs=fs)
    assert fs.tree() == before


NEW_SIDES: dict[str, tuple[Callable[[], Any], str]] = {
    "no sides": (list, "1 to 128 sides, not 0"),
    "too many": (lambda: sides(129), "not 129"),
    "one name twice": (lambda: [ONE, ONE], "the same name"),
    "not a list": (lambda: ONE, "sides must be"),
    "a generator": (lambda: iter([ONE]), "sides must be"),
    "not sides": (lambda: ["x"], "must be lsmstate.Side, not str"),
}


@pytest.mark.parametrize("case", NEW_SIDES)
def test_sides_that_make_no_state_are_refused_and_nothing_is_created(case: str) -> None:
    make, message = NEW_SIDES[case]
    fs = SimFileSystem()
    with pytest.raises(SchemaError, match=message):
        StateStore.open(PATH, make(), fs=fs)
    assert fs.tree() == {}


def test_branch_into_what_is_there_already_is_refused(world: World, tree: Tree) -> None:
    fs = SimFileSystem.of({**tree, "/full/x": b"x"})
    store = world.open(fs=fs)
    before = fs.tree()
    for target, message in (("/full", "not a state"), (PATH, "is a state already"), ("/full/x", "not a directory")):
        with pytest.raises(NotAStateError, match=message):
            store.branch(2, target)
    assert fs.tree() == before
    store.branch(2, "/deep/new/branch")
    assert rows_of(world.open(fs=fs, path="/deep/new/branch").scan(0)) == [(1, 1, "a"), (1, 2, "b")]


def test_file_of_another_state_is_not_taken_for_ours(world: World, tree: Tree) -> None:
    with World() as elsewhere:
        with elsewhere.open() as store:
            store.append(0, batch((9, 9, "foreign")))
            store.snapshot_epoch(1)
            store.snapshot_epoch(2)
        foreign = elsewhere.fs.tree()
    head = max(path for path in tree if "/head-" in path)
    mixed = {path: data for path, data in tree.items() if "/manifest/" not in path}
    mixed |= {path: data for path, data in foreign.items() if "/manifest/" in path}
    assert head in mixed
    check_refused(world, mixed, LsmStateError, "a manifest of state")


def test_real_path_that_is_no_state_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAStateError, match=r"notes\.txt"):
        StateStore.open(tmp_path, sides())
    with pytest.raises(NotAStateError, match="is not a directory"):
        StateStore.open(tmp_path / "notes.txt", sides())
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(("path", "got"), [(None, "NoneType"), (7, "int"), (b"/s", "bytes"), ("", "an empty string")])
def test_path_that_names_nothing_is_misuse_told_in_words(world: World, tree: Tree, path: Any, got: str) -> None:
    message = f"the path of a state is a string or a pathlib.Path, not {got}"
    fs = SimFileSystem.of(tree)
    with pytest.raises(ValueError, match=message):
        StateStore.open(path, sides(), fs=fs)
    with pytest.raises(ValueError, match=message):
        world.open(fs=fs).branch(1, path)


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_restore_refuses_an_epoch_whose_file_is_damaged_and_the_state_goes_on(world: World, damage: str) -> None:
    store = world.open()
    for epoch, value in enumerate("ab", 1):
        store.append(0, batch((1, epoch, value)))
        store.snapshot_epoch(epoch)
    with store.at_epoch(1) as view:
        (file,) = view.files
    where = f"{PATH}/sst/{file}"
    whole = bytes(world.fs.map(where))
    world.fs.unlink(where)
    if damage == "cut":
        store.close()
        with closing(world.fs.create(where)) as cut:
            cut.write([whole[:-9]])
        store = world.open()
    with pytest.raises(CorruptionError, match=file):
        store.restore(1)
    assert store.epochs() == [1, 2]
    store.snapshot_epoch(3)
    assert world.open().epochs() == [1, 2, 3]
