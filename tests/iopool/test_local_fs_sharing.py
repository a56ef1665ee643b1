"""Whom new files are open to: their owner, or the group of a directory that says so by its setgid bit."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iopool import LocalFileSystem
from lsmstate import StateStore
from tests.support.join_home import JoinHome, join_spec
from tests.support.small_store import SIDES, left_rows


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(path: Path) -> set[tuple[str, int]]:
    """The permissions of all that lies in a directory, by kind."""
    return {("dir" if p.is_dir() else "file", stat.S_IMODE(p.lstat().st_mode)) for p in path.rglob("*")}


def fill(path: Path) -> None:
    with StateStore.open(path, SIDES) as store:
        for epoch in (1, 2):
            store.append(0, left_rows(epoch * 10, 5))
            store.snapshot_epoch(epoch)
        store.compact(major=True)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_state_is_private_whatever_the_umask_is(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        fill(tmp_path / "state")
    assert modes(tmp_path) <= {("dir", 0o700), ("file", 0o600)}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize(("given", "files", "directories"), [(0o2770, 0o660, 0o2770), (0o2750, 0o640, 0o2750)])
def test_directory_that_a_person_has_shared_with_its_group_stays_shared(
    tmp_path: Path, mask: int, given: int, files: int, directories: int
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(given)
    with umask(mask):
        fill(tmp_path / "state")
    assert modes(tmp_path / "state") == {("file", files), ("dir", directories)}


def test_home_of_a_join_that_is_shared_is_shared_in_all_partitions(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o2770)
    with umask(0o077):
        JoinHome(tmp_path / "home", join_spec(str(tmp_path / "home"), partitions=2)).epochs(2)
    assert modes(tmp_path / "home") == {("file", 0o660), ("dir", 0o2770)}


def test_directory_with_rights_for_the_group_and_no_setgid_bit_shares_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o775)
    with umask(0):
        fill(tmp_path / "state")
    assert modes(tmp_path / "state") == {("file", 0o600), ("dir", 0o700)}


def test_others_get_nothing_from_a_directory_that_is_open_to_all(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o2777)
    fs = LocalFileSystem()
    fs.create(str(tmp_path / "open" / "file")).close()
    fs.make_dir(str(tmp_path / "open" / "dir"))
    assert modes(tmp_path / "open") == {("file", 0o660), ("dir", 0o2770)}
