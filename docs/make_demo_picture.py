"""Makes docs/demo.svg, the README's picture of `lsmstate demo`, from a real run: python docs/make_demo_picture.py

It needs Java, as the demonstration does. The picture names fonts that are on the reader's machine, and loads none.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from iopool import LocalFileSystem
from lsmstate.cli.demo import conclude, introduce, make_dirs, new_run
from lsmstate.cli.demo_screen import panel, watch
from lsmstate.cli.terminal import console
from lsmstate.spark.demo import DemoJob

PICTURE = Path(__file__).with_name("demo.svg")
WIDTH = 86
SECONDS = 20
FONTS = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"


def main() -> None:
    """Runs the demonstration and draws its last screen."""
    os.chdir(PICTURE.parents[1])
    fs = LocalFileSystem()
    where = new_run(fs, "state/demo")
    make_dirs(fs, where)
    with DemoJob(fs, fs.resolve(where), SECONDS) as job:
        look = watch(console(), job)
    assert look.verdict is not None
    out = Console(record=True, file=io.StringIO(), width=WIDTH, force_terminal=True, markup=False, highlight=False)
    introduce(out, where)
    out.print(panel(look))
    conclude(out, look.verdict)
    PICTURE.write_text(out.export_svg(title="lsmstate demo", code_format=svg_format(), unique_id="demo"))


def svg_format() -> str:
    """Rich's format without the fonts that it would load from elsewhere."""
    local = re.sub(r"@font-face {{.*?}}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return local.replace("Fira Code, monospace", FONTS).replace("font-family: arial", "font-family: sans-serif")


if __name__ == "__main__":
    main()
