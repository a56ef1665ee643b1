"""A state with a write-ahead log in a `World`: its rows, a new handle, and one after a power cut."""

from __future__ import annotations

from typing import Any

from lsmstate import StateStore
from tests.support.crash_check import unsynced_lost
from tests.support.states import World


def row(n: int) -> tuple[int, int, str]:
    """A row that tells its number."""
    return (n, n, f"value {n}")


def wal(world: World, **options: Any) -> StateStore:
    """A new handle, with a log."""
    return world.open(durability="wal", **options)


def after_power_cut(world: World, **options: Any) -> StateStore:
    """A new handle on the disk that a power cut leaves now."""
    world.fs = unsynced_lost(world.fs)
    return wal(world, **options)
