"""A catalog with a bit of everything, and how the one of version 1 in `tests/golden/catalog-1` was made:

python -m tests.support.catalog_golden tests/golden/catalog-1/catalog.db
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from lsmstate.checkpoint.catalog import Catalog, CheckpointRow

GOLDEN = Path(__file__).parents[1] / "golden" / "catalog-1" / "catalog.db"
JOB = "orders ⨝ \u202e'payments'\x00"
DEFINITION = {"left": "orders", "right": "payments", "within_ms": 5000}
TO_VERSION_1 = (
    "ALTER TABLE lsmstate_checkpoints DROP COLUMN note",
    "UPDATE lsmstate_catalog SET version = 1",
)


def fill(catalog: Catalog) -> None:
    """A job with two checkpoints, one left behind, and a job with none."""
    catalog.register(JOB, kind="pipeline", definition=DEFINITION, comment="golden", checkpoint_interval_ms=5000)
    catalog.register("idle", kind="spark", definition={})
    mine = catalog.take(JOB)
    for epoch in (1, 2, 3):
        checkpoint_id = catalog.next_checkpoint_id(JOB, mine)
        row = CheckpointRow(checkpoint_id, epoch, 1, 1_700_000_000_000 + epoch, 100 * epoch, 7 * epoch, epoch > 1, "m")
        catalog.commit_job_checkpoint(JOB, mine, row, {"orders": {"0": str(epoch)}, "payments": {"p\x00": "ü"}})
    catalog.rewind(JOB, mine, epoch=2, line=2)


def make(path: Path) -> None:
    """Writes a catalog of version 1, with small pages."""
    with Catalog.open(f"sqlite:///{path}") as catalog:
        fill(catalog)
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (*TO_VERSION_1, "PRAGMA journal_mode=DELETE", "PRAGMA page_size=1024", "VACUUM"):
        connection.execute(statement)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
