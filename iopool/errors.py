"""What worker pool and memory raise of their own; a job's own exception passes through its ticket untouched.

TimeoutError
  PoolBusy       the lane stayed full: wait longer, or submit less
  MemoryTimeout  the hard limit stayed reached: make batches smaller, raise it, or look at the disk spills go to
RuntimeError
  PoolClosed     the pool takes no jobs any more: open a new one
  JobLost        the job's outcome will never be known here: submit it again if it may run twice
"""

from __future__ import annotations


class PoolBusy(TimeoutError):
    """The lane's queue stayed full for as long as the caller would wait; the job was not accepted."""


class MemoryTimeout(TimeoutError):
    """The hard limit of memory stayed reached for as long as the writer would wait; nothing was reserved."""


class PoolClosed(RuntimeError):
    """The pool was closed before the job was accepted, or before it began; it did not run."""


class JobLost(RuntimeError):
    """The job was submitted before a fork, or its worker thread died; how it ended will not be known here."""
