"""Every decoder takes its whole corpus, and thousands of changes to it that are the same in every run, and raises
nothing but documented errors. A finding of the fuzzer lies in the corpus as `found-...` and stays there."""

from __future__ import annotations

import faulthandler
import zlib
from collections.abc import Iterator

import pytest

from tests.conftest import Figures
from tests.fuzz.kit import Target, all_targets
from tests.fuzz.mutate import mutations

TARGETS = all_targets()
HANGS_AFTER_SECONDS = 300
# Those that open a whole state for each input do fewer: a target may take some ten seconds.
CHANGES = {"sstable": 700, "trees": 200, "manifest": 1500, "join_documents": 1000, "identity": 3000}
CHANGES_OF_OTHERS = 4000


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_stored_input_raises_documented_errors_only(target: Target) -> None:
    stored = target.stored()
    assert stored
    for _, data in stored:
        target.run(data)


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_changed_input_raises_documented_errors_only(target: Target, figures: Figures) -> None:
    stored = target.stored()
    count = CHANGES.get(target.name, CHANGES_OF_OTHERS) // len(stored) + 1
    for name, data in stored:
        for number, changed in enumerate(mutations(data, count, seed=zlib.crc32(name.encode()))):
            try:
                target.run(changed)
            except Exception as error:
                error.add_note(f"target {target.name}, change {number} of {name}: {changed[:2000]!r}")
                raise
    figures.add("inputs fed to decoders", count * len(stored))


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_seed_is_still_what_a_writer_makes(target: Target) -> None:
    """A format that has moved on needs new seeds: `python -m tests.fuzz corpus`."""
    assert {f"seed-{name}" for name, _ in target.seeds()} <= {name for name, _ in target.stored()}
