"""Focus and dilution: levels, rates and stages against the flow of the model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
from quickly import quickly
from scipy.integrate import solve_ivp
from scipy.optimize import minimize
from scipy.special import log_softmax

from attnlab.files.errors import InputError
from attnlab.papers.polarisation import theory
from attnlab.papers.polarisation.model import FactoredAttention
from attnlab.papers.polarisation.task import StickyChain
from attnlab.simulation import TaskLearner

PI = (0.75, 0.19, 0.05, 0.01)
EQUAL = (0.7, 0.1, 0.1, 0.1)


MODEL = FactoredAttention()
SIZES = {"embedding": (4, 16), "query": (16, 16), "key": (16, 16), "decoder": (16, 4)}


def loss_of(params, batch):
    """The loss of the model, and its attention."""
    loss = TaskLearner(StickyChain(), MODEL).loss((), params, batch, None)
    return loss, MODEL.apply(params, batch.inputs)[1]["attention"]


# one program for all chains: what differs is the batch
COMPILED = quickly(jax.value_and_grad(loss_of, has_aux=True))


class Flow:
    """The gradient flow of the model by a solver of its own, from a start of numpy."""

    def __init__(self, pi=PI, scale=0.01):
        rng = np.random.default_rng(0)
        self.start = {name: rng.normal(0, scale, size) for name, size in SIZES.items()}
        with jax.enable_x64(True):
            self.batch = StickyChain(pi).population(())

    def unravel(self, flat):
        ends = np.cumsum([np.prod(size) for size in SIZES.values()])[:-1]
        parts = zip(SIZES.items(), np.split(flat, ends), strict=True)
        return {name: part.reshape(size) for (name, size), part in parts}

    def at(self, flat):
        """Loss, attention and gradient."""
        with jax.enable_x64(True):
            (loss, attention), slope = COMPILED(self.unravel(flat), self.batch)
        return float(loss), np.asarray(attention), ravel(slope)

    def run(self, t):
        """The path and, along it, loss and attention."""
        settings = {"t_eval": t, "rtol": 1e-6, "atol": 1e-9}
        path = solve_ivp(lambda _, x: -self.at(x)[2], (0, t[-1]), ravel(self.start), **settings).y.T
        losses, attention, _ = zip(*map(self.at, path), strict=True)
        return path, np.array(losses), np.array(attention)


def ravel(params):
    return np.concatenate([np.ravel(params[name]) for name in SIZES])


@pytest.fixture(scope="module")
def run():
    t = np.concatenate([[0.0], np.geomspace(0.5, 600, 400)])
    flow = Flow()
    return flow, t, *flow.run(t)


def half_time(t, loss):
    """The time of half of the first drop, from ln d to H(pi)."""
    level = (np.log(4) + theory.group_loss(PI, 0.5, [0] * 4)) / 2
    return np.interp(-level, -loss, t)


def turns(x, least=0.02):
    """Changes of direction by more than `least`."""
    count, extreme, way = 0, x[0], 0
    for value in x:
        if way * (value - extreme) > 0:
            extreme = value
        elif abs(value - extreme) > least:
            count += way != 0
            way, extreme = np.sign(value - extreme), value
    return count


def test_levels():
    """Measured before: Bayes losses 0.5536 and 0.710, and 0.820 where equal rare tokens stay."""
    pi = np.array(PI)
    P = theory.transition_matrix(PI, 0.5)
    np.testing.assert_allclose(pi @ P, pi)
    one, all_ = theory.group_loss(PI, 0.5, [0] * 4), theory.group_loss(PI, 0.5, range(4))
    assert one == pytest.approx(-(pi * np.log(pi)).sum())
    assert all_ == pytest.approx(0.5536, abs=5e-5)
    assert theory.group_loss(EQUAL, 0.5, range(4)) == pytest.approx(0.710, abs=5e-4)
    assert theory.group_loss(EQUAL, 0.5, [0, 1, 1, 1]) == pytest.approx(0.820, abs=5e-4)
    assert all_ < theory.group_loss(PI, 0.5, [0, 1, 2, 2]) < one


def test_rank_loss_is_the_least():
    pi, P = np.array(PI), theory.transition_matrix(PI, 0.5)

    def loss(x, rank):
        c, h = x.reshape(2, 4, rank)
        return -(pi[:, None] * P * log_softmax(c @ h.T, axis=1)).sum()

    for rank in (1, 2):
        tries = [np.random.default_rng(seed).normal(size=8 * rank) for seed in range(5)]
        least = min(minimize(loss, x, args=(rank,)).fun for x in tries)
        assert theory.rank_loss(PI, 0.5, rank) == pytest.approx(least, abs=1e-6)
    bayes = theory.group_loss(PI, 0.5, range(4))
    assert theory.rank_loss(PI, 0.5, 4) == pytest.approx(bayes, abs=1e-8)


def test_the_first_gradient():
    """At the origin W0 W1 moves along pi (pi - 1/d), and Phi does not move."""
    pi, P = jnp.array(PI), jnp.array(theory.transition_matrix(PI, 0.5))

    def loss(M, Phi):
        b = jax.nn.softmax(jnp.log(pi) + Phi)
        return -(pi[:, None] * P * jax.nn.log_softmax(b @ M)).sum()

    by_M, by_Phi = quickly(jax.grad(loss, (0, 1)))(jnp.zeros((4, 4)), jnp.zeros((4, 4)))
    np.testing.assert_allclose(-by_M, theory.start_gradient(PI), atol=1e-7)
    np.testing.assert_array_equal(by_Phi, 0)
    size = np.linalg.svd(theory.start_gradient(PI))[1][0]
    assert theory.condensation_rate(PI) == pytest.approx(size)


def test_stage_one_is_the_flow_with_attention_still(run):
    """Measured before: cosine 1.000 with pi, share 0.995 of the first singular value, at t = 8."""
    flow, t, path, loss, _ = run
    assert half_time(t, loss) == pytest.approx(8.1, abs=0.6)
    early = np.flatnonzero(t < 20)
    start = flow.unravel(path[0])
    stage = theory.stage_one(PI, start["embedding"], start["decoder"], t[early])
    np.testing.assert_allclose(stage.loss, loss[early], atol=1e-3)
    at = np.argmin(np.abs(t - half_time(t, loss)))
    W0 = np.asarray(flow.unravel(path[at])["embedding"])
    np.testing.assert_allclose(stage.embedding[at], W0, atol=5e-3)
    left, size, _ = np.linalg.svd(W0)
    assert abs(left[:, 0] @ PI) / np.linalg.norm(PI) > 0.999
    assert size[0] ** 2 / (size**2).sum() == pytest.approx(0.995, abs=0.002)
    moved = np.linalg.norm(flow.unravel(path[at])["query"] - start["query"])
    assert moved / np.linalg.norm(start["query"]) < 0.015


def test_stage_one_lasts_longer_by_the_logarithm():
    """Measured before: 5.0 more for a start ten times as small."""
    t = np.linspace(0, 25, 501)
    start = Flow(scale=1.0).start
    found = [
        half_time(t, theory.stage_one(PI, e * start["embedding"], e * start["decoder"], t).loss)
        for e in (1e-2, 1e-3, 1e-4)
    ]
    expected = np.log(10) / theory.condensation_rate(PI)
    np.testing.assert_allclose(np.diff(found), expected, atol=0.02)
    assert expected == pytest.approx(5.0, abs=0.02)


def test_after_stage_one_attention_is_unstable():
    """The Hessian at the end of stage I: a saddle, whose descent rate is that of the formula."""
    flow, alpha = Flow(), np.random.default_rng(1).normal(size=16)
    W0, W1 = theory.stage_one_end(PI, alpha)
    still = np.zeros((16, 16))
    saddle = ravel({"embedding": W0, "query": still, "key": still, "decoder": W1})
    np.testing.assert_allclose(flow.at(saddle)[2], 0, atol=1e-12)
    steps = 1e-5 * np.eye(saddle.size)
    ahead, behind = (np.array([flow.at(saddle + s * e)[2] for e in steps]) for s in (1, -1))
    rates = np.linalg.eigvalsh((behind - ahead) / 2e-5)  # of minus the Hessian
    assert rates[-1] == pytest.approx(theory.focus_rate(PI, 0.5), rel=1e-6)
    end = theory.stage_one(PI, 1e-3 * W0, 1e-3 * W1, 400.0)
    np.testing.assert_allclose(end.embedding, W0, rtol=0.02)  # where stage I does end
    np.testing.assert_allclose(end.decoder, W1, rtol=0.02)


def test_focus_then_dilution(run):
    """Measured before: the frequent query focuses, others peak at 0.772, 0.754, 0.751."""
    _, t, _, _, attention = run
    to_frequent = attention[:, :, 0]
    peaks = to_frequent.max(0)
    assert peaks[0] > 0.998
    np.testing.assert_allclose(peaks[1:], [0.772, 0.754, 0.751], atol=0.003)
    first = np.flatnonzero(t < 30)[-1]  # while Phi is along pi pi^T
    logits = np.log(attention[first] / np.array(PI))
    strength = (logits[0, 0] - logits[0, 3]) / (PI[0] * (PI[0] - PI[3]))
    np.testing.assert_allclose(attention[first], theory.focused_attention(PI, strength), atol=1e-3)
    assert attention[first, 0, 0] - PI[0] > 0.01
    assert 0.36 < to_frequent[-1, 1] < 0.48
    assert [turns(to_frequent[:, q]) for q in (1, 2)] == [3, 3]


def test_the_loss_rests_at_the_levels(run):
    """Where it falls most slowly in ln t: frequencies alone, rank one, rare queries alike."""
    _, t, _, loss, _ = run
    falls = -np.gradient(loss[1:], np.log(t[1:]))
    (rests,) = scipy.signal.argrelmin(falls)
    levels = loss[1:][rests[t[1:][rests] > 10]][:3]
    expected = [
        theory.group_loss(PI, 0.5, [0] * 4),
        theory.rank_loss(PI, 0.5, 1),
        theory.group_loss(PI, 0.5, [0, 1, 1, 1]),
    ]
    np.testing.assert_allclose(levels, expected, atol=3e-3)
    assert loss[-1] > theory.group_loss(PI, 0.5, range(4)) + 0.01  # not yet at the end


def test_equal_rare_tokens_get_stuck():
    """Measured before: loss 0.820 to t = 600, no turn."""
    _, loss, attention = Flow(EQUAL).run(np.linspace(0, 600, 61))
    stuck = theory.group_loss(EQUAL, 0.5, [0, 1, 1, 1])
    np.testing.assert_allclose(loss[40:], stuck, atol=2e-4)
    assert max(turns(attention[:, q, 0]) for q in range(4)) == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: theory.condensation_rate([0.5, 0.6]), "pi: expected two or more"),
        (lambda: theory.focus_rate(PI, 1.0), "stickiness must lie"),
        (lambda: theory.group_loss(PI, 0.5, [0, 1]), "groups: expected a label for each of 4"),
        (lambda: theory.rank_loss(PI, 0.5, 0), "rank: expected a whole number"),
        (lambda: theory.stage_one(PI, np.ones((3, 2)), np.ones((2, 4)), 1.0), "W0: expected"),
    ],
)
def test_bad_chains_are_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()
