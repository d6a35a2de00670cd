"""Texts of an experiment, in a YAML file beside its code: its title, and the words of a judgement.

TEXTS = Texts.read(__file__)  # figures/erf.py has its texts in figures/erf.yaml
...
return TEXTS.judgement(standing, numbers, labels=10)
...
EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from attnlab.experiments.base import Data, Experiment, Judgement, Kind, R, Standing, Table
from attnlab.experiments.estimate import Estimate, Median
from attnlab.files.recipe import read_recipe
from attnlab.plots import style


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Texts of an experiment.

    They have fields for values, as `str.format` fills them in. In those of a judgement `{name}` is
    what was found under this name (an estimate shows its error) or one of the other values,
    and `{percent[name]}` is 100 times a number. A summary may have `{headline}` as a field, and
    `alt` both.

    Parameters
    ----------
    name, title, kind, source : str
        Fields of the `Experiment`.
    headline, summary, alt : str
        Texts of its `Judgement`.
    caption : str, optional
        What its table shows.
    heading : tuple of str, optional
        Columns of its table.
    panels, xlabels, ylabels : tuple of str, optional
        Titles of the panels of its picture and labels of their axes; a single label is for all.
    legend : str, optional
        Title of its legend.
    parts : mapping, optional
        Sentences that repeat, or that only some results need.
    """

    name: str
    title: str
    headline: str
    summary: str
    alt: str
    kind: Kind = "study"
    source: str = "the paper"
    caption: str = ""
    heading: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()
    xlabels: tuple[str, ...] = ()
    ylabels: tuple[str, ...] = ()
    legend: str = ""
    parts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, module: str, name: str | None = None) -> Texts:
        """Read the texts of the module with this `__file__`, or those in NAME.yaml beside it."""
        return read_recipe(Path(module).with_name(f"{name or Path(module).stem}.yaml"), cls)

    def judgement(self, standing: Standing, found: Mapping[str, Any], **values: Any) -> Judgement:
        """Return a judgement in these texts; what was found is an estimate or a number."""
        estimates = {name: of for name, of in found.items() if isinstance(of, Estimate | Median)}
        numbers: dict[str, float] = {}
        for name, one in found.items():
            numbers |= estimates[name].numbers(name) if name in estimates else {name: float(one)}
        percent = {name: 100 * number for name, number in numbers.items()}
        given: dict[str, Any] = {**numbers, **estimates, "percent": percent, **values}
        given["headline"] = self.headline.format_map(given)
        given["summary"] = self.summary.format_map(given)
        alt = self.alt.format_map(given)
        return Judgement(standing, given["headline"], given["summary"], alt, numbers)

    def table(
        self, rows: Sequence[Mapping[str, float]], cells: Sequence[Sequence[str]], **values: Any
    ) -> Table:
        """Return a table with the heading above `cells`, and values filled in to the caption."""
        return Table(rows, self.caption.format_map(values), [self.heading, *cells])

    def label(self, axes: Sequence[Any], **values: Any) -> None:
        """Title the panels of a picture and label their axes, with values filled in."""
        style.panel_titles(axes, [text.format_map(values) for text in self.panels])
        for name, texts in (("xlabel", self.xlabels), ("ylabel", self.ylabels)):
            each = texts * len(axes) if len(texts) == 1 else texts
            for ax, text in zip(axes, each, strict=False):
                ax.set(**{name: text.format_map(values)})

    def part(self, name: str, **values: Any) -> str:
        """Return one of the parts, with values filled in."""
        return self.parts[name].format_map(values)

    def experiment(
        self,
        *,
        recipe: type[R],
        data: Data[R],
        judge: Callable[[xr.Dataset], Judgement],
        draw: Callable[[xr.Dataset], Any],
        table: Callable[[xr.Dataset], Table] | None = None,
    ) -> Experiment[R]:
        """Return the experiment with these texts and functions."""
        own: Any = {of: getattr(self, of) for of in ("name", "title", "kind", "source")}
        return Experiment(recipe=recipe, data=data, judge=judge, draw=draw, table=table, **own)
