"""The manifest of a checkpoint: its fields, and what they mean."""

from __future__ import annotations

import json
import time
from dataclasses import MISSING, fields, replace

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
from lsmstate.checkpoint.manifest.operator_state import InflightRecords, OperatorState, Place
from lsmstate.errors import CorruptionError, FormatVersionError
from tests.support.checkpoints import LSM, SHA, full_manifest, manifests, problems, told

FIELDS = """version checkpoint_id epoch timestamp_ms source_offsets sink_epochs sink_commit_statuses table_offsets
    operator_states table_store_checkpoint_path wal_position per_core_wal_positions watermark source_watermarks
    source_names sink_names pipeline_hash inflight_data size_bytes is_incremental parent_id state_checksum"""
THE_22 = FIELDS.split()


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


@settings(max_examples=150)
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
