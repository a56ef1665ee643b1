"""What a pipeline asks of a source: rows in an order that it can give again, and where in that order it stands.

    source.open(offsets) -> read() ... offsets() ... -> close()

Offsets are small texts by name. Opened at the offsets that stood after a batch, a source gives exactly what came after
that batch, however it cuts it into batches. A source belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from lsmstate.errors import CheckpointError


class Source(Protocol):
    """Rows that can be replayed."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of all batches; may be asked before `open`."""

    @property
    def ended(self) -> bool:
        """Whether no more rows will ever come. True only after `read` has given None."""

    def open(self, offsets: Mapping[str, str] | None) -> None:
        """Goes on strictly after these offsets; None, or none, from the beginning. May be called again."""

    def read(self) -> pa.RecordBatch | None:
        """The next rows, at least one; None if there are none now."""

    def offsets(self) -> dict[str, str]:
        """Where the source stands after the last batch that `read` gave, or where it was opened."""

    def close(self) -> None:
        """Lets go of what it holds. May be called again."""


def whole_number(source: str, offsets: Mapping[str, str], name: str) -> int:
    """One of the offsets that is a number from 0. Raises CheckpointError if it is not there, or is none."""
    told = offsets.get(name)
    if not isinstance(told, str) or not told.isascii() or not told.isdigit() or len(told) > 18:
        raise CheckpointError(
            f"{source}: {name!r} of the offsets is no number: they are those of another kind of source; "
            "give the job the source that it had, or start it anew"
        )
    return int(told)
