"""Building a run: a graph and a restored checkpoint become tasks, wired to each other and opened at their epoch.

Every instance of an operator has a directory of its own in the job's: `operators/NAME/NUMBER`, or where its
parallelism has changed `operators/NAME-INCARNATION/NUMBER`; the checkpoint's manifest tells which.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from iopool import FileSystem, MemoryController, WorkerPool, make_dirs
from lsmstate.checkpoint.context import OperatorContext
from lsmstate.checkpoint.manifest.operator_state import LsmState, OperatorState
from lsmstate.checkpoint.runtime.assembly import ENDED
from lsmstate.checkpoint.runtime.graph import Graph, OperatorNode
from lsmstate.checkpoint.runtime.inbox import CAPACITY, Inbox
from lsmstate.checkpoint.runtime.operator_task import STATE, Master, OperatorTask
from lsmstate.checkpoint.runtime.outputs import Edge, Outputs, Route
from lsmstate.checkpoint.runtime.recovery import Restored
from lsmstate.checkpoint.runtime.sink_task import SinkOperator, SinkTask
from lsmstate.checkpoint.runtime.source_task import SourceTask
from lsmstate.checkpoint.tables.table_set import TableSet
from lsmstate.errors import CheckpointError
from lsmstate.options import Options

_OPERATORS = "operators"


@dataclass(frozen=True)
class Place:
    """Where a run works: the job's directory, the job as sinks know it (its name, and the id of its creation), and what
    its operators share."""

    fs: FileSystem
    path: str
    job: str
    incarnation: int
    retain: int
    align_s: float | None
    memory: MemoryController | None
    pool: WorkerPool


def build(
    graph: Graph, place: Place, restored: Restored, master: Master
) -> tuple[list[SourceTask], list[OperatorTask]]:
    """All tasks of a run, open and not started. Closes what it has opened if one of them cannot be."""
    with ExitStack() as opened:
        building = _Building(graph, place, restored, master, opened)
        tasks = building.tasks()
        sources = building.sources()
        opened.pop_all()
        return sources, tasks


class _Building:
    def __init__(self, graph: Graph, place: Place, restored: Restored, master: Master, opened: ExitStack) -> None:
        self._graph, self._place, self._restored = graph, place, restored
        self._master, self._opened = master, opened
        self._inboxes: dict[str, list[Inbox]] = {}
        for node in graph.operators.values():
            names = [name for number in range(len(node.inputs)) for name in self._queues(node.inputs, number)]
            self._inboxes[node.name] = [Inbox(names, CAPACITY) for _ in range(node.parallelism)]
        for sink in graph.sinks.values():
            self._inboxes[sink.name] = [Inbox(self._senders(sink.input), CAPACITY)]
        self._check_in_flight()

    def tasks(self) -> list[OperatorTask]:
        """Those of operators, then those of sinks."""
        tasks: list[OperatorTask] = []
        for node in self._graph.operators.values():
            tasks += self._instances(node)
        for sink in self._graph.sinks.values():
            epoch = self._restored.epoch
            self._opened.callback(sink.sink.close)
            sink.sink.open(f"{self._place.job}/{sink.name}", epoch or None)
            inbox = self._inboxes[sink.name][0]
            context = OperatorContext(self._place.path)
            inputs = [0] * len(inbox.inputs)
            task = SinkTask(
                sink.name,
                SinkOperator(sink.sink),
                inbox,
                inputs,
                Outputs(()),
                self._master,
                context,
                "",
                self._place.align_s,
                self._replay(sink.name, inbox),
            )
            tasks.append(task)
        return tasks

    def sources(self) -> list[SourceTask]:
        """Those of sources, opened at their offsets."""
        tasks = []
        manifest = self._restored.manifest
        for node in self._graph.sources.values():
            offsets = None if manifest is None else dict(manifest.source_offsets[node.name].offsets)
            mark = None if manifest is None else manifest.source_watermarks.get(node.name)
            self._opened.callback(node.source.close)
            node.source.open(offsets)
            outputs = self._outputs(node.name, node.name)
            had_ended = manifest is not None and ENDED in manifest.source_offsets[node.name].metadata
            task = SourceTask(
                node.name, node.source, node.time, node.delay, outputs, self._master.failed, mark, had_ended
            )
            tasks.append(task)
        return tasks

    def _instances(self, node: OperatorNode) -> list[OperatorTask]:
        directories, told = self._directories(node)
        inputs = [number for number, read in enumerate(node.inputs) for _ in self._senders(read)]
        tasks = []
        for number, directory in enumerate(directories):
            name, operator = node.instance(number), node.make()
            context = self._context(name, directory, told.get(name))
            self._opened.callback(operator.on_close)
            operator.on_start(context)
            inbox = self._inboxes[node.name][number]
            task = OperatorTask(
                name,
                operator,
                inbox,
                inputs,
                self._outputs(node.name, name),
                self._master,
                context,
                directory,
                self._place.align_s,
                self._replay(name, inbox),
            )
            tasks.append(task)
        return tasks

    def _context(self, name: str, directory: str, state: LsmState | None) -> OperatorContext:
        place, epoch = self._place, self._restored.epoch
        path = f"{place.path}/{directory}"
        make_dirs(place.fs, path)
        prefix = f"{name}:"
        lsm = self._restored.states.lsm
        candidates = {key.removeprefix(prefix): told.candidate for key, told in lsm.items() if key.startswith(prefix)}
        tables = TableSet(path, place.fs, place.pool, place.memory, epoch, candidates, Options(retain=place.retain))
        self._opened.callback(tables.close)
        saved = self._restored.states.blobs.get(name)
        manifest = self._restored.manifest
        known = {} if manifest is None else manifest.table_offsets
        offsets = {key.removeprefix(prefix): told.offsets for key, told in known.items() if key.startswith(prefix)}
        return OperatorContext(
            f"{path}/{STATE}",
            place.memory,
            place.pool,
            epoch,
            None if state is None else state.candidate,
            place.retain,
            tables,
            None if saved is None else bytes(saved),
            offsets,
        )

    def _directories(self, node: OperatorNode) -> tuple[list[str], dict[str, LsmState]]:
        """Where the instances of an operator work, and what the checkpoint tells of those with a state of their own."""
        states = self._restored.states
        own = {name: told for name, told in states.lsm.items() if _node(name) == node.name and ":" not in name}
        others = [name for name in (*states.lsm, *states.blobs) if _node(name) == node.name and name not in own]
        names = [node.instance(number) for number in range(node.parallelism)]
        before = {name.partition(":")[0] for name in (*own, *others)}
        if not before:
            return [f"{_OPERATORS}/{node.name}/{number}" for number in range(node.parallelism)], {}
        if before == set(names):
            known = {name: told.directory.rpartition("/")[0] for name, told in states.lsm.items()}
            places = {name.partition(":")[0]: place for name, place in known.items()}
            plain = f"{_OPERATORS}/{node.name}"
            return [places.get(name, f"{plain}/{number}") for number, name in enumerate(names)], own
        if others:
            raise CheckpointError(
                f"operator {node.name!r} keeps tables or bytes, which cannot be divided anew: its parallelism cannot "
                f"change from {len(before)} to {node.parallelism}; go on with the one that it had"
            )
        fresh = [f"{_OPERATORS}/{node.name}-{self._place.incarnation}/{number}" for number in range(node.parallelism)]
        for directory in fresh:
            make_dirs(self._place.fs, f"{self._place.path}/{directory}")
        old = [(f"{self._place.path}/{told.directory}", OperatorState(lsm=told)) for _, told in sorted(own.items())]
        new = [f"{self._place.path}/{directory}/{STATE}" for directory in fresh]
        node.make().rescale(old, new, self._restored.epoch)
        return fresh, {}

    def _replay(self, name: str, inbox: Inbox) -> dict[int, list[bytes]]:
        """Records in flight, by queue."""
        told = self._restored.states.inflight.get(name, {})
        return {inbox.inputs.index(sender): [bytes(blob) for blob in blobs] for sender, blobs in told.items()}

    def _senders(self, read: str) -> list[str]:
        """The names of all instances of what is read from."""
        node = self._graph.operators.get(read)
        return [read] if node is None else [node.instance(number) for number in range(node.parallelism)]

    def _queues(self, inputs: Sequence[str], number: int) -> list[str]:
        """The names of the queues of one input; an operator may read twice from the same."""
        again = f"#{number}" if inputs[number] in inputs[:number] else ""
        return [f"{sender}{again}" for sender in self._senders(inputs[number])]

    def _check_in_flight(self) -> None:
        """Raises unless all records in flight have a queue that they came from."""
        nodes = self._graph.operators
        queues = {
            nodes[name].instance(number) if name in nodes else name: inbox.inputs
            for name, inboxes in self._inboxes.items()
            for number, inbox in enumerate(inboxes)
        }
        for task, told in self._restored.states.inflight.items():
            for queue in told:
                if queue not in queues.get(task, ()):
                    raise CheckpointError(
                        f"the checkpoint holds records in flight from {queue!r} to {task!r}, which are not there any "
                        "more: names and parallelism can change only from a checkpoint without records in flight; go "
                        "on as before, and stop the job with a savepoint and align_timeout=None first"
                    )

    def _outputs(self, node: str, instance: str) -> Outputs:
        """The edges out of an instance."""
        edges: list[Edge] = []
        readers: Sequence[tuple[str, Sequence[str]]] = [
            *((reader.name, reader.inputs) for reader in self._graph.operators.values()),
            *((sink.name, (sink.input,)) for sink in self._graph.sinks.values()),
        ]
        for reader, inputs in readers:
            first = 0
            for number, read in enumerate(inputs):
                senders = self._senders(read)
                if read == node:
                    place = first + senders.index(instance)
                    edges.append(Edge([(inbox, place) for inbox in self._inboxes[reader]], self._route(reader, number)))
                first += len(senders)
        return Outputs(edges)

    def _route(self, reader: str, number: int) -> Route:
        if reader not in self._graph.operators:
            return lambda batch, _: np.zeros(batch.num_rows, np.int64)  # a sink has one instance
        router = self._graph.operators[reader].make()  # of the edge alone: it is asked in the sender's thread
        return lambda batch, parallelism: router.route(number, batch, parallelism)


def _node(name: str) -> str:
    """The node of an instance, or of a table of it."""
    return name.partition(":")[0].partition(".")[0]
