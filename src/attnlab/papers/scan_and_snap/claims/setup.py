"""Section 3 in words: what the setting leaves out, and what it keeps."""

from __future__ import annotations

import numpy as np

from attnlab import formulas
from attnlab.auditing.claim import Measurement, claim
from attnlab.auditing.fit import slope
from attnlab.auditing.runs import trained
from attnlab.dynamics import Extended
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.cases import WEAK
from attnlab.papers.scan_and_snap.claims.model import complex_slope
from attnlab.papers.scan_and_snap.hypotheses import EQ_10, long_sequences, single_common_token
from attnlab.papers.scan_and_snap.readings import logits, run_at
from attnlab.theory.case import Case
from attnlab.theory.comparison import Check
from attnlab.theory.relation import EQUAL, LEADING


@claim(
    "row-sums", source="Section 3.1, after Lemma 1",
    statement=r"The rows of $Y(t)$ and $Z(t)$ keep a zero sum: $\sum_j Y_{ij}(t) = \sum_j "
    r"Z_{ij}(t) = 0$",
    relation=EQUAL, case=WEAK, tolerance=1e-9,
    code=("sample_gradient",),
    test="tests/formulas/test_backprop.py::test_lemma_1_at_finite_length",
)  # fmt: skip
def row_sums(case: Case) -> Measurement:
    """Check that the sums of rows stay 0 over 200 batch-1 steps by Lemma 1, and in the joint flow
    to t = 10^10. The tolerance is rounding, over the steps of the solver.
    """
    s, steps = case, 200
    z, Y = np.zeros((s.classes.queries.size, s.P.shape[1])), np.zeros((s.P.shape[1], s.M))
    for step in range(steps):
        n = step % s.K
        term = formulas.sample_gradient(s.P[n], z[s.psi[n]], Y, target=n)
        z[s.psi[n]] += s.eta_z * term.logits
        Y = Y + s.eta_y * term.decoder
    _, path = run_at(s)
    sums = path.sum(-1)
    return Measurement(
        (
            Check("rows of Y", 0.0, Y.sum(1), relative=False),
            Check("rows of Z", 0.0, z.sum(1), relative=False),
            Check("rows of Z, training", 0.0, sums, relative=False, training=True),
        ),
        note=f"columns do not: the largest column sum of Y is {np.abs(Y.sum(0)).max():.2g}",
    )


@claim(
    "embedding-norm", source="Section 3, l2-normalization",
    statement=r"$\lVert U^\top x \rVert_2 \approx \lVert x \rVert_2$ when token embeddings are "
    r"nearly orthogonal",
    relation=LEADING, case=WEAK, tolerance=0.1,
    code=("unit_attention",),
    test="tests/formulas/test_tokens.py::test_attention_is_eq_5_with_queries_and_leading_axes",
    number="the error goes as d^{:.2f}",
)  # fmt: skip
def embedding_norm(case: Case) -> Measurement:
    """Compare an error that goes as d^-1/2 for random unit embeddings in d dimensions with 500
    attention vectors over 400 tokens, d from 64 to 1024. The tolerance is the sampling error of a
    slope of three means.
    """
    rng, M = np.random.default_rng(16), 400
    x = rng.dirichlet(np.full(M, 0.1), size=500)
    dims = np.array([64, 256, 1024])
    errors = []
    for d in dims:
        U = rng.normal(size=(M, d))
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        ratio = np.linalg.norm(x @ U, axis=1) / np.linalg.norm(x, axis=1)
        errors.append(float(np.abs(ratio - 1.0).mean()))
    rate = slope(dims, errors)
    return Measurement(
        (
            Check("exponent of the error in d", -0.5, rate),
            Check("error at d = 1024", 0.0, errors[-1], relative=False, tolerance=0.03),
        ),
        number=rate,
    )


@claim(
    "layer-norm", source="Section 3, l2-normalization",
    statement="The analysis can be extended to standard LayerNorm, which also subtracts the mean",
    relation=LEADING, case=WEAK, hypotheses=(long_sequences, *EQ_10, single_common_token),
    tolerance=0.05,
    code=("centred_attention", "centred_velocity"),
    test="test_layer_norm.py::test_layer_norm_velocity_is_the_gradient",
    number="subtracting the mean changes velocities by {:.2g} at M = 1000",
    training_number="all tokens keep their fates (largest logit {:.2g} at t = 10^6)",
)  # fmt: skip
def layer_norm(case: Case) -> Measurement:
    """Compare Eq. 10 with f_n = (c_n - 1/M)/|c_n - 1/M|, which is near the l2 one for a large M,
    with complex-step derivatives, with the l2 velocity, and with the joint flow under LayerNorm.
    The mean is 1/M, which sets the tolerance; for rounding it is 1e-12.
    """
    s, M = case, 40
    z = np.random.default_rng(17).normal(scale=0.2, size=(1, s.P.shape[1]))
    growth = theory.h(20.0, M=M, eta_y=1.0)
    speed = (M - 1.0) ** 2 * growth / (M - 1.0 + np.exp(M * growth))  # gamma at 20 visits
    f = theory.centred_attention(formulas.Setting.of(s, M=M), z)
    Y = theory.decoder_weights(f, growth, M=M)

    def objective(moved: np.ndarray) -> complex:
        total: complex = 0.0
        for n in range(s.K):
            c = np.zeros(M, dtype=complex)
            c[: s.P.shape[1]] = s.P[n] * np.exp(moved[s.psi[n]])
            c = c / c.sum() - 1.0 / M
            scores = Y.T @ (c / np.sqrt((c**2).sum()))
            total += (scores[n] - np.log(np.exp(scores).sum())) / s.K
        return total

    predicted = theory.centred_velocity(formulas.Setting.of(s, M=M), z)
    rest = np.zeros((1, s.P.shape[1]))
    centred = theory.centred_velocity(s, rest)
    plain = theory.attention_velocity(s, rest)
    # LayerNorm makes f_n sqrt(M) long, which multiplies the rate of the decoder by M.
    rates = ((s.eta_y / s.M, s.eta_z),)
    run = trained(s.classes, rates, 1e6, model=Extended(normalization="layer")).isel(run=0)
    fates = theory.token_fates(s)
    end = logits(s, run.isel(time=-1))
    return Measurement(
        (
            Check("dz/dt over eta_Z gamma, LayerNorm", predicted, complex_slope(objective,
                  z) / speed, EQUAL, relative=False, tolerance=1e-12),
            Check("the velocity of l2-normalization, M = 1000", plain, centred),
            Check("fates with LayerNorm, training", fates, np.sign(end), EQUAL, training=True),
        ),
        number=float(np.abs(centred / plain - 1.0).max()),
        training_number=float(np.abs(end).max()),
    )  # fmt: skip
