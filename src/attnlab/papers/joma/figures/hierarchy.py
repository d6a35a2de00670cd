"""JoMA's hierarchy: do hidden units of a two-layer model find the latents behind the tokens?

In the lower layer every token of a sequence attends, so that a sequence is more than its query: the
model is a `Learner` of its own, JoMA's model twice, with free logits by token. A sequence lists the
tokens that its label turns on, in their order, and ends with the query; position i with token l_i
has

    h_i = relu(sum_j b_ij V_{l_j} + R_{l_i}),      b_i = softmax over j of z_{l_i, l_j},
    g_i = relu(W (sum_j c_ij h_j + h_i)),          c_i = softmax over j of y_{l_i, l_j},

where j runs over the listed tokens, and U^T g at the query are the logits of the labels. A unit is
read as its maximum over positions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, Table, Texts
from attnlab.experiments.estimate import standard_error
from attnlab.files.progress import Progress
from attnlab.models.base import Params
from attnlab.papers.joma.classes import LatentLayers
from attnlab.plots import style
from attnlab.simulation import Learner, Optimizer, Record, Simulation, Steps, simulate

TEXTS = Texts.read(__file__)
LEVELS = ("lower", "upper")
TRAININGS = UNTRAINED, FROZEN, TRAINED = ("untrained", "attention frozen", "trained")
PUBLISHED = {"lower": (0.94, 1.00), "upper": (0.55, 0.81)}


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """latents: (N_0, N_1), the numbers of lowest latents, whose children are the tokens, and of
    upper ones. children: of every node. tokens, labels: of the data. hidden: units of either layer.
    judged: sequences over which units and latents are correlated. seeds: draws of the hierarchy and
    of the starting weights."""

    latents: tuple[tuple[int, int], ...]
    children: tuple[int, ...]
    labels: int
    tokens: int
    hidden: int
    rate: float
    weight_decay: float
    steps: int
    judged: int
    seeds: int

    def hierarchies(self) -> tuple[LatentLayers, ...]:
        """Return every hierarchy: by latents, children and seed."""
        cells = product(self.latents, self.children, range(self.seeds))
        return tuple(self.layers(*cell) for cell in cells)

    def layers(self, latents: tuple[int, int], children: int, seed: int) -> LatentLayers:
        """Return one hierarchy."""
        lowest, upper = latents
        return LatentLayers((self.labels, upper, lowest, self.tokens), children, seed)


@dataclass(frozen=True)
class TwoLayers(Learner):
    """The model of the module on some hierarchies, each a setting; a step sees all its labels.

    The groups are `mlp` (V, R, W, U) and `attention` (z, y). The query is token M.
    """

    labels: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "correct": ("label",),
        "lower": ("label", "unit"),
        "upper": ("label", "unit"),
    }

    hierarchies: tuple[LatentLayers, ...]
    hidden: int

    def tables(self, run: Simulation) -> list[Any]:
        """Return the sequences and the start of each hierarchy."""
        texts = _sequences([of.active()[-1] for of in self.hierarchies])
        keys = jax.random.split(jax.random.key(0), len(texts))
        labels, *_, tokens = self.hierarchies[0].widths
        return [
            {"tokens": text, "start": jax.device_get(_begin(labels, tokens, self.hidden, key))}
            for text, key in zip(texts, keys, strict=True)
        ]

    def init(self, key: jax.Array, data: Any) -> Params:
        """Return the start of the hierarchy."""
        start: Params = data["start"]
        return start

    def loss(self, data: Any, params: Params, batch: Any, key: Any) -> jax.Array:
        """Return the cross entropy of the sequences of all labels, in the order of the labels."""
        _, g = _layers(params, data["tokens"])
        logs = jax.nn.log_softmax(_outputs(params, g))
        return -jnp.mean(jnp.diagonal(logs))

    def capture(self, data: Any, params: Params, probe: Any) -> dict[str, jax.Array]:
        """Return whether each label is predicted, and units as their maximum over positions."""
        h, g = _layers(params, data["tokens"])
        correct = jnp.argmax(_outputs(params, g), axis=1) == jnp.arange(len(data["tokens"]))
        return {"correct": correct * 1.0, "lower": h.max(axis=1), "upper": g.max(axis=1)}


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Train every hierarchy and correlate its latents with hidden units.

    correlation: of each latent with the unit of its layer that it has the highest with, over
    (level, training, latents, children, seed, latent), nan past the last. accuracy: the share of
    labels predicted correctly. `training`: untrained, trained with attention left uniform, trained.
    """
    hierarchies = recipe.hierarchies()
    active = [of.active() for of in hierarchies]
    cells = range(len(active))
    trained = _train(recipe, hierarchies, progress)
    most = max(max(of) for of in recipe.latents)
    found = np.full((len(LEVELS), len(TRAININGS), len(cells), most), np.nan)
    accuracy = np.empty((len(TRAININGS), len(cells)))
    judged = np.random.default_rng(0).integers(recipe.labels, size=(len(cells), recipe.judged))
    for training, seen in enumerate(trained):
        lower, upper = seen["lower"].values, seen["upper"].values
        accuracy[training] = seen["correct"].mean("label")
        for cell, (of, label) in enumerate(zip(active, judged, strict=True)):
            for level, (units, latent) in enumerate(((lower, of[1]), (upper, of[0]))):
                best = _best_correlation(latent[label], units[cell][label])
                found[level, training, cell, : best.size] = best
    shape = len(recipe.latents), len(recipe.children), recipe.seeds
    dims = ("latents", "children", "seed")
    correlation = found.reshape(len(LEVELS), len(TRAININGS), *shape, most)
    return xr.Dataset(
        {
            "correlation": (("level", "training", *dims, "latent"), correlation),
            "accuracy": (("training", *dims), accuracy.reshape(len(TRAININGS), *shape)),
        },
        {
            "level": list(LEVELS),
            "training": list(TRAININGS),
            "children": list(recipe.children),
            "latents": [f"{lowest}, {upper}" for lowest, upper in recipe.latents],
            "seed": np.arange(recipe.seeds),
            "latent": np.arange(most),
        },
    )


def _sequences(active: Sequence[Any]) -> Any:
    """Return the sequence of every label of every hierarchy, (cell, label, T).

    It has all tokens that the label turns on, sorted, filled up with -1, then the query M.
    """
    longest = max(int(on.sum(axis=1).max()) for on in active)
    labels, M = active[0].shape
    found = np.full((len(active), labels, longest + 1), -1)
    for cell, on in enumerate(active):
        for label, listed in enumerate(map(np.flatnonzero, on)):
            found[cell, label, : listed.size] = listed
    found[:, :, -1] = M
    return found


def _train(
    recipe: Recipe, hierarchies: tuple[LatentLayers, ...], progress: Progress
) -> list[xr.Dataset]:
    """Return units and predictions at the start, trained without attention, and with."""
    optimizer = Optimizer("adamw", weight_decay=recipe.weight_decay)
    found = []
    for i, of_attention in enumerate((None, recipe.rate)):
        run = Simulation(
            TwoLayers(hierarchies, recipe.hidden),
            motion=Steps(recipe.steps, optimizer=optimizer),
            learning_rate={"mlp": recipe.rate, "attention": of_attention},
            record=Record(at=(0, recipe.steps), what=("correct", "lower", "upper")),
        )

        def share(done: float, half: int = i) -> None:
            if callable(progress):
                progress((half + done) / 2)

        result = simulate(run, progress=share if callable(progress) else progress)
        found.append(result.isel(seed=0).transpose("setting", ...))
    return [found[0].isel(step=0), *(of.isel(step=-1) for of in found)]


def _begin(labels: int, tokens: int, hidden: int, key: Any) -> Params:
    M, H, keys = tokens + 1, hidden, jax.random.split(key, 4)
    mlp = {
        "V": jax.random.normal(keys[0], (M, H)) / jnp.sqrt(2.0),
        "R": jax.random.normal(keys[1], (M, H)) / jnp.sqrt(2.0),
        "W": jax.random.normal(keys[2], (H, H)) / jnp.sqrt(H),
        "U": jax.random.normal(keys[3], (H, labels)) / jnp.sqrt(H),
    }
    return {"mlp": mlp, "attention": {"z": jnp.zeros((M, M)), "y": jnp.zeros((M, M))}}


def _layers(params: Params, tokens: Any) -> tuple[Any, Any]:
    """Return units of both layers at every position, (N, T, H); 0 where a sequence is filled up."""
    mlp, logits = params["mlp"], params["attention"]
    there = (tokens >= 0)[:, :, None]
    seen = tokens[:, :-1]  # the query itself is attended to through its residual alone

    def attend(scores: Any) -> Any:
        listed = scores[tokens[:, :, None], seen[:, None, :]]
        return jax.nn.softmax(jnp.where(seen[:, None, :] >= 0, listed, -jnp.inf), axis=-1)

    h = there * jax.nn.relu(attend(logits["z"]) @ mlp["V"][seen] + mlp["R"][tokens])
    f = attend(logits["y"]) @ h[:, :-1] + h
    return h, there * jax.nn.relu(f @ mlp["W"])


def _outputs(params: Params, upper: Any) -> Any:
    """Return logits of the labels, (N, labels): from the units at the query, which is last."""
    return upper[:, -1] @ params["mlp"]["U"]


def _best_correlation(latent: Any, units: Any) -> Any:
    """The highest |correlation| of each latent (N, L) with any unit (N, H); nan for a latent that
    is always on or always off."""
    a, b = (of - of.mean(axis=0) for of in (latent.astype(np.float64), units.astype(np.float64)))
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = a / np.linalg.norm(a, axis=0), b / np.linalg.norm(b, axis=0)
    b = np.where(np.isfinite(b), b, 0.0)  # a unit that is off for good is correlated with nothing
    return abs(a.T @ b).max(axis=1)


def _over_seeds(each: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Mean over `seed`, and its standard error."""
    return each.mean("seed"), standard_error(each)


def draw(found: xr.Dataset) -> Figure:
    """Draw the mean over latents by training, with standard errors, a panel for each layer."""
    middle, error = _over_seeds(found["correlation"].mean("latent"))
    groups = list(product(found["latents"].values, found["children"].values))
    colours = ("0.7", style.COMMON, style.DISTINCT)
    with style.page(2.7) as figure:
        axes = figure.subplots(1, len(LEVELS), sharey=True)
        for ax, level in zip(axes, reversed(LEVELS), strict=True):
            for i, (training, colour) in enumerate(zip(TRAININGS, colours, strict=True)):
                heights, errors = (
                    of.sel(level=level, training=training)
                    .transpose("latents", "children")
                    .values.ravel()
                    for of in (middle, error)
                )
                at = np.arange(len(groups)) + 0.25 * (i - 1)
                ax.bar(at, heights, width=0.23, color=colour, label=training)
                ax.vlines(at, heights - errors, heights + errors, color=style.OUTLINE, linewidth=1)
            ax.axhspan(*PUBLISHED[level], color=style.GREEN, alpha=0.25, label="published")
            ax.set_xticks(range(len(groups)), [f"({of})\n{c} children" for of, c in groups])
            ax.set_xlabel("(lowest, upper) latents")
            ax.set_title(f"{level} layer", loc="left")
        axes[0].set_ylabel("best correlation, mean over latents")
        axes[0].set_ylim(0, 1.03)
        style.legend_above(figure, axes[0])
    return figure


def table(found: xr.Dataset) -> Table:
    """Means over latents and seeds, for every hierarchy, and what training changes."""
    each = found["correlation"].mean("latent")
    middle, error = _over_seeds(each)
    gain, gain_error = _over_seeds(each - each.sel(training=UNTRAINED))
    right = found["accuracy"].mean("seed")
    shown = {"layer": middle, "error": error, "gain": gain, "gain_error": gain_error}
    rows, cells = [], []
    for of, c, training in product(found["latents"].values, found["children"].values, TRAININGS):
        at = {"latents": of, "children": c, "training": training}
        lowest, upper = map(float, of.split(", "))
        numbers = (lowest, upper, float(c), float(TRAININGS.index(training)))
        row = dict(zip(("lowest", "upper", "children", "training"), numbers, strict=True))
        texts = []
        for level in LEVELS:
            one = {name: float(values.sel(at).sel(level=level)) for name, values in shown.items()}
            row |= {f"{level}_{name}": value for name, value in one.items()}
            changed = f"{one['gain']:+.3f} ± {one['gain_error']:.3f}"
            texts += [
                f"{one['layer']:.3f} ± {one['error']:.3f}",
                changed if training != UNTRAINED else "",
            ]
        row["right"] = float(right.sel(at))
        rows.append(row)
        cells.append([f"({of})", str(c), training, *texts, f"{row['right']:.2f}"])
    return TEXTS.table(rows, cells, seeds=found.sizes["seed"], trainings=", ".join(TRAININGS))


def judge(found: xr.Dataset) -> Judgement:
    """Judge by what training adds to an untrained network of the same hierarchy and start."""
    each = found["correlation"].mean("latent").mean(["latents", "children"])
    middle, error = _over_seeds(each)
    numbers = {}
    for level, (training, short) in product(
        LEVELS, zip(TRAININGS, ("start", "frozen", "end"), strict=True)
    ):
        numbers[f"{level}_{short}"] = float(middle.sel(level=level, training=training))
        numbers[f"{level}_{short}_error"] = float(error.sel(level=level, training=training))
    for name, control in (("gain", UNTRAINED), ("attention", FROZEN)):
        more, more_error = _over_seeds(each.sel(training=TRAINED) - each.sel(training=control))
        for level in LEVELS:
            numbers[f"{level}_{name}"] = float(more.sel(level=level))
            numbers[f"{level}_{name}_error"] = float(more_error.sel(level=level))
    numbers["accuracy"] = float(found["accuracy"].sel(training=TRAINED).mean())

    learnt = [numbers[f"{of}_gain"] > 2 * numbers[f"{of}_gain_error"] for of in LEVELS]
    inside = all(
        low <= round(numbers[f"{level}_end"], 2) <= high for level, (low, high) in PUBLISHED.items()
    )
    ordered = numbers["lower_gain"] > numbers["upper_gain"]
    standing = Standing.of(all(learnt) and ordered and inside, in_part=any(learnt))
    hierarchies = found.sizes["latents"] * found.sizes["children"]
    return TEXTS.judgement(standing, numbers, hierarchies=hierarchies, seeds=found.sizes["seed"])


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
