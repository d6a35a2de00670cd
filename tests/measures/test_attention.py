from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from attnlab.measures import (
    attention_speed,
    common_mass,
    distinct_entropy,
    effective_tokens,
    entropy,
    growth_factor,
    moved_since,
    recall,
    recall_fall,
    relative_gain,
    slowed_time,
    snap_time,
)
from attnlab.measures.attention import class_count, in_play, is_common, is_distinct
from attnlab.measures.motion import equal_spans
from attnlab.tasks.classes.classes import COMMON, DISTINCT, SequenceClasses

# Two classes: token 0 is common, 1 and 2 belong to class 0, 3 and 4 to class 1, and 5 is nobody's.
PROBABILITY = np.array([[0.4, 0.4, 0.2, 0.0, 0.0, 0.0], [0.2, 0.0, 0.0, 0.5, 0.3, 0.0]])
TOKENS = np.array([10, 11, 12, 13, 14, 15])


def record(
    attention: Any = None,
    logits: Any = None,
    *,
    at: ArrayLike = (0,),
    axis: str = "step",
    probability: NDArray[Any] = PROBABILITY,
) -> xr.Dataset:
    """A dataset of the schema: attention (seed, step, class, token), logits (seed, step, query,
    token), with one query (token 20) for class 0 and another (21) for class 1."""
    variables: dict[str, Any] = {"probability": (("sequence_class", "token"), probability)}
    if attention is not None:
        variables["attention"] = (("seed", axis, "sequence_class", "token"), np.asarray(attention))
    if logits is not None:
        variables["attention_logits"] = (("seed", axis, "query", "token"), np.asarray(logits))
    return xr.Dataset(
        variables,
        coords={
            axis: np.asarray(at),
            "sequence_class": np.arange(len(probability)),
            "query_token": ("sequence_class", [20, 21]),
            "next_token": ("sequence_class", [30, 31]),
            "query": [20, 21],
            "token": TOKENS,
            "token_name": ("token", list("abcdef")),
        },
        attrs={"engine": "by hand"},
    )


def still(attention: Any) -> xr.Dataset:
    """One seed, one step."""
    return record(np.asarray(attention)[None, None])


# -- roles ------------------------------------------------------------------------------------


def test_roles_by_hand() -> None:
    dataset = record()
    assert class_count(dataset).values.tolist() == [2, 1, 1, 1, 1, 0]
    assert is_common(dataset).values.tolist() == [True] + [False] * 5
    assert in_play(dataset).values.tolist() == [True] * 5 + [False]
    assert is_distinct(dataset).values.tolist() == [
        [False, True, True, False, False, False],
        [False, False, False, True, True, False],
    ]


def test_roles_agree_with_sequence_classes() -> None:
    rng = np.random.default_rng(0)
    probs = rng.random((2, 6)) * (rng.random((2, 6)) < 0.6)
    probs[:, 0] = 0.1
    probs /= probs.sum(axis=1, keepdims=True)
    classes = SequenceClasses(probs=probs, query=[0, 1], next_token=[2, 3])
    dataset = record(probability=probs)
    np.testing.assert_array_equal(is_common(dataset), classes.roles() == COMMON)
    np.testing.assert_array_equal(
        is_distinct(dataset).any("sequence_class"), classes.roles() == DISTINCT
    )
    np.testing.assert_array_equal(np.flatnonzero(in_play(dataset)), classes.in_play)
    for k in range(2):
        found = np.flatnonzero(is_distinct(dataset).isel(sequence_class=k))
        np.testing.assert_array_equal(found, classes.distinct_tokens(k))


def test_roles_need_every_class() -> None:
    with pytest.raises(ValueError, match="^probability: .*measure the whole dataset first"):
        is_common(record().isel(sequence_class=0))
    with pytest.raises(ValueError, match="^probability: not in the dataset"):
        is_common(record().drop_vars("probability"))


# -- entropy, common mass, effective tokens -----------------------------------------------------


def test_uniform_attention_has_entropy_log_n() -> None:
    attention = np.array([[1 / 3, 1 / 3, 1 / 3, 0, 0, 0], [0.5, 0, 0, 0.25, 0.25, 0]])
    dataset = still(attention)
    np.testing.assert_allclose(entropy(dataset)[0, 0], [np.log(3), 1.5 * np.log(2)], rtol=1e-14)
    np.testing.assert_allclose(effective_tokens(dataset)[0, 0], [3, 2**1.5], rtol=1e-14)
    np.testing.assert_allclose(distinct_entropy(dataset)[0, 0], np.log(2), rtol=1e-14)
    np.testing.assert_allclose(common_mass(dataset)[0, 0], [1 / 3, 0.5], rtol=1e-14)


def test_one_hot_attention_has_entropy_zero() -> None:
    dataset = still([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]])
    for measure in (entropy, distinct_entropy, common_mass):
        values = measure(dataset).values
        assert np.all(values == 0) and not np.any(np.signbit(values)), measure.__name__
    assert np.all(effective_tokens(dataset) == 1)


def test_distinct_entropy_by_hand() -> None:
    # Class 0: 0.3 and 0.1 of distinct mass renormalise to 3/4 and 1/4.
    dataset = still([[0.6, 0.3, 0.1, 0, 0, 0], [0.2, 0, 0, 0.8, 0, 0]])
    expected = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    np.testing.assert_allclose(distinct_entropy(dataset)[0, 0], [expected, 0], atol=1e-15)


def test_fig6_start_value() -> None:
    """At z = 0, c_n = P(.|n): Fig. 6's ramp of 0.1 to 1 over 10 distinct tokens gives 2.151."""
    ramp = np.linspace(0.1, 1, 10)
    probs = np.zeros((2, 30))
    probs[:, :10], probs[0, 10:20], probs[1, 20:] = 1, ramp, ramp
    probs /= probs.sum(axis=1, keepdims=True)
    dataset = xr.Dataset(
        {
            "probability": (("sequence_class", "token"), probs),
            "attention": (("step", "sequence_class", "token"), probs[None]),
        }
    )
    share = ramp / 5.5
    expected = -(share * np.log(share)).sum()
    np.testing.assert_allclose(distinct_entropy(dataset).mean("sequence_class"), expected)
    np.testing.assert_allclose(common_mass(dataset), 10 / 15.5)


def test_distinct_entropy_is_nan_without_distinct_mass() -> None:
    dataset = still([[1, 0, 0, 0, 0, 0], [0.5, 0, 0, 0.5, 0, 0]])
    assert np.isnan(distinct_entropy(dataset).values).tolist() == [[[True, False]]]
    shared = record(
        np.full((1, 1, 2, 6), 1 / 6), probability=np.array([[0.5, 0.5, 0, 0, 0, 0]] * 2)
    )
    assert np.isnan(distinct_entropy(shared)).all()


def test_nan_in_is_nan_out() -> None:
    attention = np.array([[0.6, 0.3, np.nan, 0, 0, 0], [np.nan, 0, 0, 0.7, 0.1, 0]])
    dataset = still(attention)
    assert np.isnan(entropy(dataset)).all() and np.isnan(effective_tokens(dataset)).all()
    assert np.isnan(distinct_entropy(dataset).values[0, 0, 0])
    assert np.isnan(common_mass(dataset).values[0, 0, 1])


def test_measures_keep_labels_and_order() -> None:
    rng = np.random.default_rng(1)
    attention = rng.dirichlet(np.ones(6), size=(3, 4, 2)).astype(np.float32)
    dataset = record(attention, at=[0, 1, 2, 4]).assign_coords(seed=[7, 8, 9])
    dataset = dataset.expand_dims(eta_z=[0.5, 1.0]).assign(probability=dataset["probability"])
    for measure in (entropy, distinct_entropy, common_mass, effective_tokens):
        result = measure(dataset)
        assert result.dims == ("eta_z", "seed", "step", "sequence_class")
        assert result.dtype == np.float64
        assert result.name == measure.__name__
        assert result["seed"].values.tolist() == [7, 8, 9]
        assert result["next_token"].values.tolist() == [30, 31]
        assert "token" not in result.coords


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=6, max_size=6).filter(lambda w: sum(w) > 1e-3))
def test_entropy_bounds(weights: list[float]) -> None:
    attention = np.array([weights, weights]) / sum(weights)
    dataset = still(attention)
    found = entropy(dataset).values
    assert np.all(found >= -1e-12) and np.all(found <= np.log(6) + 1e-12)
    np.testing.assert_allclose(effective_tokens(dataset), np.exp(found))


@pytest.mark.parametrize(
    "measure", [entropy, distinct_entropy, common_mass, effective_tokens, snap_time]
)
def test_what_was_not_recorded_is_named(measure: Any) -> None:
    with pytest.raises(ValueError, match=r"^attention: not recorded; add it to Record\(what="):
        measure(record())


@pytest.mark.parametrize("measure", [entropy, distinct_entropy, common_mass, effective_tokens])
def test_a_recorded_statistic_stands_in_for_attention(measure: Any) -> None:
    dataset = record().assign({measure.__name__: ("sequence_class", [1.5, 2.5])})
    assert measure(dataset).values.tolist() == [1.5, 2.5]
    # With attention there, the statistic is measured and not looked up.
    both = dataset.assign(attention=still(PROBABILITY)["attention"])
    assert measure(both).values.tolist() != [1.5, 2.5]


# -- relative gain and growth factor ----------------------------------------------------------


def test_relative_gain_by_hand() -> None:
    dataset = record([[[[0.4, 0.4, 0.2, 0, 0, 0]] * 2, [[0.1, 0.6, 0.3, 0, 0, 0]] * 2]], at=[0, 1])
    gain = relative_gain(dataset, token=11, other=12, sequence_class=0)
    assert gain.dims == ("seed", "step")
    np.testing.assert_allclose(gain, [[3, 3]])
    np.testing.assert_allclose(
        relative_gain(dataset, token=11, other=10, sequence_class=0), [[0, 35]]
    )
    assert [int(gain[name]) for name in ("token", "other", "sequence_class")] == [11, 12, 0]
    assert "token_name" not in gain.coords  # it could name only one of the two
    # r_{l/l'} and r_{l'/l} are inverse growths.
    inverse = relative_gain(dataset, token=12, other=11, sequence_class=0)
    np.testing.assert_allclose((gain + 1) * (inverse + 1), 1)
    assert (relative_gain(dataset, token=11, other=11, sequence_class=0) == 0).all()


def test_relative_gain_is_infinite_when_the_other_has_vanished() -> None:
    dataset = record([[[[0.4, 0.6, 0, 0, 0, 0]] * 2, [[0, 1, 0, 0, 0, 0]] * 2]], at=[0, 1])
    gain = relative_gain(dataset, token=11, other=10, sequence_class=0)
    np.testing.assert_allclose(gain, [[1.25, np.inf]])


def test_relative_gain_names_a_wrong_label() -> None:
    dataset = still(PROBABILITY)
    with pytest.raises(ValueError, match="^token: 3 is not in the dataset, .* from 10 to 15"):
        relative_gain(dataset, token=3, other=11, sequence_class=0)
    with pytest.raises(ValueError, match="^other: 3 is not"):
        relative_gain(dataset, token=11, other=3, sequence_class=0)
    with pytest.raises(ValueError, match="^sequence_class: 2 is not"):
        relative_gain(dataset, token=11, other=12, sequence_class=2)
    with pytest.raises(ValueError, match="^other: class 0 gives no attention to token 13"):
        relative_gain(dataset, token=11, other=13, sequence_class=0)


def test_growth_factor_by_hand_and_theorem_3() -> None:
    """chi_l multiplies 1 + r_{l/l'} when z_l' stands still."""
    z = np.zeros((1, 2, 2, 6))
    z[0, 0] = 0.3
    z[0, 1] = 0.3
    z[0, 1, 0, 1] += 1.5
    c = PROBABILITY * np.exp(z)
    c /= c.sum(axis=-1, keepdims=True)
    dataset = record(c, z.astype(np.float32), at=[0, 5])
    chi = growth_factor(dataset, token=11, query=20)
    assert chi.dims == ("seed", "step")
    np.testing.assert_allclose(chi, [[1, np.exp(3)]], rtol=1e-6)
    gain = relative_gain(dataset, token=11, other=12, sequence_class=0)
    np.testing.assert_allclose((1 + gain) / (1 + gain.isel(step=0)), chi, rtol=1e-6)

    everything = growth_factor(dataset)
    assert everything.dims == ("seed", "step", "query", "token")
    np.testing.assert_array_equal(everything.sel(token=11, query=20), chi)
    assert (everything.sel(query=21) == 1).all()
    assert growth_factor(dataset, query=21).dims == ("seed", "step", "token")


def test_growth_factor_can_outgrow_float64_quietly() -> None:
    z = np.zeros((1, 2, 2, 6))
    z[0, 1] = 400.0
    assert np.isinf(growth_factor(record(logits=z, at=[0, 1])).isel(step=1)).all()


def test_growth_factor_needs_the_start() -> None:
    with pytest.raises(ValueError, match=r"^step: .*starts from step 0.*add 0 to Record"):
        growth_factor(record(logits=np.zeros((1, 2, 2, 6)), at=[1, 2]))
    with pytest.raises(ValueError, match="^attention_logits: not recorded"):
        growth_factor(record())
    with pytest.raises(ValueError, match="^query: 11 is not in the dataset"):
        growth_factor(record(logits=np.zeros((1, 1, 2, 6))), query=11)


# -- snap time --------------------------------------------------------------------------------


def moving(distance: ArrayLike, at: ArrayLike, **options: Any) -> xr.Dataset:
    """Both classes move mass `distance` (between 0 and 1) from their common to a distinct token,
    class 1 only half as far."""
    moved = np.asarray(distance, dtype=np.float64)
    attention = np.zeros((1, moved.size, 2, 6))
    attention[0, :, 0, 0], attention[0, :, 0, 1] = 1 - moved, moved
    attention[0, :, 1, 0], attention[0, :, 1, 3] = 1 - moved / 2, moved / 2
    return record(attention, at=at, **options)


def test_speed_by_hand() -> None:
    speed = attention_speed(moving([0, 0.1, 0.4, 0.4], at=[0, 1, 3, 10]))
    assert speed.dims == ("seed", "step", "sequence_class")
    assert speed["step"].values.tolist() == [0, 1, 3]
    np.testing.assert_allclose(speed[0, :, 0], [0.2, 0.3, 0])
    np.testing.assert_allclose(speed[0, :, 1], [0.1, 0.15, 0])


def test_snap_of_a_motion_that_stops() -> None:
    dataset = moving([0, 0.1, 0.4, 0.5, 0.5, 0.5, 0.5], at=np.arange(7))
    snap = snap_time(dataset)
    assert snap.dims == ("seed", "sequence_class") and snap.dtype == np.float64
    assert snap.values.tolist() == [[3, 3]]
    assert snap.attrs == {"share": 0.02, "measured_in": "step"}
    assert snap["next_token"].values.tolist() == [30, 31]


def test_a_pause_is_not_the_snap() -> None:
    dataset = moving([0, 0.3, 0.3, 0.3, 0.31, 0.31, 0.31, 0.31], at=np.arange(8))
    assert snap_time(dataset).values.tolist() == [[4, 4]]
    assert slowed_time(dataset, share=0.1).values.tolist() == [[1, 1]]


def test_a_short_quiet_is_not_a_snap() -> None:
    """Three spans at least, and at least a tenth of the whole."""
    assert np.isnan(snap_time(moving([0, 0.3, 0.5, 0.5, 0.5], at=np.arange(5)))).all()
    at = np.arange(51)
    assert np.isnan(snap_time(moving(np.minimum(at, 46) / 50, at=at))).all()  # 4 of 50
    assert snap_time(moving(np.minimum(at, 45) / 50, at=at)).values.tolist() == [[45, 45]]


def test_records_further_and_further_apart_cannot_tell() -> None:
    """Attention that is redrawn at each record is as far from itself after 1 step as after 512."""
    at = np.array([0, *2 ** np.arange(10)])
    redrawn = np.random.default_rng(0).random(at.size)
    assert np.isfinite(slowed_time(moving(redrawn, at=at), share=0.02)).all()  # which is no snap
    assert np.isnan(snap_time(moving(redrawn, at=at))).all()
    # the same records do tell where what lies between them can be made equal
    at = np.array([0, 1, 2, 4, 8, *range(16, 160, 8)])
    stops = moving(np.minimum(at, 40) / 80, at=at)
    assert np.all((snap_time(stops) >= 40) & (snap_time(stops) <= 56))


def test_equal_spans_of_any_clock() -> None:
    """Spans are equal within a factor of two, whatever the records; none where there are none."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        clock = np.cumsum(rng.random(rng.integers(1, 80)) ** rng.integers(1, 6))
        bounds = equal_spans(clock)
        spans = np.diff(clock[bounds])
        assert bounds[0] == 0 and (spans.size == 0 or spans.max() <= 2 * spans.min())
    assert equal_spans(np.arange(11)) == list(range(11))
    assert equal_spans([0, 1, 2, 2, 2, 2]) == [0, 1, 2]  # nothing is spent after the third
    assert equal_spans([0, 0, 0]) == [0]


def test_what_moves_after_a_snap_is_measured() -> None:
    at = np.arange(0, 400)
    moved = np.minimum(at, 20) / 40 + 0.0002 * np.maximum(at - 20, 0)
    dataset = moving(moved, at=at)
    snap = snap_time(dataset)
    assert snap.values.tolist() == [[20, 20]]
    since = moved_since(dataset, snap)
    np.testing.assert_allclose(since, [[379 * 0.0002, 379 * 0.0001]])
    assert np.isnan(moved_since(dataset, snap.where(False))).all()


@pytest.mark.parametrize("fraction", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("axis", ["step", "time"])
def test_snap_of_an_exponential_approach(fraction: float, axis: str) -> None:
    """c(t) = 1 - exp(-t/tau) has speed exp(-t/tau)/tau: below the fraction from tau log(1/f)."""
    tau = 25.0
    at = np.arange(0, 400)
    run = moving(1 - np.exp(-at / tau), at=at, axis=axis)
    snap = slowed_time(run, share=fraction)
    if fraction == 0.02:
        np.testing.assert_array_equal(snap, snap_time(run))
    # The average over [0, 1] is a little below the speed at 0, by the factor of every interval.
    expected = np.ceil(tau * np.log(1 / fraction))
    assert np.all(np.abs(snap - expected) <= 1), snap.values
    assert snap.attrs["measured_in"] == axis


def test_snap_with_geometric_records() -> None:
    """Per unit time, not per record: late intervals are long and still quiet."""
    tau = 100.0
    at = np.concatenate([[0], np.geomspace(1, 1e6, 241)])
    snap = snap_time(moving(1 - np.exp(-at / tau), at=at, axis="time"))
    exact = tau * np.log(50)
    assert np.all((snap > exact / 1.07) & (snap < exact * 1.07)), snap.values  # one record apart
    # log(1 + t) has speed 1/(1+t). Its peak is seen as log 2, the average over the first interval
    # [0, 1], so that 2 % of it is passed at 50 / log 2 - 1 = 71 rather than at 49.
    snap = snap_time(moving(np.log1p(at) / 20, at=at, axis="time"))
    exact = 50 / np.log(2) - 1
    assert np.all((snap > exact / 1.07) & (snap < exact * 1.07)), snap.values


def test_no_snap_is_nan() -> None:
    at = np.arange(10)
    assert np.isnan(snap_time(moving(at / 10, at=at))).all()  # still moving at the end
    assert np.isnan(snap_time(moving(np.full(10, 0.3), at=at))).all()  # never moved
    assert np.isnan(snap_time(moving([0, 0.5], at=[0, 1]))).all()  # one interval is the peak
    broken = moving([0, 0.5, np.nan, 0.5, 0.5, 0.5], at=np.arange(6))
    assert np.isnan(snap_time(broken)).all()


def test_rounding_is_not_movement() -> None:
    rng = np.random.default_rng(2)
    noisy = 0.3 * (1 + 1e-7 * rng.standard_normal(50))
    noisy[25:] = 0.3  # were the noise a movement, it would snap here
    dataset = moving(noisy, at=np.arange(50))
    dataset["attention"] = dataset["attention"].astype(np.float32)
    assert np.isnan(snap_time(dataset)).all()


def test_snap_is_per_class_and_seed() -> None:
    first = moving([0, *[0.1] * 6], at=np.arange(7))
    second = moving([0, 0.1, 0.2, *[0.3] * 4], at=np.arange(7))
    second["attention"][0, :, 1] = second["attention"][0, 0, 1].values
    both = xr.concat([first, second], "seed", data_vars=["attention"])
    np.testing.assert_array_equal(snap_time(both), [[1, 1], [3, np.nan]])


def test_snap_refuses_what_it_cannot_measure() -> None:
    with pytest.raises(ValueError, match=r"^step: .*at least two records.*Record\(\.\.\.\)"):
        snap_time(moving([0.1], at=[0]))
    with pytest.raises(ValueError, match="^step: records must increase"):
        snap_time(moving([0, 0.1, 0.2], at=[0, 2, 1]))
    with pytest.raises(ValueError, match="^step: no dim"):
        snap_time(moving([0, 0.1], at=[0, 1]).isel(step=0))
    with pytest.raises(ValueError, match="^share: expected a number between 0 and 1"):
        slowed_time(moving([0, 0.1], at=[0, 1]), share=1.0)


# -- recall -----------------------------------------------------------------------------------


def brute_force_recall(z: NDArray[Any], threshold: float) -> float:
    """z (query, token) of the two-query fixture, by the words of the definition."""
    shares = []
    for query, distinct in ((0, [1, 2]), (1, [3, 4])):
        weights = {token: np.exp(z[query, token]) for token in range(5)}  # token 5 is not in play
        total = sum(weights.values())
        shares.append(np.mean([weights[token] / total > threshold for token in distinct]))
    return float(np.mean(shares))


def test_recall_by_hand() -> None:
    z = np.zeros((1, 1, 2, 6))
    z[0, 0, 0, 1] = np.log(4)  # softmax over the five in play: 1/8, 4/8, 1/8, 1/8, 1/8
    z[..., 5] = 100.0  # not in play, so it must not take part in the softmax
    dataset = record(logits=z)
    assert recall(dataset, 0.3).values.tolist() == [[0.25]]  # one of two, none of two
    assert recall(dataset, 0.15).values.tolist() == [[0.75]]  # class 1 is uniform: 1/5 each
    assert recall(dataset, 0.2).values.tolist() == [[0.25]]  # to equal is not to exceed
    assert recall(dataset, 0.1).values.tolist() == [[1]]
    assert recall(dataset, 0.6).values.tolist() == [[0]]
    assert recall(dataset, 0.3).dims == ("seed", "step")
    assert recall(dataset, 0.3)["threshold"] == 0.3


def test_recall_over_thresholds_matches_brute_force() -> None:
    z = np.random.default_rng(3).normal(size=(3, 4, 2, 6))
    thresholds = np.array([0.05, 0.1, 0.2, 0.4])
    found = recall(record(logits=z, at=np.arange(4)), thresholds)
    assert found.dims == ("seed", "step", "threshold") and found.name == "recall"
    np.testing.assert_array_equal(found["threshold"], thresholds)
    for index in np.ndindex(3, 4):
        expected = [brute_force_recall(z[index], level) for level in thresholds]
        np.testing.assert_allclose(found.values[index], expected)
    assert (found.diff("threshold") <= 0).all()
    # The order of dims and rows is not assumed.
    shuffled = record(logits=z, at=np.arange(4)).isel(query=[1, 0])
    shuffled = shuffled.transpose("token", "query", ...)
    np.testing.assert_array_equal(recall(shuffled, thresholds), found)


def test_recall_of_extreme_and_broken_logits() -> None:
    z = np.zeros((1, 3, 2, 6))
    z[0, 1, :, 0] = 1e4
    z[0, 2, 0, 0] = np.nan
    found = recall(record(logits=z, at=np.arange(3)), 0.1)
    np.testing.assert_array_equal(found, [[1, 0, np.nan]])


def test_recall_skips_classes_without_distinct_tokens() -> None:
    probability = np.array([[0.5, 0.5, 0, 0, 0, 0], [0.5, 0.25, 0.25, 0, 0, 0]])
    found = recall(record(logits=np.zeros((1, 1, 2, 6)), probability=probability), 0.3)
    assert found.values.tolist() == [[1]]
    none = record(logits=np.zeros((1, 1, 2, 6)), probability=probability[[0, 0]])
    with pytest.raises(ValueError, match="^probability: no class has a distinct token"):
        recall(none, 0.3)


def test_recall_refuses_what_it_cannot_measure() -> None:
    dataset = record(logits=np.zeros((1, 1, 2, 6)))
    with pytest.raises(ValueError, match="^attention_logits: not recorded"):
        recall(record(), 0.1)
    with pytest.raises(ValueError, match="^query: the row of query token 20"):
        recall(dataset.sel(query=[21]), 0.1)
    with pytest.raises(ValueError, match="^threshold: expected a number or a list"):
        recall(dataset, [[0.1]])


def test_recall_fall_is_the_factor_between_two_levels():
    threshold = np.geomspace(0.5, 8.0, 200)
    steep, flat = (1.0 / (1.0 + (threshold / 2.0) ** power) for power in (8.0, 4.0))
    curves = xr.DataArray(
        [steep, flat, np.ones(200)], dims=("curve", "threshold"), coords={"threshold": threshold}
    )
    fall = recall_fall(curves, upper=0.75, lower=0.25)
    # recall is 1/(1 + x^p), so that it passes 3/4 and 1/4 at x = 3^(-1/p) and 3^(1/p)
    np.testing.assert_allclose(fall[:2], [9.0 ** (1 / 8), 9.0 ** (1 / 4)], rtol=1e-3)
    assert np.isnan(fall[2])
