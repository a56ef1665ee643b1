"""The log of manifests: candidates, publication by exactly one, deltas with a full one every 64."""

from __future__ import annotations

import threading

import pytest

from lsmstate import CorruptionError, FencedError, SnapshotExpired
from lsmstate.manifest import names
from lsmstate.manifest.log import DELTAS_MAX, Head, ManifestLog
from lsmstate.manifest.version import Version
from lsmstate.refs import FileRef
from tests.support.simfs import SimFileSystem

NONE = Head(0, None)
WRITERS = 8


@pytest.fixture
def fs() -> SimFileSystem:
    return SimFileSystem.of({"/s/manifest": None})


def make_log(fs: SimFileSystem, store: str = "store") -> ManifestLog:
    return ManifestLog(fs.spawn(), "/s", store, 2)


def version(epoch: int) -> Version:
    refs = [FileRef(f"{n}.sst", n, "d", ()) for n in range(max(0, epoch - 5), epoch)]
    return Version(epoch=epoch, files={ref.name: ref for ref in refs})


def publish(log: ManifestLog, epoch: int, after: Head) -> Head:
    return log.publish(log.write_candidate(version(epoch), "a", epoch, after), after)


def test_new_log_is_empty(fs: SimFileSystem) -> None:
    head = make_log(fs).head()
    assert (head.number, head.manifest, head.version) == (0, None, Version())


def test_candidate_is_no_head(fs: SimFileSystem) -> None:
    log = make_log(fs)
    manifest = log.write_candidate(version(1), "a", 1, NONE)
    assert log.head().number == 0
    assert log.candidates(1, 1) == [manifest.name]
    assert log.candidates(1, 2) == []
    assert log.candidates(2, 1) == []


def test_chain_reads_back_the_same_with_a_full_manifest_every_64(fs: SimFileSystem) -> None:
    log, head = make_log(fs), NONE
    kinds = []
    for epoch in range(1, 2 * DELTAS_MAX + 3):
        head = publish(log, epoch, head)
        read = make_log(fs).head()
        assert read == head
        assert read.version == version(epoch)
        assert read.manifest is not None
        kinds.append(read.manifest.name.rpartition(".")[2])
    assert [epoch for epoch, kind in enumerate(kinds, 1) if kind == "full"] == [1, DELTAS_MAX + 1, 2 * DELTAS_MAX + 1]


def test_delta_leans_on_one_full_manifest(fs: SimFileSystem) -> None:
    log, head = make_log(fs), NONE
    for epoch in range(1, 6):
        head = publish(log, epoch, head)
    assert head.manifest is not None
    base = log.read(head.manifest.base_name)
    assert (base.version, base.deltas, base.base_name) == (version(1), 0, base.name)
    assert head.manifest.deltas == 4


def test_full_manifest_can_be_asked_for(fs: SimFileSystem) -> None:
    log = make_log(fs)
    head = publish(log, 1, NONE)
    manifest = log.write_candidate(version(2), "a", 2, head, full=True)
    assert manifest.name.endswith(".full")
    assert manifest.base_name == manifest.name


def test_exactly_one_of_many_publishes(fs: SimFileSystem) -> None:
    logs = [make_log(fs) for _ in range(WRITERS)]
    candidates = [log.write_candidate(version(1), f"w{n}", 1, NONE) for n, log in enumerate(logs)]
    start, won, lost = threading.Barrier(WRITERS), [], []

    def race(number: int) -> None:
        start.wait()
        try:
            won.append(logs[number].publish(candidates[number], NONE))
        except FencedError:
            lost.append(number)

    threads = [threading.Thread(target=race, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert (len(won), len(lost)) == (1, WRITERS - 1)
    assert make_log(fs).head().manifest == won[0].manifest


def test_writer_far_behind_is_fenced_though_its_head_was_collected(fs: SimFileSystem) -> None:
    log, head = make_log(fs), NONE
    late = make_log(fs)
    candidate = late.write_candidate(version(1), "late", 1, NONE)
    for epoch in range(1, 6):
        head = publish(log, epoch, head)
    for number in (1, 2, 3):
        fs.unlink(f"/s/manifest/{names.head(number)}")
    with pytest.raises(FencedError, match="another handle published after head 0"):
        late.publish(candidate, NONE)
    assert make_log(fs).head() == head
    assert names.head(1) not in fs.list_dir("/s/manifest")


def test_writer_whose_own_head_is_collected_before_it_looks_is_fenced(fs: SimFileSystem) -> None:
    slow, other = fs.spawn(), make_log(fs)
    late = ManifestLog(slow, "/s", "store", 2)
    candidate = late.write_candidate(version(1), "late", 1, NONE)
    overtaken: list[Head] = []

    def overtake(op: str, path: str, at: int) -> None:
        if op == "link":
            head = other.head()
            for epoch in range(2, 5):
                head = publish(other, epoch, head)
            fs.unlink(f"/s/manifest/{names.head(1)}")
            overtaken.append(head)

    slow.fault_after = overtake
    with pytest.raises(FencedError, match="another handle published after head 0"):
        late.publish(candidate, NONE)
    assert make_log(fs).head() == overtaken[0]


def test_writer_whose_candidate_was_collected_is_fenced(fs: SimFileSystem) -> None:
    log, late = make_log(fs), make_log(fs)
    candidate = late.write_candidate(version(1), "late", 1, NONE)
    publish(log, 1, NONE)
    fs.unlink(f"/s/manifest/{candidate.name}")
    with pytest.raises(FencedError):
        late.publish(candidate, NONE)


def test_manifest_of_another_state_is_refused(fs: SimFileSystem) -> None:
    publish(make_log(fs), 1, NONE)
    with pytest.raises(CorruptionError, match="a manifest of state other"):
        make_log(fs, "other").head()


def test_retired_manifest_says_so(fs: SimFileSystem) -> None:
    log = make_log(fs)
    head = publish(log, 1, NONE)
    assert head.manifest is not None
    fs.unlink(f"/s/manifest/{head.manifest.name}")
    with pytest.raises(SnapshotExpired, match="its epoch was retired"):
        log.read(head.manifest.name)
    assert log.head() == head  # its other name is still there


def test_head_with_the_wrong_number_is_corruption(fs: SimFileSystem) -> None:
    log = make_log(fs)
    publish(log, 1, NONE)
    fs.link(f"/s/manifest/{names.head(1)}", f"/s/manifest/{names.head(9)}")
    with pytest.raises(CorruptionError, match="publication 9"):
        log.head()


def test_manifest_under_a_foreign_name_is_corruption(fs: SimFileSystem) -> None:
    log = make_log(fs)
    manifest = log.write_candidate(version(1), "a", 1, NONE)
    other = str(names.Name(2, 1, "a", 1, "full"))
    fs.link(f"/s/manifest/{manifest.name}", f"/s/manifest/{other}")
    with pytest.raises(CorruptionError):
        log.read(other)


def test_candidate_is_written_before_it_is_named_durable(fs: SimFileSystem) -> None:
    log = make_log(fs)
    log.publish(log.write_candidate(version(1), "a", 1, NONE), NONE)
    order = [(entry.op, entry.path.rpartition("/")[2]) for entry in fs.journal]
    name = str(names.Name(1, 1, "a", 1, "full"))
    assert order == [
        ("create", name),
        ("write", name),
        ("sync", name),
        ("sync_dir", "manifest"),
        ("link", names.head(1)),
        ("sync_dir", "manifest"),
    ]
