"""JoMA's invariants along the whole gradient flow, integrated apart from them."""

import numpy as np
import pytest
from brute_joint import PHI, Brute

from attnlab.formulas import Setting
from attnlab.papers.joma import theory

RATES = {"eta_w": 0.9, "eta_z": 0.5}
T = 0.7
TWO = [0, 1, 1, 0]


def run(P, attention, activation="linear", psi=None, t=20.0):
    """A flow from a random start: v(t), r(t), z(t), and what it is a flow of."""
    rng = np.random.default_rng(4)
    brute = Brute(P, psi=psi, attention=attention, activation=activation, temperature=T)
    v0 = rng.normal(0.0, 0.3, (len(P), brute.L))
    z0 = rng.uniform(0.5, 1.0, (max(brute.psi) + 1, brute.L))
    return brute, brute.flow(np.linspace(0.0, t, 401), v0=v0, z0=z0, **RATES)


@pytest.mark.parametrize("activation", PHI)
def test_velocities_are_tied_at_any_state(random_classes, activation):
    """The invariants, differentiated: with ReLU too, whose flow no solver likes."""
    P, rng = random_classes(6, K=4), np.random.default_rng(1)
    v, z, r = (rng.normal(size=size) for size in ((4, P.shape[1]), (2, P.shape[1]), (4, 2)))
    for kind in ("exp", "linear", "softmax"):
        at = {"attention": kind, "activation": activation, "temperature": T}
        found = theory.joint_gradient(Setting(P, psi=TWO), v, z, r=r, **at)
        tied = np.einsum("hl,qhl->ql", v, found.shares)
        if kind == "softmax":
            pulled = found.pull[:, None] * found.attention / len(P)
            tied -= [pulled[np.equal(TWO, m)].sum(0) for m in (0, 1)]
        scale = z if kind == "linear" else T
        np.testing.assert_allclose(scale * found.logits, tied, atol=1e-12)


@pytest.mark.parametrize("activation", ["linear", "gelu"])
def test_exp_and_linear_attention_are_exact_for_any_activation(random_classes, activation):
    P = random_classes(6, K=4)
    _, (v, _, z) = run(P, "exp", activation)
    found = theory.exp_invariant(v, v0=v[0], z0=z[0, 0], temperature=T, **RATES)
    np.testing.assert_allclose(found, z[:, 0], atol=1e-6)
    assert np.ptp(z[:, 0], axis=0).max() > 0.1
    _, (v, _, z) = run(P, "linear", activation)
    found = theory.linear_invariant(v, v0=v[0], z0=z[0, 0], **RATES)  # the temperature drops out
    np.testing.assert_allclose(found, z[:, 0] ** 2, atol=1e-6)


def test_several_queries_keep_the_sum(random_classes):
    P = random_classes(6, K=4)
    _, (v, _, z) = run(P, "exp", psi=TWO)
    found = theory.exp_invariant(v, v0=v[0], z0=z[0], temperature=T, **RATES)
    np.testing.assert_allclose(found, z.sum(1), atol=1e-6)
    alone = theory.exp_invariant(v, v0=v[0], z0=z[0, 0], temperature=T, **RATES)
    assert np.abs(alone - z[:, 0])[-1].max() > 0.1 * np.abs(z[-1, 0] - z[0, 0]).max()
    _, (v, _, z) = run(P, "linear", psi=TWO)
    found = theory.linear_invariant(v, v0=v[0], z0=z[0], **RATES)
    np.testing.assert_allclose(found, (z**2).sum(1), atol=1e-6)


def test_the_share_of_a_query_gives_its_logits(random_classes):
    """Exact for exp attention, but for the trapezoidal rule, whose error is of second order."""
    P, errors = random_classes(6, K=4), []
    for every in (8, 4):
        brute, (v, r, z) = run(P, "exp", psi=TWO)
        v, r, z, t = v[::every], r[::every], z[::every], np.linspace(0.0, 20.0, 401)[::every]
        u = theory.joint_gradient(brute.setting(), v, z, r=r, **brute.model).shares
        found = theory.shared_invariant(v, u, None, t, z0=z[0], eta_z=RATES["eta_z"], temperature=T)
        errors.append(np.abs(found - z).max())
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.2)


def means(brute, v, r, z):
    s = brute.setting()
    return theory.mean_attention(s, theory.joint_gradient(s, v, z, r=r, temperature=T).attention)


def test_with_a_moving_mean_softmax_comes_nearer(random_classes):
    P = random_classes(6, K=4)
    brute, (v, r, z) = run(P, "softmax", t=200.0)
    mean = means(brute, v, r, z)[:, 0]
    common = {"z0": z[0, 0], "temperature": T, **RATES}
    fixed = theory.softmax_invariant(v, mean[0], v0=v[0], **common)
    moving = theory.moving_invariant(v, mean, **common)
    size = np.abs(z[-1, 0] - z[0, 0]).max()
    off = [np.abs(of[-1] - z[-1, 0]).max() / size for of in (fixed, moving)]
    assert off[1] < 0.6 * off[0]
    for of in (fixed, moving):  # what a softmax cannot change stays as it is
        np.testing.assert_allclose(of.sum(-1), z[0, 0].sum(), atol=1e-9)


def test_with_equal_pulls_the_moving_mean_is_exact_and_the_fixed_one_is_not():
    P = np.array([[0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.1, 0.2]])
    brute, t = Brute(P, temperature=T), np.linspace(0.0, 200.0, 2001)
    v, r, z = brute.flow(t, **RATES)
    mean = means(brute, v, r, z)[:, 0]
    moving = theory.moving_invariant(v, mean, temperature=T, **RATES)
    np.testing.assert_allclose(moving, z[:, 0], atol=2e-5)
    fixed = theory.softmax_invariant(v, mean[0], temperature=T, **RATES)
    assert np.abs(fixed - z[:, 0]).max() > 0.1
    assert np.corrcoef(fixed[-1], z[-1, 0])[0, 1] > 0.9  # which a correlation does not see


def test_softmax_of_several_queries_needs_the_shares(random_classes):
    P = random_classes(6, K=4)
    brute, (v, r, z) = run(P, "softmax", psi=TWO)
    t, found = (
        np.linspace(0.0, 20.0, 401),
        theory.joint_gradient(brute.setting(), v, z, r=r, **brute.model),
    )
    mean = means(brute, v, r, z)
    shared = theory.shared_invariant(
        v, found.shares, mean, t, z0=z[0], eta_z=RATES["eta_z"], temperature=T
    )
    off = np.abs(shared[-1] - z[-1]).max() / np.abs(z[-1] - z[0]).max()
    alone = [
        theory.moving_invariant(v, mean[:, m], z0=z[0, m], temperature=T, **RATES)[-1]
        for m in (0, 1)
    ]
    assert off < 0.3 * np.abs(alone - z[-1]).max() / np.abs(z[-1] - z[0]).max()


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="expected \\(time, hidden, token\\)"):
        theory.moving_invariant(np.zeros((3, 2)), np.zeros((3, 2)))
