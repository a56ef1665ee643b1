"""Rows with a column of every Spark type, and their join: by a session of the test, or by a driver of its own through
Spark Connect: `python -m tests.support.typed_rows HOME HOW`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lsmstate.spark import stream_join
from tests.support.spark_session import TIME_TYPE, connect_session

ZONE = "America/New_York"
# each: what a row has that has a value; {n} is a number of the row
TYPES = {
    "byte": "cast({n} % 100 as tinyint)",
    "real": "cast({n} / 8 as float)",
    "dec": "cast({n} / 4 as decimal(38,10))",
    "small_dec": "cast({n} / 4 as decimal(5,2))",
    "raw": "unhex(hex({n}))",
    "day": "date_add(date'1969-12-30', cast({n} as int))",
    "zoned": "timestamp_micros({n} * 1000001)",
    "local": "timestamp_ntz'1960-01-01 00:00:00' + make_dt_interval({n})",
    "letters": "cast({n} as char(7))",
    "words": "cast({n} as varchar(7))",
    "folded": "concat('Ab', {n}) collate UTF8_LCASE",
    "day_time": "make_dt_interval({n}, 1, 2, 3.5)",
    "hours": "cast(make_dt_interval({n}) as interval hour)",
    "months": "make_ym_interval({n}, 3)",
    "years": "cast(make_ym_interval(-{n}) as interval year)",
    "calendar": "make_interval({n}, -2, 3, 4, 5, 6, -7.5)",
    "clock": "cast(make_time(cast({n} % 24 as int), 59, 1.234567) as time(6))",
    "clock_ns": "cast(concat('12:00:00.12345678', {n} % 10) as time(9))",
    "clock_s": "cast(make_time(cast({n} % 24 as int), 59, 1) as time(0))",
    "nothing": "null",
    "free": "parse_json(concat('{{\"n\":', {n}, '}}'))",
    "list": "if({n} % 3 = 0, array(), array({n}, null))",
    "texts": "array('a', null, cast({n} as string), '')",
    "lists": "array(array({n}), null, array())",
    "times": "array(timestamp_micros({n} * 1000001), null)",
    "empty": "array()",
    "pair": "struct({n} as a, cast(null as string) as b, array({n}) as c)",
    "struct_null": "if({n} % 3 = 0, null, struct({n} as a, struct(cast({n} as decimal(9,1)) as x) as b))",
    "map": "map('a', {n}, cast({n} as string), null)",
    "maps": "map(struct({n} as x), array(map({n}, date'2024-02-29'), null))",
    "list_months": "array(make_ym_interval(1, cast({n} as int)), null)",
    "struct_calendar": "struct(make_interval({n}) as i, make_ym_interval({n}) as m)",
    "list_hours": "array(cast(make_dt_interval({n}) as interval day))",
    "list_folded": "array(concat('Ab', {n}) collate UTF8_LCASE)",
    "list_nothing": "array(null, null)",
    "struct_nothing": "struct(null as v, {n} as w)",
    "list_free": "array(parse_json('[1]'), null)",
    "list_clock": "array(make_time(1, 2, 3.5))",
}
ROWS = 40


def know_all(session: SparkSession) -> None:
    """Makes a session know TIME, in a zone that is not UTC."""
    session.conf.set(TIME_TYPE, "true")
    session.conf.set("spark.sql.session.timeZone", ZONE)


def typed(rows: DataFrame, name: str) -> DataFrame:
    """The rows with a column of every type; every fifth row has NULL in it."""
    columns = [
        f"case when id % 5 = {at % 5} then null else {told.format(n='cast(id as int)')} end as {name}_{column}"
        for at, (column, told) in enumerate(TYPES.items())
    ]
    return rows.selectExpr("id as k", f"timestamp_seconds(id) as {name}_ts", *columns)


def as_text(rows: DataFrame) -> DataFrame:
    """The same, every value as Spark writes it."""
    return rows.selectExpr(*(f"cast(`{name}` as string)" for name in rows.columns))


def joined(session: SparkSession, home: Path, how: str) -> DataFrame:
    """The stream-stream join of the files `l` and `r`."""
    inputs = [typed(session.readStream.schema("id long").parquet(str(home / name)), name) for name in "lr"]
    return stream_join(
        *inputs,
        on="k",
        how=how,
        time=("l_ts", "r_ts"),
        within=("0 seconds", "1 second"),
        watermark=("1000 seconds", "1000 seconds"),
        state=str(home / "state"),
        partitions=2,
    )


def main(home: Path, how: str) -> None:
    """Joins through Spark Connect, till the files are read; what came out is in `out`, as text."""
    session = connect_session("local[2]")
    know_all(session)
    writer = as_text(joined(session, home, how)).writeStream.format("parquet").option("path", str(home / "out"))
    query = writer.option("checkpointLocation", str(home / "ck")).trigger(availableNow=True).start()
    query.awaitTermination(120)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
