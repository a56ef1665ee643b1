"""The catalog of jobs and checkpoints. Importing it imports SQLAlchemy: nothing else in lsmstate should at its start."""

from lsmstate.checkpoint.catalog.catalog import Catalog
from lsmstate.checkpoint.catalog.rows import CheckpointRow, JobKind, JobRow, Offsets

__all__ = ["Catalog", "CheckpointRow", "JobKind", "JobRow", "Offsets"]
