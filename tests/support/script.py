"""Python code in a process of its own, for what can be done to a process once only: fork it, signal it, end it.

`run_script` gives its output and fails unless it ends well, with nothing on its standard error: a thread that died
and an object that could not be finalized say so there. The time limit is what turns a hang into a failure.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 300

STORES = """
import collections, contextlib, faulthandler, gc, os, random, signal, sys, threading, time
from iopool import *
import compaction.picker
import lsmstate
from lsmstate import *
from tests.support.script_store import *
faulthandler.dump_traceback_later(240, exit=True)  # a process that hangs tells where
compaction.picker.MIXED_MAX = 2  # so that a few epochs give it something to do
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
"""


def run_script(body: str, *arguments: object, prelude: str = STORES, code: int = 0) -> str:
    """Runs the code, from the root of the repository, with the arguments in `sys.argv[1:]`; gives its output."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", prelude + body, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, ""), (done.returncode, done.stdout, done.stderr)
    return done.stdout.strip()
