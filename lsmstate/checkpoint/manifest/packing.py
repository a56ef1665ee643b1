"""Operator states and records in flight, packed into a manifest and its sidecar, and read back.

Small bytes go inline, larger ones into the sidecar, one after the other. What the parent's sidecar already holds is not
written again: then the checkpoint is incremental and leans on the one sidecar of its parent, which is itself whole, so
that no chain is longer than two. Pure functions; any thread. Reading gives exactly the bytes that were packed, or
CorruptionError; None means that there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from iopool import Bytes
from lsmstate.checkpoint.manifest.manifest import CheckpointManifest
from lsmstate.checkpoint.manifest.operator_state import InflightRecords, LsmState, OperatorState, Place
from lsmstate.errors import CorruptionError

INLINE_BYTES = 4 << 10  # a state up to this size goes into the manifest
INLINE_TOTAL_BYTES = 64 << 10  # of all together: a manifest stays small

State = Bytes | OperatorState | None


@dataclass(frozen=True, slots=True)
class Packed:
    """What goes into a manifest, and the sidecar in pieces (none: no sidecar). parent_id: whose sidecar it leans on."""

    operator_states: dict[str, OperatorState]
    inflight_data: dict[str, dict[str, InflightRecords]]
    sidecar: tuple[memoryview, ...]
    parent_id: int | None

    def into(self, manifest: CheckpointManifest) -> CheckpointManifest:
        """The manifest with what was packed; to be saved with `sidecar`."""
        return replace(
            manifest,
            operator_states=self.operator_states,
            inflight_data=self.inflight_data,
            is_incremental=self.parent_id is not None,
            parent_id=self.parent_id,
        )


@dataclass(frozen=True, slots=True)
class States:
    """What was read back. An operator that is not there had no state; `lsm` are those whose state the engine has."""

    blobs: dict[str, memoryview] = field(repr=False)
    lsm: dict[str, LsmState]
    inflight: dict[str, dict[str, list[memoryview]]] = field(repr=False)

    def get(self, operator: str) -> memoryview | LsmState | None:
        """The state of an operator; None if it had none."""
        blob = self.blobs.get(operator)
        return self.lsm.get(operator) if blob is None else blob


def pack_states(
    states: Mapping[str, State],
    inflight: Mapping[str, Mapping[str, Sequence[Bytes]]] | None = None,
    *,
    parent: CheckpointManifest | None = None,
) -> Packed:
    """Packs the states by operator, and the records in flight by operator and input.

    None is no state. An OperatorState must be of the engine's files or inline, and goes in as it is. `parent` is the
    checkpoint before, if what has not changed since need not be written again.
    """
    base, known = _base(parent)
    packing = _Packing(base, known)
    result = packing.all(states, inflight or {})
    if base is not None and packing.reused_bytes <= packing.written_bytes:  # not worth keeping an old sidecar for
        packing = _Packing(None, {})
        result = packing.all(states, inflight or {})
    leans = base if packing.reused_bytes else None
    return Packed(*result, tuple(packing.pieces), leans)


def read_states(manifest: CheckpointManifest, sidecar_of: Callable[[int], memoryview]) -> States:
    """All that was packed into a manifest. `sidecar_of` gives the verified sidecar of a checkpoint."""
    reading = _Reading(manifest, sidecar_of)
    blobs: dict[str, memoryview] = {}
    lsm: dict[str, LsmState] = {}
    for operator, state in manifest.operator_states.items():
        if state.lsm is not None:
            lsm[operator] = state.lsm
        else:
            blobs[operator] = reading.bytes_of(state, operator)
    inflight = {
        operator: {own: [reading.bytes_of(blob, operator) for blob in records.blobs] for own, records in inputs.items()}
        for operator, inputs in manifest.inflight_data.items()
    }
    return States(blobs, lsm, inflight)


class _Packing:
    """One pass over all states."""

    def __init__(self, base: int | None, known: Mapping[tuple[str, int], Place]) -> None:
        self._base, self._known = base, known
        self._inline_bytes = 0
        self.pieces: list[memoryview] = []
        self.written_bytes = self.reused_bytes = 0

    def all(
        self, states: Mapping[str, State], inflight: Mapping[str, Mapping[str, Sequence[Bytes]]]
    ) -> tuple[dict[str, OperatorState], dict[str, dict[str, InflightRecords]]]:
        """Every state and every blob, in a fixed order."""
        packed = {own: self._packed(state) for own, state in sorted(states.items()) if state is not None}
        records = {
            operator: {
                own: InflightRecords(tuple(self._packed(blob) for blob in blobs))
                for own, blobs in sorted(inputs.items())
                if blobs
            }
            for operator, inputs in sorted(inflight.items())
        }
        return packed, {operator: inputs for operator, inputs in records.items() if inputs}

    def _packed(self, state: Bytes | OperatorState) -> OperatorState:
        if isinstance(state, OperatorState):
            if state.sidecar is not None:
                raise ValueError("a state in a sidecar cannot be packed again; give its bytes")
            return state
        view = memoryview(state).cast("B")
        if len(view) <= INLINE_BYTES and self._inline_bytes + len(view) <= INLINE_TOTAL_BYTES:
            self._inline_bytes += len(view)
            return OperatorState(inline=bytes(view))
        digest = sha256(view).hexdigest()
        known = self._known.get((digest, len(view)))
        if known is not None:
            self.reused_bytes += len(view)
            return OperatorState(sidecar=replace(known, checkpoint_id=self._base))
        place = Place(self.written_bytes, len(view), digest)
        self.pieces.append(view)
        self.written_bytes += len(view)
        return OperatorState(sidecar=place)


class _Reading:
    """Reads parts out of sidecars, each of which is asked for once."""

    def __init__(self, manifest: CheckpointManifest, sidecar_of: Callable[[int], memoryview]) -> None:
        self._own = manifest.checkpoint_id
        self._sidecar_of = sidecar_of
        self._sidecars: dict[int, memoryview] = {}

    def bytes_of(self, state: OperatorState, operator: str) -> memoryview:
        """The bytes of a state, found to be those that were packed."""
        if state.inline is not None:
            return memoryview(state.inline)
        place = state.sidecar
        assert place is not None
        holder = self._own if place.checkpoint_id is None else place.checkpoint_id
        if holder not in self._sidecars:
            self._sidecars[holder] = self._sidecar_of(holder)
        sidecar = self._sidecars[holder]
        where = f"the sidecar of checkpoint {holder}"
        if place.offset + place.length > len(sidecar):
            expected = f"{place.length} bytes of the state of {operator!r}"
            raise CorruptionError(where, place.offset, expected, f"a sidecar of {len(sidecar)} bytes")
        part = sidecar[place.offset : place.offset + place.length]
        if sha256(part).hexdigest() != place.digest:
            raise CorruptionError(where, place.offset, f"the state of {operator!r}", "other bytes")
        return part


def _base(parent: CheckpointManifest | None) -> tuple[int | None, dict[tuple[str, int], Place]]:
    """The one sidecar that can be leaned on, and what lies in it: the parent's own, or the one that it leans on."""
    if parent is None:
        return None, {}
    holder = parent.parent_id if parent.is_incremental else None
    places = [part.sidecar for part in parent.parts() if part.sidecar is not None]
    known = {(place.digest, place.length): place for place in places if place.checkpoint_id == holder}
    return (holder or parent.checkpoint_id, known) if known else (None, {})
