"""The claims: recorded, as we know them, and able to fail; one-hot tokens on two models."""

from types import SimpleNamespace

import jax
import numpy as np

from attnlab.auditing import Verdict, claims_of, select
from attnlab.papers.max_margin import evidence, theory
from attnlab.papers.max_margin.claims import rates
from attnlab.papers.max_margin.evidence import EVIDENCE
from attnlab.theory.facts import facts_of

ASKED = {
    *("mm-gradient", "mm-direction", "mm-saturates", "mm-local", "mm-sparsify", "mm-global-not"),
    *("mm-equal-scores", "mm-overparameterised", "mm-feasible", "mm-nuclear", "mm-rank"),
    *("mm-kq-faster", "mm-rate", "mm-gd-slow", "mm-multi", "mm-one-hot", "mm-levels"),
}


def test_every_claim_says_how_it_is_known():
    claims = claims_of("max_margin")
    assert {claim.id for claim in claims} == ASKED
    ours = {claim.id for claim in claims if claim.reading == "ours"}
    assert ours == {"mm-one-hot", "mm-levels", "mm-gradient"}
    assert {claim.reading for claim in claims} == {"as we know it", "ours"}


def test_a_wrong_formula_is_noticed(monkeypatch):
    right = theory.loss_gradient
    monkeypatch.setattr(theory, "loss_gradient", lambda x, z, s, W: right(x, z, 1.01 * s, W))
    (chosen,) = select(["mm-gradient"])
    assert chosen.examine().verdict is Verdict.FAILS


def test_an_error_that_does_not_fall_is_noticed(monkeypatch):
    read = EVIDENCE.read
    monkeypatch.setattr(
        rates, "EVIDENCE", SimpleNamespace(read=lambda name: read(name).assign(error=stuck))
    )
    stuck = read("late")["error"] + 0.01
    (chosen,) = select(["mm-rate"])
    assert chosen.examine().training is Verdict.FAILS


def test_one_hot_tokens_have_the_slopes_of_both_models():
    """`Extended` on sequence classes, and `CrossAttention` on one-hot tokens with the log counts
    as a shift: the cross entropy of two outputs is the logistic loss of one score."""
    run = evidence.one_hot("common", "even")
    rng = np.random.default_rng(0)
    z = rng.standard_normal(6)
    facts = next(facts_of(run))[1]
    batch, params = run.task.population(facts.data), dict(facts.start)
    with jax.enable_x64(True):

        def loss(row):
            logits = params["attention"]["z"]
            moved = {**params["attention"], "z": jax.numpy.asarray(logits).at[0, 6, :6].set(row)}
            return run.model.loss({**params, "attention": moved}, batch, "cross_entropy")

        slope = jax.jit(jax.grad(loss))(z)
    x = np.eye(6)[np.array(evidence.TOKENS)]
    scores = np.array([[1], [-1]]) * np.array(evidence.VALUES["common"])[np.array(evidence.TOKENS)]
    said = theory.loss_gradient(x, np.ones((2, 1)), scores, z[:, None]).gradient[:, 0]
    np.testing.assert_allclose(slope, said, atol=1e-12)
