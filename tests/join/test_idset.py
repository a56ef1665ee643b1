"""The set of ids against Python's own, for ids that lie close together and far apart."""

from __future__ import annotations

import numpy as np
import pytest

from lsmstate.join.idset import IdSet


@pytest.mark.parametrize("reach", [1 << 14, 1 << 20, 1 << 30, 1 << 60])
def test_random_ids_are_found_and_no_others(reach: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng([seed, reach])
        ids, model = IdSet(), set[int]()
        assert not ids.has(np.array([0, 1], np.uint64)).any()
        low = int(rng.integers(0, 1 << 40))
        for _ in range(4):
            added = (low + rng.integers(0, reach, 60)).astype(np.uint64)
            ids.add(added)
            model |= set(added.tolist())
            near = (low + rng.integers(0, reach, 60)).astype(np.uint64)
            asked = np.concatenate([added, near, added ^ np.uint64(1), np.array([0, 2**64 - 1], np.uint64)])
            assert ids.has(asked).tolist() == [number in model for number in asked.tolist()]
