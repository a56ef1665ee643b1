"""What happens to a checkpoint, told to whoever listens: when it began, aligned, was durable, was committed or failed.

Events are for people and metrics: nothing is decided by them, and a listener that raises changes nothing. Times are of
the wall clock, in milliseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

_log = logging.getLogger(__name__)

EventKind = Literal[
    "initiated",  # the barrier is on its way
    "alignment_started",  # an operator has got it on its first input
    "checkpointing_started",  # an operator has got it on all inputs: its hook runs
    "operator_finished",  # all that an operator had before the barrier is durable
    "sync_finished",  # ... of all operators
    "pre_commit_started",  # sinks make their rows durable, unseen
    "persist_started",  # the manifest is saved, then the catalog asked to take it
    "commit_started",  # the catalog has it: operators and sinks commit
    "commit_finished",  # they have
    "failed",
]

STARTED: Mapping[str, EventKind] = {
    "pre_commit": "pre_commit_started",
    "persist": "persist_started",
    "commit": "commit_started",
}


@dataclass(frozen=True, slots=True)
class Event:
    """kind: what happened. operator: to whom, None for the checkpoint as a whole. detail: why, where it failed."""

    kind: EventKind
    checkpoint_id: int
    epoch: int
    operator: str | None
    at_ms: int
    detail: str = ""


class Teller:
    """Tells a listener, if there is one."""

    def __init__(self, listener: Callable[[Event], None] | None, now_ms: Callable[[], int]) -> None:
        self._listener, self._now_ms = listener, now_ms

    def tell(
        self,
        kind: EventKind,
        checkpoint_id: int,
        epoch: int,
        operator: str | None = None,
        *,
        at_ms: int | None = None,
        detail: str = "",
    ) -> None:
        """Of one event, now unless told when."""
        if self._listener is None:
            return
        at_ms = self._now_ms() if at_ms is None else at_ms
        try:
            self._listener(Event(kind, checkpoint_id, epoch, operator, at_ms, detail))
        except Exception:
            _log.exception("a listener failed on %r of checkpoint %d", kind, checkpoint_id)
