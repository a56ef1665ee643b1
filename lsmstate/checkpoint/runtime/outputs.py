"""The outputs of a task: to which inboxes its rows go, and which row to which instance.

Belongs to the thread of the task; sources put under a lock of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from lsmstate.checkpoint.runtime.inbox import Inbox, Item, Rows
from lsmstate.encodings import plain_schema
from lsmstate.engine.intake import decoded
from lsmstate.errors import CheckpointError
from lsmstate.keys import I64

Route = Callable[[pa.RecordBatch, int], I64]
Place = tuple[Inbox, int, Rows]


@dataclass(frozen=True)
class Edge:
    """To all instances of one operator: their inboxes, each with the number of the input, and how rows are divided."""

    places: Sequence[tuple[Inbox, int]]
    route: Route

    def divided(self, batch: pa.RecordBatch) -> Iterator[Place]:
        """The rows of a batch for each instance that gets some."""
        if len(self.places) == 1:
            inbox, number = self.places[0]
            yield inbox, number, Rows(batch)
            return
        which = self.route(batch, len(self.places))
        if len(which) != batch.num_rows or ((which < 0) | (which >= len(self.places))).any():
            raise CheckpointError(
                f"route() must give each of {batch.num_rows} rows one of the instances 0 to {len(self.places) - 1}"
            )
        if not _can_be_picked_from(batch.schema):
            batch = decoded(batch, plain_schema(batch.schema))
        for instance, (inbox, number) in enumerate(self.places):
            rows = np.flatnonzero(which == instance)
            if len(rows):
                yield inbox, number, Rows(batch.take(pa.array(rows)))


@lru_cache(maxsize=64)
def _can_be_picked_from(schema: pa.Schema) -> bool:
    """Whether Arrow takes rows out of such columns: not out of views and run ends, in the versions that we know."""
    try:
        schema.empty_table().take(pa.array([], pa.int64()))
    except pa.ArrowNotImplementedError:  # the only way to ask which types it can
        return False
    return True


class Outputs:
    """All edges out of one task."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self._edges = tuple(edges)

    def emit(self, batch: pa.RecordBatch) -> None:
        """Sends rows on, piece by piece; waits while a receiver is full."""
        for edge in self._edges:
            for inbox, number, rows in edge.divided(batch):
                inbox.wait_for_room(number)
                inbox.put(number, rows)

    def make_ready(self, batch: pa.RecordBatch) -> list[Place]:
        """What `put_all` sends on without waiting: waits until all receivers have room."""
        places = [place for edge in self._edges for place in edge.divided(batch)]
        for inbox, number, _ in places:
            inbox.wait_for_room(number)
        return places

    def put_all(self, places: Sequence[Place]) -> None:
        """Sends on what is ready."""
        for inbox, number, rows in places:
            inbox.put(number, rows)

    def broadcast(self, item: Item) -> None:
        """Sends a watermark, a barrier or the end to all receivers."""
        for edge in self._edges:
            for inbox, number in edge.places:
                inbox.put(number, item)
