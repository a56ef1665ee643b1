"""The state of a join without Spark: does to a home what its tasks do, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from iopool import FileSystem, LocalFileSystem
from lsmstate import Options, Side, StateStore
from lsmstate.hashing import hash_keys
from lsmstate.join.barrier import Barrier, barrier_of, retire_barriers, retiring
from lsmstate.join.home import Home
from lsmstate.join.kinds import INTERVAL, Kind
from lsmstate.join.pace import Pace
from lsmstate.join.partition import partition_of
from lsmstate.join.runs import enter_run
from lsmstate.join.spec import JoinSpec
from lsmstate.manifest.codec import decode, encode

START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
SECOND_US = 1_000_000
DELAY_US = 10 * SECOND_US
ROWS = 120  # of each side in an epoch
QUERY, RUN = "query-1", "run-1"
UTC = pa.timestamp("us", tz="UTC")


def join_spec(
    path: str,
    *,
    job: str = "ads",
    partitions: int = 3,
    retain: int = 3,
    lower_s: int = -5,
    upper_s: int = 3600,
    how: str = "inner",
    title: str = "title",
    title_kind: pa.DataType | None = None,
) -> JoinSpec:
    """Ads, and the clicks on them."""
    lower, upper = lower_s * SECOND_US, upper_s * SECOND_US
    kind = Kind(INTERVAL, how, lower, upper)
    kept = kind.retention(0), kind.retention(1)
    left = pa.schema([("ad_id", pa.int64()), ("ts", UTC), (title, title_kind or pa.string())])
    right = pa.schema([("ad", pa.int64()), ("at", UTC), ("price", pa.float64())])
    sides = (Side("left", left, ["ad_id"], "ts", kept[0]), Side("right", right, ["ad"], "at", kept[1]))
    return JoinSpec(job, path, partitions, kind, sides, Pace((DELAY_US, DELAY_US)), retain)


class JoinHome:
    """A join at work."""

    def __init__(
        self, path: Path | str, spec: JoinSpec | None = None, *, fs: FileSystem | None = None, query: str = QUERY
    ) -> None:
        self.spec = spec or join_spec(str(path))
        self.home = Home(fs or LocalFileSystem(), str(path))
        self.home.bind(self.spec)
        self.run = enter_run(self.home, query, RUN if query == QUERY else f"run of {query}", 0)

    @property
    def path(self) -> Path:
        return Path(self.home.path)

    def barrier(self, epoch: int) -> Barrier:
        """The barrier of an epoch, as its first task decides it."""
        return barrier_of(self.home, self.spec, epoch, self.run)

    def task(self, epoch: int, partition: int, *rows: pa.RecordBatch, retire: bool = True) -> str:
        """What a partition does in an epoch with rows of the left and the right side; gives the candidate."""
        barrier = self.barrier(epoch)
        parent = barrier.parent(partition)
        path, options = self.home.partition(partition), Options(auto_compact=False)
        with StateStore.open_candidate(
            path, parent, self.spec.shape.state_sides, options, line=barrier.line, fs=self.home.fs
        ) as store:
            count = [0, 0]
            newest = list(store.meta.get("max_ts", [None, None]))
            for side, batch in enumerate(rows):
                mine = self._mine(side, partition, batch)
                if mine.num_rows:
                    times = mine.column(self.spec.sides[side].time).cast(pa.int64()).to_numpy()
                    newest[side] = max(int(times.max()), newest[side] or int(times.max()))
                    store.append(side, mine)
                    count[side] = mine.num_rows
            if barrier.watermark is not None:
                store.advance_watermark(barrier.watermark)
            name = store.prepare(epoch, meta={"run": self.run.number, "max_ts": newest, "rows": count})
            if retire:
                with retiring(self.home, barrier, partition) as may:
                    assert may
                    store.retire(barrier.min_epoch)
                    if partition == 0:
                        retire_barriers(self.home, barrier.min_epoch)
        return name

    def epoch(self, epoch: int, partitions: Iterable[int] | None = None, sides: Sequence[int] = (0, 1)) -> list[str]:
        """An epoch with rows for some sides, finished by some partitions, all unless told."""
        rows = [self.rows(side, epoch, ROWS if side in sides else 0) for side in (0, 1)]
        doing = range(self.spec.partitions) if partitions is None else partitions
        return [self.task(epoch, partition, *rows) for partition in doing]

    def epochs(self, last: int) -> JoinHome:
        """Epochs 1 to `last`."""
        for epoch in range(1, last + 1):
            self.epoch(epoch)
        return self

    def rows(self, side: int, epoch: int, count: int = ROWS) -> pa.RecordBatch:
        """The rows of an epoch, of all partitions: a minute of event time."""
        numbers = range(epoch * 1000, epoch * 1000 + count)
        times = [START_US + epoch * 60 * SECOND_US + n * 100_000 for n in range(count)]
        payload = [f"ad {n}" if side == 0 else n / 4 for n in numbers]
        return pa.RecordBatch.from_pydict(
            dict(zip(self.spec.sides[side].schema.names, (list(numbers), times, payload), strict=True)),
            schema=self.spec.sides[side].schema,
        )

    def _mine(self, side: int, partition: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = [batch.column(name) for name in self.spec.sides[side].keys]
        hashes = hash_keys(keys).view(np.int64)
        return batch.filter(pa.array(partition_of(hashes, self.spec.partitions) == partition))

    # ---- for those who damage it

    def partition(self, number: int) -> Path:
        return Path(self.home.partition(number))

    def barrier_file(self, epoch: int) -> Path:
        return self.path / "barriers" / f"000001-{epoch:012d}"

    def manifest(self, partition: int, epoch: int) -> Path:
        """The only manifest of an epoch in a partition."""
        (found,) = (self.partition(partition) / "manifest").glob(f"{epoch:012d}-*")
        return found

    def sstable(self, partition: int, epoch: int) -> Path:
        """The only SSTable that an epoch has written in a partition."""
        (found,) = (self.partition(partition) / "sst").glob(f"{epoch:012d}-*")
        return found


def rewrite(path: Path, **changes: object) -> None:
    """Changes fields of a document, and makes its checksum right again."""
    name, body = decode(str(path), path.read_bytes())
    path.unlink()
    path.write_bytes(encode(name, {**body, **changes}))
