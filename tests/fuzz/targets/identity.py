"""STATE (engine/identity.py, schema.py): whose files these are and what sides they hold; and JOB of a join."""

from __future__ import annotations

from collections.abc import Iterator

from lsmstate import StateStore
from lsmstate.engine.identity import read_identity
from lsmstate.join.spec import Job
from lsmstate.manifest.codec import decode
from tests.fuzz.kit import STATE, STORE, as_json, documented, mounted, sealed
from tests.support.join_home import join_spec
from tests.support.small_store import SIDES

WHERE = f"{STATE}/STATE"


def seeds() -> Iterator[tuple[str, bytes]]:
    yield "two_sides", as_json({"store": STORE, "sides": [side.describe() for side in SIDES]})
    yield "job", as_json(join_spec("/x").describe())


def run(data: bytes) -> None:
    document = sealed("STATE", data)
    with documented():
        identity = read_identity(mounted({WHERE: document}), STATE)
        assert identity is not None
        with StateStore.open(STATE, read_only=True, fs=mounted({WHERE: document})) as store:
            assert store.sides == identity.sides
    with documented():
        job = Job.parse("/job", decode("/job", document, "STATE")[1])
        assert len(job.state_sides) >= 2
