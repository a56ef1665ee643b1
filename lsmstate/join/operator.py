"""The life of a join operator: started by a runtime, fed with rows, watermarks and barriers, closed.

    join = IntervalJoin(left, right, lower=timedelta(0), upper=timedelta(minutes=5), how="left")
    join.on_start(OperatorContext("state/my-join"))
    for rows in join.process_batch(0, batch): ...
    for rows in join.process_watermark(ts_us): ...
    join.handle_checkpoint(CheckpointBarrier(1)); join.commit(1)
    join.on_close()

Results are iterators of bounded batches. What they give belongs to the call that they come from, so they have to be
taken to their end before the next call. An operator belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, fields, replace
from datetime import timedelta
from itertools import chain

import pyarrow as pa

from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.checkpoint.manifest.operator_state import LsmState, OperatorState
from lsmstate.checkpoint.operator import Operator
from lsmstate.engine import StateStore
from lsmstate.engine.intake import Batch
from lsmstate.errors import EpochError, LsmStateError, SchemaError, StoreClosedError
from lsmstate.join.condition import Condition, check_condition
from lsmstate.join.incoming import Counts, check_side, parts_of
from lsmstate.join.kinds import Kind
from lsmstate.join.late import AHEAD, LATE, as_kept, sort_out
from lsmstate.join.matching import Matching
from lsmstate.join.matchings import matching_of
from lsmstate.join.rescale import rescale, route
from lsmstate.join.shape import LATE_SIDES, Columns, shape_of
from lsmstate.join.terms import JoinStats
from lsmstate.join.why import At, Why, explain
from lsmstate.keys import I64, TS_MAX, TS_MIN, saturate, time_us
from lsmstate.options import Options
from lsmstate.schema import Side

_LATES = ("count", "keep")
_US = timedelta(microseconds=1)


class JoinOperator(Operator):
    """A join of two sides of a kind; see IntervalJoin, ExpiringJoin, InstantJoin and AsOfJoin."""

    def __init__(
        self,
        left: Side,
        right: Side,
        kind: Kind,
        *,
        condition: Condition | None = None,
        suffixes: tuple[str, str] = ("", "_right"),
        late: str = "count",
        max_jump: timedelta | None = None,
        options: Options | None = None,
    ) -> None:
        check_condition(condition)
        if late not in _LATES:
            raise ValueError(f"late must be 'count' or 'keep', not {late!r}")
        if max_jump is not None and (not isinstance(max_jump, timedelta) or max_jump <= timedelta(0)):
            raise ValueError(f"max_jump must be a timedelta above zero, not {max_jump!r}")
        self.shape = shape_of(left, right, kind, condition, suffixes)
        self._keeps_late, self._max_jump, self._options = late == "keep", max_jump, options
        self._matching: Matching | None = None
        self._forget()

    def _forget(self) -> None:
        self._unfinished: Iterator[pa.RecordBatch] | None = None
        self._idle: set[int] = set()
        self._watermarks: list[int | None] = [None, None]
        self._newest: list[int | None] = [None, None]
        self._epoch = 1
        self._candidate = ""
        self.counts = Counts()

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of the result."""
        return self.shape.output

    @property
    def store(self) -> StateStore:
        """The state, between on_start and on_close."""
        if self._matching is None:
            raise StoreClosedError("the operator is not started, or closed; call on_start")
        return self._matching.store

    def on_start(self, context: OperatorContext) -> None:
        """Opens the state at the safe epoch, or creates it."""
        if self._matching is not None:
            raise LsmStateError("the operator is started already; give each one an operator of its own")
        options = self._options or Options()
        options = replace(options, retain=max(options.retain, context.retain or 1))
        store = StateStore.open(
            context.state_dir, self.shape.state_sides, options, pool=context.pool, memory=context.memory
        )
        try:
            self._check_kind(context, store)  # before anything is changed; and of the epoch that is gone to
            self._go_to(context, store)
            self._check_kind(context, store)
        except BaseException:
            store.close()
            raise
        self._forget()
        told, known = store.meta.get("join"), store.epochs()
        if told is not None:
            self.counts = Counts(**{f.name: told["counts"][f.name] for f in fields(Counts)})
            self._watermarks, self._idle = list(told["watermarks"]), set(told["idle"])
            self._newest = list(told["newest"])
        self._epoch = known[-1] + 1 if known else 1
        self._matching = matching_of(self.shape, store)

    def _check_kind(self, context: OperatorContext, store: StateStore) -> None:
        told = store.meta.get("join")
        if told is not None and told["kind"] != asdict(self.shape.kind):
            was = Kind(**told["kind"])
            raise SchemaError(f"{context.state_dir}: the state of another join: {was}, not {self.shape.kind}")

    def _go_to(self, context: OperatorContext, store: StateStore) -> None:
        """Goes to the safe epoch: back to it, or on to it where it was made durable and the commit did not come."""
        known, safe = store.epochs(), context.safe_epoch
        last = known[-1] if known else 0
        if safe is None or safe == last:
            return
        if safe == 0:
            raise EpochError(
                f"{context.state_dir}: holds epoch {last}; to start anew give the operator another directory"
            )
        if safe > last:
            if context.candidate is None and not last and context.tables is not None:
                raise EpochError(f"{context.state_dir}: new, in a job at epoch {safe}: rows before it would be missing")
            store.commit(safe, candidate=context.candidate)
        else:
            store.restore(safe)

    def process_batch(self, side: int, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Takes rows of a side (0 left, 1 right); gives the results that are certain already."""
        matching = self._ready()
        check_side(side)
        return self._begun(self._processed(matching, side, parts_of(self.shape.sides[side], batch)))

    def process_watermark(self, watermark: int, side: int | None = None) -> Iterator[pa.RecordBatch]:
        """No more rows up to this time (us) will come, of one side or of both; gives what is decided by it.

        The watermark of the join is the lower one of the sides that are not idle, and never goes back.
        """
        matching = self._ready()
        watermark = time_us(watermark, "a watermark")
        if not TS_MIN <= watermark <= TS_MAX:
            raise ValueError(f"a watermark is a time in microseconds, not {watermark!r}")
        if side is not None:
            check_side(side)
        for number in (0, 1) if side is None else (side,):
            before = self._watermarks[number]
            self._watermarks[number] = watermark if before is None else max(before, watermark)
            self._idle.discard(number)
        return self._begun(self._advanced(matching))

    def process_idle(self, side: int) -> Iterator[pa.RecordBatch]:
        """A side has nothing to say: the other alone moves the watermark, until a watermark of this side comes."""
        matching = self._ready()
        check_side(side)
        self._idle.add(side)
        return self._begun(self._advanced(matching))

    def handle_checkpoint(self, barrier: CheckpointBarrier) -> bool:
        """Makes all that came before the barrier durable, as a candidate of its epoch; then `commit` or `abort` it."""
        matching = self._ready()
        matching.seal(barrier.epoch)
        told = {
            "kind": asdict(self.shape.kind),
            "watermarks": self._watermarks,
            "idle": sorted(self._idle),
            "newest": self._newest,
            "counts": asdict(self.counts),
        }
        self._candidate = matching.store.prepare(barrier.epoch, meta={"join": told})
        self._epoch = barrier.epoch + 1
        return True

    def state(self) -> OperatorState | None:
        """What `handle_checkpoint` has made durable: its candidate, and the files of it."""
        return OperatorState(lsm=LsmState.of(self._candidate, "state", self.store.prepared_files()))

    def commit(self, epoch: int) -> None:
        """All operators have made the epoch durable: it counts."""
        self.store.commit(epoch)

    def abort(self, epoch: int) -> None:
        """Another operator could not: its rows go into the next epoch."""
        self.store.abort(epoch)

    @property
    def output_watermark(self) -> int | None:
        """How far the results have come."""
        watermark = self.store.watermark
        return None if watermark is None else saturate(watermark - self.shape.kind.longest_wait_us)

    def route(self, side: int, batch: Batch, parallelism: int) -> I64:
        """For each row of a side which of so many instances holds its key."""
        return route(self.shape.sides[side], batch, parallelism)

    def rescale(self, before: Sequence[tuple[str, OperatorState]], after: Sequence[str], epoch: int) -> None:
        """Makes the states of some instances those of others: ranges of keys are split and merged."""
        named = [(path, told.lsm.candidate) for path, told in before if told.lsm is not None]
        rescale(self.shape, self._options, named, after, epoch)

    def definition(self) -> dict[str, object]:
        """What it joins, and how."""
        return {**asdict(self.shape.kind), "sides": [side.describe() for side in self.shape.sides]}

    def why(self, side: int, key: object, epoch: int | None = None) -> Why:
        """What became of the rows of a side (0 left, 1 right) with a key: now, or as of an epoch."""
        store = self.store
        with ExitStack() as stack:
            known = [number for number in store.epochs() if epoch is None or number <= epoch]
            past: list[At] = [(number, stack.enter_context(store.at_epoch(number))) for number in known]
            if epoch is None:
                past.append((None, stack.enter_context(store.snapshot())))
            elif not known or known[-1] != epoch:
                stack.enter_context(store.at_epoch(epoch))  # says which epochs there are
            marked = None if epoch is not None or self._matching is None else self._matching.is_marked
            return explain(past, self.shape.sides, self.shape.kind, side, key, marked)

    def stats(self) -> JoinStats:
        """The numbers of this moment. Looks at the hashes of all rows, for the heaviest keys: not for every batch."""
        store = self.store
        view = store.view()
        heavy = view.heaviest(0), view.heaviest(1)
        return JoinStats(deepcopy(self.counts), store.watermark, heavy, store.stats())

    def on_close(self) -> None:
        """Closes the state. What was not committed is not kept."""
        if self._matching is not None:
            self._matching.store.close()
            self._matching = None

    # ---- inside

    def _ready(self) -> Matching:
        if self._matching is None:
            raise StoreClosedError("the operator is not started, or closed; call on_start")
        if self._unfinished is not None:
            raise LsmStateError("the results of the last call were not taken to their end; iterate over all of them")
        return self._matching

    def _begun(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Does at once what gives no results, so that a call without any need not be iterated over."""
        for first in results:
            self._unfinished = results
            return self._rest(chain([first], results))
        return iter(())

    def _rest(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from results
        self._unfinished = None

    def _processed(self, matching: Matching, side: int, parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store, watermark = matching.store, matching.store.watermark
        before, horizon = watermark if self._newest[side] is None else self._newest[side], None
        if self._max_jump is not None and before is not None:
            horizon = saturate(before + self._max_jump // _US)
        judged = before if watermark is None else watermark
        for part in parts:
            rows = sort_out(part, self.shape.sides[side], watermark, horizon)
            if rows.max_ts is not None:
                self._newest[side] = max(rows.max_ts, self._newest[side] or rows.max_ts)
            self.counts.rows_in[side] += part.num_rows
            self.counts.late[side] += rows.late.num_rows
            self.counts.ahead[side] += rows.ahead.num_rows
            self.counts.unkeyed[side] += rows.unkeyed.num_rows
            for reason, aside in ((LATE, rows.late), (AHEAD, rows.ahead)):
                if self._keeps_late and aside.num_rows and judged is not None:
                    number = LATE_SIDES[side]
                    store.append(number, as_kept(store.sides[number], aside, reason, judged, self._epoch))
            if rows.living.num_rows:
                yield from map(self._out, matching.process(side, rows.living))
            if rows.unkeyed.num_rows and self.shape.kind.comes_alone(side):
                yield from map(self._out, matching.alone(side, rows.unkeyed))

    def _advanced(self, matching: Matching) -> Iterator[pa.RecordBatch]:
        awake = [self._watermarks[side] for side in (0, 1) if side not in self._idle]
        known = [watermark for watermark in awake if watermark is not None]
        if known and len(known) == len(awake):
            yield from map(self._out, matching.advance(min(known)))

    def _out(self, columns: Columns) -> pa.RecordBatch:
        rows = self.shape.result(columns)
        self.counts.rows_out += rows.num_rows
        return rows
