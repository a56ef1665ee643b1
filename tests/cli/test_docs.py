"""docs/cli*.md tell every command, every option and every exit code, and their examples are in today's words."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from lsmstate.cli.entry import build_parser

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT = "\n".join((DOCS / f"cli{part}.md").read_text() for part in ("", "-state", "-jobs"))


def commands() -> dict[str, argparse.ArgumentParser]:
    (choices,) = (a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(choices)


def arguments() -> list[tuple[str, str]]:
    parsers = {"": build_parser(), **commands()}
    return [
        (command, word)
        for command, parser in parsers.items()
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction)
        for word in action.option_strings or [str(action.metavar)]
    ]


@pytest.mark.parametrize("command", commands())
def test_command_has_a_section(command: str) -> None:
    assert f"\n## lsmstate {command}\n" in DOCUMENT
    assert f"\nlsmstate {command} " in DOCUMENT


@pytest.mark.parametrize(("command", "word"), arguments())
def test_argument_is_documented(command: str, word: str) -> None:
    common = DOCUMENT.partition("\n## ")[0]
    section = DOCUMENT.partition(f"\n## lsmstate {command}\n")[2].partition("\n## ")[0] if command else ""
    assert word in common + section


def test_exit_codes_are_those_of_the_help() -> None:
    epilog = build_parser().epilog or ""
    for code in ("0", "1", "2", "130", "141"):
        assert f"\n| {code} |" in DOCUMENT
        assert f"\n  {code} " in epilog


def test_every_command_and_option_has_a_help_text() -> None:
    for parser in [build_parser(), *commands().values()]:
        assert parser.description
        for action in parser._actions:
            assert action.help or isinstance(action, argparse._SubParsersAction)
