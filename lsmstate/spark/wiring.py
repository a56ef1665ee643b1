"""Wiring: how the columns of the two inputs travel to the tasks, and which of them make up the result.

Two streams can be united only if their columns agree. Columns of the same type travel in the same **slot**, so that a
row carries few empty values; what a slot means for a side is known at both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

SIDE, HASH, ACK, CLOCK = "__side", "__hash", "__ack", "__clock"


@dataclass(frozen=True)
class Wiring:
    """For each side the slot of every column; which of the left columns followed by the right ones come out, and as
    what: the Arrow schema of the result, serialised."""

    slots: int
    of_side: tuple[tuple[int, ...], tuple[int, ...]]
    picks: tuple[int, ...]
    output: bytes

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the slots in the united stream."""
        return tuple(f"c{number}" for number in range(self.slots))

    def result_schema(self) -> pa.Schema:
        """The columns that tasks emit: those of the result, then the acknowledgement."""
        return pa.ipc.read_schema(pa.py_buffer(self.output)).append(pa.field(ACK, pa.string()))


def wire(left: pa.Schema, right: pa.Schema, picks: Sequence[int], result: pa.Schema) -> Wiring:
    """Slots for the columns of both sides, as few as possible."""
    kinds: list[pa.DataType] = []
    of_side: list[tuple[int, ...]] = []
    for columns in (left, right):
        taken: list[int] = []
        for kind in columns.types:
            slot = next((n for n, known in enumerate(kinds) if known == kind and n not in taken), len(kinds))
            if slot == len(kinds):
                kinds.append(kind)
            taken.append(slot)
        of_side.append(tuple(taken))
    return Wiring(len(kinds), (of_side[0], of_side[1]), tuple(picks), result.serialize().to_pybytes())
