"""Damage to a state that holds every type: the correct answer or one documented error, whoever reads.

Every byte in the full run; by default every thirteenth, which hits every section of every file.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.flips import SLICES, Flips, Readers
from tests.support.nested_store import SIDES, build, compact, open_store, probed, scanned
from tests.support.simfs import SimFileSystem
from tests.support.sizes import size

READERS = Readers(
    {f"probe of {side.name}": partial(probed, side=number) for number, side in enumerate(SIDES)},
    {f"scan of {side.name}": partial(scanned, side=number) for number, side in enumerate(SIDES)},
)


@pytest.fixture(scope="module")
def flips() -> Flips:
    fs = SimFileSystem()
    build(fs)
    compact(fs)
    return Flips(fs, open_store, READERS)


@pytest.mark.parametrize("part", range(SLICES))
def test_flipped_bytes_under_every_type_are_refused_or_harmless(part: int, flips: Flips, figures) -> None:
    flips.check_part(part, size("typed_bytes_every"), size("typed_tools_every"), figures, "every type")
