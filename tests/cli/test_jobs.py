"""`lsmstate jobs`, `checkpoints` and `restore`: what a catalog knows, and how a job goes back."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

from lsmstate import read_state
from lsmstate.checkpoint.catalog import Catalog, CheckpointRow
from lsmstate.cli.seeking import seek, undo
from lsmstate.join.lines import newest_line
from tests.cli.conftest import Run, Terminal
from tests.cli.test_join_state import on_one_line, tree
from tests.support.checkpoint_job import FILES, KAFKA, Driver, file_offset, kafka_offset

LAST = 5  # with four epochs retained: 2 to 5 can be restored


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    driver = Driver(tmp_path_factory.mktemp("job"))
    for epoch in range(1, LAST + 1):
        driver.batch(epoch)
    driver.checkpoints.lose_catalog()
    return driver


@pytest.fixture
def own(made: Driver, tmp_path: Path) -> Driver:
    """A job of its own, to be taken back; its definition tells where it lies now."""
    shutil.copytree(made.join.path, tmp_path / "home")
    shutil.copy(made.join.path.parent / "catalog.db", tmp_path / "catalog.db")
    driver = Driver(tmp_path)
    driver.checkpoints._register(driver.checkpoints._catalog_now())
    driver.checkpoints.lose_catalog()
    return driver


def pipeline(url: str) -> None:
    """A job of the other kind, with three checkpoints."""
    with Catalog.open(url) as catalog:
        catalog.register("orders", kind="pipeline", definition={}, comment="a pipeline")
        incarnation = catalog.take("orders")
        for epoch in (1, 2, 3):
            own = catalog.next_checkpoint_id("orders", incarnation)
            row = CheckpointRow(own, epoch, timestamp_ms=epoch, manifest="m")
            catalog.commit_job_checkpoint("orders", incarnation, row, {"orders": {"0": str(epoch)}})


# ---- jobs


def test_jobs_shows_where_each_job_stands(run: Run, made: Driver) -> None:
    result = run("jobs", "--catalog", made.url)
    assert (result.code, result.err) == (0, "")
    assert "1 job in the catalog /" in on_one_line(result.out)
    assert "ads spark 5 1 batch" in on_one_line(result.out)
    told = run("jobs", "--catalog", made.url, "--json").json
    assert (told["schema"], [job["name"] for job in told["jobs"]]) == ("lsmstate.jobs/1", ["ads"])
    (job,) = told["jobs"]
    assert (job["kind"], job["latest_checkpoint_epoch"], job["state"]) == ("spark", LAST, str(made.join.path))
    assert job["source_checkpoints"][KAFKA] == {"offset": kafka_offset(LAST)}


def test_catalog_is_found_by_the_environment_or_in_its_place(
    run: Run, made: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LSMSTATE_CATALOG", raising=False)
    result = run("jobs")
    assert result.code == 2
    assert "Give --catalog URL, or set LSMSTATE_CATALOG; there is no state/catalog.db here" in result.err
    monkeypatch.setenv("LSMSTATE_CATALOG", made.url)
    assert run("jobs").code == 0
    monkeypatch.delenv("LSMSTATE_CATALOG")
    (tmp_path / "state").mkdir()
    shutil.copy(made.url.removeprefix("sqlite:///"), tmp_path / "state/catalog.db")
    assert run("jobs", "--json").json["jobs"][0]["name"] == "ads"


@pytest.mark.parametrize("command", [["jobs"], ["checkpoints", "ads"], ["restore", "ads", "--epoch", "2", "--yes"]])
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///nowhere.db", "there is no such file"),
        ("mysql://ads:hunter2@host/db", "no URL of a catalog"),
        ("postgresql://ads:hunter2@127.0.0.1:1/db", "cannot be reached"),
    ],
)
def test_catalog_that_cannot_be_opened_is_exit_code_2_without_its_credentials(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], url: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*command, "--catalog", url)
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert "hunter2" not in result.err
    assert list(tmp_path.iterdir()) == []


def test_unknown_job_is_exit_code_2_with_those_that_there_are(run: Run, made: Driver) -> None:
    for command in (["checkpoints", "ad"], ["restore", "ad", "--epoch", "1", "--yes"]):
        result = run(*command, "--catalog", made.url)
        assert result.code == 2
        assert "there is no job 'ad'; those that there are: 'ads'" in result.err


# ---- checkpoints


def test_checkpoints_tells_of_each_its_epoch_and_its_offsets(run: Run, made: Driver) -> None:
    told = run("checkpoints", "ads", "--catalog", made.url, "--json").json
    assert (told["schema"], told["problem"], told["job"]["name"]) == ("lsmstate.checkpoints/1", None, "ads")
    assert [(c["epoch"], c["line"], c["status"]) for c in told["checkpoints"]] == [
        (epoch, 1, "committed") for epoch in (2, 3, 4, 5)
    ]
    assert told["checkpoints"][1]["sources"] == {
        KAFKA: {"offset": kafka_offset(3)},
        FILES: {"offset": file_offset(3)},
    }
    result = run("checkpoints", "ads", "--catalog", made.url)
    assert (result.code, result.err) == (0, "")
    assert "latest epoch 5 on line 1" in on_one_line(result.out)
    assert "lsmstate restore ads --epoch EPOCH" in result.out


def test_checkpoint_whose_epoch_was_retired_is_shown_as_such(run: Run, own: Driver) -> None:
    own.join.epoch(6)
    told = run("checkpoints", "ads", "--catalog", own.url, "--json").json
    assert [c["status"] for c in told["checkpoints"]] == ["retired", "committed", "committed", "committed"]
    result = run("restore", "ads", "--epoch", "2", "--catalog", own.url, "--yes")
    assert result.code == 2
    assert "was retired from the state (see retain=); those that can be restored: epochs 3 to 5" in result.err


def test_state_that_is_gone_is_told(run: Run, own: Driver) -> None:
    shutil.rmtree(own.join.path)
    told = run("checkpoints", "ads", "--catalog", own.url, "--json").json
    assert "there is no state of a join in" in told["problem"]
    assert {c["status"] for c in told["checkpoints"]} == {"unreadable"}
    assert "NOTE" in run("checkpoints", "ads", "--catalog", own.url).out
    assert run("restore", "ads", "--epoch", "3", "--catalog", own.url, "--yes").code == 2


# ---- restore


def test_restore_takes_state_and_catalog_back_and_says_how_to_go_on(run: Run, own: Driver) -> None:
    told = run("restore", "ads", "--epoch", "3", "--catalog", own.url, "--yes", "--json").json
    assert (told["schema"], told["epoch"], told["line"], told["left_behind"]) == ("lsmstate.restore/1", 3, 2, [4, 5])
    kafka, files = sorted(told["sources"], key=lambda source: str(source["source"]), reverse=True)
    assert (kafka["can_seek"], kafka["offset"]) == (True, kafka_offset(3))
    assert kafka["how"] == f".option(\"startingOffsets\", '{kafka_offset(3)}')"
    assert (files["can_seek"], files["offset"]) == (False, file_offset(3))
    assert "files cannot be sought by an offset" in files["how"]
    (sink,) = told["sinks"]
    assert "batches 3 to 4" in sink["how"]
    assert newest_line(own.join.home).epoch == 3
    assert {n // 1000 for n in read_state(own.join.path).column(0).to_pylist()} == {1, 2, 3}
    with own.catalog() as catalog:
        job = catalog.job("ads")
        assert job is not None
        assert (job.latest_checkpoint_epoch, job.line) == (3, 2)
        assert job.source_checkpoints == {KAFKA: {"offset": kafka_offset(3)}, FILES: {"offset": file_offset(3)}}
    statuses = [c["status"] for c in run("checkpoints", "ads", "--catalog", own.url, "--json").json["checkpoints"]]
    assert statuses == ["committed", "committed", "left_behind", "left_behind"]
    told = run("inspect", own.join.path, "--json").json
    assert (told["line"]["number"], told["left_behind"]) == (2, [{"line": 1, "epochs": [4, 5]}])
    assert "left behind" in run("inspect", own.join.path).out
    assert run("verify", own.join.path).code == 0


def test_restore_for_people_names_what_to_do(run: Run, own: Driver) -> None:
    result = run("restore", "ads", "--epoch", "4", "--catalog", own.url, "--yes")
    assert (result.code, result.err) == (0, "")
    for words in (
        "Job ads is back at epoch 4, on line 2",
        "epoch 5",
        "a new checkpointLocation",
        "CANNOT SEEK",
        "can seek",
        "lsmstate inspect /",
    ):
        assert words in on_one_line(result.out)


def test_restore_that_was_interrupted_before_the_catalog_was_told_is_repeated(
    run: Run, own: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "rewind", _dies)
        assert run("restore", "ads", "--epoch", "3", "--catalog", own.url, "--yes").code == 130
    assert newest_line(own.join.home).number == 2
    for _ in range(2):
        assert run("restore", "ads", "--epoch", "3", "--catalog", own.url, "--yes", "--json").json["line"] == 2
    with own.catalog() as catalog:
        job = catalog.job("ads")
        assert job is not None
        assert (job.latest_checkpoint_epoch, job.line) == (3, 2)


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("epoch", [0, 1, 6])
def test_epoch_without_a_checkpoint_is_refused_and_nothing_is_changed(run: Run, made: Driver, epoch: int) -> None:
    before = tree(made.join.path)
    result = run("restore", "ads", "--epoch", epoch, "--catalog", made.url, "--yes")
    assert result.code == 2
    assert f"epoch {epoch} has no checkpoint; those that can be restored: epochs 2 to 5" in result.err
    assert tree(made.join.path) == before


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 2), ("\n", 2), ("", 2)])
def test_restore_asks_first(run: Run, own: Driver, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    result = run("restore", "ads", "--epoch", "3", "--catalog", own.url)
    assert result.code == code
    assert "Take job ads back from epoch 5 to epoch 3? Stop it first. [y/N]" in result.err
    assert newest_line(own.join.home).number == (2 if code == 0 else 1)


def test_restore_without_anybody_to_ask_wants_to_be_told(
    run: Run, own: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    result = run("restore", "ads", "--epoch", "3", "--catalog", own.url)
    assert result.code == 2
    assert "Nobody is there to ask: repeat it with --yes" in result.err
    assert newest_line(own.join.home).number == 1


def test_pipeline_is_taken_back_in_the_catalog_alone(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    pipeline(url)
    told = run("restore", "orders", "--epoch", "2", "--catalog", url, "--yes", "--json").json
    assert (told["epoch"], told["line"], told["left_behind"], told["sinks"]) == (2, 2, [3], [])
    assert told["sources"] == [{"source": "orders", "offset": {"0": "2"}, "can_seek": True}]
    with Catalog.open(url) as catalog:
        job = catalog.job("orders")
        assert job is not None
        assert (job.latest_checkpoint_epoch, job.line, job.source_checkpoints) == (2, 2, {"orders": {"0": "2"}})
    result = run("restore", "orders", "--epoch", "1", "--catalog", url, "--yes")
    assert "start the job: it goes on from there" in on_one_line(result.out)
    told = run("checkpoints", "orders", "--catalog", url, "--json").json
    assert [c["status"] for c in told["checkpoints"]] == ["committed", "left_behind", "left_behind"]


# ---- in words


@pytest.mark.parametrize(
    ("name", "can", "words"),
    [
        ("KafkaV2[Subscribe[t]]", True, 'startingOffsets", \'{"t":{"0":5}}\''),
        ("FileStreamSource[file:/in]", False, "into a new directory in the place of file:/in"),
        ("RateStreamV2[rowsPerSecond=1]", False, "it makes rows by the clock"),
        ("RatePerMicroBatchStream", False, "cannot go back"),
        ("TextSocketV2[host: localhost]", False, "what was sent is gone"),
        ("python", None, 'a Python data source: if it has an option for where to start, give it {"t":{"0":5}}'),
        ("python #2", None, "a Python data source"),
        ("DeltaSource[file:/t]", None, "if it has an option for where to start"),
    ],
)
def test_what_each_source_can_do_is_said(name: str, can: bool | None, words: str) -> None:
    told = seek(name, '{"t":{"0":5}}', 6)
    assert told["can_seek"] is can
    assert words in told["how"]


def test_unknown_offsets_are_told_with_where_they_stand() -> None:
    told = seek("KafkaV2[Subscribe[t]]", None, 6)
    assert (told["can_seek"], "offsets/6 of the old checkpointLocation" in told["how"]) == (None, True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("FileSink[/out]", "/out holds the output of batches 3 to 4 too"),
        ("ForeachBatchSink", "what your function did with batches 3 to 4 stands"),
        ("ConsoleTable", "the output of batches 3 to 4 is there already"),
    ],
)
def test_what_a_sink_holds_of_later_batches_is_said(name: str, words: str) -> None:
    assert words in undo(name, 2, 4)
    assert "batches after 2" in undo(name, 2, None)
    assert "no batch" in undo(name, 2, 2)
