"""The manifests of a state: candidates side by side, published one after the other.

Any number of candidates of an epoch may exist; publishing gives one of them the next name `head-N` by a hard link,
which exactly one writer can do. The highest head is the state. It is never deleted, so a writer that has fallen
behind always sees that it has: its link fails, or it finds a higher head right after. Either way it learns it
before it acknowledges. Order on disk: candidate written, fsynced, its directory fsynced -> linked -> directory
fsynced -> acknowledged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from iopool import FileSystem
from lsmstate.errors import CorruptionError, EpochError, FencedError, SnapshotExpired
from lsmstate.manifest import names
from lsmstate.manifest.codec import DOCUMENT_MAX_BYTES, decode, encode
from lsmstate.manifest.version import Version, decode_version, encode_version

DELTAS_MAX = 64  # epochs between two full manifests
T = TypeVar("T")


@dataclass(frozen=True)
class Manifest:
    """A version and its place on disk. `base` is the full manifest that a delta leans on, or itself."""

    name: str
    version: Version
    publication: int  # the number of the head that it is meant for
    base_name: str
    base: Version
    deltas: int


@dataclass(frozen=True)
class Head:
    """The newest publication; number 0 with no manifest in a new state."""

    number: int
    manifest: Manifest | None

    @property
    def version(self) -> Version:
        """What is published; an empty version in a new state."""
        return self.manifest.version if self.manifest else Version()


class ManifestLog:
    """Reads and writes the manifests under one state directory. Threading: used under the store's lock."""

    def __init__(self, fs: FileSystem, path: str, store_id: str, sides: int) -> None:
        self._fs = fs
        self._sides = sides
        self.in_doubt = False
        self._store_id = store_id
        self.directory = f"{path}/{names.MANIFEST_DIR}"

    def head(self) -> Head:
        """The newest publication, read and checked; two files at most."""
        missing: tuple[int, SnapshotExpired] | None = None
        while True:
            listed = self._fs.list_dir(self.directory)
            number = _highest(listed)
            if number == 0:
                self._check_never_published(listed)
                return Head(0, None)
            if missing is not None and missing[0] == number:
                raise self._damaged(names.head(number), "the manifests of the newest epoch", "none") from missing[1]
            try:
                manifest = self.read(names.head(number))
            except SnapshotExpired as error:  # a writer has gone on meanwhile; or a file is really gone
                missing = (number, error)
                continue
            if manifest.publication != number:
                raise self._damaged(names.head(number), f"publication {number}", manifest.publication)
            return Head(number, manifest)

    def candidates(self, epoch: int, publication: int) -> list[str]:
        """The names of the complete candidates of an epoch that were prepared for this publication."""
        found = []
        for name in sorted(self._fs.list_dir(self.directory)):
            parsed = names.parse(name)
            if parsed is not None and parsed.epoch == epoch and parsed.kind in ("full", "delta"):
                try:
                    if self._document(name)[1].get("publication") == publication:
                        found.append(name)
                except CorruptionError:
                    continue  # a torn candidate was never complete
        return found

    def read(self, name: str) -> Manifest:
        """A manifest by its own name or by a head's."""
        own, body = self._document(name)
        base_name, base = own, None
        if body.get("base") is not None:
            base_name = self._told(own, lambda: _manifest_name(body["base"]))
            base_body = self._document(base_name)[1]
            base = self._told(base_name, lambda: decode_version(base_body, None, self._sides))
        version = self._told(own, lambda: decode_version(body, base, self._sides))
        publication, deltas = self._told(own, lambda: (int(body["publication"]), int(body["deltas"])))
        return Manifest(own, version, publication, base_name, base or version, deltas)

    def write_candidate(
        self, version: Version, attempt: str, number: int, head: Head, *, full: bool = False
    ) -> Manifest:
        """Makes a candidate durable, to be published after `head`; a delta where the head's base still serves."""
        parent = head.manifest
        if parent is not None and (full or parent.deltas + 1 >= DELTAS_MAX):
            parent = None
        kind = "delta" if parent else "full"
        name = str(names.Name(version.epoch, version.line, attempt, number, kind))
        publication = head.number + 1
        if parent is None:
            manifest = Manifest(name, version, publication, name, version, 0)
        else:
            manifest = Manifest(name, version, publication, parent.base_name, parent.base, parent.deltas + 1)
        body = encode_version(version, parent.base if parent else None)
        body |= {"store": self._store_id, "publication": publication, "deltas": manifest.deltas}
        body["parent"] = head.manifest.name if head.manifest else None
        if parent is not None:
            body["base"] = parent.base_name
        write_document(self._fs, self.directory, name, body)
        return manifest

    def publish(self, manifest: Manifest, after: Head) -> Head:
        """Makes a candidate the newest publication, after the one that its writer knew.

        An OSError leaves `in_doubt` set if the publication may have happened all the same.
        """
        number = after.number + 1
        target = f"{self.directory}/{names.head(number)}"
        try:
            self._fs.link(f"{self.directory}/{manifest.name}", target)
        except FileExistsError:
            raise self._fenced(after) from None
        except FileNotFoundError:
            self.check_newest(after)
            raise EpochError(
                f"{self.directory}: epoch {manifest.version.epoch} was aborted by another handle; prepare it again"
            ) from None
        except OSError:
            self.in_doubt = True
            self.in_doubt = self._fs.kind(target) is not None
            raise
        self.in_doubt = True
        if _highest(self._fs.list_dir(self.directory)) > number:
            with contextlib.suppress(FileNotFoundError):  # its collector was faster
                self._fs.unlink(target)
            raise self._fenced(after)
        self._fs.sync_dir(self.directory)
        self.in_doubt = False
        return Head(number, manifest)

    def check_newest(self, known: Head) -> None:
        """Raises FencedError if another handle has published after a head."""
        if _highest(self._fs.list_dir(self.directory)) > known.number:
            raise self._fenced(known)

    def _fenced(self, after: Head) -> FencedError:
        return FencedError(
            f"{self.directory}: another handle published after head {after.number}; "
            "what this one wrote since then is not part of the state: close it, and reopen to go on"
        )

    def _damaged(self, name: str, expected: object, got: object) -> CorruptionError:
        return CorruptionError(f"{self.directory}/{name}", 0, expected, got)

    def _document(self, name: str) -> tuple[str, dict[str, Any]]:
        path = f"{self.directory}/{name}"
        try:
            data = self._fs.read(path, DOCUMENT_MAX_BYTES)
        except FileNotFoundError:
            raise SnapshotExpired(f"{path}: the manifest is gone, because its epoch was retired") from None
        own, body = decode(path, data, None if names.parse_head(name) is not None else name)
        if names.parse(own) is None or body.get("store") != self._store_id:
            raise self._damaged(name, f"a manifest of state {self._store_id}", "another")
        return own, body

    def _told(self, name: str, parse: Callable[[], T]) -> T:
        try:
            return parse()
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            got = str(error)[:100] if isinstance(error, ValueError) else type(error).__name__
            raise self._damaged(name, "a manifest", got) from error

    def _check_never_published(self, listed: list[str]) -> None:
        """A state whose heads are gone must not look like a new one."""
        for name in listed:
            if names.parse(name) is not None:
                try:
                    publication = self._document(name)[1].get("publication")
                except CorruptionError:
                    continue  # a torn candidate was never complete
                if publication != 1:
                    raise self._damaged("", "the head of the newest epoch", "manifests without one")


def write_document(fs: FileSystem, directory: str, name: str, body: dict[str, Any]) -> None:
    """Makes a new document durable under its name."""
    file = fs.create(f"{directory}/{name}")
    try:
        file.write([encode(name, body)])
        file.sync()
    finally:
        file.close()
    fs.sync_dir(directory)


def _manifest_name(told: object) -> str:
    if not isinstance(told, str) or names.parse(told) is None:
        raise ValueError("not the name of a manifest")
    return told


def _highest(listed: list[str]) -> int:
    return max((number for name in listed if (number := names.parse_head(name)) is not None), default=0)
