"""Study: does attention on text freeze at a constant learning rate?

Section 8 says that it does, and that it becomes sparse. What slows attention down may be the
dynamics of attention, or that the text is known by heart: then gradients vanish, and with them all
motion. So each training is also judged where its validation loss is lowest (early stopping), and
transformers are trained on a text that never comes again: words drawn one by one, each from those
that follow the two words before it in the real text.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab.experiments import text_runs
from attnlab.experiments.base import Experiment, Judgement, Standing, Table
from attnlab.experiments.estimate import Estimate, jackknife, mean
from attnlab.experiments.recipe import StudyRecipe
from attnlab.experiments.text_runs import CorpusRecipe
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.text import Corpus, Training

FROZEN = 0.25  # of the fastest speed; what Fig. 7 calls frozen
LAST = 3  # moments that are the end
CHAINS = 4096  # of drawn words, made side by side
TWO_BEFORE = 0.9  # the chance that a drawn word follows two words, and not only one
DRAWN_VALIDATION = 20_000


@dataclass(frozen=True)
class Reading:
    """What is read. layers: depths. drawn: whether words are drawn, and never come again."""

    layers: tuple[int, ...]
    drawn: bool = False


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe, CorpusRecipe):
    """texts: what is read, by name. moments: steps at which the speed is measured, over the `gap`
    steps that follow each."""

    texts: dict[str, Reading]
    moments: tuple[int, ...]
    gap: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, reading in self.texts.items():
            text_runs.check_depths(f"texts.{name}.layers", reading.layers)
        if len(self.moments) <= LAST or list(self.moments) != sorted(set(self.moments)):
            raise InputError(f"moments: expected more than {LAST} rising steps")
        if not self.gap or min(np.diff(self.moments)) <= self.gap:
            raise InputError("gap: expected at least 1, and less than between two moments")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Over (text, layers, rate, seed, moment), of the first layer: `change`, the share of a query's
    attention that goes elsewhere within `gap` steps; `entropy` (nats) and `top`, attention to the
    strongest token; of the model `train_loss`, since the record before, and `validation_loss`."""
    measured = sorted({*recipe.moments, *(moment + recipe.gap for moment in recipe.moments)})
    corpus = recipe.text()
    base = replace(
        recipe.training, seeds=tuple(range(recipe.seeds)), steps=measured[-1],
        measure_every=tuple(measured),
    )  # fmt: skip
    trainings: dict[tuple[str, int], Training] = {}
    for name, reading in recipe.texts.items():
        tokens = measured[-1] * base.batch * base.model.context
        own = drawn_text(corpus, tokens) if reading.drawn else corpus
        at = text_runs.at_depths(replace(base, corpus=own), reading.layers)
        trainings |= {(name, training.model.layers): training for training in at}
    results = text_runs.run_all(list(trainings.values()), progress=progress, keep=keep)
    moments = list(recipe.moments)
    parts = []
    for (name, depth), result in zip(trainings, results, strict=True):
        first = result.isel(layer=0, drop=True)
        maps = first["attention"]
        after = maps.sel(step=[moment + recipe.gap for moment in moments]).assign_coords(
            step=moments
        )
        moved = abs(after - maps.sel(step=moments)).sum("key", skipna=False) / 2
        part = {
            "change": moved.mean(["head", "probe", "query"], skipna=False),
            "entropy": first["entropy"].mean("head"),
            "top": first["top_mass"].isel(k=0, drop=True).mean("head"),
            "train_loss": first["train_loss"], "validation_loss": first["validation_loss"],
        }  # fmt: skip
        at_moments = xr.Dataset(part).sel(step=moments).rename(step="moment")
        parts.append(at_moments.expand_dims(text=[name], layers=[depth]))
    order = {"text": list(recipe.texts), "layers": sorted({depth for _, depth in trainings})}
    runs = xr.merge(parts, join="outer", compat="no_conflicts").reindex(order)
    runs = runs.assign_coords(text=np.asarray(list(recipe.texts), dtype=np.str_))  # for a file
    runs["drawn"] = ("text", [reading.drawn for reading in recipe.texts.values()])
    return runs.transpose("text", "layers", "rate", "seed", "moment").assign_attrs(
        corpus=recipe.corpus, gap=recipe.gap
    )


def drawn_text(corpus: Corpus, tokens: int) -> Corpus:
    """So many words of a text that never comes again, and a validation part of the same kind.

    A word is one that follows the two words before it somewhere in the training part, or, one time
    in ten, the one before it; every place in the text is as likely. What is judged by is drawn
    from the training part too: there is nothing to overfit to.
    """
    needed = tokens + DRAWN_VALIDATION
    words = _drawn(np.asarray(corpus.train), needed, np.random.default_rng(0))
    for part in (train := words[:tokens], held := words[tokens:needed]):
        part.setflags(write=False)
    digest = hashlib.sha256(f"drawn {tokens} {corpus.digest}".encode()).hexdigest()
    return replace(
        corpus, name=f"{corpus.name}, drawn", train=train, validation=held, digest=digest,
        source=None,
    )  # fmt: skip


def _drawn(text: NDArray[np.int32], count: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """`count` words: chains, one behind the other, each begun anywhere in the text."""
    size = int(text.max()) + 1
    text = np.append(text, text[:2])  # a word follows every place
    pairs = text[:-2].astype(np.int64) * size + text[1:-1]
    by_pair, by_word = np.argsort(pairs, kind="stable"), np.argsort(text[1:-1], kind="stable")
    sorted_pairs, sorted_words = pairs[by_pair], text[1:-1][by_word]

    def place(keys: NDArray[Any], known: NDArray[Any], order: NDArray[np.int64]) -> Any:
        """A place of each key in the text, any one."""
        low, high = np.searchsorted(known, keys, "left"), np.searchsorted(known, keys, "right")
        # a pair that only the drawing has made is nowhere: the one word is taken then
        found = low + (rng.random(keys.size) * (high - low)).astype(np.int64)
        return np.where(high > low, order[np.minimum(found, order.size - 1)], -1)

    chains = min(CHAINS, count)
    rows = -(-count // chains)
    out = np.empty((chains, rows), dtype=np.int32)
    at = rng.integers(0, pairs.size, chains)
    before, last = text[at], text[at + 1]
    for row in range(rows):
        by_two = place(before.astype(np.int64) * size + last, sorted_pairs, by_pair)
        by_one = place(last, sorted_words, by_word)
        one = (rng.random(chains) >= TWO_BEFORE) | (by_two < 0)
        chosen = text[np.where(one, by_one, by_two) + 2]
        before, last, out[:, row] = last, chosen, chosen
    return out.ravel()[:count]


def left(change: xr.DataArray, *, best: xr.DataArray | None = None) -> Estimate:
    """What is left of the fastest speed: at the end, or at each run's `best` moment.

    The fastest moment is that of the mean over seeds, of which a single run's luck is no part.
    """
    fastest = change.mean("seed").argmax("moment")
    of_peak = change / change.mean("seed").isel(moment=fastest)
    if best is None:
        return mean(of_peak.isel(moment=slice(-LAST, None)).mean("moment"))
    return mean(of_peak.sel(moment=best))


def best_moment(losses: xr.DataArray) -> xr.DataArray:
    """Where each run's validation loss is lowest."""
    return losses["moment"][losses.argmin("moment")]


def _cells(runs: xr.Dataset) -> list[dict[str, Any]]:
    there = runs["change"].notnull().any(["rate", "seed", "moment"])
    return [
        {"text": str(text), "layers": int(depth), "rate": float(rate)}
        for text in runs["text"].values
        for depth in runs["layers"].values[there.sel(text=text).values]
        for rate in runs["rate"].values
    ]


def _bounds(estimate: Estimate) -> tuple[float, float]:
    """The 95 % interval, by Student's t."""
    from scipy.stats import t

    half = t.ppf(0.975, max(estimate.count - 1, 1)) * estimate.error
    return estimate.value - half, estimate.value + half


def verdict(estimate: Estimate) -> str:
    """Whether attention is frozen, as far as the interval tells."""
    low, high = _bounds(estimate)
    if np.isnan(low):
        return "lost"
    return "frozen" if high < FROZEN else "moving" if low > FROZEN else "cannot tell"


def table(runs: xr.Dataset) -> Table:
    """One row per text, depth and rate."""
    rows = []
    cells = [[
        "text", "layers", "rate", "entropy", "top 1", "change, fastest", "at the end",
        "of the fastest", "at the lowest validation loss", "its step",
    ]]  # fmt: skip
    texts = runs["text"].values.tolist()
    for place in _cells(runs):
        one = runs.sel(place)
        best = best_moment(one["validation_loss"])
        end, early = left(one["change"]), left(one["change"], best=best)
        last = one.isel(moment=slice(-LAST, None)).mean("moment")
        peak = float(one["change"].mean("seed").max("moment"))
        start = one["entropy"].isel(moment=0)
        rows.append({
            "text": texts.index(place["text"]), "layers": place["layers"], "rate": place["rate"],
            "entropy_start": float(start.mean()), "entropy_end": float(last["entropy"].mean()),
            "top_end": float(last["top"].mean()), "fastest": peak,
            "left": end.value, "left_error": end.error,
            "left_at_best": early.value, "left_at_best_error": early.error,
            "best": float(best.mean()),
        })  # fmt: skip
        cells.append([
            place["text"], str(place["layers"]), f"{place['rate']:g}",
            f"{float(start.mean()):.2f} → {float(last['entropy'].mean()):.2f}",
            f"{float(last['top'].mean()):.2f}", f"{100 * peak:.1f} %",
            f"{100 * float(last['change'].mean()):.1f} %", f"{_range(end)}\n{verdict(end)}",
            f"{_range(early)}\n{verdict(early)}", f"{float(best.median()):,.0f}",
        ])  # fmt: skip
    caption = (
        f"First layer. Change: the share of a query's attention that goes elsewhere within "
        f"{runs.attrs['gap']} steps. Of the fastest: what is left of it, 95 % interval over "
        f"{runs.sizes['seed']} seeds; frozen is below {FROZEN}."
    )
    return Table(rows, caption, cells)


def _range(estimate: Estimate) -> str:
    low, high = _bounds(estimate)
    return f"{estimate.value:.2f} ({max(low, 0):.2f} to {high:.2f})"


def draw(runs: xr.Dataset) -> Figure:
    """Speed, entropy and losses against the step, a row for each depth and text."""
    places = {(c["text"], c["layers"]): None for c in _cells(runs)}
    rates = runs["rate"].values
    with style.page(1.55 * len(places) + 0.9) as figure:
        axes = figure.subplots(len(places), 3, sharex=True, squeeze=False)
        for row, (text, depth) in zip(axes, places, strict=True):
            own = runs.sel(text=text, layers=depth)
            for rate, colour in zip(rates, style.ordered(rates.size), strict=True):
                one = own.sel(rate=rate)
                steps = one["moment"]
                for ax, name in zip(row, ("change", "entropy", "validation_loss"), strict=True):
                    middle = one[name].mean("seed")
                    ax.plot(steps, middle, color=colour, label=f"rate {rate:g}", linewidth=1.1)
                    ax.fill_between(
                        steps, one[name].min("seed"), one[name].max("seed"), color=colour,
                        alpha=0.15, linewidth=0,
                    )  # fmt: skip
                row[2].plot(
                    steps, one["train_loss"].mean("seed"), color=colour, linestyle=style.DASHES[1],
                    linewidth=0.9,
                )  # fmt: skip
            row[0].set_ylabel(f"{text}, {text_runs.depth_name(depth)}")
            row[0].set_yscale("log")
        for ax in axes[-1]:
            ax.set_xlabel("step")
        for ax in axes.flat:
            ax.set_xscale("log")
        style.panel_titles(
            axes[0],
            [f"change in {runs.attrs['gap']} steps", "entropy (nats)", "loss (dashed: training)"],
        )
        style.legend_above(
            figure, axes[0][0],
            title=f"first layer; means over {runs.sizes['seed']} seeds, bands: their range",
        )  # fmt: skip
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """Where does attention freeze, and is it still so where nothing is known by heart?"""
    drawn = runs["text"].values[runs["drawn"].values].tolist()
    numbers: dict[str, float] = {}
    told, verdicts, sparse = [], {}, []
    for place in _cells(runs):
        one = runs.sel(place)
        end = left(one["change"])
        early = left(one["change"], best=best_moment(one["validation_loss"]))
        key = f"{place['text']}_{place['layers']}_{place['rate']:g}"
        fall = one["entropy"].isel(moment=slice(-LAST, None)).mean("moment")
        lower = jackknife(
            lambda of: float(of.mean()), (fall - one["entropy"].isel(moment=0)).drop_vars("moment")
        )
        numbers |= end.numbers(f"left_{key}") | early.numbers(f"left_at_best_{key}")
        numbers |= lower.numbers(f"entropy_change_{key}")
        verdicts[key] = (place["text"], verdict(end), verdict(early))
        sparse.append(_bounds(lower)[1] < 0)
        told.append(
            f"{place['text']}, {text_runs.depth_name(place['layers'])}, rate {place['rate']:g}: "
            f"{_range(end)} of the fastest change is left at the end ({verdict(end)}), "
            f"{_range(early)} where the validation loss is lowest ({verdict(early)})"
        )
    ends = [end for _, end, _ in verdicts.values()]
    real = [(end, early) for text, end, early in verdicts.values() if text not in drawn]
    endless = [end for text, end, _ in verdicts.values() if text in drawn]
    frozen = sum(end == "frozen" for end, _ in real)
    stopped = sum(early == "frozen" for _, early in real)
    headline = (
        f"At a constant rate attention of the first layer is frozen after "
        f"{int(runs['moment'][-1]):,} steps in {frozen} of {len(real)} settings on the real text; "
        f"where the validation loss is lowest it is in {stopped}; on a text that never comes again "
        f"in {endless.count('frozen')} of {len(endless)}."
    )
    unsure = ends.count("cannot tell")
    summary = (
        f"{headline} {capital('; '.join(told))}. "
        + (f"In {unsure} of {len(ends)} settings the seeds do not tell. " if unsure else "")
        + f"Entropy falls in {sum(sparse)} of {len(sparse)}. Frozen: the 95 % interval over "
        f"{runs.sizes['seed']} seeds is below {FROZEN} of the fastest change, which is our measure."
    )
    alt = (
        f"Change of attention, its entropy, and losses against the step, for rates "
        f"{', '.join(f'{rate:g}' for rate in runs['rate'].values)}. {capital('; '.join(told))}."
    )
    return Judgement(_standing(ends, [early for _, early in real], sparse), headline, summary, alt,
                     numbers)  # fmt: skip


def capital(text: str) -> str:
    """With a capital letter first."""
    return text[:1].upper() + text[1:]


def _standing(ends: list[str], early: list[str], sparse: list[bool]) -> Standing:
    """Section 8 says of all: frozen, and sparse."""
    every = [*ends, *early]
    if all(one == "frozen" for one in every) and all(sparse):
        return Standing.HOLDS
    if all(one == "moving" for one in every) and not any(sparse):
        return Standing.FAILS
    return Standing.PARTLY if "moving" in every or "frozen" in every else Standing.OPEN


EXPERIMENT = Experiment(
    name="freeze", kind="study", title="Does attention on text freeze at a constant rate?",
    recipe=Recipe, data=data, judge=judge, draw=draw, table=table,
)  # fmt: skip
