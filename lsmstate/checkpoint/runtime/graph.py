"""The graph of a pipeline: sources, operators and sinks by name, and who reads from whom.

Only what was declared, checked piece by piece: no threads, no state. `definition` tells all of it as JSON, whose
digest is the pipeline's hash; parallelism is not part of it, because it may change from run to run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from lsmstate.checkpoint.connect.sink import Sink
from lsmstate.checkpoint.connect.source import Source
from lsmstate.checkpoint.operator import Operator

_NAME = re.compile(r"[a-z0-9_-]{1,64}")
PARALLELISM_MAX = 256


@dataclass(frozen=True)
class SourceNode:
    """time: the column of its event time; delay: how much older than the newest a row may be and not be late."""

    name: str
    source: Source
    time: str | None
    delay: timedelta


@dataclass(frozen=True)
class OperatorNode:
    """make: gives an operator of its own to each instance."""

    name: str
    make: Callable[[], Operator]
    inputs: tuple[str, ...]
    parallelism: int
    definition: dict[str, Any]

    def instance(self, number: int) -> str:
        """The name of one of its instances."""
        return self.name if self.parallelism == 1 else f"{self.name}.{number}"


@dataclass(frozen=True)
class SinkNode:
    """Where results go."""

    name: str
    sink: Sink
    input: str


class Graph:
    """What a pipeline consists of, in the order of its declaration: nobody reads from a later one."""

    def __init__(self) -> None:
        self.sources: dict[str, SourceNode] = {}
        self.operators: dict[str, OperatorNode] = {}
        self.sinks: dict[str, SinkNode] = {}

    def add_source(self, name: str, source: Source, time: str | None, delay: timedelta) -> None:
        """One more source."""
        self._check_new(name)
        if any(node.source is source for node in self.sources.values()):
            raise ValueError(f"source {name!r} is there under another name; make a source of its own for each")
        if time is not None and time not in source.schema.names:
            raise ValueError(f"source {name!r} has no column {time!r}; it has {', '.join(source.schema.names)}")
        kind = None if time is None else source.schema.field(time).type
        if kind is not None and not pa.types.is_timestamp(kind) and kind != pa.int64():
            raise ValueError(f"source {name!r}: the time {time!r} is {kind}; make it a timestamp, or microseconds")
        if not isinstance(delay, timedelta) or delay < timedelta(0):
            raise ValueError(f"source {name!r}: delay must be a timedelta of at least zero, not {delay!r}")
        self.sources[name] = SourceNode(name, source, time, delay)

    def add_operator(self, name: str, make: Callable[[], Operator], inputs: Sequence[str], parallelism: int) -> None:
        """One more operator."""
        self._check_new(name)
        if isinstance(inputs, str) or not inputs:
            raise ValueError(f"operator {name!r} needs a list of inputs, not {inputs!r}")
        for read in inputs:
            self._check_readable(name, read)
        if not isinstance(parallelism, int) or not 1 <= parallelism <= PARALLELISM_MAX:
            raise ValueError(f"operator {name!r}: parallelism must be from 1 to {PARALLELISM_MAX}, not {parallelism!r}")
        made = make()
        if not isinstance(made, Operator):
            raise ValueError(f"operator {name!r}: make() gives {type(made).__name__}, which is no Operator")
        definition = json.loads(json.dumps(made.definition(), default=str))
        self.operators[name] = OperatorNode(name, make, tuple(inputs), parallelism, definition)

    def add_sink(self, name: str, sink: Sink, read: str) -> None:
        """One more sink."""
        self._check_new(name)
        self._check_readable(name, read)
        if any(node.sink is sink for node in self.sinks.values()):
            raise ValueError(f"sink {name!r} is there under another name; make a sink of its own for each")
        self.sinks[name] = SinkNode(name, sink, read)

    def check_whole(self) -> None:
        """Raises unless it can run: rows come in, and every result goes somewhere."""
        if not self.sources or not self.sinks:
            raise ValueError("a pipeline needs a source and a sink: add them with source() and sink()")
        read = {name for node in self.operators.values() for name in node.inputs}
        read |= {node.input for node in self.sinks.values()}
        for name in (*self.sources, *self.operators):
            if name not in read:
                raise ValueError(f"nobody reads from {name!r}: add a sink or an operator that does, or leave it out")

    def definition(self) -> dict[str, Any]:
        """All of it, as JSON."""
        return {
            "sources": {
                n.name: {"time": n.time, "delay_us": n.delay // timedelta(microseconds=1)}
                for n in self.sources.values()
            },
            "operators": {n.name: {"inputs": n.inputs, **n.definition} for n in self.operators.values()},
            "sinks": {n.name: {"input": n.input} for n in self.sinks.values()},
        }

    def hash(self) -> str:
        """Changes with what the pipeline does."""
        return hashlib.sha256(json.dumps(self.definition(), sort_keys=True).encode()).hexdigest()

    def roots(self, name: str) -> set[str]:
        """The sources that something reads from, directly or not."""
        if name in self.sources:
            return {name}
        inputs = self.operators[name].inputs if name in self.operators else (self.sinks[name].input,)
        return set().union(*(self.roots(read) for read in inputs))

    def _check_new(self, name: str) -> None:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ValueError(f"a name has 1 to 64 small letters, digits, - and _; {name!r} does not fit")
        if name in self.sources or name in self.operators or name in self.sinks:
            raise ValueError(f"two parts of the pipeline are named {name!r}; give one another name")

    def _check_readable(self, name: str, read: str) -> None:
        if read not in self.sources and read not in self.operators:
            known = ", ".join((*self.sources, *self.operators)) or "none yet"
            raise ValueError(f"{name!r} reads from {read!r}, which is not there; sources and operators are: {known}")
