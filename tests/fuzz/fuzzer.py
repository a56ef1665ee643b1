"""Fuzzes one target with atheris; see `python -m tests.fuzz`. Ends its process, with what libFuzzer found.

Nothing of lsmstate is imported at the top: only what is imported under atheris is instrumented.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import atheris

SCRATCH = Path(os.environ.get("LSMSTATE_FUZZ_SCRATCH", Path(__file__).parent / "scratch"))


def main() -> None:
    name, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=["lsmstate", "iopool", "compaction", "pybloom_live", "json"]):
        from tests.fuzz.kit import INPUT_MAX_BYTES, all_targets
        from tests.fuzz.mutate import mutated_at

        target = all_targets()[name]

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        return atheris.Mutate(data, max_size) if seed % 3 else mutated_at(data, seed)[:max_size]

    found = SCRATCH / name
    found.mkdir(parents=True, exist_ok=True)
    places = [sys.argv[0], str(found), str(target.corpus), f"-artifact_prefix={target.corpus}/found-"]
    limits = [f"-max_len={INPUT_MAX_BYTES}", "-timeout=10", "-rss_limit_mb=4096"]
    atheris.Setup([*places, *limits, *arguments], target.run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
