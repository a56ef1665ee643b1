"""The session of the demonstration: Spark embedded in this process, on two cores, silent.

What Spark has to say goes into a file; the terminal is not its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from typing import Any
from urllib.parse import quote

import numpy as np
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from iopool import FileSystem
from lsmstate.errors import LsmStateError

LOG = "spark.log"
_JAVA_LEAST = 17
_PATIENCE_S = 10.0
_INSTALL = "`make demo` installs it, or `apt-get install openjdk-17-jre-headless`; JAVA_HOME names another one"
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "lsmstate demo",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}
_SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def check_java() -> None:
    """Raises unless there is a Java that Spark can run on: that of JAVA_HOME, or the one in the PATH."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True).stderr
    except OSError as error:
        which = f"{command} cannot be run" if home else "there is none"
        raise LsmStateError(f"Spark needs Java {_JAVA_LEAST} or newer, and {which}: {_INSTALL}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None or int(version[1]) < _JAVA_LEAST:
        found = "cannot be run" if version is None else f"is Java {version[1]}"
        raise LsmStateError(f"Spark needs Java {_JAVA_LEAST} or newer, and {command} {found}: {_INSTALL}")


def embedded_session(fs: FileSystem, where: str) -> SparkSession:
    """A new session that logs into a directory, with this Python in its workers. Requires: no other is running."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging = f"{where}/log4j2.properties"
    file = fs.create(logging)
    try:
        file.write([_LOGGING.format(path=_escaped(f"{where}/{LOG}")).encode()])
    finally:
        file.close()
    conf = SparkConf(loadDefaults=False).setAll(list(_SETTINGS.items()))
    conf.set("spark.sql.warehouse.dir", f"{where}/warehouse")
    conf.set(
        "spark.driver.extraJavaOptions",
        f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=file://{quote(logging)}",
    )
    try:
        gateway = launch_gateway(conf, _SILENT.copy())  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        raise LsmStateError(f"Spark does not start; {where}/{LOG} may say why") from error
    return SparkSession(SparkContext(gateway=gateway, conf=conf))


def _escaped(text: str) -> str:
    """As a value in a file of Java properties, whatever the characters."""
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")
    return "".join(f"\\u{unit:04x}" for unit in units)


def end_session(session: SparkSession) -> None:
    """Ends a session and the JVM below it."""
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()  # from here on, objects that are forgotten do not tell the JVM
    SparkContext._gateway = SparkContext._jvm = None
    gateway.proc.stdin.close()  # it ends when nobody can speak to it any more
    with contextlib.suppress(subprocess.TimeoutExpired):
        gateway.proc.wait(_PATIENCE_S)
