"""Conditions: what a pair must fulfil besides equal keys and near times, decided for many pairs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsmstate.errors import LsmStateError, SchemaError

Condition: TypeAlias = pc.Expression | Callable[[pa.RecordBatch], pa.Array]


def check_condition(condition: object) -> None:
    """Raises unless it is one."""
    if condition is not None and not isinstance(condition, pc.Expression) and not callable(condition):
        raise ValueError(
            "condition must be a pyarrow.compute.Expression such as pc.field('amount') > pc.field('price'), or a "
            f"function from a RecordBatch of pairs to an array of booleans, not {type(condition).__name__}"
        )


def fulfils(condition: Condition, pairs: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which pairs fulfil a condition; NULL is no."""
    try:
        told = _evaluated(condition, pairs) if isinstance(condition, pc.Expression) else condition(pairs)
    except Exception as error:  # whatever a user's function may raise
        told = f"the condition of the join failed with {type(error).__name__}: {_first_line(error)}"
        columns = ", ".join(pairs.schema.names)
        raise LsmStateError(f"{told}. The columns that it can use are: {columns}") from error
    if isinstance(told, pa.ChunkedArray):
        told = told.combine_chunks()
    elif isinstance(told, np.ndarray):
        told = pa.array(told)
    if not isinstance(told, pa.Array) or not pa.types.is_boolean(told.type):
        kind = told.type if isinstance(told, pa.Array) else type(told).__name__
        raise SchemaError(f"the condition of the join gives {kind}; it must give an array of booleans")
    if len(told) != pairs.num_rows:
        raise SchemaError(f"the condition of the join gives {len(told)} booleans for {pairs.num_rows} pairs")
    good: npt.NDArray[np.bool_] = told.fill_null(False).to_numpy(zero_copy_only=False)
    return good


def _first_line(error: Exception) -> str:
    """The first line of what an error says; Arrow adds whole schemas."""
    return str(error).partition("\n")[0]


def _evaluated(expression: pc.Expression, pairs: pa.RecordBatch) -> pa.ChunkedArray:
    from pyarrow import acero  # here, because it imports pandas, which takes longer than all of lsmstate

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([pairs])))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["told"]), [source])
    return project.to_table(use_threads=False).column("told")
