"""Files are touched in `iopool/fs.py` only: elsewhere no crash test would see it, and no link be refused.

A reading of the source, so it errs on the strict side: of `os` only what is listed is allowed, `pathlib.Path`
is not (paths are strings; PurePath if it must be), and a call of a method named like one with I/O counts.
`ALLOWED` holds the exceptions, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("lsmstate", "compaction", "iopool")
THE_SEAM = "iopool/fs.py"

# (module, what the checker calls it) -> why it may
ALLOWED: dict[tuple[str, str], str] = {
    ("lsmstate/checkpoint/connect/parquet_draft.py", "pyarrow.parquet"): "encodes into a stream, which iopool writes",
    ("lsmstate/checkpoint/connect/parquet_source.py", "pyarrow.parquet"): "decodes what iopool has mapped",
    ("lsmstate/spark/demo_feed.py", "pyarrow.parquet"): "encodes into a buffer, which iopool writes",
    ("lsmstate/sstable/filters.py", ".tofile()"): "pybloom-live writes the filter into a BytesIO",
}


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OS_ALLOWED = words(
    """PathLike _exit cpu_count environ fsdecode fsencode fspath getenv getpid getppid name path
    register_at_fork sched_getaffinity sep strerror sysconf urandom"""
)
OS_PATH_ALLOWED = words(
    """abspath basename commonpath commonprefix dirname expanduser isabs join normpath relpath sep split
    splitext"""
)
FORBIDDEN_MODULES = words(
    """bz2 dbm fcntl fileinput genericpath glob gzip lzma mmap nt ntpath posix posixpath shelve shutil tarfile
    tempfile zipfile"""
)
FORBIDDEN_NAMES = words(
    """io.open io.open_code io.FileIO codecs.open pathlib.Path pathlib.PosixPath pathlib.WindowsPath
    numpy.memmap numpy.fromfile numpy.load numpy.save numpy.savez numpy.savez_compressed numpy.loadtxt
    numpy.savetxt numpy.genfromtxt numpy.fromregex numpy.lib.format.open_memmap
    pyarrow.memory_map pyarrow.create_memory_map pyarrow.MemoryMappedFile pyarrow.OSFile pyarrow.input_stream
    pyarrow.output_stream pyarrow.csv pyarrow.dataset pyarrow.feather pyarrow.fs pyarrow.json pyarrow.orc
    pyarrow.parquet"""
)
# Not open, unlink, rename, replace, resolve, touch: other things have such methods, and Path is out anyway.
FORBIDDEN_METHODS = words(
    """chmod exists hardlink_to is_dir is_file is_mount is_symlink iterdir lchmod lstat mkdir read_bytes
    read_text readlink rglob rmdir samefile stat symlink_to tofile write_bytes write_text"""
)


class Checker(ast.NodeVisitor):
    """Collects (line, what) for everything in a module that touches files by itself."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self._modules: dict[str, str] = {}  # local name -> full name of what was imported

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._judge(node, alias.name)
            bound = alias.asname or alias.name.partition(".")[0]
            self._modules[bound] = alias.name if alias.asname else bound

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            if not self._judge(node, node.module or ""):
                self._judge(node, full)
            self._modules[alias.asname or alias.name] = full

    def visit_Call(self, node: ast.Call) -> None:
        before = len(self.found)
        self.generic_visit(node)
        func = node.func
        if len(self.found) == before and isinstance(func, ast.Attribute) and func.attr in FORBIDDEN_METHODS:
            self.found.append((node.lineno, f".{func.attr}()"))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        full = self._full_name(node)
        if full is None or not (self._judge(node, full) or isinstance(node.value, ast.Name)):
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        whole = self._modules.get(node.id, "")
        if node.id in ("open", "__import__") and not whole:
            self.found.append((node.lineno, node.id))
        elif whole in ("os", "os.path"):  # getattr(os, ...), or handed on
            self.found.append((node.lineno, f"{whole} as a value"))

    def _full_name(self, node: ast.expr) -> str | None:
        """`pa.OSFile` as pyarrow.OSFile; None if it does not begin with something imported."""
        if isinstance(node, ast.Name):
            return self._modules.get(node.id)
        if isinstance(node, ast.Attribute) and (base := self._full_name(node.value)):
            return f"{base}.{node.attr}"
        return None

    def _judge(self, node: ast.stmt | ast.expr, full: str) -> bool:
        top, _, rest = full.partition(".")
        first, _, second = rest.partition(".")
        bad = full in FORBIDDEN_NAMES or full in FORBIDDEN_MODULES or top in FORBIDDEN_MODULES
        bad |= top == "os" and bool(first) and first not in OS_ALLOWED
        bad |= top == "os" and first == "path" and bool(second) and second not in OS_PATH_ALLOWED
        if bad:
            self.found.append((node.lineno, full))
        return bad


def file_calls(source: str) -> list[tuple[int, str]]:
    """The lines of a module that touch files, and what they touch them with."""
    checker = Checker()
    checker.visit(ast.parse(source))
    return checker.found


def modules() -> Iterator[str]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("module", [module for module in modules() if module != THE_SEAM])
def test_module_touches_no_file_by_itself(module: str) -> None:
    found = file_calls((ROOT / module).read_text("utf-8"))
    wrong = [f"{module}:{line}: {what}" for line, what in found if (module, what) not in ALLOWED]
    assert not wrong, "use iopool.FileSystem instead of\n" + "\n".join(wrong)


def test_allow_list_has_no_entry_that_is_not_needed() -> None:
    used = {(module, what) for module in modules() for _, what in file_calls((ROOT / module).read_text("utf-8"))}
    assert set(ALLOWED) <= used
    assert all(ALLOWED.values())


def test_the_seam_itself_would_be_caught() -> None:
    found = {what for _, what in file_calls((ROOT / THE_SEAM).read_text("utf-8"))}
    assert {"os.open", "os.writev", "os.fsync", "os.link", "os.unlink", "mmap", "fcntl"} <= found


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("open('a')", "open"),
        ("opener = open", "open"),
        ("import os\nos.rename('a', 'b')", "os.rename"),
        ("import os\nos.path.exists('a')", "os.path.exists"),
        ("import os as system\nsystem.stat('a').st_size", "os.stat"),
        ("import os.path\nos.fsync(3)", "os.fsync"),
        ("import os\ngetattr(os, 'open')('a')", "os as a value"),
        ("from os import scandir as look", "os.scandir"),
        ("from os.path import isfile", "os.path.isfile"),
        ("from os import path\npath.getsize('a')", "os.path.getsize"),
        ("def late():\n    import shutil", "shutil"),
        ("from tempfile import mkdtemp", "tempfile"),
        ("import mmap", "mmap"),
        ("import io\nio.FileIO('a')", "io.FileIO"),
        ("from pathlib import Path", "pathlib.Path"),
        ("import pathlib\npathlib.Path('a').unlink()", "pathlib.Path"),
        ("def f(root):\n    return (root / 'a').read_text()", ".read_text()"),
        ("def f(root):\n    root.parent.mkdir()", ".mkdir()"),
        ("import numpy as np\nnp.memmap('a')", "numpy.memmap"),
        ("import numpy as np\nnp.zeros(3).tofile('a')", ".tofile()"),
        ("import pyarrow as pa\npa.OSFile('a', 'wb')", "pyarrow.OSFile"),
        ("from pyarrow import memory_map", "pyarrow.memory_map"),
        ("import pyarrow.parquet as pq", "pyarrow.parquet"),
        ("import pyarrow as pa\npa.fs.LocalFileSystem()", "pyarrow.fs"),
    ],
)
def test_planted_file_call_is_caught(source: str, what: str) -> None:
    assert what in [found for _, found in file_calls(source)]


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.getpid(), os.path.join('a', 'b'), os.fspath('a'), os.urandom(8), os.environ.get('A')",
        "import os\nos.register_at_fork(after_in_child=print)",
        "import os\ndef f(path: str | os.PathLike[str]) -> str: ...",
        "from os.path import join, basename",
        "from io import BytesIO\nBytesIO(b'a').read()",
        "from pathlib import PurePath\nPurePath('a').name.replace('a', 'b')",
        "def f(fs):\n    fs.unlink('a'), fs.read('a', 1), fs.create('a').write([b'a'])",
        "class Store:\n    @classmethod\n    def open(cls): ...\nStore.open()",
        "import numpy as np\nnp.frombuffer(b'')",
        "def f(key_filter):\n    return key_filter.exists",
        "import pyarrow as pa\npa.ipc.open_stream(pa.py_buffer(b''))",
    ],
)
def test_innocent_code_passes(source: str) -> None:
    assert file_calls(source) == []
