"""What every benchmark finds: a machine whose memory is full of cached files, as it is on one that has long been up.

A virtual machine that has just started, or gives free memory back to its host, fetches every page that a file grows
into from there first. That takes ten times as long as writing the page, now and then, and hides what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

_FREE_MAX = 1 << 30
_CHUNK = 1 << 24


def free_bytes() -> int:
    """Memory that holds nothing at all; none where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemFree:"))


@pytest.fixture(scope="session")
def holes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file that takes no room on the disk, and as much as there is in memory once it is read."""
    path = tmp_path_factory.mktemp("memory") / "holes"
    path.touch()
    yield path
    path.unlink()


@pytest.fixture(autouse=True)
def used_memory(holes: Path) -> None:
    """Fills memory with pages that the kernel drops as soon as anyone needs them.

    It reads no more than was free, because a container may not have all that the machine has.
    """
    with holes.open("r+b", buffering=0) as file:
        at = file.seek(0, 2)
        end = at + free_bytes()
        while at < end and free_bytes() > _FREE_MAX:
            file.truncate(at + _CHUNK)
            file.seek(at)
            file.read(_CHUNK)
            at += _CHUNK
