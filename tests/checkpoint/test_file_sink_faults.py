"""The file sink when operations fail: the error is raised, and no committed epoch is lost."""

from __future__ import annotations

import errno

import pytest

from lsmstate.checkpoint.connect.file_sink import FileSink
from lsmstate.errors import StorePoisonedError
from tests.support.simfs import SimFileSystem, fail_at
from tests.support.sink_story import JOB, batch, rows_on


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_every_failing_operation_raises_it_and_loses_no_committed_epoch(code: int) -> None:
    operations = run(SimFileSystem())
    assert operations > 30
    for at in range(operations):
        fs = SimFileSystem(fault=fail_at(at, code))
        try:
            run(fs)
            done = [1, 2, 3]  # the failure was of no consequence
        except (OSError, StorePoisonedError):
            done = []
        seen = rows_on(fs)
        assert seen in ([], [1, 2], [1, 2, 3]), at
        assert not done or seen == done, at


def run(fs: SimFileSystem) -> int:
    sink = FileSink("/out", fs=fs)
    sink.open(JOB, None)
    sink.write(batch(1))
    sink.pre_commit(1)
    sink.abort(1)
    sink.write(batch(2))
    sink.pre_commit(1)
    sink.commit(1)
    sink.write(batch(3))
    sink.pre_commit(2)
    sink.commit(2)
    sink.close()
    return fs.ops


def test_failed_write_poisons_until_it_is_opened_again() -> None:
    fs = SimFileSystem()
    sink = FileSink("/out", fs=fs)
    sink.open(JOB, None)
    sink.write(batch(1))
    sink.pre_commit(1)
    sink.write(batch(2))
    fs.fault = fail_at(fs.ops + 2, errno.ENOSPC)
    with pytest.raises(OSError, match="space"):
        sink.pre_commit(2)
    fs.fault = None
    for call in (lambda: sink.write(batch(3)), lambda: sink.pre_commit(2), lambda: sink.commit(1)):
        with pytest.raises(StorePoisonedError, match="open the sink again"):
            call()
    sink.open(JOB, 1)
    assert rows_on(fs) == [1]
