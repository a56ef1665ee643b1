"""Two real processes want one job: one wins, the other is fenced, nothing is mixed, and what was told is durable."""

from __future__ import annotations

import random
from contextlib import ExitStack

from lsmstate.checkpoint.catalog import Catalog, JobRow
from tests.conftest import Figures
from tests.support.catalog_fight import DriverProcess, require_unmixed
from tests.support.sizes import size

ROUNDS = 100
KILLS = size("catalog_kills")
JOB = "job"


def test_of_two_drivers_that_hold_a_job_one_commits_and_the_other_is_fenced_a_hundred_times(
    catalog: Catalog, job: JobRow, catalog_url: str, figures: Figures
) -> None:
    ids: list[int] = []
    winners = []
    with ExitStack() as stack:
        drivers = {who: stack.enter_context(DriverProcess(catalog_url, JOB, who)) for who in ("a", "b")}
        for epoch in range(1, ROUNDS + 1):
            for driver in drivers.values():
                driver.tell("take")
            taken = {who: driver.answer()["incarnation"] for who, driver in drivers.items()}
            assert taken["a"] != taken["b"]
            for driver in drivers.values():
                driver.tell("commit")
            require_unmixed(the_job(catalog))  # while they are at it
            answers = {who: driver.answer() for who, driver in drivers.items()}
            winner = max(taken, key=lambda who: taken[who])
            assert {who: answer["ended"] for who, answer in answers.items()} == {
                who: "won" if who == winner else "FencedError" for who in drivers
            }
            told = the_job(catalog)
            require_unmixed(told)
            assert (told.latest_checkpoint_epoch, told.incarnation) == (epoch, taken[winner])
            assert told.source_checkpoints["left"]["who"] == winner
            ids += [number for answer in answers.values() for number in answer["ids"]]
            winners.append((epoch, f"{winner} {taken[winner]}"))
    assert len(ids) == len(set(ids)) >= ROUNDS
    assert [(row.epoch, row.note) for row in catalog.checkpoints(JOB)] == winners
    figures.add("fights of two drivers for a job: {}, one winner in {}", ROUNDS, len(winners))


def test_drivers_that_take_and_commit_as_they_like_commit_each_epoch_once(
    catalog: Catalog, job: JobRow, catalog_url: str
) -> None:
    ids: list[int] = []
    won: dict[int, int] = {}
    with ExitStack() as stack:
        drivers = [stack.enter_context(DriverProcess(catalog_url, JOB, who)) for who in ("a", "b")]
        for _ in range(ROUNDS // 3):
            for driver in drivers:
                driver.tell("both")
            for _ in range(3):
                require_unmixed(the_job(catalog))
            for answer in [driver.answer() for driver in drivers]:
                ids += answer["ids"]
                if answer["ended"] == "won":
                    assert answer["epoch"] not in won
                    won[answer["epoch"]] = answer["incarnation"]
    assert len(ids) == len(set(ids))
    assert sorted(won) == list(range(1, the_job(catalog).latest_checkpoint_epoch + 1))
    rows = {row.epoch: int(row.note.split()[1]) for row in catalog.checkpoints(JOB)}
    assert rows == won


def test_commit_that_was_told_survives_kill(catalog: Catalog, job: JobRow, catalog_url: str) -> None:
    draw = random.Random(6)
    last = 0
    for _ in range(KILLS):
        with DriverProcess(catalog_url, JOB, "a") as driver:
            driver.tell("go on")
            told = [driver.answer() for _ in range(draw.randrange(1, 15))]
            told += driver.kill()
        assert [answer["ended"] for answer in told] == ["won"] * len(told)
        catalog.take(JOB)  # waits for a commit that the server still has in hand
        stands = the_job(catalog)
        require_unmixed(stands)
        assert last < told[-1]["epoch"] <= stands.latest_checkpoint_epoch <= told[-1]["epoch"] + 1
        last = stands.latest_checkpoint_epoch
        assert [row.epoch for row in catalog.checkpoints(JOB)] == list(range(1, last + 1))


def the_job(catalog: Catalog) -> JobRow:
    told = catalog.job(JOB)
    assert told is not None
    return told
