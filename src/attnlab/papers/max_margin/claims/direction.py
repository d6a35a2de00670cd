"""The gradient, and the direction in which the weights grow."""

from __future__ import annotations

import numpy as np

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.experiments import mean
from attnlab.theory import Check, Trained
from attnlab.theory.relation import AT_LEAST, AT_MOST, BELOW, EQUAL

from .. import runs, theory
from ..evidence import EVIDENCE, LEVELS
from ..predict import equal_scores, separable
from . import asked

DIFFERENCE = 6e-4  # of W, for the slope of the loss; the error is the differences', not rounding
LEAST = 1 - 1e-6  # an attention weight that counts as 1


@claim(EQUAL, sources="T24; re-derived", ours=True, tolerance=1e-8, runs={})
def mm_gradient(found: object) -> Measurement:
    r"""$\frac{\partial L}{\partial W} = \frac{1}{n} \sum_i l'(m_i) \sum_t s_{it} (\gamma_{it} -
    m_i) x_{it} z_i^\top$.

    Compare the formula with central differences of the loss, entry by entry, over the largest
    entry, at a random W of the published size. It holds for all data and W. The tolerance is that
    of the differences.
    """
    rng, task = np.random.default_rng(0), runs.PUBLISHED
    data = task.instance(rng.standard_normal(task.numbers))
    x, z, scores = data["x"], data["z"], data["scores"]
    W = rng.standard_normal((x.shape[-1], z.shape[-1]))
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


@claim(AT_MOST, sources="T24", runs={}, hypotheses=asked(separable(runs.PUBLISHED)))
def mm_direction(found: object) -> Measurement:
    r"""As $t \to \infty$, $W/\lVert W \rVert_F \to W^{mm}_\alpha/\lVert W^{mm}_\alpha \rVert_F$ for
    the tokens $\alpha$ that attention comes to select, if a matrix separates them.

    Train the published setting by normalised steps from 100 random starts, in accurate arithmetic,
    and compare W with the programme of the tokens selected at the end. The direction is a limit, so
    the error must fall from 500 to 2,000 steps in every run, on average at least as fast as
    t^(-3/4). T24 proves it, as we know it, from starts far out in a cone around the direction; that
    training from random starts enters one is what is measured. The released arithmetic stops short
    of the limit.
    """
    of, released = EVIDENCE.read("local"), EVIDENCE.read("released")["correlation"]
    error, correlation = of["error"].sel(step=[500, 1000, 2000]), of["correlation"]
    slopes, last = runs.exponents(error), correlation.isel(step=-1)
    return Measurement(
        Trained("exponent of the error, mean", theory.BOUND, float(slopes.mean())),
        Trained(
            "the error at 2,000 against 500 steps",
            error.isel(step=0).values,
            error.isel(step=-1).values,
            BELOW,
        ),
        training_number=float(last.mean()),
        note=f"correlation {runs.over_steps(correlation)} steps, where 0 is nothing moves (least "
        f"at the end {float(last.min()):.3f}); exponent {mean(slopes)}; as released "
        f"{runs.over_steps(released)}; nothing is fitted",
    )


@claim(AT_LEAST, sources="T24", runs={}, hypotheses=asked(separable(runs.PUBLISHED)))
def mm_saturates(found: object) -> Measurement:
    r"""As $t \to \infty$, attention of every sequence saturates at one token.

    Take the largest attention weight of each sequence after 2,000 steps, in the runs of
    mm-direction. The limit, 1, is taken as reached to a millionth.
    """
    of = EVIDENCE.read("local")
    others = np.exp(of["others"].isel(step=-1).values)  # the largest of the other weights
    return Measurement(
        Trained("least weight", LEAST, 1 - (runs.PUBLISHED.length - 1) * others),
        training_number=float(others.max()),
        note=f"mean weight {runs.over_steps(of['weight'])} steps",
    )


@claim(
    BELOW,
    sources="ours",
    runs={},
    hypotheses=asked(separable(runs.EVEN), equal_scores(runs.EVEN)),
    ours=True,
)
def mm_levels(found: object) -> Measurement:
    """Normalised descent from 0 keeps to the regularisation path, if all tokens of a sequence but
    the best have equal scores: its error is below that of the direction alone, and of late
    training, at all steps.

    Compare three levels of theory with training, 3 seeds, at 10 to 1,000 steps: the direction's
    error, and attention's (root mean square) beside that of weights that never move.
    """
    of = EVIDENCE.read("levels")
    *others, path = (f"{level.name}_direction" for level in LEVELS)
    direction = of[[*others, path]].mean("seed")
    worst = {
        name: float(((of[f"{name}_attention"] ** 2).mean("seed") ** 0.5).max())
        for name in (*(level.name for level in LEVELS), "still")
    }
    return Measurement(
        *(
            Trained(f"direction's error, path against {of}", direction[of], direction[path])
            for of in others
        ),
        training_number=worst[LEVELS[-1].name],
        note="attention is off by at most "
        + ", ".join(f"{size:.3f} ({name})" for name, size in worst.items())
        + f"; the direction, on the path, by {listed(direction[path].values, '.3f')} at "
        + listed(of["step"].values, "d"),
    )
