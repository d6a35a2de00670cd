"""The first gradient of the first layer, and what it measures. No run is needed for most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed, slope
from attnlab.auditing.runs import assumed
from attnlab.experiments import mean
from attnlab.experiments.estimate import means
from attnlab.simulation import Simulation
from attnlab.theory import Check, Hypothesis, Trained, predict
from attnlab.theory.relation import AT_LEAST, AT_MOST, BELOW, EQUAL, LEADING

from .. import runs, theory
from ..evidence import EVIDENCE, GRAPHS
from ..model import Reduced
from ..predict import EVEN, CausalGradient
from ..task import Forest

Found = dict[str, xr.Dataset]
Case = tuple[int, int, float, str]  # S, T, alpha, graph
TESTS = "tests/papers/causal_structure/test_theory.py::"
PAPER = "Causal structure"
FORMULA = "Causal structure, re-derived here"
EPS = 0.05
CHAINS = 2000
PRIORS = ((3, 1.0), (3, 0.1), (5, 0.5), (10, 1.0), (10, 0.1), (2, 0.3))  # S, alpha
CASES: tuple[Case, ...] = tuple(
    (*of, graph)
    for of in ((3, 10, 1.0), (3, 20, 0.5), (5, 10, 0.5), (10, 20, 0.1))
    for graph in ("chain", "forest")
)
SEQUENCES = 32768
formula_claim = partial(claim, sources=FORMULA, runs={}, ours=True, figure="kernel")


def even(*names: str) -> Callable[[Found], tuple[Hypothesis, ...]]:
    """Return the paper's hypothesis on the prior, with its value in runs on file."""

    def hypotheses(found: Found) -> tuple[Hypothesis, ...]:
        largest = max(EVIDENCE.runs[name]().task.stickiness for name in names)
        return (Hypothesis(PAPER, EVEN, largest, AT_MOST, 0.0),)

    return hypotheses


def graph(name: str, length: int) -> NDArray[np.int64]:
    """Return a chain, pairs, or one forest drawn as `Forest(graph="random")` draws it."""
    position = np.arange(length - 1)
    of_pairs = np.where(position % 2 == 1, position - 1, theory.ROOT)
    forest = np.random.default_rng(length).integers(theory.ROOT, np.maximum(position, 0))
    return {"chain": position - 1, "pairs": of_pairs, "forest": forest}[name]


@cache
def drawn(of: Case) -> theory.Sample:
    """Return fresh sequences of a case."""
    S, T, alpha, name = of
    count = SEQUENCES if T <= 20 else SEQUENCES // 4
    return theory.sample_sequences(graph(name, T), S, alpha, count)


def first(of: Case, beta0: float = 1.0, eps: float = EPS) -> NDArray[np.float64]:
    """Return -dL/dA1 at A1 = 0, over fresh sequences."""
    return theory.first_gradient(drawn(of), np.zeros((of[1], of[1])), beta0=beta0, eps=eps)


def against(of: Case, beta0: float = 1.0, eps: float = EPS) -> tuple[float, float]:
    """Return slope and correlation of the gradient against its leading term, but the last row."""
    S, T, alpha, name = of
    low = np.tril_indices(T - 1)
    chains = theory.sample_chains(S, alpha, 2 * CHAINS, seed=100)
    x = theory.leading_gradient(chains, graph(name, T), beta0=beta0)[low]
    y = first(of, beta0, eps)[low]
    return float(x @ y / (x @ x)), float(np.corrcoef(x, y)[0, 1])


@formula_claim(
    EQUAL,
    id="causal-first-gradient",
    tolerance=1e-11,
    code=("softmax_gradient", "first_gradient", "through_softmax"),
    test=TESTS + "test_the_gradient_is_a_finite_difference",
)
def first_gradient(found: Found) -> Measurement:
    r"""$-\partial L/\partial S_{ij} = \beta_0\,E[a_i(u_i - \sum_k a_k u_k)\,1\{s_j = s_T\}]$.

    Compare with automatic differentiation of the reduced model in float64, at A1 = 0 and at random
    A1: 500 sequences along a chain and along a forest. Relative to the largest entry.
    """
    import jax
    import jax.numpy as jnp

    from attnlab.tasks import Batch

    @jax.jit
    def by_autodiff(A1: jax.Array, batch: Batch) -> jax.Array:
        def loss(A1: jax.Array) -> jax.Array:
            params = {"first": A1, "second": jnp.eye(3)}
            return Reduced(eps=EPS).loss(params, batch, "cross_entropy")

        return -jax.grad(loss)(A1)

    errors = []
    for of in ("chain", "forest"):
        sample = theory.sample_sequences(graph(of, 10), 3, 1.0, 500)
        for A1 in (np.zeros((10, 10)), np.random.default_rng(0).normal(size=(10, 10))):
            own = theory.first_gradient(sample, A1, eps=EPS)
            with jax.enable_x64(True):
                auto = by_autodiff(
                    A1, Batch(jnp.asarray(sample.tokens), jnp.asarray(sample.target))
                )
            errors.append(np.abs(own - np.asarray(auto)).max() / np.abs(own).max())
    return Measurement(Check("relative error", 0.0, np.array(errors)))


@claim(
    AT_LEAST,
    id="causal-parent-first",
    sources=PAPER,
    hypotheses=(even(*GRAPHS),),
    runs={},
    code=("first_gradient", "leading_gradient"),
    test=TESTS + "test_kinship",
    figure="kernel",
    number="the smallest margin over the next entry is {:.2g} of the parent's",
    training_number="recovery {:.3g} after one step",
)
def parent_first(found: Found) -> Measurement:
    r"""Where $E[\pi]$ is constant, the parent has the largest entry of the first gradient in every
    row.

    For long contexts and small beta0 it follows from causal-processing, but for the position
    itself, which needs the hypothesis (causal-constant-mean). Count the rows whose largest entry,
    their own position among them, is the parent: 8 cases of 32,768 sequences; and after one step of
    training on a batch of 512, three graphs, 10 seeds on file.
    """
    margins = []
    for of in CASES:
        G, above = first(of), graph(of[3], of[1])
        for child in np.flatnonzero(above >= 0):
            parent = G[child, above[child]]
            margins.append(1 - np.delete(G[child, : child + 1], above[child]).max() / parent)
    after = np.stack([EVIDENCE.read(name)["recovery"].sel(step=1) for name in GRAPHS])
    return Measurement(
        Check("share of rows", 1.0, np.mean(np.array(margins) > 0)),
        Trained("share of rows after one step", 1.0, after),
        number=float(min(margins)),
        training_number=float(after.mean()),
        note=f"{np.sum(np.array(margins) > 0)} of {len(margins)} rows",
    )


LENGTHS = (10, 20, 40)
SMALL = {"beta0": 0.1, "eps": 0.005}


def small(found: Found) -> tuple[Hypothesis, ...]:
    """Ask for a small start and a small eps, as the leading term does."""
    return tuple(
        Hypothesis("here", f"a small {name}", value, AT_MOST, 0.1) for name, value in SMALL.items()
    )


@formula_claim(
    AT_LEAST,
    id="causal-size",
    hypotheses=(small,),
    code=("leading_gradient", "expected_kernel"),
    test=TESTS + "test_the_leading_term_is_the_limit",
    number="correlation {:.3f} at T = 40",
)
def size(found: Found) -> Measurement:
    r"""$-\partial L/\partial S \to \frac{\beta_0}{ST}\,E\,g$ for $T \to \infty$, $\beta_0, \epsilon
    \to 0$.

    Check correlations with the leading term over T = 10, 20, 40 (S = 3, alpha = 1, chain and pairs,
    beta0 = 0.1, eps = 0.005): 1 - correlation falls as a power of T, at least 1/2 (ours). The note
    has slopes; at beta0 = 1, eps = 0.05 with correlations, of a chain and a forest.
    """
    found_at = {
        name: np.array([against((3, T, 1.0, name), **SMALL) for T in LENGTHS])
        for name in ("chain", "pairs")
    }
    power = {name: -slope(LENGTHS, 1 - of[:, 1]) for name, of in found_at.items()}
    notes = [
        f"{name}: slopes at T = {LENGTHS} {listed(of[:, 0], '.2f')}, power {power[name]:.2f}"
        for name, of in found_at.items()
    ]
    for of in ((3, 10, 1.0), (3, 40, 1.0), (10, 20, 0.1)):
        pairs = [against((*of, name)) for name in ("chain", "forest")]
        each = ", ".join(f"{of_slope:.2f} ({correlation:.2f})" for of_slope, correlation in pairs)
        notes.append(f"(S, T, alpha) = {of}: {each}")
    return Measurement(
        Check("power with which 1 - correlation falls", 0.5, np.array([*power.values()])),
        number=float(min(of[-1, 1] for of in found_at.values())),
        note="; ".join(notes),
    )


@claim(
    EQUAL,
    id="causal-information",
    sources=PAPER,
    tolerance=1e-8,
    runs={},
    in_parts=True,
    code=("kinship_kernel", "chi_squared", "joint_law"),
    test=TESTS + "test_the_parents_kernel_is_the_mutual_information_and_the_spectrum",
    figure="kernel",
    number="of a grandparent the mean of g is {:.2f} of the mutual information",
)
def information(found: Found) -> Measurement:
    """The gradient encodes the mutual information between tokens.

    Compare g with the chi-squared mutual information of the same two positions, by kinship: S = 10,
    alpha = 0.1, 2,000 chains. True of the parent; for others it is a bound (causal-processing).
    """
    pi = theory.sample_chains(10, 0.1, CHAINS)
    g = {name: theory.kinship_kernel(pi, name) for name in theory.KINSHIPS}
    own = {name: information_of(pi, name) for name in g}
    return Measurement(
        *(Check(f"{name}: g over the information", 1.0, g[name] / own[name]) for name in g),
        number=float(g["grandparent"].mean() / own["grandparent"].mean()),
        note="; ".join(
            f"{name} {mean(g[name])} (median {np.median(g[name]):.2f}) against {mean(own[name])}"
            for name in g
        ),
    )


def information_of(pi: NDArray[np.float64], kinship: str) -> NDArray[np.float64]:
    """Return the chi-squared mutual information of two positions of each chain."""
    return theory.chi_squared(theory.joint_law(pi, *theory.KINSHIPS[kinship]))


@formula_claim(
    AT_MOST,
    id="causal-processing",
    tolerance=1e-7,
    code=("kinship_kernel", "chi_squared"),
    test=TESTS + "test_kinship",
    number="{:.0f} chains of each of 6 priors",
)
def processing(found: Found) -> Measurement:
    r"""$g_{ij} \le \sqrt{I(s_i;s_j)\,I(\pi)} \le I(\pi)$ for every chain and any earlier
    position of its tree.

    Check both inequalities for grandparent, great-grandparent and sibling: 2,000 chains of each of
    6 pairs (S, alpha).
    """
    bounded, ordered = [], []
    for S, alpha in PRIORS:
        pi = theory.sample_chains(S, alpha, CHAINS, seed=S)
        parent = theory.kinship_kernel(pi, "parent")
        for name in ("grandparent", "great-grandparent", "sibling"):
            bound = np.sqrt(np.maximum(information_of(pi, name), 0) * parent)
            bounded.append(theory.kinship_kernel(pi, name) - bound)
            ordered.append(bound - parent)
    return Measurement(
        Check("g - bound", 0.0, np.max(bounded)),
        Check("bound - I(pi)", 0.0, np.max(ordered)),
        number=CHAINS,
    )


@formula_claim(
    EQUAL,
    id="causal-siblings",
    tolerance=1e-10,
    code=("kinship_kernel",),
    test=TESTS + "test_kinship",
)
def siblings(found: Found) -> Measurement:
    """Grandparent and sibling have the same g.

    Compare both for 2,000 chains of each of 6 priors; and g of the position itself with tr(pi) - 1.
    """
    apart, selves = [], []
    for S, alpha in PRIORS:
        pi = theory.sample_chains(S, alpha, CHAINS, seed=S)
        g, other = (theory.kinship_kernel(pi, name) for name in ("grandparent", "sibling"))
        apart.append(np.abs(g - other))
        own = theory.kinship_kernel(pi, "self") - (np.trace(pi, axis1=-2, axis2=-1) - 1)
        selves.append(np.abs(own))
    return Measurement(
        Check("grandparent - sibling", 0.0, np.max(apart)),
        Check("self - (tr pi - 1)", 0.0, np.max(selves)),
    )


def self_over_parent(r: float) -> float:
    """Return the first gradient at itself less that at its parent, mean over a chain of T = 10."""
    sample = theory.sample_sequences(graph("chain", 10), 3, 1.0, SEQUENCES, stickiness=r)
    G = theory.first_gradient(sample, np.zeros((10, 10)), eps=EPS)
    return float((np.diagonal(G)[1:-1] - np.diagonal(G, -1)[:-1]).mean())


def sticky(
    shares: NDArray[np.float64], chains: int, *, symbols: int = 3, seed: int = 0
) -> xr.DataArray:
    """Return the mean of g by kinship and share of the identity in pi."""
    kinships = ["self", "parent", "grandparent"]
    drawn = [theory.sample_chains(symbols, 1.0, chains, stickiness=r, seed=seed) for r in shares]
    g = [[theory.kinship_kernel(pi, name).mean() for pi in drawn] for name in kinships]
    return xr.DataArray(g, {"shown": kinships, "share": shares}, ("shown", "share"))


def boundary(g: xr.DataArray) -> float:
    """Return the share of the identity at which self passes the parent."""
    ahead = g.sel(shown="self") - g.sel(shown="parent")
    return float(np.interp(0, ahead, g["share"]))


@claim(
    LEADING,
    id="causal-constant-mean",
    sources=FORMULA,
    tolerance=0.02,
    runs={},
    ours=True,
    code=("expected_kernel", "sample_chains"),
    test="tests/papers/causal_structure/test_claims.py::test_where_the_position_itself_wins",
    figure="kernel",
    number="E g of self passes the parent's at a share {:.2f} of the identity (S = 3)",
    training_number="with half of the identity the parent keeps {:.3f} of attention",
)
def constant_mean(found: Found) -> Measurement:
    r"""Without $E[\pi]$ constant the first step may choose the position itself.

    Check E g of self, r (S - 1), for pi = r I + (1 - r) Dirichlet(1), S = 3, and that training
    follows the larger of self and parent: at r = 0.5 itself, at 0.2 the parent; 10 seeds on file.
    """
    g = sticky(np.linspace(0.05, 0.95, 19), 10000)
    nearby = (0.15, 0.2, 0.25, 0.3)
    turn = np.interp(0, [self_over_parent(r) for r in nearby], nearby)
    half, fifth = (EVIDENCE.read(f"sticky_{r}") for r in (0.5, 0.2))
    end, kept = half.isel(step=-1), fifth["parent_attention"].isel(step=-1)
    return Measurement(
        Check("E g of self - r (S - 1)", 0.0, g.sel(shown="self") - 2 * g["share"]),
        Trained("rows that choose themselves at step 1", 1.0, half["self_chosen"].sel(step=1)),
        Trained("attention to itself at the end", 0.9, end["self_attention"], AT_LEAST),
        Trained("to the parent", 0.1, end["parent_attention"], BELOW),
        Trained("to the parent at a fifth", 0.9, kept, AT_LEAST),
        number=boundary(g),
        training_number=float(end["parent_attention"].mean()),
        note=f"to itself {mean(end['self_attention'])}, to the parent "
        f"{mean(end['parent_attention'])}; at r = 0.2 {mean(kept)}. "
        f"The exact gradient at T = 10 turns at r = {turn:.2f}",
    )


LEVELS = ("causal-kernel", "causal-gradient")


@claim(
    AT_MOST,
    id="causal-levels",
    sources="here",
    hypotheses=(assumed(CausalGradient()),),
    runs={"stage 1": partial(runs.stage_one, Forest())},
    ours=True,
    code=("descend", "leading_gradient"),
    test="tests/papers/causal_structure/test_predict.py::test_levels_come_closer_to_training",
    figure="stages",
    training_number="largest error {:.3f} of attention, nothing fitted",
)
def levels(found: Found) -> Measurement:
    """The exact gradient, on other sequences, predicts the whole of stage 1, for large batches.

    Compare attention with both levels up to step 100 (batch 512), beside the baseline that nothing
    moves: largest error over children and records, at most a tenth of the baseline's.
    """
    trained = found["stage 1"]["first_attention"]
    run = replace(Simulation.of(found["stage 1"]), seeds=1)  # predictions are the same for all
    children = slice(1, -1)  # the test token's row does not matter, and drifts

    def error(of: xr.DataArray) -> xr.DataArray:
        return abs(of - trained).isel(query=children).max(("step", "query", "key"))

    errors = {
        name: error(predict(run, theory=name)["first_attention"].isel(seed=0, drop=True))
        for name in LEVELS
    }
    still = error(trained.isel(step=0))
    exact = errors["causal-gradient"]
    return Measurement(
        Trained("error over the baseline's", 0.1, exact / still),
        training_number=float(exact.max()),
        note=means({**errors, "nothing moves": still}),
    )
