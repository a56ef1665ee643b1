"""The statistics of a store as OpenMetrics text, for whoever scrapes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lsmstate.engine.stats import Stats

Sample = tuple[Mapping[str, str], float]


def openmetrics(stats: Stats, **labels: str) -> str:
    """All numbers of a store. `labels` are put on every sample, such as job="ads"."""
    lines = []
    for name, kind, about, samples in _families(stats):
        lines += [f"# TYPE lsmstate_{name} {kind}", f"# HELP lsmstate_{name} {about}"]
        suffix = "_total" if kind == "counter" else ""
        lines += [f"lsmstate_{name}{suffix}{_labelled({**labels, **own})} {value:g}" for own, value in samples]
    return "\n".join([*lines, "# EOF", ""])


def _families(stats: Stats) -> Iterator[tuple[str, str, str, list[Sample]]]:
    def one(value: float) -> list[Sample]:
        return [({}, value)]

    sides = [({"side": side.name}, side) for side in stats.sides]
    yield "epoch", "gauge", "the last committed epoch", one(stats.epoch)
    yield "rows", "gauge", "rows in files and in memory", [(label, side.rows) for label, side in sides]
    yield "runs", "gauge", "runs that a probe looks into", [(label, side.runs) for label, side in sides]
    yield "files", "gauge", "files of the present version", one(stats.files)
    yield "file_bytes", "gauge", "bytes of those files", one(stats.file_bytes)
    yield "memtable_bytes", "gauge", "bytes in memory that are not flushed", one(stats.memtable_bytes)
    yield "tombstones", "gauge", "ranges that were removed and not folded yet", one(stats.tombstones)
    yield "write_amplification", "gauge", "bytes written for each byte flushed", one(stats.write_amplification)
    yield "space_amplification", "gauge", "rows in files for each row that is read", one(stats.space_amplification)
    yield "compaction_debt_rows", "gauge", "rows that the next merge would read", one(stats.debt_rows)
    yield "flushed_bytes", "counter", "bytes that were flushed", one(stats.flushed_bytes)
    yield "merges", "counter", "merges that were carried out", one(stats.compaction.merges)
    yield "merged_rows", "counter", "rows that merges have written", one(stats.compaction.rows_merged)
    yield "merged_bytes", "counter", "bytes that merges have written", one(stats.compaction.bytes_written)
    yield "adopted_merges", "counter", "merges that were adopted", one(stats.compaction.adopted)
    yield "collected_files", "counter", "files that were removed as garbage", one(stats.files_collected)
    answers = {"asked": stats.probes.asked, "passed": stats.probes.passed, "found": stats.probes.found}
    told: list[Sample] = [({"what": what}, number) for what, number in answers.items()]
    yield "filter_hashes", "counter", "hashes asked of filters, let through, and rows found", told
    lanes = list(stats.lanes.items())
    yield "jobs", "counter", "jobs of the I/O pool that ended", [({"lane": n}, m.finished) for n, m in lanes]
    yield "job_failures", "counter", "jobs of the I/O pool that failed", [({"lane": n}, m.failed) for n, m in lanes]
    yield "job_seconds", "counter", "seconds that its jobs took", [({"lane": n}, m.busy_seconds) for n, m in lanes]


def _labelled(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
