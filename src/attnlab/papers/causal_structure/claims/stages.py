"""The reduced model, trained in two stages: A1 alone, then A2 alone. 10 seeds on file."""

from __future__ import annotations

from functools import partial

import numpy as np

from attnlab.auditing import Measurement, claim
from attnlab.experiments import mean
from attnlab.experiments.estimate import means
from attnlab.theory import Trained
from attnlab.theory.relation import ABOVE, AT_LEAST, BELOW

from ..evidence import ALPHAS, EVIDENCE, GRAPHS
from .gradient import PAPER, Found, even

stage_claim = partial(
    claim,
    sources=PAPER,
    hypotheses=(even(*GRAPHS),),
    runs={},
    test="tests/papers/causal_structure/test_claims.py::test_a_recorded_seed_is_trained_again",
    figure="stages",
)


@stage_claim(
    BELOW,
    id="causal-concentrates",
    code=("descend", "softmax_rows"),
    training_number="attention to the parent {:.4f} after 300 steps",
)
def concentrates(found: Found) -> Measurement:
    r"""Where $E[\pi]$ is constant, stage 1 ends at $\mathrm{softmax}(A_1)_{i,p(i)} = 1$ for
    children $i$.

    Check that what is left falls as a power of the step: the slope of ln(1 - attention to the
    parent) against ln t over steps 100 to 300 is below -1/2 (ours), by seed; three graphs.
    """
    steps = [20, 100, 300]
    att = {name: EVIDENCE.read(name)["parent_attention"].sel(step=steps).T for name in GRAPHS}
    left = {name: np.log(1 - of.values) for name, of in att.items()}
    slopes = {name: (of[2] - of[1]) / np.log(3) for name, of in left.items()}
    return Measurement(
        Trained("slope of ln(1 - attention)", -0.5, np.stack([*slopes.values()]), relative=False),
        training_number=float(np.mean([of.sel(step=300) for of in att.values()])),
        note="after 20, 100, 300 steps: "
        + "; ".join(
            f"{name} {', '.join(str(mean(each)) for each in of)}, slope {mean(slopes[name])}"
            for name, of in att.items()
        ),
    )


@stage_claim(
    AT_LEAST,
    id="causal-roots",
    in_parts=True,
    code=("expected_kernel",),
    training_number="relative entropy {:.2f} after 300 steps (T = 10, pairs)",
)
def roots(found: Found) -> Measurement:
    r"""Rows of roots stay uniform in stage 1, for $T \to \infty$.

    Check the entropy of root rows, over its largest value, against 0.9 (ours): after 20 steps and
    at the end of stage 1; pairs and random forests of T = 10, pairs of T = 40.
    """
    entropy = {
        f"{name}, step {step}": EVIDENCE.read(name)["root_entropy"].sel(step=step).dropna("seed")
        for name in ("pairs", "random", "pairs_40")
        for step in (20, 300)
    }
    return Measurement(
        *(Trained(about, 0.9, float(of.mean())) for about, of in entropy.items()),
        training_number=float(entropy["pairs, step 300"].mean()),
        note="; ".join(
            f"{about}: {mean(of)} ({of.min():.2f} to {of.max():.2f})"
            for about, of in entropy.items()
        ),
    )


@stage_claim(
    ABOVE,
    id="causal-diagonal",
    code=("ideal_outputs",),
    training_number="diagonal {:.2f} after 300 steps, from 1",
)
def diagonal(found: Found) -> Measurement:
    """Stage 2 makes A2 diagonal: symbols are compared with themselves.

    Check that the diagonal of A2 grows and that the rest falls below 0, from A2 = I, after 300
    steps at learning rate 5; three graphs, 10 seeds.
    """
    end = [EVIDENCE.read(name).isel(step=-1) for name in GRAPHS]
    own, others = ([of[part].values for of in end] for part in ("diagonal", "off_diagonal"))
    return Measurement(
        Trained("diagonal", 1.0, np.stack(own)),
        Trained("off the diagonal", 0.0, np.stack(others), BELOW),
        training_number=float(np.mean(own)),
        note="; ".join(
            f"{name} {mean(one)}, others {mean(rest)}"
            for name, one, rest in zip(GRAPHS, own, others, strict=True)
        ),
    )


@stage_claim(
    AT_LEAST,
    id="causal-bounded",
    sources="here",
    ours=True,
    code=("sample_chains",),
    training_number="recovery {:.2f} at alpha = 0.1, 0.5 and 1 after 100 steps",
)
def bounded(found: Found) -> Measurement:
    r"""Stage 1 finds the tree also where no $\gamma > 0$ bounds the chains below by $\gamma/S$,
    which the paper asks for.

    Check recovery after one step and after 100 with Dirichlet rows, which have no such bound: S =
    3, T = 10, three alpha. The bound matters for how many steps and how long contexts it takes.
    """
    each = {alpha: EVIDENCE.read(f"alpha_{alpha:g}") for alpha in ALPHAS}
    recovery = np.stack([of["recovery"].sel(step=[1, 100]).values for of in each.values()])
    attention = {f"alpha {a:g}:": of["parent_attention"].isel(step=-1) for a, of in each.items()}
    return Measurement(
        Trained("recovery", 1.0, recovery),
        training_number=float(recovery[:, :, 1].mean()),
        note=f"attention to the parent: {means(attention)}",
    )
