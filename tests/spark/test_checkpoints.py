"""The job on Spark in a catalog: checkpoints appear, survive kills and a catalog that fails, and can be restored."""

from __future__ import annotations

import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lsmstate.checkpoint.catalog import Catalog
from lsmstate.checkpoint.manifest.store import ManifestStore
from lsmstate.cli import main
from lsmstate.join.checkpoints import sources_of
from lsmstate.spark.listener import listen
from lsmstate.spark.recorder import Recorder
from tests.support.checkpoint_driver import WITHIN_S, joined, start
from tests.support.counting_source import STEP, row_of

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
LAST = 4  # batches of rows when all is read after going back
SOURCE = "python"


def recorder(spark: SparkSession) -> Recorder:
    """The one of the newest join."""
    watcher = list(listen(spark)._watchers.values())[-1]
    assert isinstance(watcher, Recorder)
    return watcher


def run_on(spark: SparkSession, home: Path, url: str | None, checkpoint: str, first: int, end: int) -> None:
    """The query, till its sources are empty and the catalog has heard of it."""
    query = start(joined(spark, home, url, first, end), home, checkpoint)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    if url is not None:
        until(lambda: latest(url) == newest_epoch(home))


def until(reached: Any) -> None:
    deadline = time.monotonic() + 240
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def latest(url: str) -> int:
    with Catalog.open(url) as catalog:
        job = catalog.job("counting")
        return 0 if job is None else job.latest_checkpoint_epoch


def newest_epoch(home: Path) -> int:
    """Of the newest line: barriers are named by line and epoch."""
    return int(max(path.name for path in (home / "state/barriers").iterdir())[7:])


def outputs(home: Path, checkpoint: str, batches: range | None = None) -> Counter[tuple[str, ...]]:
    """What came out, of these batches."""
    found: Counter[tuple[str, ...]] = Counter()
    for path in (home / "out" / checkpoint).glob("*.json"):
        if batches is None or int(path.stem) in batches:
            found.update(map(tuple, json.loads(path.read_text())))
    return found


def pairs(rows: Counter[tuple[str, ...]]) -> Counter[tuple[str, str]]:
    """The values of the left and the right row of each."""
    return Counter({(row[2], row[-1]): count for row, count in rows.items()})


def expected(rows: int) -> Counter[tuple[str, str]]:
    """All pairs of the first rows of both sides."""
    left, right = ([row_of(number)[1:] for number in range(side, rows, 2)] for side in (0, 1))
    return Counter(
        (lv, rv)
        for key, ts, lv in left
        for other, at, rv in right
        if key == other and 0 <= at - ts <= WITHIN_S * 1_000_000
    )


def start_driver(home: Path, url: str, end: int) -> subprocess.Popen[bytes]:
    told = {"home": str(home), "url": url, "checkpoint": "one", "start": 0, "end": end, "pause_s": 0.1}
    command = [sys.executable, "-m", "tests.support.checkpoint_driver", json.dumps(told)]
    log = (home / "driver.log").open("ab")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def test_killed_job_is_restored_at_an_earlier_epoch_as_if_it_had_never_gone_further(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, home = f"sqlite:///{tmp_path}/catalog.db", tmp_path / "killed"
    home.mkdir()
    driver = start_driver(home, url, 20 * STEP)
    while not (home / "out/one/3.json").exists():
        assert driver.poll() is None, (home / "driver.log").read_text()[-3000:]
        time.sleep(0.005)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    before = latest(url)
    ended = len(list((home / "out/one").glob("*.json")))

    # the same query goes on: what the killed driver did not come to is made from disk
    run_on(spark, home, url, "one", 0, (ended + 1) * STEP)
    with Catalog.open(url) as catalog:
        rows = catalog.checkpoints("counting")
        job = catalog.job("counting")
    assert job is not None
    assert job.incarnation == 2
    last = newest_epoch(home)
    assert [row.epoch for row in rows] == list(range(1, last + 1))
    assert before <= ended < last
    store = ManifestStore(recorder(spark)._known()._home.fs, str(home / "state/checkpoints"))
    told = {listed.epoch: sources_of(listed.manifest) for listed in store.list() if listed.manifest is not None}
    known = [epoch for epoch, offsets in told.items() if None not in offsets.values()]
    assert {epoch: told[epoch] for epoch in known} == {
        epoch: {SOURCE: json.dumps({"next": min(epoch, ended + 1) * STEP})} for epoch in known
    }
    assert set(range(1, last + 1)) - set(known) <= set(range(before + 1, ended + 1))

    # back to an earlier epoch, as the command says
    assert main(["restore", "counting", "--epoch", "2", "--catalog", url, "--yes", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["epoch"], report["line"], report["left_behind"]) == (2, 2, list(range(3, last + 1)))
    (source,) = report["sources"]
    first = json.loads(source["offset"])["next"]
    assert (source["source"], first) == (SOURCE, 2 * STEP)
    with pytest.raises(StreamingQueryException, match="which is left behind, and cannot go on"):
        run_on(spark, home, None, "one", 0, 20 * STEP)
    run_on(spark, home, url, "two", first, LAST * STEP)
    with Catalog.open(url) as catalog:
        lines = [(row.line, row.epoch) for row in catalog.checkpoints("counting") if row.status == "committed"]
    assert lines[:2] == [(1, 1), (1, 2)]
    assert {line for line, _ in lines[2:]} == {2}

    # the same as one run over the same rows, and as a batch
    calm = tmp_path / "calm"
    calm.mkdir()
    run_on(spark, calm, None, "one", 0, LAST * STEP)
    restored = outputs(home, "one", range(2)) + outputs(home, "two")
    assert restored == outputs(calm, "one")
    assert Counter({pair: n for pair, n in pairs(restored).items() if pair[1] != "None"}) == expected(LAST * STEP)


def test_catalog_that_fails_in_the_middle_costs_the_query_nothing_and_is_caught_up(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home, file = tmp_path, tmp_path / "catalog.db"
    url = f"sqlite:///{file}"
    caplog.set_level(logging.WARNING, "lsmstate.spark")
    run_on(spark, home, url, "one", 0, 2 * STEP)
    mine = recorder(spark)
    begun = newest_epoch(home)

    with sqlite3.connect(file) as connection:  # a newer lsmstate has migrated it
        ((version,),) = connection.execute("select version from lsmstate_catalog").fetchall()
        connection.execute("update lsmstate_catalog set version = 99")
    connection.close()
    frame = joined(spark, home, url, 0, 4 * STEP)
    start(frame, home, "one").awaitTermination()
    assert recorder(spark).settle(60)
    assert newest_epoch(home) > begun
    complaints = [record.getMessage() for record in caplog.records]
    assert len(complaints) == 1
    assert "The query goes on; it is tried again after the next batch" in complaints[0]
    assert url not in complaints[0]

    with sqlite3.connect(file) as connection:
        connection.execute("update lsmstate_catalog set version = ?", (version,))
    connection.close()
    run_on(spark, home, url, "one", 0, 6 * STEP)
    with Catalog.open(url) as catalog:
        assert [row.epoch for row in catalog.checkpoints("counting")] == list(range(1, newest_epoch(home) + 1))
    assert mine is not recorder(spark)
    assert Counter({p: n for p, n in pairs(outputs(home, "one")).items() if p[1] != "None"}) == expected(6 * STEP)
