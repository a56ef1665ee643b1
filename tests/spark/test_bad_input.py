"""What cannot work is refused before the query starts, in words that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lsmstate import LsmStateError, NotAStateError, SchemaError
from lsmstate.spark import stream_join

pytestmark = pytest.mark.spark
DDL = "id bigint, name string, ts timestamp, day date, v double"


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream to join with itself."""
    (tmp_path / "in").mkdir()
    return spark.readStream.schema(DDL).parquet(str(tmp_path / "in"))


@pytest.fixture
def join(stream: DataFrame, tmp_path: Path) -> Callable[..., DataFrame]:
    """`stream_join` with arguments that work, unless told others."""

    def joined(**changes: Any) -> DataFrame:
        arguments: dict[str, Any] = {
            "left": stream,
            "right": stream,
            "on": "id",
            "time": ("ts", "ts"),
            "within": ("-5 seconds", "5 seconds"),
            "watermark": ("1 second", "1 second"),
            "state": tmp_path / "state",
            **changes,
        }
        return stream_join(**{name: value for name, value in arguments.items() if value is not ...})

    return joined


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "unknown how": ({"how": "sideways"}, ValueError, "how='sideways' is unknown; there are inner, left"),
    "lower above upper": (
        {"within": ("5 seconds", "-5 seconds")},
        ValueError,
        "give the least right.ts - left.ts first",
    ),
    "interval that is no time": ({"within": ("soon", "later")}, ValueError, "write it like '10 seconds'"),
    "interval of one bound": ({"within": ("5 seconds",)}, ValueError, "one value for each side"),
    "interval as a number": ({"within": (-5, 5)}, ValueError, "or a timedelta, not -5"),
    "no watermark": ({"watermark": None}, ValueError, "or call withWatermark('ts', ...) on the input"),
    "negative watermark": ({"watermark": ("-1 second", "1 second")}, ValueError, "must not be negative"),
    "one watermark": ({"watermark": "10 seconds"}, ValueError, "one delay a side"),
    "unknown key": ({"on": "nobody"}, SchemaError, "no column 'nobody'; there are id, name, ts, day, v"),
    "no key": ({"on": []}, ValueError, "name at least one key column"),
    "three names for a key": ({"on": [("id", "id", "id")]}, ValueError, "nor a pair of them"),
    "keys that cannot be compared": (
        {"on": [("id", "day")]},
        SchemaError,
        "the keys 'id' (bigint) and 'day' (date) cannot be compared; cast one of them",
    ),
    "unknown time": ({"time": ("ts", "when")}, SchemaError, "right: no column 'when'"),
    "time that is a date": ({"time": ("ts", "day")}, SchemaError, "time 'day' is date; cast it to timestamp"),
    "time for one side": ({"time": "ts"}, ValueError, "time needs one value for each side"),
    "suffixes that clash": ({"suffixes": ("", "")}, SchemaError, "give other suffixes="),
    "no partitions": ({"partitions": 0}, ValueError, "from 1 to 100000, not 0"),
    "partitions that are text": ({"partitions": "4"}, ValueError, "not '4'"),
    "one epoch retained": ({"retain": 1}, ValueError, "retain must be a whole number from 2"),
    "state in an object store": ({"state": "s3://bucket/state"}, ValueError, "that driver and executors share"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_argument_is_refused(case: str, join: Callable[..., DataFrame], tmp_path: Path) -> None:
    changes, error, words = WRONG[case]
    with pytest.raises(error) as raised:
        join(**changes)
    assert words in str(raised.value)
    assert not (tmp_path / "state").exists()


def test_batch_frame_is_refused(join: Callable[..., DataFrame], spark: SparkSession) -> None:
    with pytest.raises(ValueError, match=r"right is not a streaming DataFrame; read it with spark\.readStream"):
        join(right=spark.createDataFrame([], DDL))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("struct(id as a, id as a)", "column 'odd' is struct<a:bigint,a:bigint>"),
        ("map(interval 1 year, id)", "column 'odd' is map<interval year,bigint>"),
        ("array(map(null, id))", "column 'odd' is array<map<void,bigint>>"),
        ("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')", "column 'odd' is geometry"),
    ],
)
def test_type_that_a_state_cannot_hold_is_refused(
    column: str, words: str, join: Callable[..., DataFrame], stream: DataFrame
) -> None:
    with pytest.raises(SchemaError) as raised:
        join(left=stream.selectExpr("*", f"{column} as odd"))
    assert words in str(raised.value)
    assert "cast it, give equal fields other names, or leave it out" in str(raised.value)


def test_key_with_a_collation_is_refused(join: Callable[..., DataFrame], stream: DataFrame) -> None:
    folded = stream.selectExpr("collate(name, 'UNICODE_CI') as name", "id", "ts", "day", "v")
    with pytest.raises(
        SchemaError, match=r"key 'name' is string collate UNICODE_CI: .*use collate\(name, 'UTF8_BINARY'\)"
    ):
        join(left=folded, on="name")


def test_names_that_differ_in_case_only_clash(join: Callable[..., DataFrame], stream: DataFrame) -> None:
    joined = join(right=stream.withColumnRenamed("name", "NAME"))
    assert joined.columns == ["id", "name", "ts", "day", "v", "NAME_right", "ts_right", "day_right", "v_right"]


def test_name_that_is_ours_is_refused(join: Callable[..., DataFrame], stream: DataFrame) -> None:
    with pytest.raises(SchemaError, match="rename __ack"):
        join(left=stream.withColumn("__ack", F.lit(1)))


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "partitions": ({"partitions": 5}, "partitions was 4 and is now 5"),
    "interval": (
        {"within": ("-5 seconds", "6 seconds")},
        "the upper bound of the times was 5000000 and is now 6000000",
    ),
    "keys": ({"on": "name"}, "keys was"),
    "time": ({"time": ("ts", "other")}, "time was 'ts' and is now 'other'"),
    "columns": ({"columns": "other"}, "'day' is string instead of date32"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_changed_join_does_not_continue_a_state(case: str, join: Callable[..., DataFrame], stream: DataFrame) -> None:
    join()
    changes, words = dict(CHANGED[case][0]), CHANGED[case][1]
    if changes.pop("columns", None):
        changes["left"] = stream.withColumn("day", F.col("day").cast("string"))
    if case == "time":
        changes["right"] = stream.withColumn("other", F.col("ts"))
    with pytest.raises(SchemaError) as raised:
        join(**changes)
    assert words in str(raised.value)
    assert "start anew with another state= and another checkpointLocation" in str(raised.value)
    join()  # and the state is as it was


def test_delays_and_retained_epochs_may_change(join: Callable[..., DataFrame]) -> None:
    join()
    join(watermark=(timedelta(minutes=1), "2 minutes"), retain=3)


def test_state_of_another_job_is_refused(join: Callable[..., DataFrame]) -> None:
    join(job="one")
    with pytest.raises(NotAStateError, match="the state of job 'one', not of 'two'; name another state="):
        join(job="two")


def test_directory_that_holds_something_else_is_refused(join: Callable[..., DataFrame], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.txt").write_text("precious")
    with pytest.raises(NotAStateError, match=r"holds 'thesis.txt' and is no state of a join"):
        join(state=tmp_path / "other")
    with pytest.raises(NotAStateError, match="is not a directory"):
        join(state=tmp_path / "other/thesis.txt")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.txt"]


def test_damaged_job_file_is_told(join: Callable[..., DataFrame], tmp_path: Path) -> None:
    join()
    path = tmp_path / "state/JOB"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"partitions", b"partitiens"))
    with pytest.raises(LsmStateError, match="damaged"):
        join()
