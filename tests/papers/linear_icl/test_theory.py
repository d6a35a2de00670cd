"""Theory of in-context regression: quadrature, finite differences, limits, measured values."""

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from attnlab.experiments import published
from attnlab.files.errors import InputError
from attnlab.papers.linear_icl.figures import staircase
from attnlab.papers.linear_icl.measures import dwell, first_crossing
from attnlab.papers.linear_icl.theory import (
    Merged,
    Regression,
    Separate,
    blow_up_times,
    drive,
    drop_times,
    escape_rate,
    escape_time,
    first_gradient,
    fixed_points,
    growing_start,
    head_curve,
    head_time,
    invariants,
    optimum,
    plateau_losses,
    plateau_matrix,
    population_flow,
    population_loss,
    principal_regression,
    released_clock,
    staircase_times,
    tail_rate,
    velocity,
    white_curve,
)

PUBLISHED = Regression([0.4, 0.3, 0.2, 0.1], examples=31)


def merged(seed, *, heads=8, dimensions=4, std):
    rng = np.random.default_rng(seed)
    shape = (heads, dimensions, dimensions)
    return Merged(std * rng.normal(size=heads), std * rng.normal(size=shape))


def separate(seed, *, heads=5, rank=1, dimensions=4, std=0.01):
    rng = np.random.default_rng(seed)
    shape = (heads, rank, dimensions)
    return Separate(*(std * rng.normal(size=of) for of in (heads, shape, shape)))


def stacked(starts):
    starts = list(starts)
    return type(starts[0])(*map(np.stack, zip(*starts, strict=True)))


def learned(regression, path):
    return regression.gamma * np.einsum("tdd->td", path.matrix)


def gaussian_nodes(count, dimensions):
    """Nodes and weights that are exact for N(0, I) up to degree 2 count - 1 in each coordinate."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    weights = np.array(list(product(w / w.sum(), repeat=dimensions))).prod(1)
    return np.array(list(product(x, repeat=dimensions))), weights


# The population


def test_the_population_loss_is_the_exact_expectation():
    """Quadrature over w, x_1, x_2 and x_q: degree 4 in the examples, 2 in w and in the query."""
    one = Regression([0.7, 0.2], examples=2)
    examples, p = gaussian_nodes(3, 4)
    rest, r = gaussian_nodes(2, 4)
    root = np.sqrt(one.spectrum)
    x = examples.reshape(-1, 2, 2) * root
    S = np.einsum("pnd,pne->pde", x, x) / 2
    second = np.einsum("p,pde,pef->df", p, S, S)
    np.testing.assert_allclose(second, np.diag(one.eigenvalues * one.gamma), atol=1e-14)
    w, query = rest[:, :2], rest[:, 2:] * root
    A = np.array([[1.1, -0.4], [0.3, 0.8]])
    off = (w * query).sum(1) - np.einsum("rd,pde,ef,rf->pr", w, S, A, query)
    np.testing.assert_allclose(population_loss(one, A), p @ off**2 @ r, rtol=1e-13)


def test_the_drive_is_minus_half_the_gradient():
    rng = np.random.default_rng(0)
    A, step = rng.normal(size=(4, 4)), 1e-3
    for d, e in np.ndindex(4, 4):
        moved = np.zeros((4, 4))
        moved[d, e] = step  # exact: the loss is quadratic
        up, down = (population_loss(PUBLISHED, A + sign * moved) for sign in (1, -1))
        assert drive(PUBLISHED, A)[d, e] == pytest.approx(-(up - down) / (4 * step), abs=1e-12)


@pytest.mark.parametrize("at", [merged(0, heads=2, std=1.0), separate(0, heads=2, rank=3, std=1.0)])
def test_velocities_are_minus_half_the_gradient(at):
    step = 1e-5
    for i, (of, found) in enumerate(zip(at, velocity(PUBLISHED, at), strict=True)):
        for where in np.ndindex(of.shape):
            losses = []
            for sign in (1, -1):
                weights = [w.copy() for w in at]
                weights[i][where] += sign * step
                losses.append(population_loss(PUBLISHED, type(at)(*weights).matrix))
            slope = (losses[0] - losses[1]) / (2 * step)
            assert found[where] == pytest.approx(-slope / 2, rel=1e-6, abs=1e-8)


def test_the_optimum_is_that_of_equation_11_in_any_basis():
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    Lambda = Q @ np.diag(PUBLISHED.spectrum) @ Q.T
    printed = np.linalg.inv(Lambda + (Lambda + np.trace(Lambda) * np.eye(4)) / 31)
    np.testing.assert_allclose(Q @ optimum(PUBLISHED) @ Q.T, printed, atol=1e-12)
    np.testing.assert_allclose(drive(PUBLISHED, optimum(PUBLISHED)), 0.0, atol=1e-16)


@pytest.mark.parametrize("seed", range(3))
def test_merged_attention_ends_at_the_optimum_and_keeps_its_invariants(seed):
    start = merged(seed, heads=3, std=10 ** np.random.default_rng(seed).uniform(-3, 0.3))
    path = population_flow(PUBLISHED, start, [0.0, 50.0, 3e4])
    np.testing.assert_allclose(path.matrix[-1], optimum(PUBLISHED), atol=1e-9)
    drift = invariants(path) - invariants(start)
    np.testing.assert_allclose(drift, 0.0, atol=1e-8 * (1 + np.abs(start.U).max() ** 2))


def test_every_subset_of_components_is_a_fixed_point():
    """As functions there are 2^D; heads along the eigenvectors realise them."""
    found = fixed_points(PUBLISHED)
    assert len(np.unique(found.reshape(16, -1), axis=0)) == 16
    gains = PUBLISHED.eigenvalues**2 / PUBLISHED.gamma
    for A in found:
        v = np.cbrt(np.diag(A))
        k = (v[:, None] * np.eye(4))[:, None]
        still = velocity(PUBLISHED, Separate(v, k, k))
        assert max(np.abs(of).max() for of in still) < 1e-15
        assert population_loss(PUBLISHED, A) == pytest.approx(1 - gains[np.diag(A) > 0].sum())
    for m, level in enumerate(plateau_losses(PUBLISHED)):
        assert population_loss(PUBLISHED, plateau_matrix(PUBLISHED, m)) == pytest.approx(level)


def test_plateaus_are_the_published_ones_with_31_examples_and_not_with_32():
    rows = published(staircase.__file__, "levels")
    printed = np.array([row["loss"] for row in rows])
    np.testing.assert_allclose(plateau_losses(PUBLISHED), printed, atol=6e-9)
    with_query = plateau_losses(Regression(PUBLISHED.spectrum, 32))
    assert np.abs(with_query - printed)[1:].min() > 1e-3
    np.testing.assert_allclose(plateau_losses(PUBLISHED, rank=2), printed[[0, 2, 4]], atol=6e-9)
    np.testing.assert_allclose(plateau_losses(PUBLISHED, rank=3), printed[[0, 3, 4]], atol=6e-9)


@pytest.mark.parametrize("name", ["fig1", "fig3a", "mixture", "protocol"])
def test_published_values_are_complete(name):
    rows = published(staircase.__file__, name)
    assert len(rows) >= 3
    assert all(None not in row and None not in row.values() for row in rows)


def test_steps_of_the_released_code_are_flow_time():
    """Its predictions are N times ours, its gradient twice that of the flow."""
    N, rate, steps = 31, 1e-5, 2000
    v, U = (of[0] for of in merged(3, heads=1, std=0.05))
    time, scale = released_clock(steps, learning_rate=rate, examples=N, factors=2)
    expected = population_flow(PUBLISHED, Merged(scale * v[None], scale * U[None]), time)
    for _ in range(steps):
        slope = -2 * N * drive(PUBLISHED, N * v * U)  # of L(N A) by A
        v, U = v - rate * (U * slope).sum(), U - rate * v * slope
    np.testing.assert_allclose(scale * v, expected.v[0], rtol=1e-3)
    np.testing.assert_allclose(scale * U, expected.U[0], atol=1e-3)


def test_a_plateau_tends_to_principal_component_regression():
    """The mean square gap falls as 1/N: slope -1 within 0.1."""
    sizes, gaps = np.array([50, 150, 450]), []
    for N in sizes:
        one = Regression(PUBLISHED.spectrum, int(N))
        rng = np.random.default_rng(0)
        root = np.sqrt(one.spectrum)
        w, query = rng.normal(size=(2, 1000, 4)) * [[np.ones(4)], [root]]
        x = rng.normal(size=(1000, N, 4)) * root
        y = np.einsum("pnd,pd->pn", x, w)
        beta = np.einsum("pn,pnd->pd", y, x) / N
        said = np.einsum("pd,de,pe->p", beta, plateau_matrix(one, 2), query)
        gaps.append(np.mean((said - principal_regression(x, y, query, 2)) ** 2))
    assert np.polyfit(np.log(sizes), np.log(gaps), 1)[0] == pytest.approx(-1, abs=0.1)


# One drop


def test_white_inputs_follow_a_logistic_curve():
    white = Regression([0.25] * 4, examples=31)
    norm, t = 0.01, np.linspace(0.0, 150.0, 16)
    start = Merged(np.array([norm]), norm * np.eye(4)[None] / 2)  # |U| = norm
    a = white_curve(t, dimensions=4, examples=31, variance=0.25, norm=norm)
    path = population_flow(white, start, t, rtol=1e-11, atol=1e-14).matrix
    np.testing.assert_allclose(path, a[:, None, None] * np.eye(4), atol=1e-8)
    halves = drop_times(white, 1e-3, [0.5, 0.9])
    a = white_curve(halves, dimensions=4, examples=31, variance=0.25, norm=1e-3)
    gone = 1 - (1 - a * white.gamma[0]) ** 2
    np.testing.assert_allclose(gone, [0.5, 0.9], rtol=1e-4)


def test_the_printed_form_of_the_logistic_curve_overflows():
    t, D, gamma = 1e3, 4, Regression([1.0] * 4, 31).gamma[0]
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(2 * np.sqrt(D) * t)
        naive = e / (gamma * (e - 1) + np.sqrt(D) / 1e-6)
    assert np.isnan(naive)
    assert white_curve(t, dimensions=D, examples=31, norm=1e-3) == pytest.approx(1 / gamma)


def test_weights_escape_at_the_rate_and_along_the_direction_of_the_paper():
    """|A| grows as exp(2 rate t): slope within 1 %, direction within 1e-3."""
    t = np.array([40.0, 50.0])
    A = population_flow(PUBLISHED, merged(0, std=1e-7), t, atol=1e-16).matrix
    sizes = np.linalg.norm(A, axis=(1, 2))
    slope = np.diff(np.log(sizes))[0] / 10
    assert slope == pytest.approx(2 * escape_rate(PUBLISHED), rel=0.01)
    along = np.diag(PUBLISHED.eigenvalues**2) / escape_rate(PUBLISHED)
    assert (A[1] * along).sum() / sizes[1] > 1 - 1e-3


@pytest.mark.parametrize("spectrum", [[0.25] * 4, [0.4, 0.3, 0.2, 0.1]])
def test_the_drop_of_a_random_start_is_that_of_its_growing_part(spectrum):
    one = Regression(spectrum, examples=31)
    for seed in range(3):
        start = merged(seed, std=1e-6 * np.sqrt(31))
        times = drop_times(one, growing_start(one, start))
        t = np.concatenate([[0.0], *(of * np.linspace(0.99, 1.01, 41) for of in times)])
        t = np.unique(t)
        losses = population_loss(one, population_flow(one, start, t).matrix)
        first, *_, last = plateau_losses(one)
        gone = (first - losses) / (first - last)
        found = [float(first_crossing(t, gone, share)) for share in (0.5, 0.9, 0.99)]
        np.testing.assert_allclose(found, times, rtol=1e-3)


def test_the_printed_time_depends_on_the_layer():
    """The value layer gives 948 steps; the drop is at 995 to 1074, as `drop_times` says."""
    scale = released_clock(1, learning_rate=0.001, examples=31, factors=2)
    per_step, of_weights = float(scale[0]), scale[1]
    std = 1e-6 * of_weights
    assert escape_time(PUBLISHED, np.sqrt(8) * std) / per_step == pytest.approx(948, abs=1)
    assert escape_time(PUBLISHED, np.sqrt(128) * std) / per_step < 850
    starts = stacked(merged(seed, std=std) for seed in range(20))
    ours = drop_times(PUBLISHED, growing_start(PUBLISHED, starts), [0.5])[:, 0] / per_step
    assert 995 < np.mean(ours) < 1074


@pytest.mark.parametrize(
    ("spectrum", "tail"),
    [(np.ones(4), 1.54), (np.arange(4, 0, -1), 21.3), (1 / np.arange(1, 9) ** 2, 626)],
)
def test_the_tail_after_the_drop_is_long_unless_the_spectrum_is_even(spectrum, tail):
    """(t99 - t50) |Lambda^2| does not depend on the start; the paper's single drop is its limit."""
    one = Regression(np.asarray(spectrum) / np.sum(spectrum), examples=31)
    for norm in (1e-3, 1e-9):
        half, _, last = drop_times(one, norm)
        assert (last - half) * escape_rate(one) == pytest.approx(tail, rel=5e-3)


def test_the_tail_decays_at_its_rate():
    """Slope of ln |A - A*| within 1 %."""
    t = np.array([500.0, 600.0])
    A = population_flow(PUBLISHED, merged(0, std=1e-3), t, rtol=1e-12, atol=1e-14).matrix
    off = np.linalg.norm(A - optimum(PUBLISHED), axis=(1, 2))
    assert -np.diff(np.log(off))[0] / 100 == pytest.approx(tail_rate(PUBLISHED), rel=0.01)


@pytest.mark.parametrize("fresh", [1.0, 0.4, 0.0])
def test_the_first_gradient_is_the_exact_expectation(fresh):
    """Quadrature over w, x_1 and x_q: degree 3 in w, 2 in the example, 4 in the query."""
    one, shared = Regression([0.7, 0.2], examples=1), np.array([1.5, -0.5])
    nodes, p = gaussian_nodes(3, 6)
    root = np.sqrt(one.spectrum)
    x, query = nodes[:, 2:4] * root, nodes[:, 4:] * root
    B = 0.0
    for share, w in ((fresh, nodes[:, :2]), (1 - fresh, shared + 0 * nodes[:, :2])):
        token = np.column_stack([x, (w * x).sum(1)])
        asked = np.column_stack([query, np.zeros(len(query))])
        second = token[:, :, None] * token[:, None] + asked[:, :, None] * asked[:, None]
        B = B + share * np.einsum("p,pab,pc,p->abc", p, second, query, (w * query).sum(1))
    left, sizes, right = np.linalg.svd(B.reshape(3, 6))
    found = first_gradient(one, fresh, shared)
    assert found.rate == pytest.approx(sizes[0], rel=1e-12)
    assert abs(found.value @ left[:, 0]) == pytest.approx(1)
    assert abs(found.key_query.ravel() @ right[0]) == pytest.approx(1)
    if fresh == 1:
        assert found.rate == pytest.approx(escape_rate(one))


def test_in_weight_learning_leads_up_to_four_fifths_of_fresh_tasks():
    """The label row of W^KQ has more than half of the first direction up to fresh = 0.82."""
    white = Regression([0.25] * 4, examples=31)
    share = [
        float((first_gradient(white, p).key_query[-1] ** 2).sum()) for p in (0.0, 0.81, 0.83, 1)
    ]
    assert share[0] > share[1] > 0.5 > share[2] > share[3]
    assert share[3] == pytest.approx(0.0, abs=1e-20)


# The staircase


def test_a_head_takes_the_time_of_its_integral():
    lam, gamma = PUBLISHED.spectrum[1], PUBLISHED.gamma[1]
    for share in (0.5, 0.999):
        end = np.cbrt(share / gamma)
        expected, _ = quad(lambda v: 1 / (lam**2 * v**2 * (1 - gamma * v**3)), 0.05, end)
        t = head_time(PUBLISHED, 1, 0.05, share)
        assert t == pytest.approx(expected, rel=1e-9)
        head = head_curve(PUBLISHED, 1, t, v0=0.05)
        assert head.remaining == pytest.approx(1 - share, rel=1e-7)
        assert head.v == pytest.approx(end, rel=1e-8)


def test_half_times_go_as_one_over_the_start():
    """t_half lambda^2 v_0 -> 1: slope of t_half by v_0 is -1 within 0.01."""
    starts = np.array([1e-3, 1e-4])
    t = head_time(PUBLISHED, 0, starts)
    assert np.diff(np.log(t)) / np.diff(np.log(starts)) == pytest.approx(-1, abs=0.01)
    assert t[1] * 0.4**2 * 1e-4 == pytest.approx(1, abs=1e-3)
    assert head_time(PUBLISHED, 0, 0.01) * 0.4**2 * 0.01 == pytest.approx(0.995, abs=2e-3)


def test_what_is_left_to_learn_is_accurate_late_where_a_difference_is_not():
    """1 - gamma v^3 decays as exp(-3 lambda^2 gamma^(-1/3) t)."""
    gamma = PUBLISHED.gamma[0]
    t = np.array([500.0, 1100.0])
    head = head_curve(PUBLISHED, 0, t, v0=0.1)
    slope = np.diff(np.log(head.remaining)) / 600
    assert slope == pytest.approx(-3 * 0.4**2 / np.cbrt(gamma), rel=1e-8)
    assert abs(1 - gamma * head.v[1] ** 3) > 1e50 * head.remaining[1]  # rounding is all it has


def test_an_aligned_head_follows_the_scalar_equation():
    t = np.linspace(0.0, 800.0, 9)
    v0, k = 0.02, 0.02 * np.eye(4)[2][None, None]
    path = population_flow(PUBLISHED, Separate(np.array([v0]), k, k), t, rtol=1e-11, atol=1e-13)
    expected = head_curve(PUBLISHED, 2, t, v0=v0).v
    np.testing.assert_allclose(path.v[:, 0], expected, rtol=1e-7)
    np.testing.assert_allclose(path.k[:, 0, 0, 2], expected, rtol=1e-7)


def alone(v, k, q):
    """Follow heads that feel only Lambda^2 until |v| is 1e4, and return their times."""
    c, times = PUBLISHED.eigenvalues**2, []
    for one in zip(v, k, q, strict=True):

        def velocity(_, state, like=one[1].shape):
            v, (k, q) = state[0], state[1:].reshape(2, *like)
            return np.concatenate([[(c * k * q).sum()], (v * c * q).ravel(), (v * c * k).ravel()])

        def far(_, state):
            return abs(state[0]) - 1e4

        far.terminal = True
        start = np.concatenate([np.ravel(of) for of in one])
        how = {"method": "DOP853", "rtol": 1e-9, "atol": 1e-13}
        path = solve_ivp(velocity, (0, 1e7), start, events=far, **how)
        times.append(path.t[-1])
    return np.array(times)


@pytest.mark.parametrize("rank", [1, 3])
def test_heads_blow_up_when_their_equation_does(rank):
    start = separate(2, heads=6, rank=rank)
    assert (start.v < 0).any() and (start.v > 0).any()
    np.testing.assert_allclose(blow_up_times(PUBLISHED, start), alone(*start), rtol=1e-4)


def test_a_head_whose_value_crosses_zero_needs_its_turning_point():
    """The integral over v(V) alone meets a negative square; with the turning point it is exact."""
    k, q = np.array([[0.02, 0.01, 0.0, 0.01], [-0.02, 0.0, 0.01, -0.01]])
    one = Separate(np.array([0.01]), k[None, None], q[None, None])
    p, m, c = k + q, k - q, PUBLISHED.eigenvalues**2
    V = np.linspace(0.0, 20.0, 200)[:, None]
    square = 0.01**2 + (p**2 * np.expm1(2 * c * V) + m**2 * np.expm1(-2 * c * V)).sum(1) / 4
    assert square.min() < 0  # so that dV / sqrt(square) is not a number
    np.testing.assert_allclose(blow_up_times(PUBLISHED, one), alone(*one), rtol=1e-4)


def test_a_head_that_does_not_grow_never_escapes():
    k = np.array([[[0.01, 0.0, 0.0, 0.0]]])
    assert blow_up_times(PUBLISHED, Separate(np.array([0.02]), k, -k)) == np.inf


SEEDS = 3


@pytest.fixture(scope="module")
def staircases():
    """Starts and paths at std 0.01, the smallest setting."""
    t = np.append(0.0, np.geomspace(200.0, 4e4, 1000))
    starts = [separate(seed) for seed in range(SEEDS)]
    return t, starts, [population_flow(PUBLISHED, start, t) for start in starts]


def test_the_loss_rests_on_every_level(staircases):
    _, starts, paths = staircases
    for start, path in zip(starts, paths, strict=True):
        losses = population_loss(PUBLISHED, path.matrix)
        apart = np.abs(losses[:, None] - plateau_losses(PUBLISHED)).min(0)
        assert apart.max() < 1e-4
        drift = invariants(path) - invariants(start)
        assert np.abs(drift).max() < 1e-8


def test_components_are_learned_in_order_and_on_time(staircases):
    """First: within 0.1 %. All: median within 2 %, each within 30 %. No fit."""
    t, starts, paths = staircases
    found = np.array([first_crossing(t, learned(PUBLISHED, path)) for path in paths])
    expected = staircase_times(PUBLISHED, stacked(starts))
    assert np.all(np.diff(found) > 0)
    ratio = found / expected
    np.testing.assert_allclose(ratio[:, 0], 1, atol=1e-3)
    np.testing.assert_allclose(np.median(ratio, axis=0), 1, atol=0.02)
    np.testing.assert_allclose(ratio, 1, atol=0.3)


def test_mean_times_are_those_measured():
    """585, 1209, 2758 and 11655 over 20 starts; lambda^-2 holds within 25 %."""
    starts = stacked(separate(seed) for seed in range(20))
    times = staircase_times(PUBLISHED, starts).mean(0)
    np.testing.assert_allclose(times, [585, 1209, 2758, 11655], rtol=0.02)
    ratio = times / times[0] * (PUBLISHED.eigenvalues / 0.4) ** 2
    assert np.all((ratio > 0.99) & (ratio < 1.25))


def test_fewer_heads_stop_on_their_plateau():
    start = separate(0, heads=2, std=0.03)
    end = population_flow(PUBLISHED, start, 1e5).matrix
    level = plateau_losses(PUBLISHED)[2]
    assert population_loss(PUBLISHED, end) == pytest.approx(level, abs=1e-9)
    assert np.isinf(staircase_times(PUBLISHED, start)).tolist() == [False, False, True, True]


def test_only_plateaus_that_the_rank_divides_grow_as_the_start_shrinks():
    """Time near level m, by the start: slope -1 where R divides m, above -0.6 elsewhere."""
    found = []
    for std in (2e-3, 2e-4):
        start = separate(0, heads=4, rank=2, std=std)
        first = blow_up_times(PUBLISHED, start).min()
        t = np.append(
            np.geomspace(first / 2, 40 * first, 1500), first + np.linspace(-50, 2000, 1500)
        )
        path = population_flow(PUBLISHED, start, np.unique(t), rtol=1e-7)
        losses = population_loss(PUBLISHED, path.matrix)
        found.append(dwell(np.unique(t), losses, plateau_losses(PUBLISHED)[:4]))
    slopes = -np.log10(found[1] / found[0])
    np.testing.assert_allclose(slopes[[0, 2]], -1, atol=0.15)
    assert np.all(slopes[[1, 3]] > -0.6)


# Refusals


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: Regression([0.1, 0.2], 4), "spectrum"),
        (lambda: Regression([0.1, 0.0], 4), "spectrum"),
        (lambda: Regression([0.1], 0), "examples"),
        (lambda: plateau_matrix(PUBLISHED, 5), "components"),
        (lambda: plateau_losses(PUBLISHED, rank=0), "rank"),
        (lambda: drop_times(PUBLISHED, 1.0), "norm"),
        (lambda: first_gradient(PUBLISHED, 1.5), "fresh"),
        (lambda: head_time(PUBLISHED, 0, 2.0), "v0"),
        (lambda: staircase_times(PUBLISHED, separate(0, rank=2)), "start"),
        (lambda: population_flow(PUBLISHED, separate(0, dimensions=3), 1.0), "start"),
    ],
)
def test_bad_input_is_refused(call, field):
    with pytest.raises(InputError, match=field):
        call()
