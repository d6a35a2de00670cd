"""Theorem 3: exact along Eq. 10, with its invariant and its bounds."""

import numpy as np
import pytest

from attnlab.formulas import Setting, unit_attention
from attnlab.papers.scan_and_snap.theory import (
    attention_path,
    attention_velocity,
    distinct_growth,
    gain_invariant,
    growth_bounds,
    growth_factor,
    relative_gain,
)

TAU = np.array([0.0, 0.5, 5.0, 50.0, 500.0])


@pytest.fixture(scope="module")
def path(syn_small):
    return attention_path(Setting(syn_small, M=30), TAU)


def test_relative_gain_is_its_definition(syn_small):
    gain = relative_gain(syn_small, reference=[19, 29])
    f = unit_attention(syn_small)
    assert gain[0, 12] == pytest.approx(f[0, 12] ** 2 / f[0, 19] ** 2 - 1)
    assert gain[0, 19] == 0.0
    assert gain[0, 25] == -1.0
    assert np.all(np.isnan(relative_gain(syn_small, reference=25)[0]))


def test_eq_11_along_the_flow(syn_small, path):
    for n, tokens in ((0, slice(10, 20)), (1, slice(20, 30))):
        for reference in (10 * (n + 1), 10 * (n + 1) + 6):
            now = relative_gain(syn_small, path.logits, reference=reference)[:, n, tokens]
            start = relative_gain(syn_small, reference=reference)[n, tokens]
            growth = growth_factor(path.logits)[:, 0, tokens]
            np.testing.assert_allclose(now, start * growth, rtol=1e-9, atol=1e-11)


def test_invariant(syn_small, path):
    value = gain_invariant(syn_small, path.logits)[:, 0, 10:20]
    differences = value - value[:, -1:]
    np.testing.assert_allclose(
        differences, np.broadcast_to(differences[0], differences.shape), rtol=1e-9
    )


def test_growth_of_one_token_gives_all_others(syn_small, path):
    chi = growth_factor(path.logits)[:, 0]
    gain = -relative_gain(syn_small, reference=19)[0, 10:19]
    # r_{l0/l} from r_{l/l0}: 1 + r_{l0/l} = 1 / (1 + r_{l/l0}).
    gain = 1 / (1 - gain) - 1
    np.testing.assert_allclose(distinct_growth(chi[:, 19:20], gain), chi[:, 10:19], rtol=1e-9)
    assert distinct_growth(np.inf, 1.0) == 2.0


def test_eq_12_and_monotone_dominance(one_common):
    P = one_common(3, 5, 0.3, rising=True)
    path = attention_path(Setting(P, M=1000), TAU)
    f = unit_attention(P, path.logits)
    dominant = 5
    assert np.all(np.diff(f[:, 0, dominant]) > 0)
    lower, upper = growth_bounds(path.growth_bound[:, 0], f[0, 0, dominant] ** 2)
    chi = growth_factor(path.logits[:, 0, dominant])
    assert np.all(lower[1:] < chi[1:])
    assert np.all(chi[1:] < upper[1:])
    assert lower[0] == chi[0] == upper[0] == 1.0


def test_speed_of_a_distinct_token_is_its_squared_weight(syn_small):
    # Against the summary's "lower-frequency tokens gain faster".
    v = attention_velocity(Setting(syn_small, M=30), np.zeros(30))[0, 10:20]
    f = unit_attention(syn_small)[0, 10:20]
    np.testing.assert_allclose(v / v[0], (f / f[0]) ** 2, rtol=1e-12)
    # Against the slides: rare distinct tokens gain too, they only gain less.
    assert np.all(v > 0)
