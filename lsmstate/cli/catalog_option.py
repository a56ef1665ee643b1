"""`--catalog URL`: which catalog a command asks, and how it is opened.

Importing a catalog imports SQLAlchemy, so that is left to the commands that need one. Credentials are never shown.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from iopool import LocalFileSystem
from lsmstate.cli.wording import span_text
from lsmstate.errors import CatalogError

if TYPE_CHECKING:
    from lsmstate.checkpoint.catalog import Catalog, JobRow

VARIABLE = "LSMSTATE_CATALOG"
DEFAULT = "state/catalog.db"


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """Describes the option."""
    told = f"sqlite:///path or postgresql://user:password@host/database; else ${VARIABLE}, else sqlite:///{DEFAULT}"
    parser.add_argument("--catalog", metavar="URL", help=told)


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[Catalog]:
    """The catalog that the arguments name. It is never made: looking for a job in a new one finds nothing."""
    from lsmstate.checkpoint.catalog import Catalog
    from lsmstate.checkpoint.catalog.address import Address

    fs, url = LocalFileSystem(), arguments.catalog or os.environ.get(VARIABLE)
    if not url:
        if fs.kind(fs.resolve(DEFAULT)) != "file":
            raise CatalogError(
                f"which catalog? Give --catalog URL, or set {VARIABLE}; there is no {DEFAULT} here either", "down"
            )
        url = f"sqlite:///{DEFAULT}"
    try:
        address = Address.parse(fs, url)
    except ValueError as error:  # its text does not repeat the URL
        raise CatalogError(str(error)) from None
    try:
        address.require_file(fs)
    except CatalogError:
        raise CatalogError(f"catalog {address.label}: there is no such file; correct the URL", "down") from None
    with Catalog.open(url, fs=fs) as catalog:
        yield catalog


def label(catalog: Catalog) -> str:
    """Where a catalog lies, without credentials."""
    return repr(catalog).removeprefix("Catalog(").removesuffix(")")


def every_text(interval_ms: int) -> str:
    """How often a job gets a checkpoint."""
    return "batch" if interval_ms <= 1 else span_text(interval_ms * 1000)


def job_named(catalog: Catalog, name: str) -> JobRow:
    """A job by name. Raises CatalogError with those that there are."""
    found = catalog.job(name)
    if found is None:
        known = ", ".join(repr(job.name) for job in catalog.jobs()[:20]) or "none"
        raise CatalogError(
            f"catalog {label(catalog)}: there is no job {name!r}; those that there are: {known}", "unknown_job"
        )
    return found
