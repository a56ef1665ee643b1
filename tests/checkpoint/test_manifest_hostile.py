"""Manifests from somebody else: whatever a field holds, it is sound or refused, and no value of it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from lsmstate.checkpoint.manifest.manifest import (
    CheckpointManifest,
)
from lsmstate.checkpoint.manifest.operator_state import LsmState, StateFile
from lsmstate.errors import CorruptionError
from tests.support.checkpoints import LSM, SHA, told

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
