"""Defects, one change of the source each, and the tests that have to fail when they are planted.

A change is a text that stands exactly once in its file, and what takes its place: a defect that no longer fits the code
is found by `test_planted.py`, not passed over.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Defect:
    """One mistake. `tests` are arguments of pytest; `spark` says that they need a JVM."""

    where: str  # manifest, reader, Spark task ...
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    spark: bool = False


CRASH = ("tests/engine/test_crash.py", "-k", "leaves_last_acknowledged and not _after")

DEFECTS: dict[str, Defect] = {
    "manifest acknowledged before its directory is durable": Defect(
        "manifest",
        "lsmstate/manifest/log.py",
        "        self._fs.sync_dir(self.directory)\n        self.in_doubt = False\n",
        "        self.in_doubt = False\n",
        CRASH,
    ),
    "manifest candidate not fsynced": Defect(
        "manifest",
        "lsmstate/manifest/log.py",
        "        file.write([encode(name, body)])\n        file.sync()\n",
        "        file.write([encode(name, body)])\n",
        CRASH,
    ),
    "SSTable not fsynced": Defect(
        "SSTable",
        "lsmstate/sstable/writer.py",
        "            file.sync()\n        finally:\n",
        "        finally:\n",
        CRASH,
    ),
    "time bound of the reader off by one": Defect(
        "reader",
        "lsmstate/sstable/search.py",
        "(ts >= probes.low_ts[who]) & (ts <= probes.high_ts[who])",
        "(ts >= probes.low_ts[who]) & (ts < probes.high_ts[who])",
        ("tests/engine/test_probe.py",),
    ),
    "checksum of a block not compared": Defect(
        "reader",
        "lsmstate/sstable/blocks.py",
        "if digest(data[at : at + BLOCK], (seed + number * _SPREAD) & _U64_MASK) != sums[number]:",
        "if digest(data[at : at + BLOCK], (seed + number * _SPREAD) & _U64_MASK) is None:",
        ("tests/engine/test_damage.py", "-k", "every_flipped_byte"),
    ),
    "tombstone that kills rows that came after it": Defect(
        "tombstones",
        "compaction/retention.py",
        "dead |= (ts >= start) & (ts < end) & (ids < np.uint64(at))",
        "dead |= (ts >= start) & (ts < end)",
        ("tests/compaction/test_merge.py",),
    ),
    "restore that lists no files": Defect(
        "restore",
        "lsmstate/engine/epochs.py",
        "version = replace(past.version, line=core.head.version.line + 1, history=kept, wal=_log_mark(core))",
        "version = replace(past.version, files={}, line=core.head.version.line + 1, history=kept, wal=_log_mark(core))",
        ("tests/engine/test_epochs.py",),
    ),
    "restore that stays on its line": Defect(
        "restore",
        "lsmstate/engine/epochs.py",
        "line=core.head.version.line + 1",
        "line=core.head.version.line",
        ("tests/engine/test_epochs.py",),
    ),
    "collector that looks at the pins only once": Defect(
        "collector",
        "lsmstate/engine/garbage.py",
        "if collector.unreadable or live_pins(fs, core.path)[0] - pinned:",
        "if collector.unreadable:",
        ("tests/engine/test_pin_races.py",),
    ),
    "child that gives up its parent's pin": Defect(
        "pins",
        "lsmstate/engine/pins.py",
        "if os.getpid() == self.pid:",
        "if True:",
        ("tests/engine/test_fork.py",),
    ),
    "writer that has fallen behind and publishes all the same": Defect(
        "manifest",
        "lsmstate/manifest/log.py",
        "if _highest(self._fs.list_dir(self.directory)) > number:",
        "if number < 0:",
        ("tests/engine/test_two_processes.py", "-k", "commit-life"),
    ),
    "parent of another line": Defect(
        "join",
        "lsmstate/join/candidates.py",
        "(parsed.epoch, parsed.line) != (epoch, lies_on)",
        "parsed.epoch != epoch",
        ("tests/join/test_lines_kept.py",),
    ),
    "late rows that take part": Defect(
        "join",
        "lsmstate/join/late.py",
        "timed & (ts <= watermark) if watermark",
        "timed & (ts < watermark) if watermark",
        ("tests/join/test_operator_results.py", "tests/join/test_against_duckdb.py"),
    ),
    "late rows not dropped by the task": Defect(
        "Spark task",
        "lsmstate/spark/task.py",
        "rows = sort_out(batch, spec.sides[side], late, horizon)",
        "rows = sort_out(batch, spec.sides[side], None, horizon)",
        ("tests/spark/test_kinds.py", "-k", "idle_side"),
        spark=True,
    ),
    "task acknowledges before the epoch is durable": Defect(
        "Spark task",
        "lsmstate/spark/task.py",
        "    candidate = store.prepare(barrier.epoch, meta=meta)\n",
        '    candidate = f"{barrier.epoch:012d}-{barrier.line:06d}-0-000001.full"\n',
        ("tests/spark/test_exactly_once.py", "-k", "progress_tells"),
        spark=True,
    ),
    "task that starts each epoch from nothing": Defect(
        "Spark task",
        "lsmstate/spark/task.py",
        "        barrier.parent(place.partition),\n        spec.shape",
        "        None,\n        spec.shape",
        ("tests/spark/test_exactly_once.py", "-k", "progress_tells"),
        spark=True,
    ),
}
