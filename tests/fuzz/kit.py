"""What targets share: which errors are documented, where the corpus lies, and a state in memory.

A target is a module of `targets` with two functions. `seeds()` gives named inputs that a writer could have made.
`run(data)` feeds any bytes to its decoder, as they are and with right checksums, and raises nothing but what a
reader may see: anything else is a finding.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsmstate import LsmStateError
from lsmstate.manifest.codec import PLAIN, digest_of, encode
from tests.fuzz import targets
from tests.support.simfs import SimFileSystem

CORPUS = Path(__file__).parent / "corpus"
STORE = "0" * 32
STATE = "/state"
INPUT_MAX_BYTES = 64 << 10


@dataclass(frozen=True)
class Target:
    """One decoder."""

    name: str
    seeds: Callable[[], Iterator[tuple[str, bytes]]]
    run: Callable[[bytes], None]

    @property
    def corpus(self) -> Path:
        return CORPUS / self.name

    def stored(self) -> list[tuple[str, bytes]]:
        """The stored inputs, by name."""
        return [(path.name, path.read_bytes()) for path in sorted(self.corpus.iterdir())]


def all_targets() -> dict[str, Target]:
    """Every target by its name."""
    found = {}
    for module in pkgutil.iter_modules(targets.__path__):
        target = importlib.import_module(f"{targets.__name__}.{module.name}")
        found[module.name] = Target(module.name, target.seeds, target.run)
    return found


@contextmanager
def documented() -> Iterator[None]:
    """Lets the errors pass that a reader may see: those of errors.py, and those of the file system."""
    try:
        yield
    except LsmStateError:
        pass
    except OSError as error:
        if error.errno is None:  # Arrow's, for bytes that it cannot read: not of the file system
            raise


def mounted(files: dict[str, bytes]) -> SimFileSystem:
    """A file system in memory with these files, and the directories of a state."""
    dirs: dict[str, bytes | None] = {f"{STATE}/{name}": None for name in ("manifest", "sst", "pins", "merges")}
    return SimFileSystem.of({**dirs, **files})


def sealed(name: str, text: bytes, version: int = PLAIN) -> bytes:
    """A document with right checksums around any text that claims to be its body."""
    return f"lsmstate {version} {name} {digest_of(name, text, version)}\n".encode() + text + b"\n"


def body_of(document: bytes) -> bytes:
    """The text of a document's body."""
    return document.partition(b"\n")[2][:-1]


def as_json(body: dict[str, Any]) -> bytes:
    """A body as a document has it."""
    return body_of(encode("x", body))
