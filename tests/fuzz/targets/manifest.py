"""Manifests (manifest/log.py, version.py): a whole one, or after a NUL one that leans on it; what opens them."""

from __future__ import annotations

from collections.abc import Iterator

from lsmstate import StateStore
from lsmstate.cli.state_report import describe
from lsmstate.manifest import names
from tests.fuzz.kit import STATE, STORE, as_json, body_of, documented, mounted, sealed
from tests.support.simfs import SimFileSystem
from tests.support.small_store import SIDES, build, compact

FULL = str(names.Name(1, 1, "fuzz", 1, "full"))
DELTA = str(names.Name(2, 1, "fuzz", 2, "delta"))
IDENTITY = sealed("STATE", as_json({"store": STORE, "sides": [side.describe() for side in SIDES]}))


def seeds() -> Iterator[tuple[str, bytes]]:
    fs = SimFileSystem()
    build(fs)
    compact(fs)
    (mine,) = {_store(data) for path, data in fs.tree().items() if "/manifest/" in path and data is not None}
    found = {path: data for path, data in fs.tree().items() if data is not None and "/manifest/" in path}
    bodies = {path: body_of(data).replace(mine, STORE.encode()) for path, data in sorted(found.items())}
    full = next(body for path, body in bodies.items() if path.endswith(".full"))
    deltas = [body for path, body in bodies.items() if path.endswith(".delta")]
    yield "full", full
    for number, delta in enumerate(deltas):
        base = next(name for path in bodies if (name := path.rpartition("/")[2]).endswith(".full"))
        yield f"delta{number}", full + b"\0" + delta.replace(base.encode(), FULL.encode())
    yield "log", full.replace(b'"watermark"', b'"wal":[1,0],"watermark"')


def run(data: bytes) -> None:
    full, _, delta = data.partition(b"\0")
    files = {f"{STATE}/STATE": IDENTITY, f"{STATE}/manifest/{FULL}": sealed(FULL, full)}
    if delta:
        files[f"{STATE}/manifest/{DELTA}"] = sealed(DELTA, delta)
    newest = files[f"{STATE}/manifest/{DELTA if delta else FULL}"]
    for number in {1, _publication(delta or full)}:
        fs = mounted({**files, f"{STATE}/manifest/{names.head(number)}": newest})
        with documented():
            describe(fs, STATE)
        with documented(), StateStore.open(STATE, read_only=True, fs=fs) as store:
            store.stats()
            store.verify()
            for epoch in store.epochs():
                with documented(), store.at_epoch(epoch) as view:
                    list(view.scan(0))
        with documented(), StateStore.open(STATE, fs=fs) as store:
            store.remove(0, 0, 10)
            store.advance_watermark(1_000_000)
            store.snapshot_epoch(max(store.epochs(), default=0) + 1)


def _publication(text: bytes) -> int:
    _, _, told = text.partition(b'"publication":')
    digits = told.lstrip()[:16].split(b",")[0].split(b"}")[0]
    return int(digits) if digits.isdigit() and int(digits) else 1


def _store(document: bytes) -> bytes:
    return document.partition(b'"store":"')[2][:32]
