"""`python -m tests.fuzz`: the fuzzer, and the corpus.

    python -m tests.fuzz corpus               writes the seeds of every target into its corpus
    python -m tests.fuzz TARGET [ARGUMENT...]  fuzzes a target with atheris; arguments are those of libFuzzer
    python -m tests.fuzz all SECONDS           fuzzes every target for so long, one after the other

Inputs that were found are kept in the corpus of the target when they are findings; what only reaches new code goes to a
directory beside it that git does not keep.
"""

from __future__ import annotations

import subprocess
import sys

from tests.fuzz.kit import Target, all_targets


def main() -> int:
    command, *arguments = sys.argv[1:] or ["--help"]
    targets = all_targets()
    if command == "corpus":
        for target in targets.values():
            write_seeds(target)
        return 0
    if command == "all":
        codes = [_in_a_process(name, [f"-max_total_time={int(arguments[0])}"]) for name in targets]
        return max(codes)
    if command not in targets:
        sys.stderr.write(f"{__doc__}\ntargets: {', '.join(targets)}\n")
        return 2
    return _in_a_process(command, arguments)


def write_seeds(target: Target) -> None:
    """Puts the seeds of a target into its corpus."""
    target.corpus.mkdir(parents=True, exist_ok=True)
    for name, data in target.seeds():
        (target.corpus / f"seed-{name}").write_bytes(data)


def _in_a_process(name: str, arguments: list[str]) -> int:
    """A process of its own, because libFuzzer ends the one that it runs in; 0 if it found nothing."""
    return abs(subprocess.run([sys.executable, "-m", "tests.fuzz.fuzzer", name, *arguments], check=False).returncode)


if __name__ == "__main__":
    sys.exit(main())
