"""What probes ask of filters, counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ProbeStats:
    """What the probes of a handle asked of the filters of runs: hashes asked, let through, and rows found by them."""

    asked: int = 0
    passed: int = 0
    found: int = 0
