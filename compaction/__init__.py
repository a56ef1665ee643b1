"""Decides and merges: what to compact next, as a value, and the order of merged rows. No files, no threads."""

from compaction.merge import cut_points, merge_order
from compaction.picker import RUNS_MAX, is_mixed, pick
from compaction.retention import dead_rows, unit_width
from compaction.shape import Choice, FileShape, Horizon, RunShape, Tree

__all__ = [
    "RUNS_MAX",
    "Choice",
    "FileShape",
    "Horizon",
    "RunShape",
    "Tree",
    "cut_points",
    "dead_rows",
    "is_mixed",
    "merge_order",
    "pick",
    "unit_width",
]
