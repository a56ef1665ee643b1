"""A PostgreSQL server of our own: installed if need be, made in a temporary directory, stopped at the end.

It runs as an unprivileged user (the server refuses root), listens on loopback at a free port, asks for a password,
and syncs to disk as in production. It ends with the process that started it, also when that is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

ROOT = Path(__file__).parents[2]
USER = "lsmstate"
_START_S = 60
_SETTINGS = ("fsync=on", "synchronous_commit=on", "shared_buffers=16MB", "max_connections=60", "lc_messages=C")


class PostgresServer:
    """A server with a directory of its own. Each `schema()` is a new one, for one test."""

    def __init__(self) -> None:
        self._bin = _binaries()
        self._user = _unprivileged()
        self.password = f"pw-{secrets.token_hex(8)}"
        self._directory = Path(tempfile.mkdtemp(prefix="lsmstate-pg-", dir="/tmp"))
        self._schemas = 0
        self._process: subprocess.Popen[bytes] | None = None
        password = self._directory / "password"
        password.write_text(self.password)
        if self._user is not None:
            for path in (self._directory, password):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "-D", "data", "-U", USER, "-A", "scram-sha-256", "--pwfile=password", "-E", "UTF8", "-N")
        self.port = 0
        self.start()

    def url(self, schema: str | None = None, *, password: str | None = None, database: str = "postgres") -> str:
        """The URL of the database, and of a schema in it."""
        url = f"postgresql://{USER}:{password or self.password}@127.0.0.1:{self.port}/{database}"
        return f"{url}?options=-csearch_path%3D{schema}" if schema else url

    def schema(self) -> str:
        """The URL of a new, empty schema: cheaper than a database."""
        self._schemas += 1
        name = f"s{self._schemas}"
        self.execute(self.url(), f"CREATE SCHEMA {name}")
        return self.url(name)

    def execute(self, url: str, *statements: str) -> None:
        """Runs statements beside whoever else is connected."""
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def start(self) -> None:
        """Starts it and waits till it answers; at the same port as before, if it was started before."""
        for _ in range(5):
            self.port = self.port or _free_port()
            if self._started():
                return
            self.port = 0
        raise RuntimeError((self._directory / "log").read_text())

    def stop(self) -> None:
        """Stops it at once, as a crash would: what was committed must be there afterwards."""
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGQUIT)
            process.wait(_START_S)

    def close(self) -> None:
        """Stops it and removes its directory."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Stopped inside, back afterwards."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def process_ids(self) -> list[int]:
        """The server's processes, those of its connections included."""
        assert self._process is not None
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self._process.pid)], capture_output=True, check=True)
        return [self._process.pid, *map(int, listed.stdout.split())]

    def _run(self, program: str, *args: str) -> None:
        command = [str(self._bin / program), *args]
        subprocess.run(self._as_user(command), cwd=self._directory, check=True, capture_output=True, env=_env())

    def _started(self) -> bool:
        command = [str(self._bin / "postgres"), "-D", "data", "-p", str(self.port), "-k", str(self._directory)]
        for setting in (*_SETTINGS, "listen_addresses=127.0.0.1"):
            command += ["-c", setting]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._as_user(command), cwd=self._directory, stdout=log, stderr=log, env=_env()
            )
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url(), connect_timeout=5).close()
                return True
            time.sleep(0.02)  # another program starts: there is nothing to wait on
        self.stop()
        return False

    def _as_user(self, command: list[str]) -> list[str]:
        ends_with_us = ["setpriv", "--pdeathsig", "QUIT"]
        if self._user is None:
            return [*ends_with_us, *command]
        ids = ["--reuid", str(self._user.pw_uid), "--regid", str(self._user.pw_gid), "--init-groups"]
        return [*ends_with_us, *ids, *command]


def _binaries() -> Path:
    """Where the server's programs are; installs them if they are nowhere."""
    if (found := _find()) is None:
        with (Path(tempfile.gettempdir()) / "lsmstate-apt.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # workers of one run meet here
            if _find() is None:
                subprocess.run([str(ROOT / ".ci/apt-install"), "postgresql"], check=True)
        found = _find()
    assert found is not None, "PostgreSQL was installed and is not found"
    return found


def _find() -> Path | None:
    if (initdb := shutil.which("initdb")) is not None:
        return Path(initdb).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: float(path.parts[-3]), default=None)
    return None if newest is None else newest.parent


def _unprivileged() -> pwd.struct_passwd | None:
    """The user to run as; None if we are no root ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("there is no user postgres or nobody to run a PostgreSQL server as")


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def _env() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
