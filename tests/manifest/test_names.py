"""File names: built and parsed the same way, and hostile ones refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate.manifest import names

attempts = st.text("0123456789abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=32)
known = st.builds(
    names.Name,
    epoch=st.integers(0, 10**12 - 1),
    line=st.integers(1, 10**9),
    attempt=attempts,
    number=st.one_of(st.integers(1, 10**6 - 1), st.integers(10**6, 10**15)),
    kind=st.sampled_from(["full", "delta", "sst"]),
)


@given(known)
def test_name_reads_back_the_same(name: names.Name) -> None:
    assert names.parse(str(name)) == name
    assert names.is_safe(str(name))


@given(st.integers(0, 10**16 - 1))
def test_head_reads_back_the_same(number: int) -> None:
    assert names.parse_head(names.head(number)) == number
    assert names.parse(names.head(number)) is None


@given(st.lists(st.integers(0, 10**12 - 1), min_size=2, max_size=5))
def test_names_sort_by_epoch_and_heads_by_number(numbers: list[int]) -> None:
    files = [str(names.Name(n, 1, "a", 1, "sst")) for n in numbers]
    heads = [names.head(n) for n in numbers]
    assert sorted(files) == [str(names.Name(n, 1, "a", 1, "sst")) for n in sorted(numbers)]
    assert sorted(heads) == [names.head(n) for n in sorted(numbers)]


@given(st.one_of(st.builds(str, known), st.just(names.NO_MANIFEST)), attempts, st.integers(1, 10**9))
def test_pin_tells_what_it_protects(manifest: str, attempt: str, number: int) -> None:
    assert names.parse_pin(names.pin(manifest, attempt, number)) == (manifest, attempt)


FOREIGN = [
    "",
    "STATE",
    "head-1",
    "head-00000000000000001",
    "head-000000000000000x",
    "notes.txt",
    "000000000001-000001-a-000001",
    "000000000001-000001-a-000001.sst~",
    "000000000001-000001-a-000001.sst\n",
    "000000000001-000001-A-000001.sst",
    "000000000001-000001--000001.sst",
    "00000000001-000001-a-000001.sst",
    "000000000001-000001-a-000001.SST",
    "000000000001-000001-../x-000001.sst",
    "\u0660" * 12 + "-000001-a-000001.sst",  # digits, but not ours
    "head-" + "\u0661" * 16,
]


@pytest.mark.parametrize("name", FOREIGN, ids=repr)
def test_foreign_name_is_none_of_ours(name: str) -> None:
    assert names.parse(name) is None
    assert names.parse_head(name) is None


UNSAFE = ["", ".", "..", "a/b", "/a", "../a", "a\0b", "a b", "A", "ä", "a" * 129, "a\n", "a~b", "a\\b", "%2e", "~"]


@pytest.mark.parametrize("name", UNSAFE, ids=repr)
def test_unsafe_name_is_refused(name: str) -> None:
    assert not names.is_safe(name)


def test_attempts_are_never_the_same() -> None:
    made = [names.new_attempt() for _ in range(1000)]
    assert len(set(made)) == len(made)
    assert names.parse(str(names.Name(1, 1, made[0], 1, "sst"))) is not None
