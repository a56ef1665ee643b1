"""The manifest of a checkpoint: its fields, what they mean, and what is wrong where they contradict each other."""

from __future__ import annotations

import json
import time
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings

from lsmstate.checkpoint.manifest.manifest import (
    COMMITTED,
    PENDING,
    VERSION,
    CheckpointManifest,
    ConnectorCheckpoint,
    SinkCommitStatus,
    drift,
    failed,
)
from lsmstate.checkpoint.manifest.operator_state import InflightRecords, LsmState, OperatorState, Place, StateFile
from lsmstate.errors import CorruptionError, FormatVersionError
from tests.support.checkpoints import LSM, full_manifest, manifests

FIELDS = """version checkpoint_id epoch timestamp_ms source_offsets sink_epochs sink_commit_statuses table_offsets
    operator_states table_store_checkpoint_path wal_position per_core_wal_positions watermark source_watermarks
    source_names sink_names pipeline_hash inflight_data size_bytes is_incremental parent_id state_checksum"""
THE_22 = FIELDS.split()
SHA = "ab" * 32


def told(**more: Any) -> dict[str, Any]:
    """The JSON of a manifest, with some fields exchanged."""
    return {**json.loads(json.dumps(full_manifest().to_json())), **more}


def problems(severity: str, manifest: CheckpointManifest) -> set[str]:
    return {problem.field for problem in manifest.validate() if problem.severity == severity}


# ---- fields and versions


def test_manifest_has_the_22_fields_in_order_and_our_own_last() -> None:
    assert [field.name for field in fields(CheckpointManifest)] == [*THE_22, "incarnation"]
    assert [*full_manifest().to_json()] == [*THE_22, "incarnation"]


def test_all_but_the_first_four_have_defaults() -> None:
    needed = [f.name for f in fields(CheckpointManifest) if f.default is MISSING and f.default_factory is MISSING]
    assert needed == THE_22[:4]
    body = {"version": 1, "checkpoint_id": 3, "epoch": 2, "timestamp_ms": 5}
    assert CheckpointManifest.from_json(body) == CheckpointManifest(1, 3, 2, 5)
    for lacking in body:
        with pytest.raises(CorruptionError, match=f"the field {lacking}"):
            CheckpointManifest.from_json({own: value for own, value in body.items() if own != lacking})


def test_any_optional_field_may_be_missing_in_an_older_file() -> None:
    for own in [*THE_22[4:], "incarnation"]:
        body = told()
        del body[own]
        default = getattr(CheckpointManifest(1, 1, 1, 1), own)
        assert CheckpointManifest.from_json(body) == replace(full_manifest(), **{own: default})


def test_new_has_version_1_and_the_present_time() -> None:
    before = time.time_ns() // 1_000_000
    manifest = CheckpointManifest.new(4, 2, watermark=7)
    assert (manifest.version, manifest.checkpoint_id, manifest.epoch, manifest.watermark) == (1, 4, 2, 7)
    assert before <= manifest.timestamp_ms <= time.time_ns() // 1_000_000
    assert manifest.validate() == []


@pytest.mark.parametrize("version", [VERSION + 1, 99, 2**62])
def test_future_version_is_refused_clearly(version: int) -> None:
    with pytest.raises(FormatVersionError, match=f"where.json: written in format {version}"):
        CheckpointManifest.from_json({"version": version, "a field of the future": 1}, "where.json")


@settings(max_examples=150, deadline=None)
@given(manifests())
def test_every_valid_manifest_reads_back_the_same_from_json(manifest: CheckpointManifest) -> None:
    assert CheckpointManifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
    assert manifest.errors() == []


def test_no_field_is_never_written() -> None:
    """Each field that differs, differs in the JSON too."""
    manifest = full_manifest(
        operator_states={"big": OperatorState(sidecar=Place(0, 9, SHA, 3))},
        size_bytes=9,
        is_incremental=True,
        parent_id=3,
        state_checksum=SHA,
    )
    empty = CheckpointManifest(0, 0, 0, 0).to_json()
    assert [own for own, value in manifest.to_json().items() if value == empty[own]] == []
    assert CheckpointManifest.from_json(manifest.to_json()) == manifest


# ---- meaning


@pytest.mark.parametrize("own", ["version", "checkpoint_id", "epoch"])
@pytest.mark.parametrize("number", [0, -1])
def test_ids_and_epochs_below_1_are_errors(own: str, number: int) -> None:
    assert own in problems("error", replace(full_manifest(), **{own: number}))


def test_connectors_tell_offsets_epoch_and_metadata_of_sources_and_tables() -> None:
    body = told()
    assert body["source_offsets"]["clicks"] == {
        "offsets": {"0": "17", "1": "4"},
        "epoch": 9,
        "metadata": {"topic": "clicks"},
    }
    again = CheckpointManifest.from_json(body)
    assert again.table_offsets == {"ads": ConnectorCheckpoint({"row": "5"}, 8)}
    assert again.table_store_checkpoint_path == "tables/ads"


def test_table_with_offsets_but_no_rows_is_an_error() -> None:
    lost = full_manifest(table_store_checkpoint_path=None)
    assert "table_offsets" in problems("error", lost)
    held = replace(lost, operator_states={**lost.operator_states, "ads": LSM})
    assert held.errors() == []


def test_sinks_have_an_epoch_and_one_of_three_statuses() -> None:
    body = told()
    assert body["sink_commit_statuses"] == {"out": "pending", "audit": {"failed": "disk full"}}
    for status in (PENDING, COMMITTED, failed("why"), SinkCommitStatus("failed", "")):
        assert SinkCommitStatus.from_json(status.to_json()) == status
    assert len(failed("x" * 10_000).message or "") == 1000
    assert failed("half \ud800").message == "half ?"


def test_pending_and_failed_sinks_are_to_be_committed_because_offsets_have_moved() -> None:
    """Rolling them back would lose an epoch."""
    manifest = full_manifest(
        sink_epochs={"a": 9, "b": 8, "c": 9, "d": 9},
        sink_commit_statuses={"a": PENDING, "b": failed("x"), "c": COMMITTED},
        sink_names=("a", "b", "c", "d"),
    )
    assert manifest.uncommitted_sinks == {"a": 9, "b": 8, "d": 9}
    assert manifest.errors() == []


def test_state_is_inline_or_in_the_sidecar_or_files_of_the_engine() -> None:
    for state in (OperatorState(inline=b""), OperatorState(sidecar=Place(4, 5, SHA)), LSM):
        assert OperatorState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert [OperatorState(inline=b"abc").size_bytes, LSM.size_bytes] == [3, 4096]
    for none_or_several in ({}, {"inline": b"", "lsm": LSM.lsm}):
        with pytest.raises(ValueError, match="one of inline, sidecar and lsm"):
            OperatorState(**none_or_several)


def test_wal_positions_of_one_and_of_many_writers_are_kept() -> None:
    again = CheckpointManifest.from_json(told())
    assert (again.wal_position, again.per_core_wal_positions) == (77, {"w0": 3, "w1": 4})
    assert "wal_position" in problems("error", full_manifest(wal_position=-1))
    assert "per_core_wal_positions" in problems("error", full_manifest(per_core_wal_positions={"w": -1}))
    assert full_manifest(wal_position=0).errors() == []


def test_watermarks_are_absent_unless_told_and_never_of_unknown_sources() -> None:
    bare = CheckpointManifest.from_json(CheckpointManifest.new(1, 1, source_names=("a", "b")).to_json())
    assert bare.watermark is None
    assert bare.source_watermarks == {}
    assert "source_watermarks" in problems("error", full_manifest(source_watermarks={"ghost": 1}))


def test_names_are_sorted_and_drift_is_told() -> None:
    manifest = full_manifest(source_names=["views", "clicks", "views"])
    assert manifest.source_names == ("clicks", "views")
    same = {"source_names": ["views", "clicks"], "sink_names": ("out", "audit"), "pipeline_hash": "f00d"}
    assert drift(manifest, **same) == []
    changed = drift(manifest, source_names=["views", "bids"], sink_names=["out"], pipeline_hash="beef")
    assert changed == [
        "source 'bids' is new since the checkpoint",
        "source 'clicks' of the checkpoint is gone",
        "sink 'audit' of the checkpoint is gone",
        "the definition of the pipeline has changed since the checkpoint",
    ]
    assert drift(manifest) == []


def test_records_in_flight_are_kept_by_operator_and_input_in_order_and_empty_when_aligned() -> None:
    blobs = tuple(OperatorState(inline=data) for data in (b"2", b"1", b""))
    manifest = full_manifest(inflight_data={"join": {"left": InflightRecords(blobs), "right": InflightRecords()}})
    again = CheckpointManifest.from_json(json.loads(json.dumps(manifest.to_json())))
    assert [blob.inline for blob in again.inflight_data["join"]["left"].blobs] == [b"2", b"1", b""]
    assert CheckpointManifest.new(1, 1).inflight_data == {}
    with pytest.raises(ValueError, match="inline or in the sidecar"):
        InflightRecords((LSM,))


# ---- validate


def test_a_good_manifest_has_no_errors_and_says_which_sink_failed() -> None:
    assert [str(problem) for problem in full_manifest().validate()] == [
        "sink_commit_statuses: sink 'audit' failed to commit: recovery tries it again"
    ]


ERRORS: dict[str, tuple[str, dict[str, Any]]] = {
    "offset of an unknown source": ("source_offsets", {"source_offsets": {"ghost": ConnectorCheckpoint({}, 9)}}),
    "source from the future": ("source_offsets", {"source_offsets": {"clicks": ConnectorCheckpoint({}, 10)}}),
    "source before the beginning": ("source_offsets", {"source_offsets": {"clicks": ConnectorCheckpoint({}, -1)}}),
    "table from the future": ("table_offsets", {"table_offsets": {"ads": ConnectorCheckpoint({}, 10)}}),
    "sink from the future": ("sink_epochs", {"sink_epochs": {"out": 10, "audit": 9}}),
    "sink before the first epoch": ("sink_epochs", {"sink_epochs": {"out": 0, "audit": 9}}),
    "unknown sink": ("sink_epochs", {"sink_names": ("audit",)}),
    "status without an epoch": ("sink_commit_statuses", {"sink_epochs": {"out": 9}}),
    "incremental without parent": ("parent_id", {"is_incremental": True}),
    "its own parent": ("parent_id", {"is_incremental": True, "parent_id": 12}),
    "a parent of zero": ("parent_id", {"is_incremental": True, "parent_id": 0}),
    "sidecar without checksum": ("state_checksum", {"operator_states": {"a": OperatorState(sidecar=Place(0, 1, SHA))}}),
    "short checksum": ("state_checksum", {"state_checksum": "abababab"}),
    "state of a stranger": ("operator_states", {"operator_states": {"a": OperatorState(sidecar=Place(0, 1, SHA, 5))}}),
    "negative size": ("size_bytes", {"size_bytes": -1}),
    "negative incarnation": ("incarnation", {"incarnation": -1}),
    "too large an id": ("checkpoint_id", {"checkpoint_id": 10**12}),
}


@pytest.mark.parametrize("case", ERRORS)
def test_contradiction_is_an_error_that_names_its_field(case: str) -> None:
    field, more = ERRORS[case]
    assert field in problems("error", full_manifest(**more))


WARNINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "no time": ("timestamp_ms", {"timestamp_ms": 0}),
    "sink epoch without status": ("sink_commit_statuses", {"sink_commit_statuses": {}}),
    "offsets of a file that names no sources": ("source_offsets", {"source_names": ()}),
    "source without offsets": ("source_offsets", {"source_offsets": {}}),
    "parent that is not needed": ("parent_id", {"parent_id": 3}),
    "sidecar that nobody needs": ("state_checksum", {"state_checksum": SHA}),
    "other size": ("size_bytes", {"size_bytes": 1}),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_oddity_is_a_warning_and_no_error(case: str) -> None:
    field, more = WARNINGS[case]
    manifest = full_manifest(**more)
    assert field in problems("warning", manifest)
    assert manifest.errors() == []


def test_validate_raises_nothing_and_puts_errors_first() -> None:
    worst = CheckpointManifest(0, 0, 0, 0, is_incremental=True, sink_epochs={"s": 0}, size_bytes=-1)
    found = [problem.severity for problem in worst.validate()]
    assert found == sorted(found)
    assert {"version", "checkpoint_id", "epoch", "parent_id", "sink_epochs"} <= problems("error", worst)
    assert "timestamp_ms" in problems("warning", worst)


# ---- hostile content


HOSTILE: dict[str, dict[str, Any]] = {
    "a bool for a number": {"epoch": True},
    "a float for a number": {"epoch": 9.0},
    "text for a number": {"epoch": "9"},
    "null for a number": {"epoch": None},
    "a number of 65 bits": {"watermark": 2**63},
    "a number for a bool": {"is_incremental": 1},
    "a list for an object": {"source_offsets": []},
    "text for a list": {"source_names": "abc"},
    "an empty name": {"sink_epochs": {"": 1}},
    "names out of order": {"source_names": ["views", "clicks"]},
    "a name twice": {"source_names": ["clicks", "clicks"]},
    "half a character": {"source_names": ["\ud800"]},
    "an unknown field": {"surprise": 1},
    "a status of nobody": {"sink_commit_statuses": {"out": "maybe"}},
    "a status of a number": {"sink_commit_statuses": {"out": 1}},
    "a failure without text": {"sink_commit_statuses": {"out": {"failed": None}}},
    "a connector without epoch": {"source_offsets": {"a": {"offsets": {}}}},
    "an offset that is a number": {"source_offsets": {"a": {"offsets": {"0": 1}, "epoch": 1}}},
    "an unknown field in a connector": {"source_offsets": {"a": {"offsets": {}, "epoch": 1, "x": 1}}},
    "a path upwards": {"table_store_checkpoint_path": "../../etc"},
    "an absolute path": {"table_store_checkpoint_path": "/etc/passwd"},
    "a deep path": {"table_store_checkpoint_path": "/".join("abcdefghi")},
    "two kinds of state": {"operator_states": {"a": {"inline": "", "sidecar": {}}}},
    "no kind of state": {"operator_states": {"a": {}}},
    "an unknown kind of state": {"operator_states": {"a": {"pickle": "gASVAAAAAA=="}}},
    "no base64": {"operator_states": {"a": {"inline": "ab cd==="}}},
    "base64 with a newline": {"operator_states": {"a": {"inline": "aGk=\n"}}},
    "base64 with spare bits": {"operator_states": {"a": {"inline": "aGl="}}},
    "base64 without padding": {"operator_states": {"a": {"inline": "aGk"}}},
    "endless base64": {"operator_states": {"a": {"inline": "A" * (1 << 20)}}},
    "a place before the beginning": {"operator_states": {"a": {"sidecar": {"offset": -1, "length": 1, "digest": SHA}}}},
    "a place without digest": {"operator_states": {"a": {"sidecar": {"offset": 0, "length": 1}}}},
    "a short digest": {"operator_states": {"a": {"sidecar": {"offset": 0, "length": 1, "digest": "ab" * 8}}}},
    "a place in checkpoint 0": {
        "operator_states": {"a": {"sidecar": {"offset": 0, "length": 1, "digest": SHA, "checkpoint_id": 0}}}
    },
    "a file with a path": {
        "operator_states": {"a": {"lsm": {"candidate": "c", "directory": "d", "files": [["../x", 1, "ab" * 16]]}}}
    },
    "a candidate with a path": {"operator_states": {"a": {"lsm": {"candidate": "c/d", "directory": "d", "files": []}}}},
    "a directory upwards": {"operator_states": {"a": {"lsm": {"candidate": "c", "directory": "..", "files": []}}}},
    "a file without size": {
        "operator_states": {"a": {"lsm": {"candidate": "c", "directory": "d", "files": [["x", "ab" * 16]]}}}
    },
    "records of the engine": {"inflight_data": {"a": {"b": [LSM.to_json()]}}},
    "records without a list": {"inflight_data": {"a": {"b": LSM.to_json()}}},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_field_is_corruption(case: str) -> None:
    with pytest.raises(CorruptionError, match="where") as error:
        CheckpointManifest.from_json(told(**HOSTILE[case]), "where")
    assert error.value.path == "where"


@pytest.mark.parametrize("body", [None, [], "text", 5, True])
def test_what_is_no_object_is_corruption(body: object) -> None:
    with pytest.raises(CorruptionError):
        CheckpointManifest.from_json(body)


def test_errors_name_fields_and_no_values() -> None:
    with pytest.raises(CorruptionError) as error:
        CheckpointManifest.from_json(told(source_offsets={"secret-name": {"offsets": "secret-offset", "epoch": 1}}))
    assert "source_offsets" in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "A", "a\n", "x" * 129, "a\0"])
def test_unsafe_file_names_are_refused_when_they_are_made(name: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        StateFile(name, 1, "ab" * 16)
    with pytest.raises(ValueError, match="expected"):
        LsmState(name, "d")
