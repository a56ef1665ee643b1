"""The recorder: a catalog that fails costs nothing and is told in words, once; credentials stay where they are."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lsmstate import CatalogError
from lsmstate.checkpoint.catalog import Catalog
from lsmstate.spark.listener import EpochProgress, Listener
from lsmstate.spark.plan import stream_join
from lsmstate.spark.recorder import Recorder, check_url, name_of, offsets_of, watch
from tests.support.join_home import JoinHome

PATIENCE_S = 60
SECRET = "hunter2"


@dataclass
class Told:
    """What Spark tells of a batch."""

    batchId: int
    runId: str = "run-1"
    id: str = "query-1"
    observedMetrics: dict[str, Any] = field(default_factory=dict)
    durationMs: dict[str, int] = field(default_factory=dict)
    sink: Any = field(default_factory=lambda: SimpleNamespace(description="ForeachBatchSink"))

    @property
    def sources(self) -> list[Any]:
        offsets = json.dumps({"next": self.batchId}), json.dumps({"next": self.batchId + 1})
        return [SimpleNamespace(description="Rate[1]", startOffset=offsets[0], endOffset=offsets[1])]


def epoch_of(number: int) -> EpochProgress:
    pair = (0, 0)
    rest = (1, pair, 0, pair, pair, pair, pair, 0, 0, pair, None, (), 0.0, 0, ())
    return EpochProgress("ads", number, number - 1, *rest)


@pytest.fixture
def join(tmp_path: Path) -> JoinHome:
    return JoinHome(tmp_path / "home")


def batch(join: JoinHome, recorder: Recorder, epoch: int, run: str = "run-1") -> None:
    join.epoch(epoch)
    recorder.batch_ended(epoch_of(epoch), Told(epoch - 1, run))
    assert recorder.settle(PATIENCE_S)


def epochs(url: str) -> list[int]:
    with Catalog.open(url) as catalog:
        return [row.epoch for row in catalog.checkpoints("ads")]


def test_trouble_is_told_once_in_words_and_caught_up(
    join: JoinHome, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "lsmstate.spark")
    url = f"sqlite:///{tmp_path}/catalog.db"
    recorder = Recorder(join.spec, url, 0)
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "open", _down)
        recorder.register()
        batch(join, recorder, 1)
        batch(join, recorder, 2)
    (record,) = caplog.records
    assert record.getMessage() == (
        "ads: no checkpoint: it is down. The query goes on; it is tried again after the next batch"
    )
    batch(join, recorder, 3)
    assert epochs(url) == [1, 2, 3]
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "commit_job_checkpoint", _down)
        batch(join, recorder, 4)
    assert len(caplog.records) == 2
    recorder.close()


def _down(*_: object) -> None:
    raise CatalogError("it is down", "down")


def test_whatever_goes_wrong_never_reaches_who_tells(
    join: JoinHome, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(join.spec, f"sqlite:///{tmp_path}/catalog.db", 0)
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "take", lambda *_: 1 / 0)
        batch(join, recorder, 1)
    assert "ZeroDivisionError" in caplog.text
    batch(join, recorder, 2)
    assert epochs(f"sqlite:///{tmp_path}/catalog.db") == [1, 2]


def test_slow_catalog_keeps_nobody_waiting(join: JoinHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, asked = threading.Event(), []
    real = Catalog.open

    def slow(url: str) -> Catalog:
        asked.append(url)
        assert gate.wait(PATIENCE_S)
        return real(url)

    monkeypatch.setattr(Catalog, "open", slow)
    url = f"sqlite:///{tmp_path}/catalog.db"
    recorder = Recorder(join.spec, url, 0)
    recorder.register()
    for epoch in (1, 2, 3):
        join.epoch(epoch)
        recorder.batch_ended(epoch_of(epoch), Told(epoch - 1))
    assert not recorder.settle(0)
    gate.set()
    assert recorder.settle(PATIENCE_S)
    assert (len(asked), epochs(url)) == (1, [1, 2, 3])


def test_run_that_another_driver_replaced_is_silent_from_then_on(
    join: JoinHome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    recorder = Recorder(join.spec, url, 0)
    batch(join, recorder, 1)
    with Catalog.open(url) as catalog:
        catalog.take("ads")
    batch(join, recorder, 2)
    batch(join, recorder, 3)
    (record,) = caplog.records
    assert "is driven by incarnation 2, this is incarnation 1" in record.getMessage()
    assert "tried again" not in record.getMessage()
    batch(join, recorder, 4, run="run-2")
    assert epochs(url) == [2, 3, 4]


def test_last_epoch_gets_a_checkpoint_when_the_query_ends(join: JoinHome, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    recorder = Recorder(join.spec, url, 3_600_000)
    for epoch in (1, 2, 3):
        batch(join, recorder, epoch)
    assert epochs(url) == [1]
    recorder.query_ended("another run")
    recorder.query_ended("run-1")
    assert recorder.settle(PATIENCE_S)
    assert epochs(url) == [1, 3]


def test_listener_tells_who_watches_and_lets_go_of_who_did(join: JoinHome, tmp_path: Path) -> None:
    listener, url = Listener(), f"sqlite:///{tmp_path}/catalog.db"
    watch(listener, "ads#1", join.spec, url, 0)
    first = listener._watchers["ads#1"]
    assert isinstance(first, Recorder)
    watch(listener, "ads#1", join.spec, None, 0)
    assert listener._watchers == {}
    assert first._thread is not None
    first._thread.join(PATIENCE_S)
    assert not first._thread.is_alive()
    with Catalog.open(url) as catalog:
        assert [job.name for job in catalog.jobs()] == ["ads"]


# ---- credentials


def test_url_of_the_catalog_is_shown_nowhere(join: JoinHome, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"postgresql://ads:{SECRET}@127.0.0.1:1/none"
    recorder = Recorder(join.spec, url, 0)
    recorder.register()
    batch(join, recorder, 1)
    assert "no checkpoint" in caplog.text
    assert SECRET not in caplog.text + repr(recorder) + str(recorder)
    assert SECRET.encode() not in pickle.dumps(join.spec)
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("url", [f"mysql://u:{SECRET}@h/d", SECRET, f"postgresql://u:{SECRET}@h:port/d", 7])
def test_url_that_is_none_is_refused_without_being_repeated(url: object) -> None:
    with pytest.raises(ValueError, match="catalog") as raised:
        check_url(url)  # type: ignore[arg-type]
    assert SECRET not in str(raised.value)


def test_stream_join_takes_a_catalog_and_none_unless_told() -> None:
    told = stream_join.__kwdefaults__ or {}
    assert (told["catalog"], told["checkpoint_interval"]) == (None, "60 seconds")


def test_workers_that_import_the_join_import_no_catalog() -> None:
    program = "import sys, lsmstate.spark.task, lsmstate.cli; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# ---- names and offsets


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@11e7", "python"),
        ("org.apache.spark.sql.execution.streaming.ConsoleTable$@2d4e", "ConsoleTable"),
        ("KafkaV2[Subscribe[ads]]", "KafkaV2[Subscribe[ads]]"),
        ("FileSink[/out/a.b]", "FileSink[/out/a.b]"),
        ("", "unnamed"),
    ],
)
def test_names_are_the_same_in_every_run(description: str, name: str) -> None:
    assert name_of(description) == name


def test_offsets_are_by_source_without_our_ticker() -> None:
    sources = [
        SimpleNamespace(description="a.b.PythonMicroBatchStream@1", startOffset="null", endOffset='{"next": 1}'),
        SimpleNamespace(description="a.b.PythonMicroBatchStream@2", startOffset="None", endOffset="5"),
        SimpleNamespace(description="a.b.PythonMicroBatchStream@3", startOffset="null", endOffset='{"tick": 4}'),
        SimpleNamespace(description="KafkaV2[x]", startOffset='{"t":{"0":1}}', endOffset=None),
    ]
    assert offsets_of(sources) == (
        {"python": None, "python #2": None, "KafkaV2[x]": '{"t":{"0":1}}'},
        {"python": '{"next": 1}', "python #2": "5", "KafkaV2[x]": None},
    )
