"""The files in a directory of manifests: listed, read, published and removed, one at a time.

Owns every file operation of `ManifestStore`. Threading: no state but whether the directory is known to be durable.
Invariants: a published manifest is complete; links and other things that are no regular files are damage, and are not
followed; a file that disappears while it is looked for was updated or pruned, and is looked for again.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence

from iopool import Bytes, FileSystem, above, make_dirs
from lsmstate.checkpoint.manifest import document
from lsmstate.checkpoint.manifest.manifest import CheckpointManifest
from lsmstate.errors import CorruptionError, FencedError

_NO_FILE = (errno.EFBIG, errno.EINVAL, errno.ELOOP, errno.EISDIR)  # too large, a link, a directory, a device


class ManifestFiles:
    """One directory."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs, self.path = fs, path
        self._durable = False

    def names(self) -> list[str]:
        """All names; none if the directory does not exist."""
        try:
            return self.fs.list_dir(self.path)
        except FileNotFoundError:
            return []

    def listing(self) -> tuple[dict[int, list[int]], set[int]]:
        """The revisions of every manifest, ascending, and the ids of all sidecars."""
        revisions: dict[int, list[int]] = {}
        sidecars: set[int] = set()
        for name in self.names():
            if (parsed := document.parse_manifest(name)) is not None:
                revisions.setdefault(parsed[0], []).append(parsed[1])
            elif (own := document.parse_sidecar(name)) is not None:
                sidecars.add(own)
        return {own: sorted(found) for own, found in revisions.items()}, sidecars

    def read(self, checkpoint_id: int) -> tuple[CheckpointManifest | None, int]:
        """The highest readable revision of a manifest, and its number; (None, -1) if there is no manifest.

        Raises CorruptionError if there are some and none can be read.
        """
        while True:
            damage: CorruptionError | None = None
            for revision in reversed(self.listing()[0].get(checkpoint_id, [])):
                name = document.manifest_name(checkpoint_id, revision)
                path = f"{self.path}/{name}"
                try:
                    return document.decode_manifest(path, self._bytes(path), name), revision
                except FileNotFoundError:
                    break
                except CorruptionError as error:
                    damage = damage or error
            else:
                if damage is not None:
                    raise damage
                return None, -1

    def sidecar(self, checkpoint_id: int) -> memoryview:
        """The bytes of a sidecar, not verified; a missing one is CorruptionError."""
        path = f"{self.path}/{document.sidecar_name(checkpoint_id)}"
        try:
            return self.fs.map(path)
        except (FileNotFoundError, NotADirectoryError):
            raise CorruptionError(path, 0, "the sidecar of a checkpoint", "nothing") from None
        except OSError as error:
            raise _damage(path, error) from None

    def publish(self, manifest: CheckpointManifest, revision: int, *, newest: bool = False) -> bool:
        """Makes a revision durable under its name; False if another writer was faster.

        `newest`: takes it back, and says False, if a manifest with a higher id has come meanwhile.
        """
        own = manifest.checkpoint_id
        name, draft = document.manifest_name(own, revision), document.draft_name(own)
        self.write(draft, [document.encode_manifest(name, manifest)])
        try:
            self.fs.link(f"{self.path}/{draft}", f"{self.path}/{name}")
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise FencedError(f"{self.path}: another driver has taken over while checkpoint {own} was saved") from None
        finally:
            with contextlib.suppress(OSError):  # what is left of it is an orphan
                self.fs.unlink(f"{self.path}/{draft}")
        if newest and max(self.listing()[0], default=own) > own:
            self.unlink(name)
            return False
        self.settle()
        return True

    def write(self, name: str, pieces: Sequence[Bytes]) -> None:
        """A new file, durable as soon as its directory is. One that failed is abandoned."""
        path = f"{self.path}/{name}"
        file = self.fs.create(path)
        try:
            try:
                file.write(pieces)
                file.sync()
            finally:
                file.close()
        except OSError:
            with contextlib.suppress(OSError):
                self.fs.unlink(path)
            raise

    def unlink(self, name: str) -> None:
        """Removes a file; another may have been faster."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.unlink(f"{self.path}/{name}")

    def settle(self) -> None:
        """Makes all that happened in the directory durable."""
        self.fs.sync_dir(self.path)

    def create(self) -> None:
        """Makes the directory, durably; also one that somebody made and did not live to sync."""
        if self._durable:
            return
        make_dirs(self.fs, above(self.path))
        self.fs.make_dir(self.path)
        self.fs.sync_dir(above(self.path))
        self._durable = True

    def _bytes(self, path: str) -> bytes:
        try:
            return self.fs.read(path, document.DOCUMENT_MAX_BYTES)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _damage(path, error) from None


def _damage(path: str, error: OSError) -> Exception:
    """What is no regular file of a fair size is damage; all else is the system's error."""
    return CorruptionError(path, 0, "a regular file", error.strerror) if error.errno in _NO_FILE else error
