"""Trees: columns whose values have parts (lists, structs, maps), and those that have no values at all.

A column is one or more **parts**, each a tree over some of its rows, written when their piece is there; so that
neither writing nor reading needs all of it in memory. A node is its validity bits, its offsets if it is a list or a
map, and its children, each with a number of rows of its own. A part is verified whole before Arrow sees any of it:
every section of every node, that offsets begin at 0, never go back and end where the child ends, that as many values
are NULL as was told, and that no map has a NULL key. So a damaged or hostile file can never make Arrow read outside
of a section. Every row of every node takes at least a bit in the file, also where its type has no values, so that a
small file cannot tell of more rows than memory holds. Threading: as for all columns: immutable once verified, and
verifying twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lsmstate.encodings import listed
from lsmstate.errors import CorruptionError
from lsmstate.keys import I64
from lsmstate.layout import DEPTH_MAX, Layout
from lsmstate.sstable.blocks import Blocks, BlockWriter, Place, Section
from lsmstate.sstable.columns import StoredColumn, section_of, write_column

Told = dict[str, Any]


def write_any(writer: BlockWriter, layout: Layout, pieces: Iterable[pa.Array]) -> Told:
    """Writes a column of any type that comes in pieces; gives its place for the index."""
    if not layout.tree:
        return write_column(writer, layout, pieces)
    nulls, parts = 0, []
    for piece in pieces:
        parts.append({"rows": len(piece), **_write_node(writer, layout, piece)})
        nulls += piece.null_count
    return {"nulls": nulls, "parts": parts}


def _write_node(writer: BlockWriter, layout: Layout, array: pa.Array) -> Told:
    """Writes a node and all below it."""
    buffers: list[Place | None] = [None]
    if array.null_count or layout.is_bare:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        buffers[0] = writer.append(np.packbits(valid, bitorder="little").data)
    if layout.varying:
        buffers.append(writer.append(listed(array)[0].astype(layout.offsets).data))
    children = []
    for number, child in enumerate(layout.children):
        rows = _child(layout, array, number)
        if child.tree:
            told = _write_node(writer, child, rows)
        else:  # what is written of a flat column begins at its first row
            told = write_column(writer, child, [pa.concat_arrays([rows]) if rows.offset else rows])
        children.append({"rows": len(rows), **told})
    return {"nulls": array.null_count, "buffers": buffers, "children": children}


def _child(layout: Layout, array: pa.Array, number: int) -> pa.Array:
    """The rows of a child that belong to the rows of a node."""
    if layout.varying:
        return listed(array)[1]
    if layout.each is not None:
        return array.values.slice(array.offset * layout.each, len(array) * layout.each)
    return array.field(number)


class StoredTree:
    """A column of a run in a file that is a tree. Raises ValueError where the index does not fit the type."""

    def __init__(self, blocks: Blocks, layout: Layout, rows: int, told: Told) -> None:
        self._nodes = [_Node(blocks, layout, _rows(part), part) for part in told["parts"]]
        self._starts = np.cumsum([0, *(node.rows for node in self._nodes)])
        if not self._nodes or self._starts[-1] != rows or told["nulls"] != sum(node.nulls for node in self._nodes):
            raise ValueError("a column's parts do not fit its rows")

    def take(self, rows: I64) -> pa.Array:
        """The values of some rows."""
        if len(self._nodes) == 1 or not len(rows):
            return pc.take(self._nodes[0].whole(), pa.array(rows), boundscheck=False)
        which = np.searchsorted(self._starts, rows, "right") - 1
        order = None if (which[1:] >= which[:-1]).all() else np.argsort(which, kind="stable")
        if order is not None:
            rows, which = rows[order], which[order]
        cuts = np.searchsorted(which, np.arange(len(self._nodes) + 1))
        taken = []
        for node, first, start, end in zip(self._nodes, self._starts, cuts, cuts[1:], strict=False):
            if end > start:
                taken.append(pc.take(node.whole(), pa.array(rows[start:end] - first), boundscheck=False))
        together = taken[0] if len(taken) == 1 else pa.concat_arrays(taken)
        if order is None:
            return together
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return pc.take(together, pa.array(back), boundscheck=False)

    def whole(self) -> pa.Array:
        """The values of all rows; in place if they are one part."""
        parts = [node.whole() for node in self._nodes]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


class _Node:
    """A node of a tree."""

    def __init__(self, blocks: Blocks, layout: Layout, rows: int, told: Told) -> None:
        self._blocks, self._layout, self.rows = blocks, layout, rows
        self.nulls = nulls = told["nulls"]
        given, children = told["buffers"], told["children"]
        if type(nulls) is not int or not 0 <= nulls <= rows or len(given) != layout.buffers:
            raise ValueError("a column's buffers do not fit its type")
        if (given[0] is None) == bool(nulls or layout.is_bare) or len(children) != len(layout.children):
            raise ValueError("a column's parts do not fit its type")
        self._valid = None if given[0] is None else section_of(blocks, given[0], 1, -(-rows // 8))
        self._offsets: Section | None = None
        if layout.varying:
            self._offsets = section_of(blocks, given[1], layout.width, layout.least_bytes(rows))
        self._counts = [_rows(child) for child in children]
        self._children = [
            (_Node if child.tree else StoredColumn)(blocks, child, count, one)
            for child, count, one in zip(layout.children, self._counts, children, strict=True)
        ]
        each = 1 if layout.each is None else layout.each
        if not layout.varying and any(count != rows * each for count in self._counts):
            raise ValueError("a column's parts have other numbers of rows")
        if pt.is_map(layout.kind) and (children[0]["nulls"] or children[0]["children"][0]["nulls"]):
            raise ValueError("a map has entries or keys that are NULL")
        self._array: pa.Array | None = None

    def whole(self) -> pa.Array:
        """The values of all rows, in place."""
        if self._array is None:
            buffers = [self._validity()]
            if self._offsets is not None:
                buffers.append(self._checked_offsets(self._offsets))
            kind, nulls = self._layout.kind, self.nulls
            if pt.is_null(kind):
                self._array = pa.nulls(self.rows)
            elif pt.is_fixed_size_binary(kind):
                self._array = pa.Array.from_buffers(kind, self.rows, [*buffers, pa.py_buffer(b"")], nulls)
            else:
                children = [child.whole() for child in self._children]
                self._array = pa.Array.from_buffers(kind, self.rows, buffers, nulls, 0, children)
        return self._array

    def _validity(self) -> pa.Buffer | None:
        if self._valid is None:
            return None
        self._valid.touch()
        bits = np.unpackbits(self._valid.array(np.dtype(np.uint8)), count=self.rows, bitorder="little")
        nulls = self.rows - int(np.count_nonzero(bits))
        if nulls != self.nulls or (pt.is_null(self._layout.kind) and nulls != self.rows):
            raise self._damaged(self._valid, f"{self.nulls} NULLs in {self.rows} rows", nulls)
        return self._valid.buffer() if nulls else None

    def _checked_offsets(self, section: Section) -> pa.Buffer:
        section.touch()
        offsets = section.array(self._layout.offsets)[: self.rows + 1]
        if offsets[0] != 0 or offsets[-1] != self._counts[0] or (offsets[1:] < offsets[:-1]).any():
            raise self._damaged(section, f"offsets from 0 to {self._counts[0]}", "others")
        return section.buffer()

    def _damaged(self, section: Section, expected: str, got: object) -> CorruptionError:
        return CorruptionError(self._blocks.path, section.start, expected, got)


def _rows(told: Told) -> int:
    rows = told["rows"]
    if type(rows) is not int or rows < 0:
        raise ValueError("a part of a column needs a number of rows")
    return rows


def stored_column(blocks: Blocks, layout: Layout, rows: int, told: Told) -> StoredColumn | StoredTree:
    """A column of any type, as it lies in a file. Raises ValueError where the index does not fit the type."""
    return StoredTree(blocks, layout, rows, told) if layout.tree else StoredColumn(blocks, layout, rows, told)


def bytes_of(told: Told, depth: int = 0) -> int:
    """What a column takes in the file, all of its parts included. Raises ValueError if the index nests too deep."""
    if depth > DEPTH_MAX + 1:
        raise ValueError("a column is nested too deep")
    own = sum(int(place[1]) for place in told["buffers"] if place) if "buffers" in told else 0
    below = [part for name in ("parts", "children") if name in told for part in told[name]]
    return own + sum(bytes_of(part, depth + 1) for part in below)
