"""State of the engine in a checkpoint: the files of a candidate are named, and found again as they were."""

from __future__ import annotations

import pytest

from lsmstate.checkpoint.manifest.lsm_files import check_lsm, lsm_state
from lsmstate.checkpoint.manifest.operator_state import LsmState, OperatorState
from lsmstate.errors import CorruptionError
from tests.support.simfs import SimFileSystem
from tests.support.small_store import build

ROOT = "/jobs/ads"


@pytest.fixture(scope="module")
def tree() -> dict[str, bytes | None]:
    """A state of the engine with some epochs, at ROOT/join."""
    fs = SimFileSystem()
    build(fs)
    (home,) = {path.removesuffix("/STATE") for path in fs.tree() if path.endswith("/STATE")}
    return {f"{ROOT}/join{path.removeprefix(home)}": data for path, data in fs.tree().items() if path.startswith(home)}


def candidates(tree: dict[str, bytes | None]) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in tree if path.endswith((".full", ".delta")))


def test_state_names_every_file_of_whole_and_of_relative_candidates(tree: dict[str, bytes | None]) -> None:
    fs = SimFileSystem.of(tree)
    kinds = set()
    for candidate in candidates(tree):
        state = lsm_state(fs, ROOT, "join", candidate)
        kinds.add((candidate.rpartition(".")[2], bool(state.files)))
        assert OperatorState.from_json(OperatorState(lsm=state).to_json()).lsm == state
        for file in state.files:
            assert len(tree[f"{ROOT}/join/sst/{file.name}"] or b"") == file.size_bytes
        assert check_lsm(fs, ROOT, state) == []
    assert ("delta", True) in kinds


def test_missing_changed_and_shortened_files_are_told(tree: dict[str, bytes | None]) -> None:
    state = lsm_state(SimFileSystem.of(tree), ROOT, "join", candidates(tree)[-1])
    path = f"{ROOT}/join/sst/{state.files[0].name}"
    data = tree[path]
    assert data is not None
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), b""):
        assert check_lsm(SimFileSystem.of({**tree, path: damaged}), ROOT, state) == [
            f"{path}: is not the file of the checkpoint"
        ]
    without = {own: value for own, value in tree.items() if own != path}
    assert check_lsm(SimFileSystem.of(without), ROOT, state) == [f"{path}: cannot be read: No such file or directory"]


def test_candidate_that_is_gone_or_damaged_or_names_other_files_is_told(tree: dict[str, bytes | None]) -> None:
    candidate = candidates(tree)[-1]
    path = f"{ROOT}/join/manifest/{candidate}"
    state = lsm_state(SimFileSystem.of(tree), ROOT, "join", candidate)
    for changed in ({own: value for own, value in tree.items() if own != path}, {**tree, path: b"rubbish"}):
        fs = SimFileSystem.of(changed)
        with pytest.raises(CorruptionError, match=candidate):
            lsm_state(fs, ROOT, "join", candidate)
        assert len(check_lsm(fs, ROOT, state)) == 1
    fewer = LsmState(candidate, "join", state.files[:-1])
    assert "names other files" in check_lsm(SimFileSystem.of(tree), ROOT, fewer)[0]
    with pytest.raises(CorruptionError, match="the name of a candidate"):
        lsm_state(SimFileSystem.of(tree), ROOT, "join", "head-0000000000000001")
