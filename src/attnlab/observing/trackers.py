"""Trackers: where the numbers of each measurement go while a model trains.

They get means over the heads of each layer and the largest value of all heads, never a number for
each head: a model of 32 x 32 heads would fill a tracker with 8,000 curves. Trackers that take
figures and tables also get heat maps, and a table of the whole training at its end.
"""

from __future__ import annotations

import atexit
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from attnlab.files import markdown
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.observing.layer_statistics import LABELS, MAXIMA
from attnlab.observing.training import trainer_callbacks

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

    from attnlab.observing.observer import Observer

Send = Callable[[dict[str, float], int], object]  # numbers by name, and the step
# Statistics that trackers get by default
LOGGED = ("entropy", "relative_entropy", "sink_rate", "induction_mass", "max_logit")
MAP, SUMMARY = "attention/relative_entropy/layer_by_head", "attention/summary"
SUMMARIZED: tuple[str, ...] = ("layer", "statistic", "first", "last", "lowest", "lowest at step")
SUMMARIZED += ("highest", "highest at step", "roles")
# attributes under which callbacks of transformers hold their trackers
REPORTERS = ("tb_writer", "_wandb", "_trackio", "_ml_flow")
# columns of the table in the terminal
COLUMNS = {
    "entropy": "relative_entropy",
    "keys for 95 %": "keys_for",
    "strongest key": "top_mass",
    "first key": "sink_mass",
    "previous": "previous_mass",
    "induction": "induction_mass",
    "largest logit": "max_logit",
}


class Tracker:
    """Sends measurements to a trainer or a tracker: see `Observer.attach`."""

    def __init__(
        self, observer: Observer, target: Any, maps_every: int, statistics: Sequence[str]
    ) -> None:
        for name in statistics:
            if name not in LABELS or LABELS[name].dims != ("head",):
                known = (n for n, label in LABELS.items() if label.dims == ("head",))
                raise InputError(f"statistics: no {name!r}; {did_you_mean(name, known)}")
        self._send, self._boards = _target(observer, target)
        self._maps_every, self._statistics, self._number = maps_every, statistics, 0

    def log(self, step: int, measured: xr.Dataset, alerts: int) -> None:
        """Send a measurement: means over (layer, head), and the number of its alerts."""
        values = numbers(measured, self._statistics)
        self._send({**values, "attention/alerts": float(alerts)}, step)
        if self._maps_every and self._number % self._maps_every == 0:
            for board in self._boards():
                _draw(board, heat_map(measured, step), step)
        self._number += 1

    def finish(self, dataset: xr.Dataset) -> None:
        """Send the table of a whole training."""
        for board in self._boards():
            _tabulate(board, summary(dataset, self._statistics), int(dataset["step"][-1]))


def _target(observer: Observer, target: Any) -> tuple[Send, Callable[[], Iterable[Any]]]:
    """Return the function that sends numbers, and one that finds what may take figures and tables.
    A trainer gets the callback of the observer."""
    if hasattr(target, "callback_handler") and hasattr(target, "log"):  # transformers' Trainer
        callbacks = target.callback_handler.callbacks

        def boards() -> list[Any]:  # made when the training begins
            return [getattr(one, name, None) for one in callbacks for name in REPORTERS]

        steps, end = trainer_callbacks(observer)
        target.add_callback(steps)
        callbacks.insert(0, end())  # before reporters, which then close their trackers
        return lambda values, _: target.log(values), boards  # it reaches all of `report_to`
    if hasattr(target, "callbacks") and hasattr(target, "loggers"):  # Lightning's
        target.callbacks.append(observer.lightning())
        return (
            lambda *values: [one.log_metrics(*values) for one in target.loggers],
            lambda: map(_behind, target.loggers),
        )
    if hasattr(target, "add_scalar"):  # a SummaryWriter

        def add(values: dict[str, float], step: int) -> None:
            for name, value in values.items():
                target.add_scalar(name, value, step)

        return add, lambda: [target]
    if hasattr(target, "log_metrics"):  # mlflow
        return lambda values, step: target.log_metrics(values, step=step), lambda: [target]
    if hasattr(target, "log"):  # wandb, trackio
        # not as its own step, which counts the training's logs and may be ahead
        return lambda values, step: target.log({**values, "attention/step": step}), lambda: [target]
    if callable(target):
        return target, tuple
    raise InputError(
        "log: expected a trainer, a tracker or a function of numbers by name and the step, got "
        f"{type(target).__name__}; give a Trainer, a SummaryWriter, a run of wandb or the module "
        "mlflow"
    )


def _behind(logger: Any) -> Any:
    """Return the tracker of a logger of Lightning; that of mlflow has to be told the run."""
    tracker = getattr(logger, "experiment", None)
    if not (hasattr(tracker, "log_figure") and hasattr(logger, "run_id")):
        return tracker
    methods = ("log_figure", "log_table")
    return SimpleNamespace(**{n: partial(getattr(tracker, n), logger.run_id) for n in methods})


def _draw(board: Any, figure: Figure, step: int) -> None:
    """Show a figure in a tracker, if it takes any."""
    if hasattr(board, "add_figure"):  # a SummaryWriter
        board.add_figure(MAP, figure, step)
    elif hasattr(board, "log_figure"):  # mlflow
        board.log_figure(figure, f"{MAP}/{step}.png")
    elif hasattr(package := _package(board), "Image"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3]
        board.log({MAP: package.Image(pixels), "attention/step": step})


def _tabulate(board: Any, frame: pd.DataFrame, step: int) -> None:
    """Show a table in a tracker, if it takes any."""
    if hasattr(board, "add_text"):  # a SummaryWriter
        rows = frame.map(lambda one: f"{one:.3g}" if isinstance(one, float) else f"{one}")
        board.add_text(SUMMARY, markdown.table([list(rows), *rows.values.tolist()]), step)
    elif hasattr(board, "log_table"):  # mlflow
        board.log_table(frame, f"{SUMMARY}.json")
    elif hasattr(package := _package(board), "Table"):
        board.log({SUMMARY: package.Table(dataframe=frame), "attention/step": step})


def _package(board: Any) -> Any:
    """Return the package of a module or a run: wandb, trackio."""
    name = str(getattr(board, "__module__", "") or getattr(board, "__name__", ""))
    return sys.modules.get(name.partition(".")[0])


def summary(dataset: xr.Dataset, statistics: Sequence[str] = LOGGED) -> pd.DataFrame:
    """Return a training as a table: a row for each layer and statistic, over heads as in `numbers`.

    Columns are its first and last value, the lowest and the highest with their steps, and the
    layer's roles at the end.
    """
    rows = []
    for layer in dataset["layer"].values.tolist():
        names = [*dataset["role"].values, ""]  # -1: no role
        counts = Counter(names[i] for i in dataset["head_role"].sel(layer=layer).values)
        roles = ", ".join(f"{number} {role}" for role, number in counts.items() if role)
        for name in (name for name in statistics if name in dataset):
            of_heads = dataset[name].sel(layer=layer).to_series().dropna().groupby("step")
            one = of_heads.max() if name in MAXIMA else of_heads.mean()
            if len(one):
                ends, low, high = one.iloc[[0, -1]].tolist(), one.idxmin(), one.idxmax()
                rows.append([layer, name, *ends, one[low], low, one[high], high, roles])
    return pd.DataFrame(rows, columns=SUMMARIZED)


def numbers(measured: xr.Dataset, statistics: Sequence[str] = LOGGED) -> dict[str, float]:
    """Return a measurement as numbers by name: attention/entropy/layer_00, attention/entropy/max,
    and the number of heads with each role, attention/role/induction."""
    found = {}
    for name in (name for name in statistics if name in measured):
        for layer in measured["layer"].values:
            of_layer = over_heads(name, measured[name].sel(layer=layer))
            found[f"attention/{name}/layer_{int(layer):02d}"] = of_layer
        found[f"attention/{name}/max"] = float(measured[name].max())
    if "head_role" in measured:
        for index, role in enumerate(measured["role"].values):
            word = str(role).replace(" ", "_")
            found[f"attention/role/{word}"] = float((measured["head_role"] == index).sum())
    return {name: value for name, value in found.items() if np.isfinite(value)}


def over_heads(name: str, values: xr.DataArray) -> float:
    """Return the mean over heads, or the largest of MAXIMA."""
    return float(values.max() if name in MAXIMA else values.mean())


def heat_map(measured: xr.Dataset, step: int, name: str = "relative_entropy") -> Figure:
    """Draw a statistic of each head at one step, layer by head."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    measured[name].plot.imshow(x="head", y="layer", yincrease=False, ax=axes)
    axes.set_title(f"{name} at step {step:,}")
    return figure


class Terminal:
    """Shows one table in the terminal that is updated in place: see `terminal`."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False)
        self._first: xr.Dataset | None = None

    def log(self, step: int, measured: xr.Dataset, alerts: int) -> None:
        """Show a measurement."""
        self._first = measured if self._first is None else self._first
        if not self._console.is_terminal:
            parts = (f"{title} {' '.join(cells)}" for title, cells in _cells(measured).items())
            line = f"step {step:,}: " + "; ".join(parts)
            self._console.print(line, highlight=False, soft_wrap=True)
            return
        if not self._live.is_started:
            self._live.start()
            atexit.register(self._live.stop)  # the last table stays visible
        self._live.update(table(step, measured, self._first), refresh=True)

    def finish(self, dataset: xr.Dataset) -> None:
        """Leave the last table."""
        self._live.stop()


def terminal(console: Console | None = None) -> Terminal:
    """Show one table in the terminal that is updated in place.

    Each cell has the mean over a layer's heads (the largest for logits) now and at the first
    measurement. Output of the training goes above it. Without a terminal, print a line for each
    measurement.

    Parameters
    ----------
    console : Console, optional
        A console of rich; standard error by default.

    Returns
    -------
    Terminal
        For `attnlab.observe(..., log=...)`.
    """
    return Terminal(console)


def table(step: int, measured: xr.Dataset, first: xr.Dataset) -> Table:
    """Return a table of the layers now beside those of the first measurement."""
    from rich import box
    from rich.table import Table

    now, before = _cells(measured), _cells(first)
    shown = Table(title=f"attention at step {step:,} (and at first)", box=box.SIMPLE)
    for title in ("layer", *now):
        shown.add_column(title, justify="right")
    for i, layer in enumerate(measured["layer"].values):
        shown.add_row(f"{layer}", *(f"{now[title][i]} ({before[title][i]})" for title in now))
    return shown


def _cells(measured: xr.Dataset) -> dict[str, list[str]]:
    """Return the text of each column, layer by layer."""

    def text(name: str, value: float) -> str:
        if np.isnan(value):
            return "-"  # no meaning where keys belong to another sequence
        return f"{value:.0f}" if name == "keys_for" else f"{value:.2f}"

    cells = {}
    for title, name in COLUMNS.items():
        if name in measured:
            layers = measured[name].sel(LABELS[name].entry).transpose("layer", ...)
            cells[title] = [text(name, over_heads(name, one)) for one in layers]
    return cells
