"""The memory that Spark lets a Python worker have: `spark.executor.pyspark.memory`, which limits its address space.

A limit that no worker of ours can start under is refused before the query starts; what fails under another one says so.
"""

from __future__ import annotations

import re
import resource

from pyspark.sql import SparkSession

LIMIT = "spark.executor.pyspark.memory"
LEAST_MIB = 512  # for the interpreter with Arrow, numpy and the engine, before there is any state
_WAYS_OUT = "Leave it unset, or give it more than the state of a partition: files are mapped, and count"
_UNITS = {"b": 1 / (1 << 20), "k": 1 / 1024, "m": 1, "g": 1 << 10, "t": 1 << 20, "p": 1 << 30}


def check_worker_memory(session: SparkSession) -> None:
    """Raises ValueError if workers cannot start under the limit."""
    told, cores = (session.conf.get(name, None) for name in (LIMIT, "spark.executor.cores"))
    whole = _mib(told)
    if not whole:  # 0 is none
        return
    shares = int(cores) if cores and cores.isdigit() and int(cores) else 1
    if whole / shares < LEAST_MIB:
        among = f", shared by {shares} cores" if shares > 1 else ""
        raise ValueError(f"{LIMIT} is {told}{among}; a worker needs {LEAST_MIB} MiB to begin with. {_WAYS_OUT}")


def explained(error: MemoryError) -> MemoryError | None:
    """What a worker says whose memory does not suffice; None if no limit is to blame."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    what = f" ({error})" if str(error) else ""
    told = f"this worker may use {limit >> 20} MiB of address space, and needs more{what}"
    return MemoryError(f"{told}. The limit is that of {LIMIT}, or of `ulimit -v`. {_WAYS_OUT}")


def _mib(told: str | None) -> float | None:
    found = re.fullmatch(r"(\d+)(b|[kmgtp]?)b?", (told or "").strip().lower())
    return None if found is None else int(found[1]) * _UNITS[found[2] or "m"]
