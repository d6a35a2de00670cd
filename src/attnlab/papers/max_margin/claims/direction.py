"""The gradient, and the direction in which the weights grow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr

from attnlab import predict
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.auditing.runs import assumed
from attnlab.experiments import mean
from attnlab.simulation import Simulation
from attnlab.theory import Check, Hypothesis, Trained
from attnlab.theory.relation import AT_LEAST, AT_MOST, BELOW, EQUAL

from .. import runs, theory
from ..predict import LateTraining, MaxMargin, RegularisationPath, separable

Found = dict[str, xr.Dataset]
DIFFERENCE = 1e-5  # of W, for the slope of the loss


def published_size(found: object) -> tuple[Hypothesis, ...]:
    """Return the hypothesis under which almost all published instances have a solution."""
    return (separable(runs.PUBLISHED),)


def levels() -> Simulation:
    """Equal scores from W = 0, with what the theories predict."""
    run = runs.descent(runs.EVEN, runs.FROM_ZERO, at=(0, 10, 100, 1000), seeds=3)
    return replace(run, record=replace(run.record, what=("attention", "direction")))


@claim(EQUAL, sources="T24; re-derived", ours=True, tolerance=1e-8, runs={})
def mm_gradient(found: Found) -> Measurement:
    r"""$\frac{\partial L}{\partial W} = \frac{1}{n} \sum_i l'(m_i) \sum_t s_{it} (\gamma_{it} -
    m_i) x_{it} z_i^\top$.

    Compare the formula with central differences of the loss, entry by entry, over the largest
    entry, at a random W of the published size. The tolerance is that of the differences.
    """
    data = runs.instances(runs.descent(runs.PUBLISHED, at=(1,), seeds=1))[0]
    x, z, scores = data["x"], data["z"], data["scores"]

    W = np.random.default_rng(0).standard_normal((x.shape[-1], z.shape[-1]))
    moves = np.eye(W.size).reshape(W.size, *W.shape) * DIFFERENCE
    up, down = (
        np.logaddexp(0.0, -(np.exp(theory.log_attention(x, z, W + of)) * scores).sum(-1)).mean(-1)
        for of in (moves, -moves)
    )
    said = theory.loss_gradient(x, z, scores, W).gradient.ravel()
    size, slopes = np.abs(said).max(), (up - down) / (2 * DIFFERENCE)
    return Measurement(
        Check("slopes of the loss", said / size, slopes / size, relative=False),
        number=float(np.abs(said - slopes).max() / size),
    )


@claim(AT_MOST, sources="T24", runs={"local": runs.local}, hypotheses=(published_size,))
def mm_direction(found: Found) -> Measurement:
    r"""$W/\lVert W \rVert_F \to W^{mm}_\alpha/\lVert W^{mm}_\alpha \rVert_F$ for the selected
    tokens $\alpha$.

    Train the published setting from 100 random starts in accurate arithmetic and compare W with the
    programme of the tokens selected at the end. The direction is a limit, so the error must fall
    from 500 to 2,000 steps in every run, on average at least as fast as t^(-3/4).
    """
    of = runs.compared(runs.local())
    error = of["error"].sel(step=[500, 1000, 2000])
    slopes = runs.exponents(error)
    correlation = of["correlation"]
    return Measurement(
        Trained("exponent of the error, mean", theory.BOUND, float(slopes.mean())),
        Trained(
            "the error at 2,000 against 500 steps",
            error.isel(step=0).values,
            error.isel(step=-1).values,
            BELOW,
        ),
        training_number=float(correlation.isel(step=-1).mean()),
        note=f"correlation {runs.over_steps(correlation)} steps, where 0 is nothing moves (least "
        f"at the end {float(correlation.isel(step=-1).min()):.3f}); exponent {mean(slopes)}; "
        "nothing is fitted",
    )


@claim(AT_LEAST, sources="T24", runs={"local": runs.local}, hypotheses=(published_size,))
def mm_saturates(found: Found) -> Measurement:
    """Attention of every sequence saturates at one token.

    Take the largest attention weight of each sequence after 2,000 steps, in 100 runs of the
    published setting. The premise of a limit is taken as 1 to a millionth.
    """
    others = runs.compared(runs.local())["others"].isel(step=-1)
    most = float(np.exp(others.max()))
    weights = found["local"]["attention"].max("token")
    return Measurement(
        Trained("least weight", 1 - 1e-6, weights.isel(step=-1).values),
        training_number=most,
        note=f"mean weight {runs.over_steps(weights)} steps",
    )


@claim(
    BELOW,
    sources="ours",
    runs={"levels": levels},
    hypotheses=(assumed(MaxMargin(), levels),),
    ours=True,
)
def mm_levels(found: Found) -> Measurement:
    """Normalised descent from 0 keeps to the regularisation path: its error is below that of the
    direction alone, and of late training, at all steps.

    Compare three levels of theory with training from W = 0 on equal scores, 3 seeds, at 10 to 1,000
    steps: the direction's error, and attention's (root mean square) beside that of weights that
    never move.
    """
    run = levels()
    trained = found["levels"]
    said = {
        of.name: predict(run, theory=of)
        for of in (MaxMargin(), LateTraining(), RegularisationPath())
    }
    direction = {name: _distance(trained, of, "direction") for name, of in said.items()}
    path = direction.pop("max-margin-path")
    said["nothing moves"] = trained.isel(step=0, drop=True)
    worst = {name: float(_distance(trained, of, "attention").max()) for name, of in said.items()}
    return Measurement(
        *(
            Trained(f"direction's error, path against {name}", of.values, path.values)
            for name, of in direction.items()
        ),
        training_number=worst["max-margin-path"],
        note="attention is off by at most "
        + ", ".join(f"{size:.3f} ({name})" for name, size in worst.items())
        + f"; the direction, on the path, by {listed(path.values, '.3f')} at "
        + listed(path["step"].values, "d"),
    )


def _distance(trained: xr.Dataset, said: xr.Dataset, what: str) -> xr.DataArray:
    """Return the error over steps past the start, mean over seeds: a norm for directions."""
    squares = (trained[what] - said[what]).isel(step=slice(1, None)) ** 2
    if what == "attention":
        return squares.mean(["sequence", "token"]).mean("seed") ** 0.5
    return (squares.sum(["key_dim", "query_dim"]) ** 0.5).mean("seed")
