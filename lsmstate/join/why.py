"""Why: what became of the rows with a key, told from what the state holds and has held.

Alive, matched (since which epoch), late, ahead, expired (by which watermark), or never seen. Rows that were retired are
found in the older epochs that are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.engine import View
from lsmstate.errors import SchemaError
from lsmstate.join.kinds import INTERVAL, Kind
from lsmstate.join.late import EPOCH, LATE, REASON, WATERMARK
from lsmstate.join.marks import marked_since
from lsmstate.join.shape import LATE_SIDES, marks_number
from lsmstate.keys import U64, saturate
from lsmstate.schema import PROBE_INDEX, ROW_ID, Side

_NAMES = ("left", "right")
_EPOCH_0 = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one row.

    status: alive, matched, late, ahead or expired. epoch: since when it is matched; in which it expired or came too
    late. watermark_us: by which it expired or was late. partners: rows of the other side in the state with its key and
    near times. text: all that in words.
    """

    ts_us: int | None
    status: str
    epoch: int | None
    watermark_us: int | None
    partners: int
    text: str


@dataclass(frozen=True, slots=True)
class Why:
    """What became of the rows with a key on a side, as of an epoch. No rows: never seen."""

    side: str
    key: tuple[Any, ...]
    epoch: int | None
    watermark_us: int | None
    rows: tuple[Fate, ...]
    text: str


At = tuple[int | None, View]  # an epoch, None for what is not committed yet, and its rows


def explain(
    past: Sequence[At],
    sides: tuple[Side, Side],
    kind: Kind,
    side: int,
    key: object,
    marked: Callable[[int, U64], npt.NDArray[np.bool_]] | None = None,
) -> Why:
    """What became of the rows with a key. `past` is of one state, oldest first: what is asked about is the last.

    `marked` knows of rows that have met somebody since the last epoch.
    """
    if side not in (0, 1):
        raise ValueError(f"side must be 0 (left) or 1 (right), not {side!r}")
    values = tuple(key) if isinstance(key, tuple | list) else (key,)
    asking = _asking(sides[1 - side], values)
    epoch, now = past[-1]
    fates = list(_alive(now, sides, kind, side, asking, marked))
    known = _ids(now, side, asking)
    later = past[-1]
    for each in reversed(past[:-1]):
        fates += _expired(each[1], later, sides, kind, side, asking, known)
        known |= _ids(each[1], side, asking)
        later = each
    fates += _aside(now, sides, side, asking)
    name = _NAMES[side]
    text = "\n".join(fate.text for fate in fates) or _never_seen(past[0][0], epoch, name)
    return Why(name, values, epoch, now.watermark, tuple(fates), text)


def _asking(other: Side, values: tuple[object, ...]) -> pa.RecordBatch:
    """A row of the other side that asks for the key, whatever the time."""
    if len(values) != len(other.keys):
        raise SchemaError(f"the key has {len(other.keys)} columns, not {len(values)}")
    arrays = []
    for value, field in zip(values, other.key_fields, strict=True):
        kind = other.schema.field(field).type
        try:
            arrays.append(key_array(value, kind))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise SchemaError(f"the key column is {kind}, which {type(value).__name__} does not fit") from error
    arrays.append(pa.array([0]).cast(other.schema.field(other.time).type))
    return pa.RecordBatch.from_arrays(arrays, names=[*other.keys, other.time])


def key_array(value: object, kind: pa.DataType) -> pa.Array:
    """A value of a key, of Python or of Arrow, as an array of one. Raises what Arrow raises where it does not fit."""
    if not isinstance(value, pa.Scalar):
        return pa.array([value], kind)
    if value.type != kind:
        raise TypeError(f"{value.type} is not {kind}")
    return pa.repeat(value, 1)


def _rows(view: View, number: int, side: int, asking: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return view.probe(number, asking, by=1 - side, row_ids=True)


def _ids(view: View, side: int, asking: pa.RecordBatch) -> set[int]:
    return {row_id for batch in _rows(view, side, side, asking) for row_id in batch.column(ROW_ID).to_pylist()}


def _times(batch: pa.RecordBatch, side: Side) -> list[int]:
    found: list[int] = batch.column(side.time).cast(pa.int64()).to_pylist()
    return found


def _since(view: View, kind: Kind, side: int, batch: pa.RecordBatch) -> list[int]:
    number = marks_number(kind, side)
    if number is None:
        return [0] * batch.num_rows
    since: list[int] = marked_since(view, number, batch.column(ROW_ID).to_numpy()).tolist()
    return since


def _partners(view: View, sides: tuple[Side, Side], kind: Kind, side: int, batch: pa.RecordBatch) -> list[int]:
    """How many rows of the other side each row meets now."""
    count = np.zeros(batch.num_rows, np.int64)
    rows = batch.select(sides[side].schema.names)
    for found in view.probe(1 - side, rows, *kind.reach(side), by=side):
        np.add.at(count, found.column(PROBE_INDEX).to_numpy(), 1)
    told: list[int] = count.tolist()
    return told


def _alive(
    view: View,
    sides: tuple[Side, Side],
    kind: Kind,
    side: int,
    asking: pa.RecordBatch,
    marked: Callable[[int, U64], npt.NDArray[np.bool_]] | None,
) -> Iterator[Fate]:
    reach = kind.reach(side)[1]
    for batch in _rows(view, side, side, asking):
        ids = batch.column(ROW_ID).to_numpy()
        known = np.zeros(len(ids), bool) if marked is None else marked(side, ids)
        told = zip(
            _times(batch, sides[side]),
            _since(view, kind, side, batch),
            _partners(view, sides, kind, side, batch),
            known.tolist(),
            strict=True,
        )
        for ts, since, partners, new in told:
            has_met = bool(since) or new
            start, until = f"The {_NAMES[side]} row of {_time(ts)}", saturate(ts + max(reach, 0))
            decided = view.watermark is not None and saturate(ts + reach) <= view.watermark
            if kind.match != INTERVAL:
                met = "nothing to meet so far" if not partners else f"{_count(partners)} it may meet so far"
                text = f"{start} waits: it comes out once the watermark reaches {_time(ts)}; there is {met}."
                yield Fate(ts, "alive", None, None, partners, text)
                continue
            where = f"{_count(partners)} of its key and near times {'is' if partners == 1 else 'are'} in the state now"
            if has_met or (partners and marks_number(kind, side) is None):
                when = f" since epoch {since}" if since else ""
                text = f"{start} is matched{when}; {where}. It is kept until the watermark reaches {_time(until)}."
                yield Fate(ts, "matched", since or None, None, partners, text)
            elif decided:
                text = f"{start} has met nobody, and the watermark says that nobody can come any more."
                yield Fate(ts, "alive", None, None, partners, text)
            else:
                text = f"{start} is alive and has met nobody yet. It waits until the watermark reaches {_time(until)}."
                yield Fate(ts, "alive", None, None, partners, text)


def _expired(
    view: View, later: At, sides: tuple[Side, Side], kind: Kind, side: int, asking: pa.RecordBatch, known: set[int]
) -> Iterator[Fate]:
    """Rows that were there in a view, and are not in the one after it."""
    epoch, watermark = later[0], later[1].watermark
    when = "since the last epoch" if epoch is None else f"in epoch {epoch}"
    for batch in _rows(view, side, side, asking):
        told = zip(
            batch.column(ROW_ID).to_pylist(), _times(batch, sides[side]), _since(view, kind, side, batch), strict=True
        )
        for row_id, ts, since in told:
            if row_id in known:
                continue
            text = (
                f"The {_NAMES[side]} row of {_time(ts)} expired {when}, when the watermark reached {_time(watermark)}"
            )
            if marks_number(kind, side) is not None:
                text += f"; it was matched since epoch {since}" if since else "; it had met nobody before that epoch"
            yield Fate(ts, "expired", epoch, watermark, 0, text + ".")


def _aside(view: View, sides: tuple[Side, Side], side: int, asking: pa.RecordBatch) -> Iterator[Fate]:
    for batch in _rows(view, LATE_SIDES[side], side, asking):
        told = zip(
            batch.column(sides[side].time).cast(pa.int64()).to_pylist(),
            batch.column(REASON).to_pylist(),
            batch.column(WATERMARK).to_pylist(),
            batch.column(EPOCH).to_pylist(),
            strict=True,
        )
        for ts, reason, watermark, epoch in told:
            how = "came too late" if reason == LATE else "was too far in the future"
            when = f"in epoch {epoch} the watermark was at {_time(watermark)} already"
            if reason != LATE:
                when = f"in epoch {epoch} the watermark was at {_time(watermark)} only"
            text = f"The {_NAMES[side]} row of {_time(ts)} {how} and took no part: {when}."
            yield Fate(ts, reason, epoch, watermark, 0, text)


def _never_seen(oldest: int | None, newest: int | None, name: str) -> str:
    if newest is None:
        since = "now"
    else:
        since = f"at epoch {newest}" + (f", nor back to epoch {oldest}" if oldest != newest else "")
    return (
        f"No {name} row with this key is in the state {since}. It has not come, or it expired before, or it came too "
        "late and was only counted (late='keep' keeps such rows)."
    )


def _count(partners: int) -> str:
    return "1 row" if partners == 1 else f"{partners:,} rows"


def _time(ts: int | None) -> str:
    if ts is None:
        return "no time yet"
    try:
        return (_EPOCH_0 + timedelta(microseconds=ts)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{ts} us"
