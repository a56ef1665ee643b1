"""Which segments of a log count, and what is read of each: works out what handles before this one have left.

Every handle that opens a log takes the next number, so that the ones before can acknowledge nothing more; it then reads
what they have written, and begins its own segment with the number that it goes on from and the position where. So
segments are a chain, read from its newest end backwards; a segment that nothing leads to was left by a handle that had
been overtaken, and none of its records was acknowledged. A segment counts up to where the next one of the chain begins.

Of the newest segment only what it knew to be synced is sure to be on disk, even where more can be read: an fsync may
have failed, or a process have died before it. The next handle carries the rest over into its own segment. Threading:
none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from iopool import FileSystem, WritableFile
from lsmstate.engine.wal_frames import (
    BEGIN,
    END,
    POSITION_MAX,
    PREAMBLE,
    Frame,
    Seeds,
    decode_about,
    encode,
    encode_about,
    read_frames,
)
from lsmstate.errors import CorruptionError, NotAStateError
from lsmstate.manifest import names
from lsmstate.manifest.version import LogMark


@dataclass(frozen=True, slots=True)
class Link:
    """A segment of the chain. `carried` is the position up to which it repeats what was in the one before."""

    number: int
    previous: int  # 0 for the first of a log
    base: int
    carried: int


@dataclass(frozen=True, slots=True)
class Chain:
    """The segments that count, oldest first; what the last is known to have synced, and where it ends."""

    links: tuple[Link, ...]
    synced: int
    end: int


@dataclass(frozen=True, slots=True)
class _Survey:
    """A segment read to its end. `own` says that it has a frame that its writer wrote after it had begun."""

    link: Link
    own: bool
    synced: int
    end: int


class Segments:
    """The segments in one directory, as a reader sees them."""

    def __init__(self, fs: FileSystem, directory: str, log_id: str) -> None:
        self.fs, self.directory, self.log_id = fs, directory, log_id

    def numbers(self) -> list[int]:
        """The numbers that are taken, ascending."""
        return sorted(n for name in self.fs.list_dir(self.directory) if (n := names.parse_log(name)) is not None)

    def path(self, number: int) -> str:
        """Where a segment lies."""
        return f"{self.directory}/{names.log(number)}"

    def seeds(self, number: int) -> Seeds:
        """What binds frames to a segment."""
        return Seeds.of(self.log_id, names.log(number))

    def frames(self, number: int) -> Iterator[Frame]:
        """The frames of a segment."""
        path = self.path(number)
        try:
            data = self.fs.map(path)
        except FileNotFoundError:
            raise CorruptionError(path, 0, "a segment of the log", "no file") from None
        return read_frames(path, data, self.seeds(number))

    def chain(self, before: int, start: LogMark | None) -> Chain:
        """What counts of the segments below a number; from `start` on, if it is told where that must be."""
        first = 0 if start is None else start.segment
        numbers = [number for number in self.numbers() if first <= number < before]
        if start is not None and first not in numbers:
            raise CorruptionError(self.path(first), 0, "the segment that the newest epoch names", "no file")
        tip = self._tip(numbers, first)
        if tip is None:
            if start is not None:
                raise CorruptionError(self.path(first), 0, "the segment that the newest epoch names", "other bytes")
            return Chain((), 0, 0)
        links = [tip.link]
        while not self._is_first(links[0], start, numbers):
            links.insert(0, self._previous(links[0]))
        return Chain(tuple(links), tip.synced, tip.end)

    def records(self, links: Sequence[Link], end: int, after: int) -> Iterator[tuple[str, Frame]]:
        """The records of a chain that end after a position, with the paths of their segments. `end` is the chain's."""
        for n, link in enumerate(links):
            until = links[n + 1].base if n + 1 < len(links) else end
            if until <= after:
                continue
            path, reached = self.path(link.number), link.base
            for frame in self.frames(link.number):
                if frame.position >= until and frame.kind != BEGIN:
                    break
                reached = frame.end
                if frame.kind not in (BEGIN, END) and frame.end > after:
                    yield path, frame
            if reached != until:
                raise CorruptionError(path, 0, f"records up to position {until}", f"records up to {reached}")

    def _tip(self, numbers: list[int], first: int) -> _Survey | None:
        """The newest segment that counts. One in which its writer wrote nothing is passed over, because its beginning
        may not be on disk; unless an epoch names it, or the one before is gone, which happens after it was synced."""
        for number in reversed(numbers):
            survey = self._survey(number)
            if survey is not None and (survey.own or number == first or survey.link.previous not in numbers):
                return survey
        return None

    def _is_first(self, link: Link, start: LogMark | None, numbers: list[int]) -> bool:
        if start is None:
            return link.previous not in numbers
        if link.number > start.segment and link.previous >= start.segment:
            return False
        if not link.base <= start.position <= link.carried:
            raise CorruptionError(self.path(link.number), 0, f"a log that goes on at {start.position}", link.base)
        return True

    def _previous(self, link: Link) -> Link:
        frame = next(self.frames(link.previous), None)
        if frame is None:
            raise CorruptionError(self.path(link.previous), 0, "the beginning of a log's segment", "other bytes")
        before = self._link(link.previous, frame)
        if not before.base <= before.carried <= link.base:
            raise CorruptionError(self.path(link.number), 0, "a position after the segment before it", link.base)
        return before

    def _survey(self, number: int) -> _Survey | None:
        """A segment that a handle has begun, all of it; None if its beginning was never synced."""
        survey: _Survey | None = None
        for frame in self.frames(number):
            if survey is None:
                link = self._link(number, frame)
                survey = _Survey(link, False, link.carried, link.base)
                continue
            synced = survey.synced if frame.carried else max(survey.synced, frame.synced)
            if synced > max(frame.position, survey.link.carried):
                raise CorruptionError(self.path(number), frame.offset, "what was synced before", "a later position")
            survey = replace(survey, own=survey.own or not frame.carried, synced=synced, end=frame.end)
        return None if survey is None or survey.end < survey.link.carried else survey

    def _link(self, number: int, frame: Frame) -> Link:
        path = self.path(number)
        told = decode_about(path, frame)
        try:
            link = Link(number, int(told["previous"]), frame.position, int(told["carried"]))
            owner = str(told["log"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptionError(path, frame.offset, "the beginning of a segment", type(error).__name__) from error
        if owner != self.log_id:
            raise NotAStateError(
                f"{path}: belongs to the log {owner[:64]!r}, not to {self.log_id!r}; name another place"
            )
        if not (0 <= link.previous < number and link.base <= link.carried <= POSITION_MAX):
            raise CorruptionError(path, frame.offset, "the beginning of a segment", "impossible numbers")
        return link


def begin_segment(file: WritableFile, segments: Segments, attempt: str, link: Link, carried: Sequence[Frame]) -> int:
    """Makes the beginning of a segment durable, and what it carries over; gives the offset of what comes next."""
    seeds, offset = segments.seeds(link.number), len(PREAMBLE)
    told = {"log": segments.log_id, "attempt": attempt, "previous": link.previous, "carried": link.carried}
    begin = encode_about(seeds, offset, BEGIN, told, link.base)
    file.write([PREAMBLE, *begin])
    offset += sum(len(part) for part in begin)
    for frame in carried:
        parts, size = encode(seeds, offset, frame.kind, [frame.payload], frame.position, 0, carried=True)
        file.write(parts)
        offset += size
    file.sync()
    return offset
