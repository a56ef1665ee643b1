"""How to go on from a checkpoint with sources and sinks of Spark: which can seek, and what to do about the others.

Sources and sinks are known by their descriptions, as Spark tells them. Pure functions.
"""

from __future__ import annotations

import re
from typing import Any

_KAFKA = re.compile(r"Kafka(V2|Source)\[")
_FILES = re.compile(r"FileStreamSource\[(.*)\]")
_FILE_SINK = re.compile(r"FileSink\[(.*)\]")
_CANNOT = {
    "RateStream": "it makes rows by the clock, and cannot go back",
    "RatePerMicroBatch": "it begins at 0 whenever it starts, and cannot go back",
    "TextSocket": "what was sent is gone; it cannot go back",
    "MemoryStream": "it lives in the application, which has to add the same rows again",
}


def seek(name: str, offset: str | None, batch: int) -> dict[str, Any]:
    """How a source starts again after a checkpoint. batch: the one that ended there."""
    told: dict[str, Any] = {"source": name, "offset": offset, "can_seek": None}
    if offset is None:
        how = (
            "its offsets are not known: the driver died before it heard of them. They stand in the file "
            f"offsets/{batch} of the old checkpointLocation, in the order of the sources"
        )
        return {**told, "how": how}
    if _KAFKA.match(name):
        return {**told, "can_seek": True, "how": f".option(\"startingOffsets\", '{offset}')"}
    files = _FILES.fullmatch(name)
    if files is not None:
        how = (
            f"files cannot be sought by an offset: batches after {batch} have read those that the old "
            "checkpointLocation lists under sources/, with a batchId above the logOffset. Copy these, and what came "
            f"since, into a new directory in the place of {files[1]}, and read that"
        )
        return {**told, "can_seek": False, "how": how}
    for prefix, why in _CANNOT.items():
        if name.startswith(prefix):
            return {**told, "can_seek": False, "how": f"{why}: rows after the checkpoint are lost, or come again"}
    if name == "python" or name.startswith("python #"):
        return {**told, "how": f"a Python data source: if it has an option for where to start, give it {offset}"}
    return {**told, "how": f"if it has an option for where to start, give it {offset}"}


def undo(name: str, batch: int, last: int | None) -> str:
    """What there is to do about a sink's output of batches after the one that the checkpoint ended with."""
    which = f"batches after {batch}" if last is None else f"batches {batch + 1} to {last}"
    if last is not None and last <= batch:
        which = "no batch"
    files = _FILE_SINK.fullmatch(name)
    if files is not None:
        return (
            f"{files[1]} holds the output of {which} too, and Spark would skip batches of the new query that have "
            f"numbers which are there: write to a new directory, and of the old one read only what "
            f"_spark_metadata lists up to batch {batch}"
        )
    if name.startswith("ForeachBatch"):
        return f"what your function did with {which} stands: undo it; the numbers of batches begin at 0 again"
    return (
        f"the output of {which} is there already, and the rows of those batches come again: remove it, or expect both"
    )
