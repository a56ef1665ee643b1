"""What `lsmstate verify` tells of a damaged join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.join_home import JoinHome


def check(run: Callable[..., Any], join: JoinHome) -> dict[str, Any]:
    """The report of a damaged state, which stays as it is; people are told too."""
    before = sorted(join.path.rglob("*"))
    human = run("verify", join.path)
    result = run("verify", join.path, "--json")
    assert (human.code, human.err, result.code, result.err) == (1, "", 1, "")
    for words in ("DAMAGED", "What to do"):
        assert words in human.out
    assert sorted(join.path.rglob("*")) == before
    told = result.json
    assert told["advice"]
    assert not told["ok"]
    return told


def wrong(told: dict[str, Any]) -> list[tuple[str, str, list[int]]]:
    """The problems, with paths as they are in the state."""
    return [(p["path"].removeprefix(f"{told['path']}/"), p["what"], p["epochs"]) for p in told["problems"]]
