r"""Texts on their way into the catalog and back: names, documents, and what must not get in.

Names are data, whatever they hold. A database may refuse NUL, know another encoding, or limit what it indexes; so a
name is stored in ASCII with everything else escaped as in a Python string (`\x00`, `\u202e`), and is found by the
SHA-256 of that. Documents are JSON in ASCII. Credentials in a definition are replaced by `***` before they are stored.
Threading: functions without state.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

NAME_MAX_CHARS = 65_536
DOCUMENT_MAX_CHARS = 16_000_000
HIDDEN = "***"

_SECRET = r"password|passwd|passphrase|secret|credential|api[._-]?key|access[._-]?key|private[._-]?key|jaas"
_SECRET_NAME = re.compile(rf"{_SECRET}|(?:^|[^a-z])(?:pwd|token|auth)(?:$|[^a-z])", re.IGNORECASE)
# the lengths are bounded, or a long text without a match would take time by its square
_IN_URL = re.compile(r"((?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s'\"/@:]{0,256}):[^\s'\"]{0,1024}@")
_IN_QUERY = re.compile(rf"([?&;](?:[\w.-]{{0,64}}(?:{_SECRET})[\w.-]{{0,64}}|pwd|token)=)[^\s'\"&;]+", re.IGNORECASE)
_IN_SQL = re.compile(rf"('[\w.-]{{0,64}}(?:{_SECRET}|token)[\w.-]{{0,64}}'\s{{0,9}}=\s{{0,9}})'(?:[^']|'')*'", re.I)


def escaped(text: str) -> str:
    """A text as it is stored."""
    return text.encode("unicode_escape").decode("ascii")


def unescaped(stored: str) -> str:
    """The text that was stored."""
    return stored.encode("ascii").decode("unicode_escape")


def key_of(name: str) -> str:
    """What a name is found by."""
    return hashlib.sha256(escaped(name).encode("ascii")).hexdigest()


def checked_name(what: str, name: object) -> str:
    """A name that can be stored; ValueError otherwise."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{what} must be a text of at least one character")
    if len(name) > NAME_MAX_CHARS:
        raise ValueError(f"{what} has {len(name):,} characters, at most {NAME_MAX_CHARS:,} can be stored")
    return name


def document(what: str, content: Mapping[str, Any]) -> str:
    """A mapping as JSON, always the same for the same content; ValueError if it is none or too large."""
    try:
        text = json.dumps(dict(content), sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} must be a mapping that JSON can hold: {error}") from None
    if len(text) > DOCUMENT_MAX_CHARS:
        raise ValueError(f"{what} has {len(text):,} characters as JSON, at most {DOCUMENT_MAX_CHARS:,} can be stored")
    return text


def offsets_document(source: str, offsets: Mapping[str, str]) -> str:
    """The offsets of a source as JSON; ValueError if they are not texts by text."""
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in offsets.items()):
        raise ValueError(f"the offsets of source {source!r:.80} must be texts by text")
    return document(f"the offsets of source {source!r:.80}", offsets)


def without_credentials(value: Any) -> Any:
    """A definition, comment or note with what looks like a credential replaced by `***`: passwords in URLs, and values
    whose name says password, secret, token and the like."""
    if isinstance(value, str):
        for pattern, kept in ((_IN_URL, rf"\1:{HIDDEN}@"), (_IN_QUERY, rf"\1{HIDDEN}"), (_IN_SQL, rf"\1'{HIDDEN}'")):
            value = pattern.sub(kept, value)
        return value
    if isinstance(value, Mapping):
        return {key: _entry(key, entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_credentials(entry) for entry in value]
    return value


def _entry(key: object, value: Any) -> Any:
    if isinstance(value, str) and value and isinstance(key, str) and _SECRET_NAME.search(key):
        return HIDDEN
    return without_credentials(value)
