"""The screen of the demonstration: a panel, drawn anew as the job goes on; into a pipe or a file, plain lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lsmstate.cli.wording import count_text, size_text, time_text

if TYPE_CHECKING:
    from lsmstate.spark import EpochProgress
    from lsmstate.spark.demo import Look

_PANEL_WIDTH = 84
_CHART_WIDTH = 22
_BARS = "▁▂▃▄▅▆▇"  # not the full block, so that charts below each other stay apart
_SECOND_US = 1_000_000
_EPOCHS_A_LINE = 3
_POLL_S = 0.25
_PHASES = {
    "starting": "Spark is starting",
    "joining": "joining",
    "checking": "Spark joins the same files once more, as one batch",
    "ended": "all joined",
}
_LINE = "{:>7}  {:>8}  {:>9}  {:>8}  {:>10}  {:>9}  {:>7}  {:>8}  {}"
_HEADS = ("epoch", "rows/s", "joined", "in state", "evicted", "size", "task ms", "batch ms", "watermark")


class Job(Protocol):
    """What can be watched."""

    def look(self) -> Look:
        """How far it is."""

    def wait(self, seconds: float) -> bool:
        """Waits a moment; True once it has ended."""


def watch(out: Console, job: Job) -> Look:
    """Shows a job until it has ended; gives the last look at it."""
    if out.is_terminal:
        with Live(Screen(job), console=out, refresh_per_second=4):
            while not job.wait(_POLL_S):
                pass
    else:
        _print_lines(out, job)
    return job.look()


# ---- a panel


class Screen:
    """The panel; drawn from a new look each time."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __rich__(self) -> RenderableType:
        return panel(self._job.look())


def panel(look: Look) -> Panel:
    """All about a job at a moment."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(no_wrap=True, width=_CHART_WIDTH)
    grid.add_column(no_wrap=True)
    for row in _rows(look):
        grid.add_row(*row)
    minutes, seconds = divmod(int(look.elapsed_s), 60)
    return Panel(
        grid,
        title=Text(f"lsmstate demo: {_phase_text(look)}", style="bold"),
        subtitle=Text(f"{minutes}:{seconds:02d} elapsed"),
        title_align="left",
        subtitle_align="right",
        width=_PANEL_WIDTH,
        padding=(1, 1),
    )


def _phase_text(look: Look) -> str:
    return _PHASES[look.phase] if look.phase != "joining" or look.epochs else "Spark warms up with the first rows"


def _rows(look: Look) -> Iterator[tuple[RenderableType, RenderableType, RenderableType]]:
    fed, epochs = look.fed, look.epochs
    last = epochs[-1] if epochs else None
    bar = ProgressBar(total=look.files, completed=fed.files, width=_CHART_WIDTH)
    yield "fed", bar, f"{count_text(fed.rows[0], 'impression')}, {count_text(fed.rows[1], 'click')}"
    rates = [rate(epoch) for epoch in epochs]
    yield "rows/s", chart(rates, "green"), f"{rates[-1]:,.0f} in epoch {last.epoch}" if last else ""
    pairs = [epoch.rows_out for epoch in epochs]
    yield "joined", chart(pairs, "green"), f"{count_text(sum(pairs), 'row')} in all" if last else ""
    waiting = [sum(epoch.state_rows) for epoch in epochs]
    told = f"{last.state_rows[0]:,} impressions, {last.state_rows[1]:,} clicks wait" if last else ""
    yield "state rows", chart(waiting, "yellow"), told
    sizes = [epoch.state_bytes for epoch in epochs]
    told = f"{size_text(last.state_bytes)} in {count_text(last.files, 'file')}" if last else ""
    yield "state size", chart(sizes, "yellow"), told
    yield "evicted", chart([evicted(epochs[: n + 1]) for n in range(len(epochs))], "yellow"), _evicted_text(epochs)
    yield "task time", _share(last), _time_told(last)
    yield "watermark", _whole_seconds(last.watermark_us) if last else "none yet", "event time runs 10 times faster"


def chart(values: Sequence[float], style: str) -> Text:
    """The last values as bars, the highest one full."""
    shown = values[-_CHART_WIDTH:]
    most = max(shown, default=0) or 1
    return Text("".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in shown), style=style)


def rate(epoch: EpochProgress) -> float:
    """Rows a second, from the beginning of a batch to its end."""
    return sum(epoch.rows_in) / max(epoch.batch_ms, 1) * 1000


def evicted(epochs: Sequence[EpochProgress]) -> int:
    """How many of the rows that came in are no longer kept."""
    came = sum(sum(epoch.rows_in) - sum(epoch.late) - sum(epoch.unkeyed) for epoch in epochs)
    return came - sum(epochs[-1].state_rows) if epochs else 0


def _evicted_text(epochs: Sequence[EpochProgress]) -> str:
    return f"{count_text(evicted(epochs), 'row')} that can match no more" if epochs else ""


def _share(last: EpochProgress | None) -> RenderableType:
    """The part of a batch that is work of lsmstate."""
    if last is None:
        return ""
    return ProgressBar(
        total=max(last.batch_ms, 1),
        completed=last.busy_ms,
        width=_CHART_WIDTH,
        complete_style="magenta",
        finished_style="magenta",
    )


def _time_told(last: EpochProgress | None) -> str:
    return f"{last.busy_ms:,.0f} ms by lsmstate, in a batch of {last.batch_ms:,} ms" if last else ""


def _whole_seconds(ts_us: int | None) -> str:
    return time_text(None if ts_us is None else ts_us // _SECOND_US * _SECOND_US)


# ---- lines


def _print_lines(out: Console, job: Job) -> None:
    """A line for every few epochs, and for the last one."""
    out.print(f"{_PHASES['starting']} ...")
    shown, checking = 0, False
    while True:
        ended = job.wait(_POLL_S)
        look = job.look()
        over = look.phase in ("checking", "ended")
        for count in range(shown + 1, len(look.epochs) + 1):
            if count % _EPOCHS_A_LINE == 1 or (over and count == len(look.epochs)):
                if not shown:
                    out.print(_LINE.format(*_HEADS), soft_wrap=True)
                out.print(_line(look.epochs[:count]), soft_wrap=True)
                shown = count
        if over and not checking:
            out.print(f"{_PHASES['checking']} ...")
            checking = True
        if ended:
            return


def _line(epochs: Sequence[EpochProgress]) -> str:
    last = epochs[-1]
    return _LINE.format(
        last.epoch,
        f"{rate(last):,.0f}",
        f"{sum(epoch.rows_out for epoch in epochs):,}",
        f"{sum(last.state_rows):,}",
        f"{evicted(epochs):,}",
        size_text(last.state_bytes),
        f"{last.busy_ms:,.0f}",
        f"{last.batch_ms:,}",
        _whole_seconds(last.watermark_us),
    )
