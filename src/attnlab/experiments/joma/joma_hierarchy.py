"""JoMA's hierarchy: do hidden units of a two-layer model find the latents behind the tokens?

The model stands here and not in `dynamics/`, because it is no model of sequence classes: every
token of a sequence attends in its lower layer, so that a sequence is more than its query. It is
JoMA's model twice, with free logits by token: a position i with token l_i has

    h_i = relu(sum_j b_ij V_{l_j} + R_{l_i}),      b_i = softmax over j of z_{l_i, l_j},

and the query, the last position, has g = relu(W (sum_j c_j h_j + h_query)) with c = softmax over j
of y_{l_j}, and logits U^T g of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from matplotlib.figure import Figure

from attnlab.data import LatentLayers
from attnlab.dynamics.compiling import compiled
from attnlab.experiments.base import Experiment, Judgement, Standing, Table
from attnlab.experiments.recipe import ExperimentRecipe
from attnlab.files.progress import Progress
from attnlab.plots import style

if TYPE_CHECKING:
    from jaxtyping import Float, Int

LEVELS = ("lower", "upper")
WAYS = ("untrained", "attention frozen", "trained")
PUBLISHED = {"lower": (0.94, 1.00), "upper": (0.55, 0.81)}
STRETCHES = 10  # of the training, between which progress is told


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """latents: (upper, lower) numbers of them. children: of every node. tokens, labels: of the
    data. length: tokens of a sequence. hidden: units of either layer. judged: sequences over which
    units and latents are correlated."""

    latents: tuple[tuple[int, int], ...]
    children: tuple[int, ...]
    labels: int
    tokens: int
    length: int
    hidden: int
    rate: float
    weight_decay: float
    batch_size: int
    steps: int
    judged: int
    seeds: int

    def with_seeds(self, seeds: int) -> Recipe:
        """The same with another number of seeds."""
        return replace(self, seeds=seeds)

    def layers(self, latents: tuple[int, int], children: int, seed: int) -> LatentLayers:
        """One hierarchy."""
        return LatentLayers((self.labels, *latents, self.tokens), children, seed)


class Weights(NamedTuple):
    """What is trained; see the formulas of the module. The query is token M."""

    V: Float[Any, "M+1 H"]
    R: Float[Any, "M+1 H"]
    z: Float[Any, "M+1 M+1"]
    W: Float[Any, "H H"]
    y: Float[Any, " M+1"]
    U: Float[Any, "H labels"]


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """correlation: of each latent with the unit of its layer that it has the highest with, over
    (level, way, latents, children, seed, latent), nan past the last; and the share of labels that
    are told. `way`: untrained, trained with attention left uniform, trained."""
    cells = list(product(range(len(recipe.latents)), recipe.children, range(recipe.seeds)))
    made = [recipe.layers(recipe.latents[i], children, seed) for i, children, seed in cells]
    active = [layers.active() for layers in made]
    on = jnp.asarray(np.stack([of[-1] for of in active]), jnp.float32)  # (cell, label, token)
    trained = _train(recipe, on, progress)
    most = max(max(of) for of in recipe.latents)
    found = np.full((len(LEVELS), len(WAYS), len(cells), most), np.nan)
    accuracy = np.empty((len(WAYS), len(cells)))
    look = compiled()(jax.vmap(partial(_look, recipe)))
    keys = jax.random.split(jax.random.key(1), len(cells))
    for way, weights in enumerate(trained):
        label, told, lower, upper = map(np.asarray, look(weights, on, keys))
        accuracy[way] = told.mean(axis=1)
        for cell, of in enumerate(active):
            for level, (units, latent) in enumerate(((lower, of[1]), (upper, of[0]))):
                best = _best_correlation(latent[label[cell]], units[cell])
                found[level, way, cell, : best.size] = best
    shape = len(recipe.latents), len(recipe.children), recipe.seeds
    dims = ("latents", "children", "seed")
    return xr.Dataset(
        {
            "correlation": (
                ("level", "way", *dims, "latent"),
                found.reshape(len(LEVELS), len(WAYS), *shape, most),
            ),
            "accuracy": (("way", *dims), accuracy.reshape(len(WAYS), *shape)),
        },
        {
            "level": list(LEVELS), "way": list(WAYS), "children": list(recipe.children),
            "latents": [f"{upper}, {lower}" for upper, lower in recipe.latents],
            "seed": np.arange(recipe.seeds), "latent": np.arange(most),
        },
    )  # fmt: skip


def _train(recipe: Recipe, on: Any, progress: Progress) -> list[Weights]:
    """The weights of every cell: at the start, trained without attention, and with."""
    optimizer = optax.adamw(recipe.rate, weight_decay=recipe.weight_decay)
    cells = on.shape[0]
    keys = jax.random.split(jax.random.key(0), cells)
    start = compiled()(jax.vmap(partial(_begin, recipe)))(keys)

    def step(carry: Any, i: Any, table: Any, key: Any, moves: Any) -> tuple[Any, None]:
        weights, memory = carry
        slope = jax.grad(_loss)(weights, *_draw(recipe, table, jax.random.fold_in(key, i)))
        slope = slope._replace(z=moves * slope.z, y=moves * slope.y)
        update, memory = optimizer.update(slope, memory, weights)
        update = update._replace(z=moves * update.z, y=moves * update.y)
        return (optax.apply_updates(weights, update), memory), None

    @compiled()
    def advance(carry: Any, first: Any, tables: Any, keys: Any, moves: Any) -> Any:
        def one(carry: Any, table: Any, key: Any, moves: Any) -> Any:
            move = partial(step, table=table, key=key, moves=moves)
            return jax.lax.scan(move, carry, first + jnp.arange(recipe.steps // STRETCHES))[0]

        return jax.vmap(one)(carry, tables, keys, moves)

    # both ways in one program; the same sequences for both
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x]), start)
    carry = twice, jax.vmap(optimizer.init)(twice)
    moves = jnp.repeat(jnp.array([0.0, 1.0]), cells)
    tables, keys = jnp.concatenate([on, on]), jnp.concatenate([keys, keys])
    for stretch in range(STRETCHES):
        first = stretch * (recipe.steps // STRETCHES)
        carry = jax.block_until_ready(advance(carry, first, tables, keys, moves))
        if progress:
            progress((stretch + 1) / STRETCHES)
    end = carry[0]
    return [
        start,
        jax.tree.map(lambda x: x[:cells], end),
        jax.tree.map(lambda x: x[cells:], end),
    ]


def _begin(recipe: Recipe, key: Any) -> Weights:
    M, H, keys = recipe.tokens + 1, recipe.hidden, jax.random.split(key, 4)
    return Weights(
        V=jax.random.normal(keys[0], (M, H)) / jnp.sqrt(2.0),
        R=jax.random.normal(keys[1], (M, H)) / jnp.sqrt(2.0),
        z=jnp.zeros((M, M)),
        W=jax.random.normal(keys[2], (H, H)) / jnp.sqrt(H),
        y=jnp.zeros(M),
        U=jax.random.normal(keys[3], (H, recipe.labels)) / jnp.sqrt(H),
    )


def _draw(
    recipe: Recipe, table: Any, key: Any, size: int | None = None
) -> tuple[Int[Any, "N T"], Int[Any, " N"]]:
    """Sequences: tokens of those that the label turns on, each as likely; the query is last."""
    of_label, of_token = jax.random.split(key)
    count = size or recipe.batch_size
    label = jax.random.randint(of_label, (count,), 0, recipe.labels)
    drawn = jax.random.categorical(
        of_token, jnp.log(table)[label], shape=(recipe.length, count)
    )  # fmt: skip
    query = jnp.full((count, 1), recipe.tokens)
    return jnp.concatenate([drawn.T, query], axis=1), label


def _layers(weights: Weights, tokens: Any) -> tuple[Any, Any]:
    """Units of the lower layer, (N, T, H), and of the upper one at the query, (N, H)."""
    seen = tokens[:, :-1]  # the query itself is attended to through its residual alone
    b = jax.nn.softmax(weights.z[tokens[:, :, None], seen[:, None, :]], axis=-1)
    h = jax.nn.relu(b @ weights.V[seen] + weights.R[tokens])
    c = jax.nn.softmax(weights.y[seen], axis=-1)
    f = jnp.einsum("nt,nth->nh", c, h[:, :-1]) + h[:, -1]
    return h, jax.nn.relu(f @ weights.W)


def _loss(weights: Weights, tokens: Any, label: Any) -> Any:
    _, g = _layers(weights, tokens)
    return optax.softmax_cross_entropy_with_integer_labels(g @ weights.U, label).mean()


def _look(recipe: Recipe, weights: Weights, table: Any, key: Any) -> tuple[Any, Any, Any, Any]:
    """New sequences: labels, whether they are told, and units; the lower ones at the query."""
    tokens, label = _draw(recipe, table, key, recipe.judged)
    h, g = _layers(weights, tokens)
    told = jnp.argmax(g @ weights.U, axis=1) == label
    return label, told, h[:, -1], g


def _best_correlation(latent: Any, units: Any) -> Any:
    """The highest |correlation| of each latent (N, L) with any unit (N, H); nan for a latent that
    is always on or always off."""
    a, b = (of - of.mean(axis=0) for of in (latent.astype(np.float64), units.astype(np.float64)))
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = a / np.linalg.norm(a, axis=0), b / np.linalg.norm(b, axis=0)
    b = np.where(np.isfinite(b), b, 0.0)  # a unit that is off for good is correlated with nothing
    return abs(a.T @ b).max(axis=1)


def draw(found: xr.Dataset) -> Figure:
    """A panel for each layer: the mean over latents, with the range over seeds, by way."""
    mean = found["correlation"].mean("latent")
    groups = list(product(found["latents"].values, found["children"].values))
    colours = ("0.7", style.COMMON, style.DISTINCT)
    with style.page(2.7) as figure:
        axes = figure.subplots(1, len(LEVELS), sharey=True)
        for ax, level in zip(axes, reversed(LEVELS), strict=True):
            for i, (way, colour) in enumerate(zip(WAYS, colours, strict=True)):
                cells = [mean.sel(level=level, way=way, latents=of, children=c) for of, c in groups]
                middle = np.array([float(cell.mean()) for cell in cells])
                ends = np.array([[float(cell.min()), float(cell.max())] for cell in cells])
                at = np.arange(len(groups)) + 0.25 * (i - 1)
                ax.bar(at, middle, width=0.23, color=colour, label=way)
                ax.vlines(at, *ends.T, color=style.OUTLINE, linewidth=1)
            ax.axhspan(*PUBLISHED[level], color=style.GREEN, alpha=0.25, label="published")
            ax.set_xticks(range(len(groups)), [f"({of})\n{c} children" for of, c in groups])
            ax.set_xlabel("(upper, lower) latents")
            ax.set_title(f"{level} layer", loc="left")
        axes[0].set_ylabel("best correlation, mean over latents")
        axes[0].set_ylim(0, 1.03)
        style.legend_above(figure, axes[0])
    return figure


def table(found: xr.Dataset) -> Table:
    """Means over latents and seeds, for every hierarchy."""
    mean = found["correlation"].mean(["latent", "seed"])
    told = found["accuracy"].mean("seed")
    rows = []
    cells = [["latents", "children", "way", "lower layer", "upper layer", "labels told"]]
    for of, c, way in product(found["latents"].values, found["children"].values, WAYS):
        at = {"latents": of, "children": c, "way": way}
        numbers = [float(mean.sel({**at, "level": level})) for level in LEVELS] + [
            float(told.sel(at))
        ]
        cells.append([f"({of})", str(c), way, *(f"{x:.3f}" for x in numbers)])
        upper, lower = map(float, of.split(", "))
        rows.append(
            {"upper": upper, "lower": lower, "children": float(c), "way": float(WAYS.index(way))}
            | dict(zip(("lower_layer", "upper_layer", "told"), numbers, strict=True))
        )
    return Table(
        rows,
        f"Best correlation of a latent with a unit of its layer, mean over latents and "
        f"{found.sizes['seed']} seeds, and the share of labels told on new sequences. In table.csv "
        f"the way is a number: {', '.join(WAYS)}.",
        cells,
    )


def judge(found: xr.Dataset) -> Judgement:
    """Are latents found, more in the lower layer, and does attention matter?"""
    mean = found["correlation"].mean("latent")
    over = ["latents", "children", "seed"]
    numbers = {}
    for level, (way, short) in product(LEVELS, zip(WAYS, ("start", "frozen", "end"), strict=True)):
        numbers[f"{level}_{short}"] = float(mean.sel(level=level, way=way).mean(over))
    gain = mean.sel(way="trained") - mean.sel(way="attention frozen")
    for level in LEVELS:
        each = gain.sel(level=level).values.ravel()
        numbers[f"{level}_gain"] = float(each.mean())
        numbers[f"{level}_gain_error"] = float(each.std(ddof=1) / np.sqrt(each.size))
    numbers["accuracy"] = float(found["accuracy"].sel(way="trained").mean())
    inside = {
        level: PUBLISHED[level][0] <= round(numbers[f"{level}_end"], 2) <= PUBLISHED[level][1]
        for level in LEVELS
    }
    helps = {
        level: numbers[f"{level}_gain"] > 2 * numbers[f"{level}_gain_error"] for level in LEVELS
    }
    order = numbers["lower_end"] > numbers["upper_end"]
    headline = (
        f"Best correlations are {numbers['lower_end']:.2f} in the lower layer and "
        f"{numbers['upper_end']:.2f} in the upper (published: 0.94 to 1.00 and 0.55 to 0.81); with "
        f"attention frozen {numbers['lower_frozen']:.2f} and {numbers['upper_frozen']:.2f}, and "
        f"before training {numbers['lower_start']:.2f} and {numbers['upper_start']:.2f}."
    )
    summary = (
        f"{headline} Trained attention changes them by {numbers['lower_gain']:+.3f} ± "
        f"{numbers['lower_gain_error']:.3f} and {numbers['upper_gain']:+.3f} ± "
        f"{numbers['upper_gain_error']:.3f}. Labels are told in "
        f"{100 * numbers['accuracy']:.0f} % of new sequences. The model, its size and the drawing "
        f"of children are ours, at laptop size; the generator is deterministic, so that a latent "
        f"is a set of labels."
    )
    alt = (
        f"Bars of the best correlation per latent, for the upper and the lower layer, four "
        f"hierarchies and three ways. Trained: {numbers['lower_end']:.2f} in the lower layer and "
        f"{numbers['upper_end']:.2f} in the upper; a band shows the published range."
    )
    learnt = all(numbers[f"{level}_end"] > numbers[f"{level}_start"] for level in LEVELS)
    if learnt and order and all(inside.values()) and any(helps.values()):
        standing = Standing.HOLDS
    else:
        standing = Standing.PARTLY if learnt else Standing.FAILS
    return Judgement(standing, headline, summary, alt, numbers)


EXPERIMENT = Experiment(
    name="joma_hierarchy", kind="figure", title="Latents found by hidden units, layer by layer",
    recipe=Recipe, data=data, judge=judge, draw=draw, table=table, source="JoMA",
)  # fmt: skip
