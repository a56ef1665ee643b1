"""The tables of the catalog, the same on SQLite and on PostgreSQL.

Owns their names and columns. A change here needs a new version and a migration in schema.py.

    lsmstate_catalog              one row: the version of the schema
    lsmstate_fences               one row per name ever used, never deleted: the numbers that must not repeat.
                                  Its row is locked by every change of the job
    lsmstate_jobs                 one row per job
    lsmstate_checkpoints          one row per committed checkpoint
    lsmstate_source_checkpoints   the offsets of each source at each checkpoint
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

METADATA = MetaData()

VERSIONS = Table(
    "lsmstate_catalog",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)

FENCES = Table(
    "lsmstate_fences",
    METADATA,
    Column("name_key", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("last_checkpoint_id", BigInteger, nullable=False),
)

JOBS = Table(
    "lsmstate_jobs",
    METADATA,
    Column("job_id", String(32), primary_key=True),
    Column("name_key", String(64), ForeignKey(FENCES.c.name_key), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("definition", Text, nullable=False),
    Column("comment", Text, nullable=False),
    Column("checkpoint_interval_ms", BigInteger, nullable=False),
    Column("latest_checkpoint_epoch", BigInteger, nullable=False),
    Column("latest_checkpoint_id", BigInteger),
    Column("line", BigInteger, nullable=False),
)

CHECKPOINTS = Table(
    "lsmstate_checkpoints",
    METADATA,
    Column("job_id", String(32), ForeignKey(JOBS.c.job_id, ondelete="CASCADE"), primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("timestamp_ms", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("watermark", BigInteger),
    Column("is_incremental", Boolean, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("note", Text, nullable=False, server_default=""),  # since version 2
)

SOURCES = Table(
    "lsmstate_source_checkpoints",
    METADATA,
    Column("job_id", String(32), primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("source_key", String(64), primary_key=True),
    Column("source", Text, nullable=False),
    Column("offsets", Text, nullable=False),
    ForeignKeyConstraint(
        ["job_id", "checkpoint_id"], [CHECKPOINTS.c.job_id, CHECKPOINTS.c.checkpoint_id], ondelete="CASCADE"
    ),
)
