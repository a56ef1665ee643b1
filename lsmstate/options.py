"""The options of a store: few, each with a measured default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Options:
    """How a store behaves; nothing here changes what it means.

    memtable_bytes: rows held in memory before they are spilled in the middle of an epoch. Spilling early lets the
        disk work while the next rows are probed.
    retain: how many epochs can be read, restored and branched.
    batch_rows: the largest batch that scans and probes hand out.
    auto_compact: merge runs in the background. Without it, only `compact` does.
    group_access: files 0660 and directories 0770, where writers and readers are different users.
    durability: "epoch" makes rows durable with their epoch, and the source replays what came after it. "wal" makes each
        write durable before its call returns, by a write-ahead log: for sources that cannot replay.
    """

    memtable_bytes: int = 4 << 20
    retain: int = 10
    batch_rows: int = 64 << 10
    auto_compact: bool = True
    group_access: bool = False
    durability: Literal["epoch", "wal"] = "epoch"

    def __post_init__(self) -> None:
        for name, least in (("memtable_bytes", 1), ("retain", 1), ("batch_rows", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"Options.{name} must be a whole number of at least {least}, not {value!r}")
        if self.durability not in ("epoch", "wal"):
            raise ValueError(f"Options.durability must be 'epoch' or 'wal', not {self.durability!r}")
