"""Study: with the residual connection, do common tokens act locally, within a query's classes?

Section 7 says that Theorem 2 then applies within the classes of each query, and leaves the
extension for future work. Four kinds of tokens are compared: `everywhere` (in every class: common),
`within` (in all classes of one query: common within it), `across` (in one class of each query:
common, but distinct within each query) and `own` (in one class: distinct). The two interpretations
differ for `across` alone: globally it loses attention, locally it gains. Measured: how many gain,
by how unequal the probabilities are, by the number of outputs M and of queries, and by eta_Y/eta_Z.
"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab.experiments import Judgement, Share, Standing, StudyRecipe, Texts, share
from attnlab.experiments.cells import over_cells, over_draws
from attnlab.experiments.drawing import draw_estimates
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress, in_turn
from attnlab.formulas import Setting
from attnlab.models import Extended
from attnlab.papers.scan_and_snap import theory
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.tasks.classes import SequenceClasses

TEXTS = Texts.read(__file__)
LOCAL = 0.9  # roles are called local where they decide more than this share of the fates
KINDS = ("everywhere", "within", "across", "own")


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """tokens: how many of each kind a class draws, several mixtures by a short name. jitters:
    standard deviation of the logarithm of a token's weight in a class, which is what the seeds
    draw. unused: how many outputs that are never used are added. ratios: eta_Y/eta_Z. All of these
    and the queries begin with what is quoted and end nearest to what the paper assumes, but for
    the jitters, which grow."""

    tokens: dict[str, dict[str, int]]
    queries: tuple[int, ...]
    per_query: int
    jitters: tuple[float, ...]
    unused: tuple[int, ...]
    ratios: tuple[float, ...]
    eta_y: float
    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for mixture, numbers in self.tokens.items():
            if set(numbers) != set(KINDS):
                raise InputError(
                    f"tokens.{mixture}: expected a number for each of {', '.join(KINDS)}"
                )


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """gaining over (mixture, queries, unused, jitter, ratio, residual, kind, seed): how many pairs
    (query, token) of a kind end with z > 0, over the queries whose classes draw them.

    predicted, for the residual connection and at any ratio: how many the velocity of Eq. 10 at the
    start, with the right beta (`theory.residual_velocity`), moves up. pairs: how many there are,
    over (mixture, queries, kind). outputs: M, over (mixture, queries, unused).
    """
    axes = {"mixture": recipe.tokens, "queries": recipe.queries, "unused": recipe.unused}
    together = over_cells(partial(_cell, recipe), progress, **axes)
    return together.assign(pairs=together["pairs"].isel(unused=0, drop=True))


def _cell(
    recipe: Recipe, mixture: str, queries: int, unused: int, progress: Progress
) -> xr.Dataset:
    """All draws of one size, in one call with the residual connection and one without."""
    draws = list(product(recipe.jitters, range(recipe.seeds)))
    sets, kind = [], np.empty(0, dtype=str)
    for jitter, seed in draws:
        classes, kind = kinds_of_tokens(
            recipe.tokens[mixture], queries, recipe.per_query, jitter, seed
        )
        sets.append(classes.with_unused(unused))
    first = sets[0]
    drawn, psi, M = first.in_play, first.query_index, first.vocab_size
    P = np.array([classes.probs[:, drawn] for classes in sets])  # (draw, class, token)
    seen = np.array([(P[0, psi == query] > 0).any(0) for query in range(queries)])
    counted = np.array([seen & (kind == name) for name in KINDS])  # (kind, query, token)

    def count(up: NDArray[np.bool_]) -> NDArray[np.int64]:
        """By kind, of (..., query, token)."""
        return np.asarray((up[..., None, :, :] & counted).sum((-2, -1)))

    ratio = xr.DataArray(list(recipe.ratios), dims="ratio")
    gaining = []
    for residual, report in in_turn((False, True), progress):
        result = simulate(
            sets,
            model=Extended(residual=residual),
            gradient="population",
            eta_y=recipe.eta_y,
            eta_z=recipe.eta_y / ratio,
            steps=recipe.steps,
            momentum=0.0,
            what="logits",
            at=(recipe.steps,),
            progress=report,
        )
        z = result["attention_logits"].isel(seed=0, step=-1).transpose("setting", "ratio", ...)
        gaining.append(count(z.values[..., drawn] > 0))  # (draw, ratio, kind)
    at_rest = np.zeros((queries, drawn.size))
    velocity = [theory.residual_velocity(Setting(p, psi=psi, M=M), at_rest) for p in P]
    predicted = count(np.array(velocity) > 0)
    found = over_draws(
        {
            "gaining": (("residual", "ratio", "kind"), np.stack(gaining, axis=1)),
            "predicted": (("kind",), predicted),
        },
        jitter=recipe.jitters,
        seed=range(recipe.seeds),
    )
    coords = {"residual": [False, True], "ratio": list(recipe.ratios), "kind": list(KINDS)}
    return found.assign(pairs=("kind", counted.sum((1, 2))), outputs=M).assign_coords(coords)


def kinds_of_tokens(
    tokens: dict[str, int], queries: int, per_query: int, jitter: float, seed: int
) -> tuple[SequenceClasses, NDArray[np.str_]]:
    """The classes of a seed, and the kind of each contextual token."""
    rng = np.random.default_rng(seed)
    shape = (queries, per_query)
    query, place = np.indices(shape)  # of each class
    members = {  # the classes that draw a token, for each group of tokens of a kind
        "everywhere": [np.full(shape, True)],
        "within": [query == m for m in range(queries)],
        "across": [place == i for i in range(per_query)],
        "own": [(query == m) & (place == i) for m, i in np.ndindex(shape)],
    }
    groups = [(name, drawn) for name in KINDS for drawn in members[name]]
    count = [tokens[name] for name, _ in groups]
    kind = np.repeat([name for name, _ in groups], count)
    present = np.repeat([drawn.ravel() for _, drawn in groups], count, axis=0).T  # (class, token)
    weight = present * np.exp(jitter * rng.normal(size=present.shape))
    P = weight / weight.sum(1, keepdims=True)
    K, contextual = present.shape
    classes = SequenceClasses(
        np.pad(P, ((0, 0), (0, queries + K))),
        query=contextual + query.ravel(),
        next_token=contextual + queries + np.arange(K),
    )
    return classes, kind


def gains(runs: xr.Dataset, kind: str = "across", *, what: str = "gaining") -> Share:
    """Count the tokens of a kind that gain, of all that `runs` has."""
    return share(runs[what].sel(kind=kind), of=runs["pairs"].sel(kind=kind))


def draw(runs: xr.Dataset) -> Figure:
    """The share of `across` that gains against the jitter, by mixture, queries and outputs."""
    cells = list(product(runs["mixture"].values, runs["queries"].values))
    with style.page(2.9) as figure:
        axes = figure.subplots(1, len(cells), sharey=True, squeeze=False)[0]
        for ax, (mixture, queries) in zip(axes, cells, strict=True):
            cell = runs.sel(mixture=mixture, queries=queries)
            jitter = cell["jitter"].values
            for some, styles in style.entries(cell.isel(ratio=-1), "unused"):
                for residual, dashes in ((True, "-"), (False, ":")):
                    found = [gains(some.sel(residual=residual, jitter=j)) for j in jitter]
                    label = f"{int(some['unused'])} unused{'' if residual else ', no residual'}"
                    draw_estimates(ax, jitter, found, linestyle=dashes, label=label, **styles)
            least, most = (int(cell["outputs"][i]) for i in (0, -1))
            ax.set_xlabel(f"jitter (M = {least} to {most})")
            ax.set_xticks(jitter, [f"{value:g}" for value in jitter])
            ax.set_ylim(-0.03, 1.05)
        axes[0].set_ylabel("locally distinct tokens that gain")
        style.panel_titles(axes, [f"{mixture}, {queries} queries" for mixture, queries in cells])
        title = TEXTS.legend.format(ratio=float(runs["ratio"][-1]))
        style.legend_above(figure, axes[0], ncols=runs.sizes["unused"], title=title)
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """Judge whether tokens distinct within a query gain, and tokens common within it lose."""
    trained = runs.sel(residual=True)
    first, near = dict(mixture=0, queries=0, unused=0, ratio=0), dict(unused=-1, ratio=-1)
    quoted, nearest = trained.isel(first), trained.isel(near)
    jitters = [float(j) for j in runs["jitter"].values]
    found = {
        (where, kind, j): gains(some.sel(jitter=j), kind)
        for (where, some), kind, j in product(
            (("quoted", quoted), ("near", nearest)), ("across", "within"), jitters
        )
    }
    by_cell = (trained["gaining"].mean("seed") / runs["pairs"]).sel(kind="across", drop=True)
    local = by_cell > LOCAL
    worst = trained.isel(by_cell.argmin(...))
    fates = {f"{kind}_{where}_{j:g}": some for (where, kind, j), some in found.items()} | {
        "across_without_residual": gains(runs.isel(first).sel(residual=False, jitter=jitters[0])),
        "across_predicted": gains(quoted.sel(jitter=jitters[0]), what="predicted"),
        "across_lowest_cell": gains(worst),
    }

    def by_jitter(where: str, kind: str) -> str:
        return ", ".join(f"{found[where, kind, j]} at {j:g}" for j in jitters)

    def of(cell: xr.Dataset) -> dict[str, Any]:
        """The place of a cell."""
        names = ("mixture", "queries", "outputs", "ratio", "jitter")
        return {name: cell[name].item() for name in names if not cell[name].shape}

    ends = (jitters[0], jitters[-1])
    return TEXTS.judgement(
        Standing.of(local.all(), in_part=local.any()),
        fates,
        limit=LOCAL,
        local=int(local.sum()),
        settings=local.size,
        jitters=ends,
        first=of(quoted),
        worst=of(worst),
        quoted=[found["quoted", "across", j] for j in ends],
        near=[found["near", "across", j] for j in ends],
        near_M=int(nearest["outputs"].min()),
        near_unused=int(nearest["unused"]),
        near_ratio=float(nearest["ratio"]),
        across=by_jitter("quoted", "across"),
        near_across=by_jitter("near", "across"),
        within=by_jitter("quoted", "within"),
        near_within=by_jitter("near", "within"),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
