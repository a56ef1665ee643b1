"""What a JSON value must be: strict readers of single fields, for documents that somebody else may have written.

Each gives the value, or raises FieldError with what was expected and what was found. A bool is no number, a float is no
whole number, and text must be text that can be written again. No state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import TypeVar

T = TypeVar("T")

INT_MAX = 2**63 - 1
_HEX = re.compile(r"[0-9a-f]{8,128}")


class FieldError(ValueError):
    """A field is not what it must be. Messages name types, never values."""

    def __init__(self, expected: str, got: object) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got = expected, got

    def under(self, where: str) -> FieldError:
        """The same, with the place named."""
        return FieldError(f"{where}: {self.expected}", self.got)


def whole(told: object) -> int:
    """A whole number of 64 bits."""
    if not isinstance(told, int) or isinstance(told, bool):
        raise FieldError("a whole number", _kind(told))
    if not -INT_MAX - 1 <= told <= INT_MAX:
        raise FieldError("a number of 64 bits", "a larger one")
    return told


def natural(told: object) -> int:
    """A whole number from 0."""
    if (number := whole(told)) < 0:
        raise FieldError("a number from 0", "a negative one")
    return number


def flag(told: object) -> bool:
    """True or false."""
    if not isinstance(told, bool):
        raise FieldError("true or false", _kind(told))
    return told


def text(told: object) -> str:
    """Text, maybe empty."""
    if not isinstance(told, str):
        raise FieldError("text", _kind(told))
    try:
        told.encode()
    except UnicodeEncodeError:
        raise FieldError("text", "half a character") from None
    return told


def name(told: object) -> str:
    """Text that is not empty."""
    if not text(told):
        raise FieldError("a name", "empty text")
    assert isinstance(told, str)
    return told


def digest(told: object) -> str:
    """Hexadecimal digits, 8 to 128 of them."""
    if _HEX.fullmatch(text(told)) is None:
        raise FieldError("a digest of hexadecimal digits", "other text")
    assert isinstance(told, str)
    return told


def optional(parse: Callable[[object], T]) -> Callable[[object], T | None]:
    """A reader of what may be null."""
    return lambda told: None if told is None else parse(told)


def table(parse: Callable[[object], T], key: Callable[[object], str] = name) -> Callable[[object], dict[str, T]]:
    """A reader of an object whose values are all of one kind."""

    def read(told: object) -> dict[str, T]:
        if not isinstance(told, dict):
            raise FieldError("an object", _kind(told))
        found = {}
        for own, value in told.items():
            try:
                found[key(own)] = parse(value)
            except FieldError as error:
                raise error.under("in an entry") from None
        return found

    return read


def items(parse: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    """A reader of a list whose items are all of one kind."""

    def read(told: object) -> tuple[T, ...]:
        if not isinstance(told, list):
            raise FieldError("a list", _kind(told))
        return tuple(parse(item) for item in told)

    return read


def fields(told: object, needed: Set[str], more: Set[str] = frozenset()) -> dict[str, object]:
    """An object with just these fields: all that are needed, and maybe some more."""
    if not isinstance(told, dict):
        raise FieldError("an object", _kind(told))
    if lacking := needed - told.keys():
        raise FieldError(f"the field {min(lacking)}", "none")
    if told.keys() - needed - more:
        raise FieldError("known fields", "an unknown one")
    return told


def _kind(told: object) -> str:
    return "null" if told is None else type(told).__name__
