"""Checkpoints: consistent snapshots of operators, committed by epoch."""

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.checkpoint.context import OperatorContext

__all__ = ["CheckpointBarrier", "OperatorContext"]
