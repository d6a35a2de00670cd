"""The formulas of polarisation against the whole flow, each other, and measured values."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import expit, softmax

from attnlab.files.errors import InputError
from attnlab.papers.polarisation import theory

KINDS = ("softmax", "l2", "sum", "l1", "relu", "square", "sigmoid")


def unit(rng, n):
    x = rng.normal(size=n)
    return x / np.linalg.norm(x)


def flow(V0, a0, gradient, t, *, rho=1.0, weighting="softmax"):
    """V and a at times t, from the definition: J by finite differences, ordinary time."""
    d, n = V0.shape

    def weights(a):
        return theory.attend(a, weighting=weighting)

    def moved(_, state):
        V, a = state[: d * n].reshape(d, n), state[d * n :]
        g = gradient(V @ weights(a))
        steps = 1e-5 * np.eye(n)
        J = np.array([(weights(a + e) - weights(a - e)) / 2e-5 for e in steps])  # d alpha / d a
        return np.concatenate([-np.outer(g, weights(a)).ravel(), -rho * J @ (V.T @ g)])

    start = np.concatenate([V0.ravel(), a0])
    found = solve_ivp(
        moved, (0, t[-1]), start, t_eval=t, rtol=1e-10, atol=1e-12, method="LSODA"
    ).y.T
    return found[:, : d * n].reshape(-1, d, n), found[:, d * n :]


@pytest.fixture(scope="module")
def logistic():
    """20 starts of the published toy to t = 1e5, tokens in the order of u_0: (time, start, ...)."""
    at = np.concatenate([[0.0], np.geomspace(1e-2, 1e5, 200)])
    u0 = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        u0.append(np.sort(unit(rng, 8) @ (0.1 * rng.normal(size=(8, 8))))[::-1])
    clock = theory.logistic_clock
    return theory.one_direction(u0, np.zeros((20, 8)), at, along="time", clock=clock)


# Weights and kernels: predictions 1, 2 and 10.


@pytest.mark.parametrize("weighting", KINDS)
def test_pull_back_is_the_gradient_of_the_weights(weighting):
    rng = np.random.default_rng(1)
    a, x = rng.normal(1, 0.3, 5), rng.normal(size=(3, 5))
    steps = 1e-6 * np.eye(5)
    J = np.array([theory.attend(a + e, weighting=weighting) for e in steps])
    J = (J - [theory.attend(a - e, weighting=weighting) for e in steps]) / 2e-6
    np.testing.assert_allclose(theory.pull_back(a, x, weighting=weighting), x @ J.T, atol=1e-8)


@pytest.mark.parametrize("weighting", KINDS)
def test_the_kernel_moves_the_output(weighting):
    rng = np.random.default_rng(2)
    V, a, g = rng.normal(size=(3, 6)), rng.normal(1, 0.3, 6), rng.normal(size=3)
    dV, da = theory.velocity(V, a, g, rho=0.7, weighting=weighting)
    h = 1e-6
    ahead, behind = ((V + s * dV) @ theory.attend(a + s * da, weighting=weighting) for s in (h, -h))
    M = theory.output_kernel(V, a, rho=0.7, weighting=weighting)
    np.testing.assert_allclose((ahead - behind) / (2 * h), -M @ g, atol=1e-7)


def test_the_kernel_without_the_square_is_wrong():
    rng = np.random.default_rng(2)
    V, a = rng.normal(size=(3, 6)), rng.normal(size=6)
    off = theory.output_kernel(V, a, form="printed") - theory.output_kernel(V, a)
    assert np.abs(off).max() > 0.03
    with pytest.raises(InputError, match="form: only softmax"):
        theory.output_kernel(V, a, weighting="l2", form="printed")


@pytest.mark.parametrize("weighting", [kind for kind in KINDS if kind != "sigmoid"])
def test_the_flow_conserves_the_sum_or_the_norm(weighting):
    rng = np.random.default_rng(3)
    a0 = rng.normal(1, 0.1, 6)
    path = theory.one_direction(0.1 * rng.normal(size=6), a0, [0.0, 3.0, 10.0], weighting=weighting)
    kept = theory.conserved(path.logits, weighting=weighting)
    np.testing.assert_allclose(kept, kept[0], rtol=1e-7)
    assert np.abs(path.logits[-1] - a0).max() > 0.1
    other = (path.logits**2 if weighting in ("softmax", "l2") else path.logits).sum(-1)
    assert abs(other[-1] - other[0]) > 1e-3


def test_a_sigmoid_conserves_nothing():
    with pytest.raises(InputError, match="weighting: a sigmoid"):
        theory.conserved([1.0], weighting="sigmoid")
    with pytest.raises(InputError, match="weighting: expected one of"):
        theory.attend([1.0], weighting="max")


def test_norms_of_values_give_the_logits():
    """JoMA's identity along a flow with a curved path: no assumption is needed."""
    rng = np.random.default_rng(4)
    V0, beta, t = 0.5 * rng.normal(size=(3, 5)), 3 * unit(rng, 3), np.linspace(0, 6, 301)
    V, a = flow(V0, np.zeros(5), lambda f: f - beta, t, rho=0.8)
    sigma = theory.attend(a)
    g = np.einsum("tdn,tn->td", V, sigma) - beta
    found = theory.logits_from_values(t, V, sigma, g, a0=a[0], rho=0.8)
    np.testing.assert_allclose(found, a, atol=1e-5)
    norms = (V**2).sum(1) / 2
    assert np.abs(0.8 * (norms - norms[0]) - a).max() > 0.1  # the integral matters


# One direction: prediction 3.


def test_one_direction_is_the_whole_flow_of_the_logistic_loss():
    rng = np.random.default_rng(5)
    beta, V0, t = unit(rng, 4), 0.3 * rng.normal(size=(4, 5)), np.array([0.0, 3.0, 30.0])
    V, a = flow(V0, np.zeros(5), lambda f: -beta * expit(-beta @ f), t, rho=0.6)
    clock = theory.logistic_clock
    path = theory.one_direction(beta @ V0, np.zeros(5), t, along="time", rho=0.6, clock=clock)
    np.testing.assert_allclose(path.scores, beta @ V, atol=1e-7)
    np.testing.assert_allclose(path.logits, a, atol=1e-7)


def test_several_starts_are_one_equation():
    u0, a0 = np.random.default_rng(0).normal(size=(2, 3, 4))
    together = theory.one_direction(u0, a0, [1.0, 50.0], weighting="square")
    for i in range(3):
        alone = theory.one_direction(u0[i], a0[i], [1.0, 50.0], weighting="square")
        for name in ("scores", "logits", "weights"):
            found = getattr(together, name)[:, i]
            np.testing.assert_allclose(found, getattr(alone, name), atol=1e-6)
        np.testing.assert_allclose(together.output[:, i], alone.output, rtol=1e-6)


def test_one_direction_is_the_whole_flow_of_the_square_loss_from_zero():
    rng = np.random.default_rng(6)
    beta, a0, t = 2 * unit(rng, 4), 0.3 * rng.normal(size=5), np.array([1.0, 5.0, 200.0])
    V, a = flow(np.zeros((4, 5)), a0, lambda f: f - beta, t)
    clock = theory.square_clock(2.0)
    path = theory.one_direction(np.zeros(5), a0, t[:2], along="time", clock=clock)
    np.testing.assert_allclose(path.scores, beta / 2 @ V[:2], atol=1e-7)
    np.testing.assert_allclose(path.logits, a[:2], atol=1e-7)
    end = theory.one_direction(np.zeros(5), a0, 2.0, along="output")  # where it stops
    np.testing.assert_allclose(end.logits, a[2], atol=1e-7)


@pytest.mark.parametrize("ratio", [1.0, 0.1])
def test_scan_and_snap_without_its_norm_is_a_case(ratio):
    """One class of frequencies P, one query: c ~ P e^z, M outputs, Y(0) = 0."""
    P, M, t = np.array([0.2, 0.2, 0.4, 0.2]), 6, np.array([10.0, 100.0])
    target = np.eye(M)[0]

    V, a = flow(np.zeros((M, 4)), np.log(P), lambda f: softmax(f) - target, t, rho=ratio)
    path = theory.one_direction(
        np.zeros(4),
        np.log(P),
        t,
        along="time",
        rho=theory.cross_entropy_ratio(M, ratio),
        clock=theory.cross_entropy_clock(M),
    )
    np.testing.assert_allclose(path.scores, V[:, 0], atol=1e-6)
    np.testing.assert_allclose(path.logits, a, atol=1e-6)


def test_the_path_is_the_same_for_every_loss_and_variable():
    u0, a0 = [0.1, -0.2, 0.0], [0.0, 0.1, 0.0]
    clocks = (theory.logistic_clock, theory.square_clock(30.0), theory.cross_entropy_clock(5), None)
    paths = [theory.one_direction(u0, a0, [2.0, 20.0], clock=clock) for clock in clocks]
    for path in paths:
        np.testing.assert_allclose(path.logits, paths[0].logits, atol=1e-8)
    assert np.isnan(paths[-1].time).all()
    first = paths[0]
    by_time = theory.one_direction(u0, a0, first.time, along="time", clock=clocks[0])
    by_output = theory.one_direction(u0, a0, first.output, along="output", clock=clocks[0])
    for other in (by_time, by_output):
        np.testing.assert_allclose(other.scores, first.scores, rtol=1e-7)
        np.testing.assert_allclose(other.tau, first.tau, rtol=1e-7)
        np.testing.assert_allclose(other.time, first.time, rtol=1e-6)
    start = theory.one_direction(u0, a0, 0.0)
    np.testing.assert_array_equal(start.scores, u0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"a0": [0.0]}, "u0: expected as many"),
        ({"along": "steps"}, "along: expected one of"),
        ({"along": "time"}, "clock: flow time needs one"),
        ({"rho": 0.0}, "rho must be > 0"),
        ({"at": -1.0}, "at must be >= 0"),
        (
            {"u0": [[0.1, 0.0], [0.2, 0.0]], "a0": np.zeros((2, 2)), "along": "output"},
            "along: starts whose outputs differ",
        ),
    ],
)
def test_bad_paths_are_refused(wrong, says):
    with pytest.raises(InputError, match=says):
        theory.one_direction(**{"u0": [0.1, 0.0], "a0": [0.0, 0.0], "at": 1.0} | wrong)


# Order, winner and gaps: predictions 4 and 5.


def test_the_published_toy(logistic):
    """Measured before: max sigma 0.976 (sd 0.003), entropy 0.16, u_win 11.7 at t = 1e5."""
    winning = logistic.weights[-1].max(-1)
    assert winning.mean() == pytest.approx(0.976, abs=0.002)
    assert winning.std() == pytest.approx(0.003, abs=0.0015)
    sigma = logistic.weights[-1]
    assert -(sigma * np.log(sigma)).sum(-1).mean() == pytest.approx(0.16, abs=0.01)
    np.testing.assert_allclose(logistic.scores[-1].max(-1), 11.72, atol=0.05)


def test_order_is_kept_and_the_largest_score_wins(logistic):
    assert (np.diff(logistic.scores) < 0).all()
    assert (np.diff(logistic.logits[1:]) < 0).all()
    for u0, a0 in zip(logistic.scores[0], logistic.logits[0], strict=True):
        assert theory.predicted_winner(u0, a0) == 0
    entropy = -(logistic.weights * np.log(logistic.weights)).sum(-1)
    assert (np.diff(entropy, axis=0) < 0).all()
    assert theory.predicted_winner([1.0, 0.0], [0.0, 1.0]) is None
    assert theory.predicted_winner([1.0, 1.0], [0.0, 0.0]) is None


def test_the_fastest_mode_wins_from_uneven_starts():
    """argmax a_0 + sqrt(rho) u_0 wins nearly always, the most frequent token does not."""
    u0, a0 = 0.1 * np.random.default_rng(0).normal(size=(2, 40, 8))
    path = theory.one_direction(u0, a0, 1e3, rho=0.5, rtol=1e-6)
    winner = path.weights.argmax(-1)
    fastest = [theory.linear_winner(u, a, rho=0.5) for u, a in zip(u0, a0, strict=True)]
    assert (winner == fastest).mean() > 0.92
    assert (winner == a0.argmax(-1)).mean() < 0.75


@pytest.mark.parametrize("side", [-1, 1])
def test_two_tokens_have_a_separatrix(side):
    delta, rho = 1.5, 0.4
    D = -2 * np.sinh(delta / 2) / np.sqrt(rho) + side * 1e-3
    path = theory.one_direction([D, 0.0], [delta, 0.0], 1e3, rho=rho)
    assert path.weights.argmax() == (0 if side > 0 else 1)
    assert path.weights.max() > 0.99


def test_gaps_of_losers_shrink_and_no_others(logistic):
    """Measured before: all pairs of losers shrink again, by up to 0.40 in one set of starts."""
    i, j = np.triu_indices(8, 1)
    of_u, of_a = (
        theory.drawdown(x[..., i] - x[..., j]) for x in (logistic.scores, logistic.logits)
    )
    assert of_u.max() == 0
    assert of_a[:, i == 0].max() == 0
    assert (of_a[:, i > 0] > 1e-6).all()
    assert of_a.max(-1).mean() == pytest.approx(0.27, abs=0.05)
    assert of_a.max(-1).min() < 0.40 < of_a.max()


def test_gap_velocities():
    rng = np.random.default_rng(7)
    u, a = np.sort(rng.normal(size=5))[::-1], np.array([1.0, 0.3, 0.3, 0.1, -0.2])
    of_u, of_a = theory.gap_velocities(u, a, rho=0.7)
    h = 1e-5
    later = theory.one_direction(u, a, h, rho=0.7)
    np.testing.assert_allclose(
        (later.logits[:, None] - later.logits - (a[:, None] - a)) / h, of_a, atol=1e-3
    )
    np.testing.assert_allclose(
        (later.scores[:, None] - later.scores - (u[:, None] - u)) / h, of_u, atol=1e-3
    )
    sigma = theory.attend(a)
    assert of_a[1, 2] == pytest.approx(0.7 * sigma[1] * (u[1] - u[2]))  # at equal logits
    assert (of_u[np.triu_indices(5)] >= 0).all() and (of_a[0, 1:] > 0).all()


# Two tokens: prediction 6.


@pytest.mark.parametrize(("D0", "delta0"), [(0.1, 0.0), (0.0, 0.01), (1e-3, 0.5)])
def test_two_tokens_exactly(D0, delta0):
    tau, D = theory.two_token_tau(np.log(9), D0=D0, delta0=delta0, rho=0.3)
    at = np.array([tau / 3, tau])
    path = theory.one_direction([D0, 0.0], [delta0, 0.0], at, rho=0.3, rtol=1e-12, atol=1e-14)
    gap, delta = (-np.diff(x)[:, 0] for x in (path.scores, path.logits))
    assert path.weights[-1, 0] == pytest.approx(0.9, abs=1e-8)
    assert gap[-1] == pytest.approx(D, rel=1e-8)
    kept = theory.two_token_invariant(gap, delta, rho=0.3)
    first = theory.two_token_invariant(D0, delta0, rho=0.3)
    np.testing.assert_allclose(kept, first, atol=1e-8)
    assert path.output[-1] == pytest.approx((D0 + tau + D * 0.8) / 2, rel=1e-8)


def test_a_fast_decoder_hides_polarisation():
    """Measured before: at rho = 0.1 two tokens reach 0.9 at u-bar = 20.8, that is t = 1e9."""
    tau, D = theory.two_token_tau(np.log(9), D0=0.1, rho=0.1)
    output = (tau + 0.8 * D) / 2
    assert output == pytest.approx(20.8, abs=0.05)
    start = [0.05, -0.05]
    clock = theory.logistic_clock
    path = theory.one_direction(start, [0, 0], output, along="output", rho=0.1, clock=clock)
    assert 1e9 < path.time < 3e9


def test_equal_tokens_stay_equal():
    with pytest.raises(InputError, match="delta0 must be > 0"):
        theory.two_token_tau(1.0, D0=0.0)
    path = theory.one_direction(np.zeros(3), np.zeros(3), 1e4)
    np.testing.assert_array_equal(path.weights, np.full(3, 1 / 3))


# The tail: prediction 7.


@pytest.mark.parametrize("n", [2, 4, 8, 20])
def test_the_tail(n):
    """1 - max sigma has the slope -2 and the constant; losers become equal like tau^(-2/n)."""
    rng = np.random.default_rng(n)
    tau = np.geomspace(1e5, 1e7, 20)
    path = theory.one_direction(0.1 * rng.normal(size=n), np.zeros(n), tau, rho=0.5)
    left = theory.remainder(path.logits)
    assert np.polyfit(np.log(tau), np.log(left), 1)[0] == pytest.approx(-2, abs=0.01)
    np.testing.assert_allclose(left[-1], theory.tail(tau[-1], n, rho=0.5), rtol=2e-3)
    if n in (4, 8):  # with 2 there is one loser, and 20 are not yet nearly equal
        losers = np.sort(path.logits, axis=1)[:, :-1]
        spread = np.expm1(losers[:, -1] - losers[:, 0])
        slope = np.polyfit(np.log(tau), np.log(spread), 1)[0]
        assert slope == pytest.approx(-2 / n, rel=0.1)


def test_the_tail_is_far_beyond_the_published_run(logistic):
    """At t = 1e5 the law with tau = ln t gives about half of what is left."""
    measured = theory.remainder(logistic.logits[-1]) / theory.tail(np.log(1e5), 8)
    assert (measured > 1.4).all() and (measured < 2.7).all()


def test_late_arithmetic_without_care_fails():
    path = theory.one_direction([0.1, 0.0, -0.1], np.zeros(3), 1e9)
    left = theory.remainder(path.logits)
    assert left == pytest.approx(theory.tail(1e9, 3), rel=1e-3)
    assert 1 - path.weights.max() == 0  # the naive form
    a, u = np.array([40.0, 0.0]), np.array([1.0, 0.0])
    pulled = theory.pull_back(a, u)
    assert pulled[0] == pytest.approx(np.exp(-40), rel=1e-12) and pulled.sum() == 0
    sigma = softmax(a)
    assert (sigma * (u - sigma @ u))[0] == 0  # the naive form


# Losses that stop: prediction 8.


def test_near_even_weights_the_spread_grows_like_cosh():
    rng = np.random.default_rng(8)
    for u0 in (np.zeros(10), 1e-4 * rng.normal(size=10)):
        a0 = 1e-4 * rng.normal(size=10)
        path = theory.one_direction(u0, a0, 3.0, along="output", rho=0.5)
        u, a = theory.linear_stage(u0, a0, 3.0, rho=0.5)
        np.testing.assert_allclose(path.logits - path.logits.mean(), a, atol=2e-6)
        np.testing.assert_allclose(path.scores - path.scores.mean(), u, atol=2e-6)
    a0 = a0 - a0.mean()
    grown = theory.linear_stage(np.zeros(10), a0, 4.0)[1]
    np.testing.assert_allclose(grown, a0 * np.cosh(4))


def test_the_boundary_of_the_square_loss():
    """max sigma passes 1/2 at b = ln(1/spread) + 1.3 (sd 0.9 over starts), n = 10."""
    at, spreads = np.linspace(0.5, 14, 100), np.array([1e-3, 1e-1])
    draws = [np.random.default_rng(seed).normal(size=10) for seed in range(10)]
    a0 = np.multiply.outer(spreads, draws)
    path = theory.one_direction(np.zeros_like(a0), a0, at, along="output", rtol=1e-7)
    norm = np.apply_along_axis(lambda top: np.interp(0.5, top, at), 0, path.weights.max(-1))
    low, high = norm + np.log(spreads)[:, None]
    np.testing.assert_allclose(low, high, atol=0.15)  # the spread enters by its logarithm alone
    assert np.mean([low, high]) == pytest.approx(1.3, abs=0.5)


def test_random_values_and_a_short_target_stay_even():
    """Measured before: V_0 of 0.1 and b = 1 end at H = 2.298 of 2.303."""
    rng = np.random.default_rng(9)
    beta, V0 = unit(rng, 10), 0.1 * rng.normal(size=(10, 10))
    _, a = flow(V0, np.zeros(10), lambda f: f - beta, np.array([200.0]))
    sigma = theory.attend(a[0])
    assert -(sigma * np.log(sigma)).sum() == pytest.approx(2.298, abs=0.006)


def test_regression_at_the_published_size_stays_even():
    """Measured before: max sigma 0.051 to 0.060 of 0.05, the spread grown by nearly cosh |beta|."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        b, a0 = np.linalg.norm(rng.normal(size=20)), 1e-3 * rng.normal(size=20)
        end = theory.one_direction(np.zeros(20), a0, b, along="output")
        assert 0.0505 < end.weights.max() < 0.07
        assert end.logits.std() / a0.std() == pytest.approx(np.cosh(b), rel=0.06)


def test_a_one_hot_target_goes_on():
    """Measured before: cross entropy with 10 outputs has max sigma 0.988 at t = 1e6."""
    found = []
    for seed in range(5):
        V0 = 0.1 * np.random.default_rng(seed).normal(size=(10, 10))
        u0 = V0[0] - V0[1:].mean(0) / 9  # what a symmetric start has of V0
        path = theory.one_direction(
            u0,
            np.zeros(10),
            1e6,
            along="time",
            rho=theory.cross_entropy_ratio(10),
            clock=theory.cross_entropy_clock(10),
        )
        found.append(path.weights.max())
    np.testing.assert_allclose(found, 0.988, atol=0.003)


def test_cross_entropy_stops_at_the_norm_of_its_solution():
    p = softmax(np.array([2.0, 0.5, 0.0, 1.0]))
    a0 = np.array([0.3, 0.0, -0.1])
    V, a = flow(np.zeros((4, 3)), a0, lambda f: softmax(f) - p, np.array([300.0]))
    f = V[0] @ theory.attend(a[0])
    assert np.linalg.norm(f) == pytest.approx(theory.cross_entropy_norm(p), rel=1e-5)
    with pytest.raises(InputError, match="target must lie in"):
        theory.cross_entropy_norm([1.0, 0.0])


# The l2 norm of Scan and Snap: prediction 9.


def test_l2_alone_never_moves():
    a0 = np.log([0.2, 0.2, 0.4, 0.2])
    path = theory.one_direction(np.zeros(4), a0, [1.0, 1e4], weighting="l2")
    np.testing.assert_allclose(path.logits, [a0, a0], atol=1e-10)
    free = theory.one_direction(np.zeros(4), a0, 1e4)
    assert free.weights.max() > 0.999


@pytest.mark.parametrize("rho", [1.0, 0.3])
def test_l2_freezes_small_scores(rho):
    u0 = 1e-5 * np.array([1.0, 3.0, -2.0, 0.5])
    tau = np.array([1.0, 3.0, 30.0])
    path = theory.one_direction(u0, np.zeros(4), tau, rho=rho, weighting="l2", atol=1e-14)
    s = tau / np.sqrt(4)
    np.testing.assert_allclose(path.logits, theory.frozen_logits(u0, s, rho=rho), rtol=1e-3)
    frozen = theory.frozen_logits(u0)
    np.testing.assert_allclose(frozen, np.sqrt(np.pi / 2) * (u0 - u0.mean()), rtol=1e-12)
