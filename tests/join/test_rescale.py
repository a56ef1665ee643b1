"""The rows and states of a join divided among instances, whatever its sides look like."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lsmstate import Side
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.errors import SchemaError
from lsmstate.join import IntervalJoin

TIME = pa.timestamp("us", tz="UTC")
BARE = pa.schema([("k", pa.string()), ("ts", TIME)])
SIDES = (
    Side("bare", BARE, ["k"], "ts"),
    Side("more", BARE.append(pa.field("n", pa.int64())), ["k"], "ts"),
)


def join() -> IntervalJoin:
    return IntervalJoin(*SIDES, lower=timedelta(0), upper=timedelta(minutes=5), how="left")


def rows(keys: list[str | None], times: list[int | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.string()), pa.array(times, TIME)], schema=BARE)


def test_state_of_a_side_with_nothing_but_key_and_time_is_divided(tmp_path: Path) -> None:
    first = join()
    first.on_start(OperatorContext(tmp_path / "one"))
    given = rows([f"k{number}" for number in range(40)], list(range(40)))
    assert list(first.process_batch(0, given)) == []
    first.handle_checkpoint(CheckpointBarrier(1))
    state = first.state()
    first.commit(1)
    first.on_close()
    join().rescale([(str(tmp_path / "one"), state)], [str(tmp_path / name) for name in "ab"], 1)
    found = []
    for instance, name in enumerate("ab"):
        part = join()
        part.on_start(OperatorContext(tmp_path / name))
        alone = pa.Table.from_batches(list(part.process_watermark(1 << 50)))
        assert alone.num_rows > 5
        assert (part.route(0, alone.select([0, 1]).combine_chunks().to_batches()[0], 2) == instance).all()
        found += alone.column("k").to_pylist()
        part.on_close()
    assert sorted(found) == sorted(given.column("k").to_pylist())


def test_rows_without_key_or_time_are_routed_somewhere() -> None:
    """The operator counts them and, in outer joins, gives them alone: whichever instance they come to."""
    batch = rows(["a", None, "a", "b"], [1, 2, None, 4])
    routed = join().route(0, batch, 3)
    assert routed[0] == routed[2]
    assert set(routed) <= {0, 1, 2}
    encoded = pa.record_batch([batch.column("k").dictionary_encode(), batch.column("ts")], names=["k", "ts"])
    assert join().route(0, encoded, 3).tolist() == routed.tolist()
    assert join().route(1, batch.slice(0, 0), 3).tolist() == []


def test_keys_of_another_type_are_refused() -> None:
    with pytest.raises(SchemaError, match="does not fit"):
        join().route(0, pa.record_batch([pa.array([1]), pa.array([1], TIME)], names=["k", "ts"]), 2)
