"""A table in the terminal: the layers of a model as they are now, while it trains."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab.observing.trackers import over_heads

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from attnlab.observing.trackers import Log

# of a layer, means over heads; of the largest logit, the largest
COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "entropy": ("relative_entropy", {}),
    "keys for 95 %": ("keys_for", {"mass": 0.95}),
    "strongest key": ("top_mass", {"k": 1}),
    "first key": ("sink_mass", {"first": 1}),
    "previous": ("previous_mass", {}),
    "induction": ("induction_mass", {}),
    "largest logit": ("max_logit", {}),
}


def terminal(console: Console | None = None) -> Log:
    """A log for `attnlab.observe(..., log=...)`: one table that changes in its place.

    Each cell has the mean over a layer's heads (of logits, the largest) now, and at the first
    measurement. What the training prints goes above it. Where there is no terminal, it is a line
    for each measurement.

    Parameters
    ----------
    console : Console, optional
        Of rich, if it is not the usual one.

    Returns
    -------
    callable
        For `attnlab.observe(..., log=...)`.
    """
    from rich.console import Console
    from rich.live import Live

    shown = console or Console(stderr=True)
    live = Live(console=shown, auto_refresh=False)
    first: list[xr.Dataset] = []

    def log(step: int, moment: xr.Dataset) -> None:
        if not first:
            first.append(moment)
        if not shown.is_terminal:
            shown.print(_line(step, moment), highlight=False, soft_wrap=True)
            return
        if not live.is_started:
            live.start()
            atexit.register(live.stop)  # the last one stays
        live.update(table(step, moment, first[0]), refresh=True)

    return log


def table(step: int, moment: xr.Dataset, first: xr.Dataset) -> Table:
    """The layers of a moment beside those of the first."""
    from rich import box
    from rich.table import Table

    there = {title: at for title, at in COLUMNS.items() if at[0] in moment}
    made = Table(title=f"attention at step {step:,} (and at first)", box=box.SIMPLE)
    made.add_column("layer", justify="right")
    for title in there:
        made.add_column(title, justify="right")
    for layer in range(moment.sizes["layer"]):
        cells = (
            f"{_mean(moment, layer, *at)} ({_mean(first, layer, *at)})" for at in there.values()
        )
        made.add_row(str(int(moment["layer"][layer])), *cells)
    return made


def _line(step: int, moment: xr.Dataset) -> str:
    parts = [
        f"{title} " + " ".join(_mean(moment, i, *at) for i in range(moment.sizes["layer"]))
        for title, at in COLUMNS.items()
        if at[0] in moment
    ]
    return f"step {step:,}: " + "; ".join(parts)


def _mean(moment: xr.Dataset, layer: int, name: str, entry: dict[str, Any]) -> str:
    value = over_heads(name, moment[name].sel(entry).isel(layer=layer))
    if np.isnan(value):
        return "-"  # no place before a query, where keys are of another sequence
    return f"{value:.0f}" if name == "keys_for" else f"{value:.2f}"
