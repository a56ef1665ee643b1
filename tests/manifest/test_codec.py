"""Documents: what is read is what was written under that name, or an error that says where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate import CorruptionError, FormatVersionError
from lsmstate.manifest.codec import NESTED, PLAIN, VERSION, decode, digest_of, encode

BODY = {"epoch": 7, "files": [["a", 1], ["b", 2]], "text": "ü\n \u202e"}
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def document(text: bytes, *, name: str = "doc", version: int | str = PLAIN) -> bytes:
    """A document of any text, with the right checksum."""
    return f"lsmstate {version} {name} {digest_of(name, text)}\n".encode() + text + b"\n"


@given(st.dictionaries(st.text(max_size=5), values, max_size=5))
def test_document_reads_back_the_same(body: dict[str, Any]) -> None:
    data = encode("some-name.full", body)
    assert decode("p", data) == ("some-name.full", body)
    assert decode("p", data, "some-name.full")[1] == body


def test_equal_bodies_give_equal_bytes() -> None:
    assert encode("n", {"a": 1, "b": 2}) == encode("n", {"b": 2, "a": 1})


def test_every_flipped_bit_is_refused() -> None:
    data = encode("doc", BODY)
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises((CorruptionError, FormatVersionError)):
                decode("p", bytes(damaged), "doc")


def test_every_truncation_and_every_addition_is_refused() -> None:
    data = encode("doc", BODY)
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            decode("p", data[:size], "doc")
    for extra in (b"\n", b"x", b" ", data):
        with pytest.raises(CorruptionError):
            decode("p", data + extra, "doc")


def test_document_cannot_stand_in_for_another() -> None:
    data = encode("one", BODY)
    with pytest.raises(CorruptionError, match="the document other"):
        decode("p", data, "other")
    with pytest.raises(CorruptionError, match="checksum"):
        decode("p", data.replace(b" one ", b" two "), "two")


@pytest.mark.parametrize("version", [VERSION + 1, 99, 999_999_999])
def test_newer_document_is_refused_as_such(version: int) -> None:
    with pytest.raises(FormatVersionError, match=rf"p: written in format {version}, this lsmstate reads"):
        decode("p", document(b"{}", version=version), "doc")


def test_document_of_nested_columns_is_of_a_version_of_its_own() -> None:
    data = encode("doc", BODY, NESTED)
    assert data.startswith(f"lsmstate {NESTED} doc ".encode())
    assert decode("p", data, "doc") == ("doc", BODY)
    with pytest.raises(CorruptionError):
        decode("p", data.replace(f"lsmstate {NESTED} ".encode(), f"lsmstate {PLAIN} ".encode()), "doc")


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "no line": b"x" * 10_000,
    "endless header": b"lsmstate 1 " + b"x" * 10_000 + b"\n{}\n",
    "version 0": document(b"{}", version=0),
    "negative version": document(b"{}", version=-1),
    "version of text": document(b"{}", version="one"),
    "endless version": document(b"{}", version="9" * 100),
    "other magic": document(b"{}").replace(b"lsmstate", b"rocksdb!"),
    "no JSON": document(b"{"),
    "a list": document(b"[]"),
    "a number": document(b"5"),
    "nothing but spaces": document(b"   "),
    "too deep": document(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "not UTF-8": document(b'{"a":"\xff\xfe"}'),
    "endless number": document(b'{"a":' + b"9" * 10_000 + b"}"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_document_is_corruption(case: str) -> None:
    with pytest.raises(CorruptionError) as error:
        decode("some/path", HOSTILE[case], "doc")
    assert error.value.path == "some/path"


def test_document_can_be_read_by_people() -> None:
    first, text = encode("doc", {"epoch": 7}).decode().rstrip("\n").split("\n")
    assert first.split(" ")[:3] == ["lsmstate", str(PLAIN), "doc"]
    assert json.loads(text) == {"epoch": 7}
