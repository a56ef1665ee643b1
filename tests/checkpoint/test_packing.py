"""States and records in flight: packed into manifest and sidecar, read back to the byte, or an error."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsmstate.checkpoint.manifest.manifest import CheckpointManifest
from lsmstate.checkpoint.manifest.operator_state import OperatorState, Place
from lsmstate.checkpoint.manifest.packing import (
    INLINE_BYTES,
    INLINE_TOTAL_BYTES,
    Packed,
    pack_states,
    read_states,
)
from lsmstate.errors import CorruptionError
from tests.support.checkpoints import LSM

BIG, OTHER = b"x" * (INLINE_BYTES + 1), b"y" * (INLINE_BYTES + 1)


def manifest(packed: Packed, checkpoint_id: int = 1) -> CheckpointManifest:
    return packed.into(CheckpointManifest.new(checkpoint_id, checkpoint_id))


def sidecars(*packed: Packed) -> Callable[[int], memoryview]:
    """The sidecars of checkpoints 1, 2 ..."""
    return lambda own: memoryview(b"".join(packed[own - 1].sidecar))


def test_small_state_goes_inline_and_large_state_into_the_sidecar() -> None:
    packed = pack_states({"edge": BIG[:-1], "large": BIG})
    assert packed.operator_states["edge"] == OperatorState(inline=BIG[:-1])
    assert packed.operator_states["large"].sidecar == Place(0, len(BIG), sha256(BIG).hexdigest())
    assert b"".join(packed.sidecar) == BIG


def test_many_small_states_do_not_bloat_the_manifest() -> None:
    states = {f"op{n:03d}": bytes([n]) * INLINE_BYTES for n in range(40)}
    packed = pack_states(states)
    inline = sum(len(state.inline or b"") for state in packed.operator_states.values())
    assert inline == INLINE_TOTAL_BYTES
    assert read_states(manifest(packed), sidecars(packed)).blobs == states


def test_absent_state_is_none_and_empty_state_is_empty() -> None:
    packed = pack_states({"none": None, "empty": b""})
    found = read_states(manifest(packed), sidecars(packed))
    assert found.get("none") is None
    assert found.get("never heard of") is None
    assert found.get("empty") == b""
    assert packed.sidecar == ()


def test_state_of_the_engine_goes_in_and_out_as_it_is() -> None:
    packed = pack_states({"join": LSM})
    found = read_states(manifest(packed), sidecars(packed))
    assert found.get("join") == LSM.lsm == found.lsm["join"]
    assert found.blobs == {}


def test_records_in_flight_come_back_in_order_and_no_records_leave_no_trace() -> None:
    packed = pack_states({}, {"join": {"left": [BIG, b"", b"a"], "right": []}, "map": {"in": []}})
    assert [*packed.inflight_data] == ["join"]
    assert [*packed.inflight_data["join"]] == ["left"]
    assert read_states(manifest(packed), sidecars(packed)).inflight == {"join": {"left": [BIG, b"", b"a"]}}


def test_state_in_some_sidecar_cannot_be_packed() -> None:
    with pytest.raises(ValueError, match="give its bytes"):
        pack_states({"a": OperatorState(sidecar=Place(0, 1, "ab" * 32))})


def test_unchanged_state_is_not_written_again() -> None:
    first = pack_states({"a": BIG * 3, "b": OTHER})
    second = pack_states({"a": BIG * 3, "b": OTHER + b"!"}, parent=manifest(first))
    told = manifest(second, 2)
    assert b"".join(second.sidecar) == OTHER + b"!"
    assert (told.is_incremental, told.parent_id) == (True, 1)
    assert read_states(told, sidecars(first, second)).blobs == {"a": BIG * 3, "b": OTHER + b"!"}


def test_incremental_checkpoints_lean_on_a_whole_one_directly() -> None:
    packed = [pack_states({"a": BIG * 9, "b": b"0" + OTHER})]
    for number in range(1, 6):
        parent = manifest(packed[-1], number)
        packed.append(pack_states({"a": BIG * 9, "b": b"%d" % number + OTHER}, parent=parent))
        assert packed[-1].parent_id == 1
    found = read_states(manifest(packed[-1], 6), sidecars(*packed))
    assert found.blobs == {"a": BIG * 9, "b": b"5" + OTHER}


def test_checkpoint_is_whole_again_when_most_has_changed() -> None:
    first = pack_states({"a": BIG, "b": OTHER * 2})
    second = pack_states({"a": BIG, "b": OTHER * 3}, parent=manifest(first))
    assert second.parent_id is None
    assert b"".join(second.sidecar) == BIG + OTHER * 3
    assert not manifest(second, 2).is_incremental


def test_parent_without_a_sidecar_is_not_leaned_on() -> None:
    first = pack_states({"a": b"small"})
    assert pack_states({"a": b"small", "b": BIG}, parent=manifest(first)).parent_id is None


def test_part_beyond_the_end_is_corruption_and_never_shorter() -> None:
    packed = pack_states({"a": BIG})
    with pytest.raises(CorruptionError, match=r"sidecar of checkpoint 1.*the state of 'a'"):
        read_states(manifest(packed), lambda own: memoryview(BIG[:-1]))
    with pytest.raises(CorruptionError):
        read_states(manifest(packed), lambda own: memoryview(b""))


def test_other_bytes_in_a_sidecar_are_corruption() -> None:
    packed = pack_states({"a": BIG})
    with pytest.raises(CorruptionError, match="other bytes"):
        read_states(manifest(packed), lambda own: memoryview(OTHER))


blob = st.binary(max_size=20) | st.integers(0, 3).map(lambda n: bytes([n]) * (INLINE_BYTES + n))


@settings(max_examples=60)
@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.none() | blob, max_size=4), min_size=1, max_size=5),
    st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from("lr"), st.lists(blob, max_size=2))),
)
def test_any_states_come_back_through_any_chain_of_checkpoints(
    history: list[dict[str, bytes | None]], inflight: dict[str, dict[str, list[bytes]]]
) -> None:
    packed: list[Packed] = []
    parent: CheckpointManifest | None = None
    for number, states in enumerate(history, 1):
        packed.append(pack_states(states, inflight, parent=parent))
        parent = manifest(packed[-1], number)
        found = read_states(parent, sidecars(*packed))
        assert found.blobs == {own: state for own, state in states.items() if state is not None}
        kept = {own: {i: b for i, b in inputs.items() if b} for own, inputs in inflight.items()}
        assert found.inflight == {own: inputs for own, inputs in kept.items() if inputs}
