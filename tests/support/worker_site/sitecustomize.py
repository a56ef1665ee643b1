"""Kills Python workers of Spark at named points: on the PYTHONPATH of a driver, it wraps the workers' file system.

`LSMSTATE_TEST_KILLS` names a directory. A file there whose name is a point and whose content is an epoch is an order:
the first worker that comes by takes the file away and dies by SIGKILL. The code under test knows nothing of it.
"""

import os
import signal
import sys

ORDERS = os.environ.get("LSMSTATE_TEST_KILLS")


def die(point: str, path: str, with_daemon: bool = False) -> None:
    """Kills this process if there is an order for this point and for the epoch in the path."""
    order = f"{ORDERS}/{point}"
    try:
        with open(order) as file:
            epoch = int(file.read())
        if f"{epoch:012d}" in path:
            os.unlink(order)  # exactly one worker succeeds
        else:
            return
    except FileNotFoundError:
        return
    if with_daemon:
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def wrap() -> None:
    """Puts the points around the operations of the file system."""
    from iopool.fs import LocalFileSystem

    link, create, sync_dir, list_dir = (
        getattr(LocalFileSystem, name) for name in ("link", "create", "sync_dir", "list_dir")
    )
    last = {"sst": "", "manifest": ""}

    def killing_link(self: object, source: str, target: str) -> None:
        if "/barriers/" in target:
            die("before-barrier", target)
        link(self, source, target)
        if "/barriers/" in target:
            die("after-barrier", target)

    def killing_create(self: object, path: str) -> object:
        if path.endswith(".sst"):
            die("before-sstable", path)
            last["sst"] = path
        if path.endswith((".full", ".delta")):
            die("before-manifest", path)
            last["manifest"] = path
        return create(self, path)

    def killing_sync_dir(self: object, path: str) -> None:
        sync_dir(self, path)
        if path.endswith("/sst") and last["sst"].startswith(path):
            die("after-sstable", last["sst"])
        if path.endswith("/manifest") and last["manifest"].startswith(path):
            die("after-manifest", last["manifest"])

    def killing_list_dir(self: object, path: str) -> list[str]:
        if path.endswith("/manifest") and last["manifest"].startswith(path):  # retiring: the epoch is durable
            die("before-acknowledgement", last["manifest"])
            die("daemon", last["manifest"], with_daemon=True)
        return list_dir(self, path)

    LocalFileSystem.link, LocalFileSystem.create = killing_link, killing_create
    LocalFileSystem.sync_dir, LocalFileSystem.list_dir = killing_sync_dir, killing_list_dir


if ORDERS and "pyspark.daemon" in sys.orig_argv:
    wrap()
