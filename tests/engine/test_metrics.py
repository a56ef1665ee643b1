"""Statistics: what they count, and that a scraper can read them."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from lsmstate import openmetrics
from tests.support.states import World, batch


def test_scraper_reads_every_number_with_its_labels() -> None:
    with World() as world:
        store = world.open()
        for epoch in range(1, 15):
            store.append(0, batch((epoch, epoch, "v")))
            store.snapshot_epoch(epoch)
        list(store.probe(0, batch((3, 3, ""), (99, 3, "")), 0, 0))
        store.compact()
        store.snapshot_epoch(15)
        text = openmetrics(store.stats(), job='a "quoted"\nname\\')
    families = {family.name: family for family in text_string_to_metric_families(text)}
    values = {name: family.samples[0].value for name, family in families.items() if family.samples}
    assert values["lsmstate_epoch"] == 15
    assert values["lsmstate_merges"] == 1
    assert values["lsmstate_merged_rows"] == 14
    assert values["lsmstate_rows"] == 14
    assert values["lsmstate_runs"] == 1
    assert values["lsmstate_space_amplification"] == 1
    assert values["lsmstate_write_amplification"] > 1
    assert {s.labels["job"] for family in families.values() for s in family.samples} == {'a "quoted"\nname\\'}
    asked = {sample.labels["what"]: sample.value for sample in families["lsmstate_filter_hashes"].samples}
    assert asked["found"] == 1
    assert asked["found"] <= asked["passed"] <= asked["asked"]


def test_space_counts_rows_that_compaction_has_taken_elsewhere() -> None:
    with World() as world:
        store = world.open()
        assert store.stats().space_amplification == store.stats().write_amplification == 1.0
        store.append(0, batch((1, 1, "v"), (2, 2, "v")))
        store.snapshot_epoch(1)
        stats = store.stats()
        assert (stats.stored_rows, stats.space_amplification, stats.read_amplification) == (2, 1.0, 1)
