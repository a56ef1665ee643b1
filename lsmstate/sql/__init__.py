"""Streaming tables in SQL: a join that runs from a script, and comes back from the catalog.

    session = lsmstate.sql.Session("sqlite:///state/catalog.db", state="state")
    session.execute(script)
    session.run()

`docs/sql.md` tells what can be written. The only importer of sqlglot; `import lsmstate` does not import it.
"""

from lsmstate.checkpoint.master import Outcome
from lsmstate.errors import SqlError
from lsmstate.sql.session import Result, Session, restore

__all__ = ["Outcome", "Result", "Session", "SqlError", "restore"]
