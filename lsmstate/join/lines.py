"""Lines: the histories of a join. The first needs no document; each further one goes on from an epoch of an older one.

`lines/NUMBER` tells of a line: which epoch of which line it starts from, the candidate of every partition that it
starts with, the base by which Spark's batches become its epochs, when and why it was made, and which queries worked
before it: none of those may go on. The newest line counts. An epoch of a history lies on the line that wrote it: those
up to the start of a line on the older one, the others on its own. What an older line has written after that is left
behind, and goes as its epochs are retired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lsmstate.errors import CorruptionError
from lsmstate.join.home import LINES, Home
from lsmstate.manifest import names

LINES_MAX = 999_999  # six digits in the names of files


@dataclass(frozen=True)
class Line:
    """A history. `before` is the line that it starts from, `epoch` the last one that both have."""

    number: int
    before: Line | None = None
    epoch: int = 0
    base: int = 0  # epoch = base + Spark's batch + 1
    parents: tuple[str, ...] = ()  # the candidate of each partition that it starts with
    min_epoch: int = 1  # older ones were retired when it was made
    timestamp_ms: int = 0
    why: str = ""
    queries: tuple[str, ...] = field(default=(), repr=False)  # that worked on older lines

    def chain(self) -> Iterator[Line]:
        """This line, the one that it starts from, and so on down to the first."""
        line: Line | None = self
        while line is not None:
            yield line
            line = line.before

    def at(self, epoch: int) -> Line:
        """The line that an epoch of this history lies on."""
        return next(line for line in self.chain() if epoch > line.epoch or line.before is None)

    def chosen(self, epoch: int) -> tuple[str, ...]:
        """The candidates of an epoch that a line of this history starts with; none if no line starts there."""
        return next((line.parents for line in self.chain() if line.before is not None and line.epoch == epoch), ())

    def batch(self, epoch: int) -> int:
        """The batch of Spark that an epoch of this history was."""
        return epoch - self.at(epoch).base - 1

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        assert self.before is not None
        return {
            "number": self.number,
            "line": self.before.number,
            "epoch": self.epoch,
            "base": self.base,
            "parents": list(self.parents),
            "min_epoch": self.min_epoch,
            "timestamp_ms": self.timestamp_ms,
            "why": self.why,
            "queries": list(self.queries),
        }


FIRST = Line(1)


def newest_line(home: Home) -> Line:
    """The history that counts. Raises CorruptionError if it cannot be known."""
    return read_line(home, max(line_numbers(home), default=FIRST.number))


def line_numbers(home: Home) -> list[int]:
    """The lines after the first, ascending."""
    try:
        return [number for number in home.numbers(LINES) if number > FIRST.number]
    except (FileNotFoundError, NotADirectoryError):  # made before there were lines, or a copy that lost it
        return []


def read_line(home: Home, number: int) -> Line:
    """A line, with those that it starts from."""
    told: list[tuple[str, dict[str, Any]]] = []
    while number != FIRST.number:
        path = f"{home.path}/{LINES}/{line_name(number)}"
        body = home.read(LINES, line_name(number))
        if body is None:
            raise CorruptionError(path, 0, f"what line {number} starts from", "no such file")
        if body.get("number") != number or type(body.get("line")) is not int or not 1 <= body["line"] < number:
            raise CorruptionError(path, 0, f"line {number}, which starts from an older one", "another")
        told.append((path, body))
        number = body["line"]
    line = FIRST
    for path, body in reversed(told):
        line = _parsed(path, body, line)
    return line


def line_name(number: int) -> str:
    """The name of a line's document."""
    return f"{number:06d}"


def _parsed(path: str, body: dict[str, Any], before: Line) -> Line:
    try:
        numbers = [body[name] for name in ("number", "epoch", "base", "min_epoch", "timestamp_ms")]
        texts = [body["why"], *body["parents"], *body["queries"]]
        if any(type(n) is not int for n in numbers) or any(not isinstance(text, str) for text in texts):
            raise TypeError("numbers and texts")
        number, epoch, base, min_epoch, timestamp = numbers
        line = Line(
            number, before, epoch, base, tuple(body["parents"]), min_epoch, timestamp, body["why"], (*body["queries"],)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(path, 0, "a line", type(error).__name__) from error
    parsed = [names.parse(name) for name in line.parents]
    starts = all(name is not None and (name.epoch, name.line) == (epoch, before.number) for name in parsed)
    if not starts or not parsed or not before.epoch < epoch == base or not 1 <= min_epoch <= epoch:
        raise CorruptionError(path, 0, f"line {number}", "what cannot be one")
    return line
