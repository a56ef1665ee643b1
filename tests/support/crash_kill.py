"""A killed process and then a power cut: what the dead wrote can be seen by the next process, and is not durable.

So a handle that goes on from what it sees must not acknowledge anything that leans on what was never synced.
"""

from __future__ import annotations

from lsmstate import EpochError
from tests.support.crash_check import Broken, Checker, unsynced_lost
from tests.support.crash_workload import Epochs, Story
from tests.support.simdisk import DIR, Disk, Entry, Inode
from tests.support.simfs import SimFileSystem


def killed(fs: SimFileSystem, at: int) -> SimFileSystem:
    """The same disk after the first `at` entries of the journal, for another process: nothing was synced meanwhile."""
    disk = Disk(fs.point(0).durable)
    twins: dict[object, Inode] = {}
    for op, path, index, node, size in fs.journal[:at]:
        if op in ("create", "lock"):
            twins[node] = Inode()
        twin = twins.get(node)
        if op == "write":
            assert twin is not None
            assert isinstance(node, Inode)
            twin.append(node.data()[twin.size : size])
        if op in ("write", "sync", "sync_dir"):
            disk.journal.append(Entry(op, path, index, twin, size))
        else:
            disk.change(op, path, index, DIR if op == "make_dir" else twin)
        if op == "make_dir":
            disk.dirs[path] = {}
        if op == "sync" and twin is not None:
            twin.synced = size
    return SimFileSystem(disk)


def check_kill(checker: Checker, fs: SimFileSystem, at: int) -> None:
    """Raises Broken unless the next process can go on, whatever it does first, and keeps what it acknowledges."""
    for story in checker.stories:
        try:
            _go_on(checker, killed(fs, at), story, at)
            for epoch in _under_way(story, at):
                _commit(checker, killed(fs, at), story, epoch, at)
        except Broken as error:
            raise Broken(f"killed after {at} entries of the journal, then a power cut: {error}") from error


def _go_on(checker: Checker, fs: SimFileSystem, story: Story, at: int) -> None:
    held = checker.recover(fs, story)
    if not story.allows(held, at):
        raise Broken(f"{story.path} holds {held}, not one of {story.allowed(at)}")


def _commit(checker: Checker, fs: SimFileSystem, story: Story, epoch: int, at: int) -> None:
    """Repeats a commit whose outcome the dead process could not tell."""
    store = checker.open(fs, story)
    if store is None:
        return
    try:
        store.commit(epoch)
    except EpochError:
        return  # it had not come so far, or there are two to choose from; the source replays it
    except Exception as error:
        raise Broken(f"{story.path}: committing epoch {epoch} again raised {error!r}") from error
    checker.expect(unsynced_lost(fs), story, *_complete(story, epoch, at))


def _under_way(story: Story, at: int) -> set[int]:
    """The epochs that were being prepared or committed, or were waiting for their commit."""
    published = {max(p.epochs) for p in story.publications if p.begun < at < p.acknowledged and p.epochs}
    return published | {c.epoch for c in story.candidates if c.begun < at <= c.ended}


def _complete(story: Story, epoch: int, at: int) -> list[Epochs]:
    """What the state may hold once `epoch` is committed: what one of its candidates held."""
    published = [p.epochs for p in story.publications if p.begun < at and max(p.epochs, default=0) == epoch]
    return published + [c.epochs for c in story.candidates if c.begun < at and c.epoch == epoch]
