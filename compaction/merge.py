"""The merge of sorted runs: the order of their rows together, and where to cut them so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Index = npt.NDArray[np.intp]


def merge_order(hashes: U64, ts: I64, ids: U64) -> Index:
    """The order by (hash, ts, id) of runs that stand one behind the other, each in this order by itself.

    A stable sort of such runs is a merge of them. Rows with equal hashes come in the order of their runs then, and are
    sorted again where that is not the order of their times and ids.
    """
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(same):
        return order
    one, other = order[same], order[same + 1]
    wrong = (ts[other] < ts[one]) | ((ts[other] == ts[one]) & (ids[other] < ids[one]))
    if not wrong.any():
        return order
    starts = np.ones(len(order), bool)
    starts[same + 1] = False
    group = np.cumsum(starts) - 1
    again = np.zeros(int(group[-1]) + 1, bool)
    again[group[same[wrong]]] = True
    at = np.flatnonzero(again[group])
    rows = order[at]
    order[at] = rows[np.lexsort((ids[rows], ts[rows], hashes[rows]))]
    return order


def cut_points(hashes: Sequence[U64], ts: Sequence[I64], rows_max: int) -> list[list[int]]:
    """Where to cut each run, so that the k-th pieces of all come before their next ones, of about `rows_max` rows.

    Gives for each run the ends of its pieces. Every run is sampled, because runs may hold different ranges of hashes.
    Cuts lie between times, so only rows with one hash and one time stay together however many they are.
    """
    step = max(1, rows_max // (2 * len(hashes)))
    sampled = np.concatenate([run[step - 1 :: step] for run in hashes])
    times = np.concatenate([run[step - 1 :: step] for run in ts])
    every = max(1, rows_max // step)
    chosen = np.lexsort((times, sampled))[every - 1 :: every]
    ends: list[list[int]] = []
    for run, mine in zip(hashes, ts, strict=True):
        low, high = run.searchsorted(sampled[chosen]), run.searchsorted(sampled[chosen], "right")
        cuts = [a + int(mine[a:b].searchsorted(t)) for a, b, t in zip(low, high, times[chosen], strict=True)]
        ends.append([*map(int, cuts), len(run)])
    return ends
