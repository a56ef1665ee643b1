"""What holds a join together (join/barrier.py, runs.py, lines.py, candidates.py): each document with a right checksum.

An input is the name of one of the documents of a sound home, a newline, and the body that it is to have.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from lsmstate.join.history import history_of
from lsmstate.join.home import Home, is_home
from lsmstate.join.reading import state_at
from lsmstate.join.restore import restore
from lsmstate.join.runs import enter_run
from lsmstate.manifest.codec import decode
from tests.fuzz.kit import body_of, documented, sealed
from tests.support.join_home import QUERY, RUN, JoinHome, join_spec
from tests.support.simfs import SimFileSystem

PATH = "/home"
PARTITIONS = 2


@cache
def sound() -> dict[str, bytes | None]:
    """A small home on its second line."""
    fs = SimFileSystem()
    join = JoinHome(PATH, join_spec(PATH, partitions=PARTITIONS), fs=fs)
    for epoch in (1, 2, 3):
        for partition in range(PARTITIONS):
            join.task(epoch, partition, join.rows(0, epoch, 4), join.rows(1, epoch, 4))
    restore(join.home, 2, "fuzz")
    JoinHome(PATH, join.spec, fs=fs, query="query-2").barrier(3)
    return fs.tree()


def documents() -> dict[str, bytes]:
    """The documents by their names below the home; manifests of the first partition only."""
    found = {}
    for path, data in sorted(sound().items()):
        name = path.removeprefix(f"{PATH}/")
        if data and (name.startswith(("barriers/", "runs/", "lines/", "JOB")) or "p-00000/manifest/0" in name):
            found[name] = data
    return found


def seeds() -> Iterator[tuple[str, bytes]]:
    for number, (name, data) in enumerate(documents().items()):
        stem = name.partition("/")[0].lower()
        yield f"{stem}{number:02d}", documents_line(number) + body_of(data)


def documents_line(number: int) -> bytes:
    """How an input says which document it changes: names of manifests differ from home to home."""
    return b"%02d\n" % number


def run(data: bytes) -> None:
    line, _, body = data.partition(b"\n")
    files = list(documents().items())
    name, was = files[int(line) % len(files) if line.isdigit() and len(line) < 5 else 0]
    own = decode(name, was)[0]
    fs = SimFileSystem.of({**sound(), f"{PATH}/{name}": sealed(own, body)})
    home = Home(fs, PATH)
    with documented():
        assert is_home(fs, PATH) in (True, False)
        history_of(home, PARTITIONS)
    with documented():
        state = state_at(fs, PATH, None)
        with state.partition(0) as store:
            for side in range(len(store.sides)):
                list(store.scan(side))
    with documented():
        for query in (QUERY, "query-2", "query-3"):
            with documented():
                enter_run(home, query, RUN, 0)
    with documented():
        restore(home, 2, "fuzz", sleep=lambda _: None)
