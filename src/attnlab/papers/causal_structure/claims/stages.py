"""The reduced model, trained in two stages: A1 alone, then A2 alone."""

from __future__ import annotations

from functools import partial

import numpy as np

from attnlab.auditing import Measurement, claim
from attnlab.experiments import mean
from attnlab.theory import Trained
from attnlab.theory.relation import ABOVE, AT_LEAST, BELOW

from .. import runs
from ..task import Forest
from .gradient import PAPER, STAGES, Found

TESTS = "tests/papers/causal_structure/test_model.py::"
stage_claim = partial(
    claim,
    sources=PAPER,
    test=TESTS + "test_stage_one_finds_the_tree_and_stage_two_leaves_it",
    figure="stages",
)


@stage_claim(
    BELOW,
    id="causal-concentrates",
    runs=STAGES,
    code=("descend", "softmax_rows"),
    training_number="attention to the parent {:.4f} after 300 steps",
)
def concentrates(found: Found) -> Measurement:
    r"""After stage 1 $\mathrm{softmax}(A_1)_{i,p(i)} \to 1$.

    Check that what is left falls as a power of the step: the slope of ln(1 - attention to the
    parent) against ln t over steps 100 to 300 is below -1/2 (ours), by seed; three graphs.
    """
    slopes, notes, ends = [], [], []
    for name, of in found.items():
        att = runs.measured(of)["parent_attention"].sel(step=[20, 100, 300])
        left = np.log(1 - att.values)
        slopes.append((left[:, 2] - left[:, 1]) / np.log(3))
        notes.append(f"{name}: {', '.join(str(mean(each)) for each in att.values.T)}")
        ends.append(att.values[:, 2])
    return Measurement(
        Trained("slope of ln(1 - attention)", -0.5, np.stack(slopes), relative=False),
        training_number=float(np.mean(ends)),
        note=f"after 20, 100, 300 steps {'; '.join(notes)}; slopes "
        + ", ".join(str(mean(each)) for each in slopes),
    )


@stage_claim(
    AT_LEAST,
    id="causal-roots",
    runs={
        **{name: STAGES[name] for name in ("pairs", "random")},
        "pairs 40": partial(runs.stages, Forest(length=40, graph="pairs"), second=1, seeds=3),
    },
    in_parts=True,
    code=("expected_kernel",),
    training_number="relative entropy {:.2f} after 300 steps (T = 10, pairs)",
)
def roots(found: Found) -> Measurement:
    """Rows of roots stay uniform.

    Check the entropy of root rows, over its largest value, against 0.9 (ours): after 20 steps and
    at the end of stage 1; pairs and random forests of T = 10, pairs of T = 40 (3 seeds).
    """
    checks, notes, means = [], [], []
    for name, of in found.items():
        entropy = runs.measured(of)["root_entropy"]
        for step in (20, 300):
            value = entropy.sel(step=step).values
            value = value[np.isfinite(value)]
            about = f"{name}, step {step}"
            means.append(float(value.mean()))
            checks.append(Trained(about, 0.9, means[-1]))
            notes.append(f"{about}: {mean(value)} ({value.min():.2f} to {value.max():.2f})")
    return Measurement(*checks, training_number=means[1], note="; ".join(notes))


@stage_claim(
    ABOVE,
    id="causal-diagonal",
    runs=STAGES,
    code=("ideal_outputs",),
    training_number="diagonal {:.2f} after 300 steps, from 1",
)
def diagonal(found: Found) -> Measurement:
    """Stage 2 makes A2 diagonal: symbols are compared with themselves.

    Check that the diagonal of A2 grows and that the rest falls below 0, from A2 = I, after 300
    steps at learning rate 5; three graphs, 10 seeds.
    """
    each = {name: runs.measured(of).isel(step=-1) for name, of in found.items()}
    own, others = (
        np.stack([of[part].values for of in each.values()]) for part in ("diagonal", "off_diagonal")
    )
    return Measurement(
        Trained("diagonal", 1.0, own),
        Trained("off the diagonal", 0.0, others, BELOW),
        training_number=float(own.mean()),
        note="; ".join(
            f"{name} {mean(one)}, others {mean(rest)}"
            for name, one, rest in zip(each, own, others, strict=True)
        ),
    )


ALPHAS = (0.1, 0.5, 1.0)


@stage_claim(
    AT_LEAST,
    id="causal-bounded",
    runs={
        f"{alpha:g}": partial(runs.stage_one, Forest(concentration=alpha), steps=100)
        for alpha in ALPHAS
    },
    code=("sample_chains",),
    training_number="recovery {:.2f} at alpha = 0.1, 0.5 and 1 after 100 steps",
)
def bounded(found: Found) -> Measurement:
    r"""Chains are bounded below by $\gamma/S$, which Dirichlet rows are not.

    Check that the tree is found although no gamma > 0 bounds the chains: recovery after one step
    and after 100, S = 3, T = 10. So the bound is not needed here; the rate is asymptotic.
    """
    each = {name: runs.measured(of) for name, of in found.items()}
    recovery = np.stack([of["recovery"].sel(step=[1, 100]).values for of in each.values()])
    note = "; ".join(
        f"alpha {name}: attention {mean(of['parent_attention'].isel(step=-1).values)}"
        for name, of in each.items()
    )
    return Measurement(
        Trained("recovery", 1.0, recovery),
        training_number=float(recovery[:, :, 1].mean()),
        note=note,
    )
