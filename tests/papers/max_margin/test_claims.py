"""The claims: recorded, as we know them, and able to fail; one-hot tokens on two models."""

import jax
import numpy as np
import pytest

from attnlab import simulate
from attnlab.auditing import Verdict, claims_of, select
from attnlab.papers.max_margin import runs, theory
from attnlab.papers.max_margin.claims import direction, variants
from attnlab.papers.max_margin.model import CrossAttention
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


@pytest.mark.parametrize(
    ("claim", "name"), [("mm-gradient", "loss_gradient"), ("mm-rate", "direction_error")]
)
def test_a_wrong_formula_is_noticed(monkeypatch, claim, name):
    (chosen,) = select([claim])
    right = getattr(theory, name)
    monkeypatch.setattr(runs, "SEEDS", 4)
    if name == "loss_gradient":
        monkeypatch.setattr(theory, name, lambda x, z, s, W: right(x, z, 1.01 * s, W))
    else:  # an error that does not fall
        monkeypatch.setattr(theory, name, lambda *given: right(*given) + 0.01)
        runs.compared.cache_clear()
    found = chosen.examine()
    runs.compared.cache_clear()
    assert Verdict.FAILS in (found.verdict, found.training)


def test_one_hot_tokens_have_the_slopes_of_both_models():
    """`Extended` on sequence classes, and `CrossAttention` on one-hot tokens with the log counts
    as a shift: the cross entropy of two outputs is the logistic loss of one score."""
    run = variants.one_hot("common", "even")
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
    x = np.eye(6)[np.array(variants.TOKENS)]
    scores = np.array([[1], [-1]]) * np.array(variants.VALUES["common"])[np.array(variants.TOKENS)]
    said = theory.loss_gradient(x, np.ones((2, 1)), scores, z[:, None]).gradient[:, 0]
    np.testing.assert_allclose(slope, said, atol=1e-12)


def test_the_usual_arithmetic_of_sequence_classes_ends_too():
    """A trap for normalised steps on `Extended`: its slope is the usual one."""
    flow = variants.one_hot("distinct", "even")
    row = theory.one_hot_margin(variants.TOKENS, variants.WINNERS["distinct"], variants.QUERY)
    z = simulate(flow, progress=False)["attention_logits"].isel(seed=0).values[:, 6, :6]
    assert theory.correlation(z[-1][None], row[None]) > 0.998
    assert theory.correlation((z[-1] - z[0])[None], row[None]) > 1 - 1e-6


def test_levels_are_compared_on_runs_that_all_of_them_admit():
    run = direction.levels()
    assert run.model == CrossAttention(scale=0, arithmetic="scaled")
    assert set(run.record.what) == {"attention", "direction"}
