"""Random joins: a kind, rows, and a life (batches, watermarks, checkpoints, restarts, compactions), from a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsmstate import Options, Side
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.join import AsOfJoin, ExpiringJoin, InstantJoin, IntervalJoin
from lsmstate.join.kinds import ASOF, HOWS, Kind
from lsmstate.join.operator import JoinOperator

LEFT = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("a", pa.int64()), ("text", pa.string())])
RIGHT = pa.schema([("k", pa.int64()), ("b", pa.int64()), ("ts", pa.int64()), ("text", pa.string())])
_PLACES = ((0, 1, 2, 3), (0, 2, 1, 3))  # of the values of a row in the columns of each side
END = 1 << 50
_EXPRESSION = (pc.field("a") + pc.field("b")) != (pc.field("a") + pc.field("b")) / 2 * 2  # an odd sum
Row = tuple[int | None, int | None, int, str | None]


@dataclass(frozen=True)
class Step:
    """One thing that happens: rows of a side, a watermark, or a word: checkpoint, abort, restart, compact, major."""

    what: str
    side: int = 0
    rows: tuple[Row, ...] = ()
    watermark: int = 0


@dataclass(frozen=True)
class Case:
    """A join and its life."""

    seed: int
    make: Callable[[], JoinOperator]
    with_condition: bool
    steps: tuple[Step, ...]


def us(ticks: int) -> timedelta:
    return timedelta(microseconds=ticks)


def random_case(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    with_condition = rng.random() < 0.25
    span = rng.choice([3, 20, 200])
    make = random_join(rng, span, with_condition)
    lefts, rights = (random_rows(rng, side, span) for side in (0, 1))
    return Case(seed, make, with_condition, tuple(random_life(rng, lefts, rights, span)))


def random_join(rng: random.Random, span: int, with_condition: bool) -> Callable[[], JoinOperator]:
    """Makes operators of one random kind."""
    condition: Any = rng.choice([_EXPRESSION, _differ]) if with_condition else None
    left, right = Side("left", LEFT, ["k"], "ts"), Side("right", RIGHT, ["k"], "ts")
    options = Options(memtable_bytes=rng.choice([200, 4 << 20]), batch_rows=rng.choice([1, 3, 64 << 10]))
    common: dict[str, Any] = {"condition": condition, "options": options}
    which, how = rng.randrange(5), rng.choice(HOWS)
    if which < 2:
        low, high = sorted(rng.randint(-span, span) for _ in range(2))
        return lambda: IntervalJoin(left, right, lower=us(low), upper=us(high), how=how, **common)
    if which == 2:
        ttl = rng.choice([None, us(0), us(span), us(max(1, span // 4))])
        return lambda: ExpiringJoin(left, right, ttl=ttl, how=how, **common)
    if which == 3:
        return lambda: InstantJoin(left, right, how=how, **common)
    tolerance, kind = us(rng.randint(0, span)), rng.choice(["inner", "left"])
    return lambda: AsOfJoin(left, right, tolerance=tolerance, how=kind, **common)


def _differ(pairs: pa.RecordBatch) -> pa.Array:
    return pa.array((pairs.column("a").to_numpy() + pairs.column("b").to_numpy()) % 2 == 1)


def random_rows(rng: random.Random, side: int, span: int) -> list[Row]:
    """Rows with few keys, times that tie, NULLs; some are repeated."""
    first = rng.choice([-3 * span, 0, 10**15])
    keys = rng.choice([1, 3, 12])
    rows: list[Row] = []
    for number in range(rng.choice([0, 1, 10, 40])):
        key = None if rng.random() < 0.05 else rng.randrange(keys)
        ts = None if rng.random() < 0.03 else first + rng.randint(0, 4 * span)
        rows.append((key, ts, number + 1000 * side, rng.choice([None, "", "x", "yy"])))
        if rng.random() < 0.1:
            rows.append(rows[-1])
    return rows


def random_life(rng: random.Random, lefts: list[Row], rights: list[Row], span: int) -> Iterator[Step]:
    """Both inputs, roughly by time, cut into batches, with everything else in between."""
    waiting = [(row, side) for side, rows in enumerate((lefts, rights)) for row in rows]
    disorder = rng.choice([0, span, 10 * span])
    waiting.sort(key=lambda each: (each[0][1] or 0) + rng.randint(0, disorder))
    times = [row[1] for row, _ in waiting if row[1] is not None]
    low, high = (min(times), max(times)) if times else (0, 1)
    watermark = low - 1
    while waiting:
        count = rng.choice([1, 2, 5, 20])
        taken, waiting = waiting[:count], waiting[count:]
        for side in (0, 1):
            rows = tuple(row for row, its in taken if its == side)
            if rows or rng.random() < 0.1:
                yield Step("rows", side, rows)
        if rng.random() < 0.4:
            watermark = max(watermark, low - 1 + rng.randint(0, max(1, high - low)))
            yield Step("watermark", watermark=watermark)
        for what, chance in (("checkpoint", 0.3), ("abort", 0.05), ("restart", 0.1), ("compact", 0.1), ("major", 0.05)):
            if rng.random() < chance:
                yield Step(what)
    if rng.random() < 0.5:
        yield Step("restart")
    yield Step("watermark", watermark=max(END, high + 10 * span))
    yield Step("checkpoint")


def batch_of(side: int, rows: tuple[Row, ...]) -> pa.RecordBatch:
    """Rows as a batch."""
    schema = (LEFT, RIGHT)[side]
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in zip(_PLACES[side], schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def live(case: Case, path: Path) -> Counter[tuple[Any, ...]]:
    """What comes out of a join in such a life. After a restart, all since the last checkpoint happens again."""
    context = OperatorContext(path)
    join, at, epoch = case.make(), 0, 0
    join.on_start(context)
    results: list[tuple[Any, ...]] = []
    kept_at, kept = 0, 0
    restarted: set[int] = set()
    while at < len(case.steps):
        step = case.steps[at]
        at += 1
        if step.what == "rows":
            results += _taken(join.process_batch(step.side, batch_of(step.side, step.rows)))
        elif step.what == "watermark":
            results += _taken(join.process_watermark(step.watermark))
        elif step.what in ("checkpoint", "abort"):
            join.handle_checkpoint(CheckpointBarrier(epoch + 1))
            if step.what == "abort":
                join.abort(epoch + 1)
            else:
                join.commit(epoch + 1)
                epoch, kept_at, kept = epoch + 1, at, len(results)
        elif step.what in ("compact", "major"):
            join.store.compact(major=step.what == "major")
        elif at not in restarted:  # each one once, or it would never end
            restarted.add(at)
            join.on_close()
            join, at = case.make(), kept_at
            join.on_start(context)
            del results[kept:]
    join.on_close()
    return Counter(results)


def _taken(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def on_time(case: Case) -> tuple[list[Row], list[Row]]:
    """The rows that were not late, by a model of lateness of its own."""
    watermark: int | None = None
    found: tuple[list[Row], list[Row]] = ([], [])
    for step in case.steps:
        if step.what == "watermark":
            watermark = step.watermark if watermark is None else max(watermark, step.watermark)
        for row in step.rows:
            if row[1] is None or watermark is None or row[1] > watermark:
                found[step.side].append(row)
    return found


def sql_of(kind: Kind, with_condition: bool) -> str:
    """The same join over the tables l and r, in SQL."""
    meets = f"l.k = r.k and r.ts - l.ts between {kind.lower_us} and {kind.upper_us}"
    if with_condition:
        meets += " and (l.a + r.b) % 2 = 1"
    both = "coalesce(l.k, r.k), l.ts, l.a, l.text, r.b, r.ts, r.text"
    if kind.match == ASOF:
        best = f"""select l.n as n, r.*, row_number() over (partition by l.n order by r.ts desc, r.b desc,
            r.text desc nulls first) as place from l join r on {meets}"""
        join = "left join" if kind.how == "left" else "join"
        best = f"(select * from ({best}) where place = 1) b"
        return f"select l.k, l.ts, l.a, l.text, b.b, b.ts, b.text from l {join} {best} using (n)"
    if kind.how in ("left_semi", "left_anti"):
        word = "exists" if kind.how == "left_semi" else "not exists"
        return f"select l.k, l.ts, l.a, l.text from l where {word} (select 1 from r where {meets})"
    return f"select {both} from l {kind.how if kind.how == 'inner' else kind.how + ' outer'} join r on {meets}"


def by_duckdb(connection: Any, case: Case) -> Counter[tuple[Any, ...]]:
    """The batch join of the rows that were not late, by DuckDB."""
    for name, side, rows in zip("lr", (0, 1), on_time(case), strict=True):
        table = pa.Table.from_batches([batch_of(side, tuple(rows))])
        connection.register(name, table.append_column("n", pa.array(range(len(rows)), pa.int64())))
    kind = case.make().shape.kind
    return Counter(connection.execute(sql_of(kind, case.with_condition)).fetchall())
