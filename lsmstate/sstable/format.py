"""The fixed parts of an SSTable: magic, version, header and footer. FORMAT.md beside this file is its description."""

from __future__ import annotations

import struct
from typing import NamedTuple

import xxhash

from lsmstate.errors import CorruptionError, FormatVersionError

MAGIC = b"LSMSTATE"
FLAT, TREES = 1, 2  # versions: a file without trees is written as before, so that older releases read it
VERSION = TREES
ALIGN = 64
BLOCK = 4 << 10
META_MAX_BYTES = 256 << 20
_HEADER = struct.Struct("<8sII16s32x")
_FOOTER = struct.Struct("<8sII16sQQQQQ")
_SUM = struct.Struct("<Q")
HEADER_BYTES = _HEADER.size
FOOTER_BYTES = _FOOTER.size + _SUM.size


class Footer(NamedTuple):
    """The last bytes of the file; through its checksums it vouches for every other byte."""

    uid: bytes
    data_bytes: int
    index_bytes: int
    sums_bytes: int
    filter_bytes: int
    meta_sum: int
    version: int

    @property
    def file_bytes(self) -> int:
        """The size that the file must have."""
        return self.data_bytes + self.index_bytes + self.sums_bytes + self.filter_bytes + FOOTER_BYTES


def uid_of(name: str) -> bytes:
    """The identity of a file: names are unique, so their digests are. Mixed into every checksum of the file."""
    return bytes(xxhash.xxh3_128_digest(name.encode()))


def pack_header(uid: bytes, version: int) -> bytes:
    """The first bytes of the file, for people and for `file`; readers trust the footer."""
    return _HEADER.pack(MAGIC, version, BLOCK, uid)


def pack_footer(footer: Footer) -> bytes:
    """The bytes of a footer."""
    sizes = (footer.data_bytes, footer.index_bytes, footer.sums_bytes, footer.filter_bytes, footer.meta_sum)
    body = _FOOTER.pack(MAGIC, footer.version, BLOCK, footer.uid, *sizes)
    return body + _SUM.pack(xxhash.xxh3_64_intdigest(body))


def unpack_footer(path: str, file: memoryview) -> Footer:
    """The footer of a mapped file, checked against itself and against the file's size."""
    at = len(file) - FOOTER_BYTES
    if at < HEADER_BYTES:
        raise CorruptionError(path, 0, f"at least {HEADER_BYTES + FOOTER_BYTES} bytes", len(file))
    body = file[at : at + _FOOTER.size]
    magic, version, block, uid, data, index, sums, keys, total = _FOOTER.unpack(body)
    if magic != MAGIC:
        raise CorruptionError(path, at, "the footer of an SSTable", "other bytes")
    (told,) = _SUM.unpack(file[at + _FOOTER.size :])
    got = xxhash.xxh3_64_intdigest(body)
    if told != got:
        raise CorruptionError(path, at, f"footer checksum {told:016x}", f"{got:016x}")
    if version not in (FLAT, TREES):
        raise FormatVersionError(path, version, VERSION)
    footer = Footer(uid, data, index, sums, keys, total, version)
    if block != BLOCK or footer.file_bytes != len(file) or data % ALIGN or sums % 8 or index % 8:
        raise CorruptionError(path, at, f"{footer.file_bytes} bytes in blocks of {BLOCK}", f"{len(file)}, {block}")
    return footer


def meta_sum(uid: bytes, meta: bytes | memoryview) -> int:
    """The checksum of index, block sums and key filter together, bound to the file."""
    return int(xxhash.xxh3_64_intdigest(meta, seed=int.from_bytes(uid[:8], "little")))
