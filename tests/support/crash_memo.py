"""Decoders computed once: they are pure functions of bytes, and a hundred thousand images repeat the same bytes.

Only decoding is shared. Whether a file is there, and what it holds, is asked of each image anew; damaged bytes raise
anew. What the decoders give is never changed by the engine, so it may be shared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from lsmstate.manifest.codec import decode
from lsmstate.manifest.version import Version, decode_version
from lsmstate.schema import Side

_ENTRIES_MAX = 1 << 16


@contextlib.contextmanager
def decoded_once() -> Iterator[None]:
    """While it lasts, documents, versions and sides are decoded once for equal bytes."""
    documents: dict[object, tuple[str, dict[str, Any]]] = {}
    versions: dict[object, tuple[Version, object]] = {}
    sides: dict[str, Side] = {}
    parse = Side.parse

    def document(path: str, data: bytes, name: str | None = None) -> tuple[str, dict[str, Any]]:
        return _once(documents, (path, data, name), lambda: decode(path, data, name))

    def version(*given: object) -> Version:
        key = tuple(map(id, given))  # they stay alive in the entry, so that no other object takes their place
        return _once(versions, key, lambda: (decode_version(*given), given))[0]

    def side(told: dict[str, Any]) -> Side:
        return _once(sides, repr(told), lambda: parse(told))

    with (
        mock.patch("lsmstate.manifest.log.decode", document),
        mock.patch("lsmstate.engine.identity.decode", document),
        mock.patch("lsmstate.manifest.log.decode_version", version),
        mock.patch.object(Side, "parse", side),
    ):
        yield


def _once(entries: dict[Any, Any], key: object, compute: Callable[[], Any]) -> Any:
    found = entries.get(key)
    if found is None:
        if len(entries) >= _ENTRIES_MAX:
            entries.clear()
        found = entries[key] = compute()
    return found
