"""The joins of streaming tables: those of `lsmstate.join`, which refuse rows once all their inputs have ended.

A directory that is not followed ends where its files end, and then what waited for a partner has come out alone. Files
that are added later would be late, all of them: that is an error here, not a number.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lsmstate.engine.intake import Batch
from lsmstate.errors import CheckpointError
from lsmstate.join.operator import JoinOperator
from lsmstate.join.operators import ExpiringJoin, InstantJoin, IntervalJoin
from lsmstate.keys import TS_MAX


class _EndsOnce(JoinOperator):
    def process_batch(self, side: int, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Takes rows of a side; gives the results that are certain already."""
        if batch.num_rows and self.store.watermark == TS_MAX:
            raise CheckpointError(
                f"table {self.shape.sides[side].name!r} has new rows, and the streaming table had come to the end of "
                "all its tables: they cannot meet any more. For a directory that grows write 'follow' = 'true'; now "
                "drop the streaming table and make it again, or take the new files away"
            )
        return super().process_batch(side, batch)


class IntervalTable(_EndsOnce, IntervalJoin):
    """Rows that meet within an interval of times."""


class ExpiringTable(_EndsOnce, ExpiringJoin):
    """Rows that meet within a ttl."""


class InstantTable(_EndsOnce, InstantJoin):
    """Rows that meet at equal times."""
