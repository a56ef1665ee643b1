"""Versions: written whole or as a difference, they read back the same; a body that is none is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate.keys import TS_MAX, TS_MIN
from lsmstate.manifest.version import Past, Version, decode_version, encode_version
from lsmstate.refs import FileRef, RunRef, Tombstone, narrowed

SIDES = 128
times = st.one_of(st.sampled_from([TS_MIN, -1, 0, TS_MAX]), st.integers(TS_MIN, TS_MAX))
small = st.integers(0, 2**40)
file_names = st.sampled_from([f"{n}-{kind}" for n in range(6) for kind in ("a.sst", "b.full", "c_d.delta")])


@st.composite
def bounds(draw: st.DrawFn) -> RunRef:
    """Any bounds that a run can have."""
    pairs = [sorted(draw(st.tuples(kind, kind))) for kind in (times, times, small)]
    (first, last), (min_ts, max_ts), (min_id, max_id) = pairs
    return RunRef(
        draw(st.integers(0, 127)), first, last, draw(st.integers(1, 2**32 - 1)), min_ts, max_ts, min_id, max_id
    )


@st.composite
def tombstone(draw: st.DrawFn) -> Tombstone:
    """A tombstone of some side."""
    start, end = sorted(draw(st.sets(times, min_size=2, max_size=2)))
    return Tombstone(draw(st.integers(0, 127)), start, end, draw(small))


runs = bounds()
whole = st.builds(
    FileRef,
    file_names,
    small,
    st.sampled_from(["0", "00ff"]),
    st.tuples(runs) | st.just(()),
    st.none(),
    st.sampled_from([0, 7]),
)


@st.composite
def cut(draw: st.DrawFn) -> FileRef:
    """A file of two runs, of which compaction has taken some rows."""
    one, other = (RunRef(side, -5, 9, 100, -50, 99, 1, 100) for side in (0, 1))
    left = [
        draw(st.sampled_from([None, run, narrowed(run, 3, 30, 42), narrowed(run, 9, 99, 1)])) for run in (one, other)
    ]
    return FileRef(draw(file_names), 5, "00ff", (one, other), tuple(left), draw(st.sampled_from([0, 50])))


files = whole | cut()
versions = st.builds(
    Version,
    epoch=st.integers(2**39, 2**39 + 9),
    line=st.integers(1, 99),
    next_id=st.integers(1, 2**40),
    watermark=st.none() | times,
    files=st.lists(files, max_size=4, unique_by=lambda ref: ref.name).map(lambda refs: {r.name: r for r in refs}),
    tombstones=st.lists(tombstone(), max_size=3).map(tuple),
    history=st.dictionaries(st.integers(1, 2**39 - 1), file_names, max_size=3).map(
        lambda named: tuple(Past(epoch, named[epoch]) for epoch in sorted(named))
    ),
    meta=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


def through_json(body: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(json.dumps(body))
    return decoded


@given(versions)
def test_whole_version_reads_back_the_same(version: Version) -> None:
    assert decode_version(through_json(encode_version(version, None)), None, SIDES) == version


@given(versions, versions)
def test_difference_to_a_base_reads_back_the_same(version: Version, base: Version) -> None:
    same = {name: ref for name, ref in version.files.items() if name not in base.files}
    kept = {name: ref for number, (name, ref) in enumerate(base.files.items()) if number % 2}
    version = Version(**{**version.__dict__, "files": {**kept, **same}})
    body = through_json(encode_version(version, base))
    assert "files" not in body
    assert decode_version(body, base, SIDES) == version


def test_difference_names_only_what_changed() -> None:
    refs = {name: FileRef(name, 1, "d", ()) for name in ("a.sst", "b.sst", "c.sst")}
    base = Version(files={name: refs[name] for name in ("a.sst", "b.sst")})
    version = Version(files={name: refs[name] for name in ("b.sst", "c.sst")})
    body = encode_version(version, base)
    assert body["added"] == [["c.sst", 1, "d", []]]
    assert body["dropped"] == ["a.sst"]


def whole(**changes: Any) -> dict[str, Any]:
    ref = FileRef("a.sst", 10, "d", (RunRef(0, 0, 0, 1, 0, 0, 1, 1),))
    return {**encode_version(Version(epoch=1, files={"a.sst": ref}), None), **changes}


HOSTILE: dict[str, dict[str, Any]] = {
    "no epoch": {"epoch": None},
    "epoch of text": {"epoch": "x"},
    "no files": {"files": None},
    "file outside": {"files": [["../../etc/passwd", 1, "d", []]]},
    "file with a separator": {"files": [["a/b", 1, "d", []]]},
    "file named by a number": {"files": [[5, 1, "d", []]]},
    "short file": {"files": [["a.sst", 1]]},
    "short run": {"files": [["a.sst", 1, "d", [[1, 2]]]]},
    "unknown side": {"files": [["a.sst", 1, "d", [[SIDES, 0, 0, 1, 0, 0, 1, 1]]]]},
    "tombstone of text": {"tombstones": [["a", "b", "c", "d"]]},
    "short tombstone": {"tombstones": [[1, 2]]},
    "history outside": {"history": [[1, "../x"]]},
    "history of numbers": {"history": [5]},
    "meta is a list": {"meta": []},
    "watermark is a list": {"watermark": []},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_body_that_is_no_version_is_refused(case: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        decode_version(whole(**HOSTILE[case]), None, SIDES)


def test_difference_that_drops_what_the_base_does_not_have_is_refused() -> None:
    body = encode_version(Version(), Version())
    with pytest.raises(ValueError, match="its base does not have"):
        decode_version({**body, "dropped": ["ghost.sst"]}, Version(), SIDES)


@pytest.mark.parametrize("part", ["epoch", "line", "next_id", "watermark", "files", "tombstones", "history", "meta"])
def test_missing_part_of_a_version_is_refused(part: str) -> None:
    body = whole()
    del body[part]
    with pytest.raises(KeyError):
        decode_version(body, None, SIDES)
