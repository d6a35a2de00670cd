"""Where theory breaks: the maps have the stated shape and show the stated trends."""

import numpy as np
import pytest
import xarray as xr

from attnlab.papers.scan_and_snap import breakdown
from attnlab.papers.scan_and_snap.breakdown import KINDS
from attnlab.papers.scan_and_snap.cases import RISING_RATIOS, turning_ratio


@pytest.fixture(scope="module")
def over_ratio():
    return breakdown.ratio_map()


@pytest.mark.slow
def test_the_map_over_the_ratio(over_ratio):
    assert set(over_ratio) == set(KINDS)
    assert over_ratio["gain"].dims == ("ratio", "common_prob")
    assert np.all(np.isfinite(over_ratio.to_array()))
    # Eq. 11 is approached as the decoder gets faster, in proportion to eta_Z / eta_Y.
    gain = over_ratio["gain"]
    assert np.all(gain.diff("ratio") < 0)
    fall = gain.sel(ratio=1000.0) / gain.sel(ratio=150.0)
    np.testing.assert_allclose(fall, 0.15, rtol=0.25)
    # Fates are right once the decoder is fast, wrong for many tokens when it is slow.
    assert np.all(over_ratio["fate"].sel(ratio=[150.0, 1000.0]) == 0)
    assert np.all(over_ratio["fate"].sel(ratio=0.25) > 0.3)
    # The speed stays wrong at any ratio: Theorem 1's decoder is not the one that SGD trains. With
    # that one it is right, to order eta_Z / eta_Y.
    assert np.all(over_ratio["speed"].sel(ratio=1000.0) > 2)
    off = abs(over_ratio["sgd_speed"] - 1.0)
    assert np.all(off.sel(ratio=1000.0) < 0.02)
    np.testing.assert_allclose(off.sel(ratio=1000.0) / off.sel(ratio=150.0), 0.15, rtol=0.25)


def test_the_other_knobs(monkeypatch, over_ratio):
    monkeypatch.setattr(breakdown, "COMMON", (0.4,))
    monkeypatch.setattr(breakdown, "CLASSES", (2, 4))
    monkeypatch.setattr(breakdown, "LENGTHS", (64,))
    over_classes, over_length = breakdown.class_map(), breakdown.length_map()
    assert over_classes.sizes == {"classes": 2, "common_prob": 1}
    # Expected-gradient steps and the flow tell the same story.
    stepped = float(over_classes["gain"].sel(classes=2, common_prob=0.4))
    flowing = float(over_ratio["gain"].sel(ratio=30.0, common_prob=0.4))
    assert stepped == pytest.approx(flowing, rel=0.05)
    # Short sequences are far from the limit.
    assert float(over_length["gain"][0, 0]) > 10 * stepped


def test_the_ratio_at_which_the_order_turns_grows_with_time(monkeypatch):
    monkeypatch.setattr(breakdown, "COMMON", (0.4,))
    turn = breakdown.clock_map()["turn"].values[:, 0]
    assert np.all(np.diff(turn) > 0)
    assert np.all((turn > 1.0) & (turn < 100.0))


def test_the_turning_ratio_is_the_lowest_point():
    curve = (np.log(RISING_RATIOS) - np.log(37.0)) ** 2
    entropy = xr.DataArray(
        np.stack([curve, curve], axis=1),
        dims=("ratio", "time"),
        coords={"ratio": RISING_RATIOS, "time": [0.0, 1.0]},
    )
    assert turning_ratio(entropy, 0.5) == pytest.approx(37.0)


def test_graded_classes():
    classes = breakdown.graded(3, 0.4)
    assert classes.common_tokens().tolist() == [0]
    np.testing.assert_allclose(classes.probs[:, 0], [0.4, 0.3, 0.2])
