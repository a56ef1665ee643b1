"""Damage: every byte of a manifest and of a sidecar, changed, cut off or added to, is CorruptionError."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import xxhash

from lsmstate.checkpoint.manifest.document import DOCUMENT_MAX_BYTES, decode_manifest, encode_manifest, manifest_name
from lsmstate.checkpoint.manifest.manifest import CheckpointManifest
from lsmstate.checkpoint.manifest.store import ManifestStore
from lsmstate.errors import CorruptionError
from tests.support.checkpoints import PATH, full_manifest, saved, store_on
from tests.support.simfs import SimFileSystem

NAME = manifest_name(2, 0)
SIDECAR = "000000000002.state"
BIG = bytes(range(256)) * 17


@pytest.fixture(scope="module")
def disk() -> SimFileSystem:
    """Checkpoints 1 and 2, the latter with a sidecar."""
    fs = SimFileSystem()
    store = store_on(fs)
    saved(store, 1, {"a": b"old"})
    saved(store, 2, {"a": BIG, "b": b"small"}, inflight={"a": {"in": [b"rows"]}})
    return fs


def content(disk: SimFileSystem, name: str) -> bytes:
    data = disk.tree()[f"{PATH}/{name}"]
    assert data is not None
    return data


def store_with(disk: SimFileSystem, name: str, data: bytes) -> ManifestStore:
    return store_on(SimFileSystem.of({**disk.tree(), f"{PATH}/{name}": data}))


def flips(data: bytes, bits: range) -> Iterator[bytes]:
    for at in range(len(data)):
        for bit in bits:
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            yield bytes(damaged)


def test_every_flipped_bit_of_a_manifest_is_corruption(disk: SimFileSystem) -> None:
    data = content(disk, NAME)
    for damaged in flips(data, range(8)):
        with pytest.raises(CorruptionError):
            decode_manifest("p", damaged, NAME)
    assert decode_manifest("p", data, NAME) == store_on(disk.copy()).load(2)


def test_every_truncation_and_addition_of_a_manifest_is_corruption(disk: SimFileSystem) -> None:
    data = content(disk, NAME)
    for damaged in [data[:size] for size in range(len(data))] + [data + more for more in (b"\n", b" ", b"\0", data)]:
        with pytest.raises(CorruptionError):
            decode_manifest("p", damaged, NAME)


def test_store_with_a_damaged_manifest_recovers_the_one_before_and_says_so(disk: SimFileSystem) -> None:
    data = content(disk, NAME)
    good = store_on(disk.copy()).load(1)
    cases = [*flips(data, range(1))][::7] + [data[:size] for size in range(0, len(data), 11)]
    for damaged in [*cases, b"", bytes(len(data))]:
        store = store_with(disk, NAME, damaged)
        with pytest.raises(CorruptionError, match=NAME):
            store.load(2)
        found = store.recover()
        assert found.manifest == good
        assert [skip.id for skip in found.skipped] == [2]
        assert store.list()[1].problem is not None


def test_every_flipped_byte_and_truncation_of_a_sidecar_is_corruption(disk: SimFileSystem) -> None:
    data = content(disk, SIDECAR)
    manifest = store_on(disk.copy()).load(2)
    assert manifest is not None
    cuts = [data[:size] for size in range(len(data))]
    for number, damaged in enumerate([*flips(data, range(1)), *cuts, data + b"\0", data[::-1]]):
        store = store_with(disk, SIDECAR, damaged)
        with pytest.raises(CorruptionError, match=SIDECAR):
            store.sidecar(manifest)
        if number % 97 == 0:
            with pytest.raises(CorruptionError):
                store.states(manifest)
            assert [skip.id for skip in store.recover().skipped] == [2]


def test_swapped_sidecars_are_found() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    first, second = saved(store, 1, {"a": BIG}), saved(store, 2, {"a": BIG[::-1]})
    tree = fs.tree()
    one, two = f"{PATH}/000000000001.state", f"{PATH}/000000000002.state"
    store = store_on(SimFileSystem.of({**tree, one: tree[two], two: tree[one]}))
    for manifest in (first, second):
        with pytest.raises(CorruptionError):
            store.states(manifest)


def sealed(text: bytes, name: str = NAME) -> bytes:
    """Any text as a manifest's file, its checksum right."""
    rest = text + b"\n}}\n"
    checksum = xxhash.xxh3_128_hexdigest(f"{name}\n".encode() + rest)
    return f'{{"checkpoint_manifest": "{name}", "checksum": "{checksum}", "manifest": {{\n'.encode() + rest


GOOD = b'"version": 1, "checkpoint_id": 2, "epoch": 2, "timestamp_ms": 1'
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "other JSON": b"{}",
    "endless first line": b'{"checkpoint_manifest": "' + b"0" * 10_000,
    "no JSON": sealed(b"{{{"),
    "a field twice": sealed(GOOD + b', "epoch": 3'),
    "a field twice inside": sealed(GOOD + b', "sink_epochs": {"a": 1, "a": 2}'),
    "more objects": sealed(GOOD + b'}}, {"x": {'),
    "a float": sealed(GOOD + b', "watermark": 1.0'),
    "an exponent": sealed(GOOD + b', "watermark": 1e3'),
    "infinity": sealed(GOOD + b', "watermark": Infinity'),
    "not a number": sealed(GOOD + b', "watermark": NaN'),
    "an endless number": sealed(GOOD + b', "watermark": ' + b"9" * 10_000),
    "too deep": sealed(GOOD + b', "operator_states": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "deep lists": sealed(GOOD + b', "source_names": ' + b"[" * 100_000 + b"]" * 100_000),
    "not UTF-8": sealed(GOOD + b', "pipeline_hash": "\xff\xfe"'),
    "a control character": sealed(GOOD + b', "pipeline_hash": "\x00"'),
    "an unknown field": sealed(GOOD + b', "__reduce__": "os.system"'),
    "another checkpoint": sealed(GOOD.replace(b'"checkpoint_id": 2', b'"checkpoint_id": 3')),
    "another name": sealed(GOOD, manifest_name(3, 0)),
    "another revision": sealed(GOOD, manifest_name(2, 1)),
    "nothing in it": sealed(b""),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file_is_corruption(case: str) -> None:
    with pytest.raises(CorruptionError) as error:
        decode_manifest("some/path", HOSTILE[case], NAME)
    assert error.value.path == "some/path"


def test_what_is_sealed_here_is_what_the_store_reads() -> None:
    assert decode_manifest("p", sealed(GOOD), NAME) == CheckpointManifest(1, 2, 2, 1)
    name = manifest_name(12, 3)
    assert decode_manifest("p", encode_manifest(name, full_manifest()), name) == full_manifest()


def test_file_that_is_too_large_is_damage_and_is_not_read(disk: SimFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsmstate.checkpoint.manifest.document.DOCUMENT_MAX_BYTES", 100)
    with pytest.raises(CorruptionError, match="larger than 100 bytes"):
        store_on(disk.copy()).load(2)
    assert DOCUMENT_MAX_BYTES == 64 << 20


@pytest.mark.parametrize(
    "name",
    [
        *("000000000001.json", "000000000001.01.json", "1.0.json", "000000000001.0.json.bak", "000000000000.0.json"),
        *("000000000001.0.JSON", "0000000000010.state", ".state", "000000000001.-1.json", "000000000001.9999999.json"),
    ],
)
def test_other_names_are_not_taken_for_checkpoints(name: str) -> None:
    store = store_on(SimFileSystem.of({f"{PATH}/{name}": b"rubbish"}))
    assert (store.ids(), store.recover().manifest, store.remove_orphans()) == ([], None, [])


def test_directory_in_place_of_a_file_is_damage() -> None:
    store = store_on(SimFileSystem.of({f"{PATH}/{NAME}": None}))
    with pytest.raises(CorruptionError):
        store.load(2)
