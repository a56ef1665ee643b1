"""The catalog of jobs and checkpoints. Importing it imports SQLAlchemy, so nothing imports it before it is needed."""

from lsmstate.checkpoint.catalog.catalog import Catalog
from lsmstate.checkpoint.catalog.rows import CheckpointRow, JobKind, JobRow, Offsets

__all__ = ["Catalog", "CheckpointRow", "JobKind", "JobRow", "Offsets"]
