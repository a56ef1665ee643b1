"""What `validate` says of a manifest that contradicts itself: everything at once, errors first."""

from __future__ import annotations

from typing import Any

import pytest

from lsmstate.checkpoint.manifest.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
)
from lsmstate.checkpoint.manifest.operator_state import OperatorState, Place
from tests.support.checkpoints import SHA, full_manifest, problems


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
