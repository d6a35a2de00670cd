"""Statistics of a call: against whole maps, row by row; kinds of arrays; blocks; samples."""

from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from whole_maps import of_caches, of_keys, of_row, over_sequences, value_norm_ratio, whole_maps

from attnlab.files.errors import InputError
from attnlab.observing.call import AttentionCall
from attnlab.observing.layer_statistics import LABELS
from attnlab.observing.statistics import record, statistics

B, H, T, D = 2, 4, 70, 8
SCALE = 0.4


def drawn(rng, *, kv_heads=H, queries=T, keys=T):
    q = 1.5 * rng.normal(size=(B, H, queries, D))
    k, v = rng.normal(size=(2, B, kv_heads, keys, D))
    return q, k, v


def left_padded(rng):
    """Queries of padding see everything, as Hugging Face lets them; `present` tells."""
    there = np.arange(T) >= np.array([0, 30])[:, None]
    mask = there[:, None, None, :] | ~there[:, None, :, None]
    return {"mask": mask, "causal": True}, {"present": there}


def right_padded(rng):
    there = np.arange(T) < np.array([T, 45])[:, None]
    return {"mask": there[:, None, None, :], "causal": True}, {"present": there}


def pack(rng):
    text = np.stack([np.arange(T) // 35, np.arange(T) // 50])
    mask = text[:, None, :, None] == text[:, None, None, :]
    starts = np.stack([text[0] * 35, text[1] * 50])
    return {"mask": mask, "causal": True}, {"starts": starts}


def additive(rng):
    """ALiBi, and hidden keys as float32 has them."""
    distance = np.arange(T)[:, None] - np.arange(T)
    bias = -(2.0 ** -np.arange(1, H + 1))[:, None, None] * distance
    bias = np.where(distance >= 0, bias, np.finfo(np.float32).min).astype(np.float32)
    return {"mask": bias[None]}, {}


def everything(rng):
    there = np.arange(T) >= np.array([0, 30])[:, None]
    bias = rng.normal(size=(B, H, 1, T)) + np.where(there, 0.0, -np.inf)[:, None, None, :]
    of_call = {"mask": bias, "causal": True, "window": 25, "softcap": 2.0}
    return {**of_call, "sinks": rng.normal(size=H)}, {"present": there, "kv_heads": 2}


CASES = {
    "everything": everything,
    "causal": lambda rng: ({"causal": True}, {}),
    "bidirectional": lambda rng: ({}, {}),
    "window": lambda rng: ({"causal": True, "window": 20}, {}),
    "window on both sides": lambda rng: ({"window": 12}, {}),
    "softcap": lambda rng: ({"causal": True, "softcap": 1.5}, {}),
    "sinks": lambda rng: ({"causal": True, "sinks": rng.normal(size=H) + 2}, {}),
    "sinks and window": lambda rng: (
        {"causal": True, "window": 18, "sinks": rng.normal(size=H) + 2},
        {},
    ),
    "additive": additive,
    "left padding": left_padded,
    "right padding": right_padded,
    "packed": pack,
    "more keys": lambda rng: ({"causal": True}, {"queries": 30}),
    "cross": lambda rng: ({"cross": True}, {"queries": 30}),
    "grouped": lambda rng: ({"causal": True, "window": 33}, {"kv_heads": 2}),
}


@cache
def case_of(name):
    """A call in float64, and what statistics is given beside it."""
    rng = np.random.default_rng(sorted(CASES).index(name))
    of_call, beside = CASES[name](rng)
    sizes = {key: beside.pop(key) for key in ("queries", "kv_heads") if key in beside}
    q, k, v = drawn(rng, **sizes)
    beside["tokens"] = rng.integers(0, 12, size=(B, T))
    beside["tokens"][0, ::3] += 20  # of one sequence only
    return AttentionCall(q, k, v, SCALE, 0, **of_call), beside


def case(name):
    call, beside = case_of(name)
    return call, dict(beside)


@cache
def whole(name):
    """Its logits, maps, what is visible, and what a learnable sink takes."""
    call, _ = case_of(name)
    names = ("scale", "causal", "window", "mask", "softcap", "sinks")
    settings = {name: getattr(call, name) for name in names}
    return whole_maps(call.query, call.key, **settings)


def as_kind(call, convert):
    arrays = {name: getattr(call, name) for name in ("query", "key", "value", "mask", "sinks")}
    moved = {name: None if one is None else convert(one) for name, one in arrays.items()}
    same = ("scale", "layer", "causal", "window", "softcap", "cross")
    return AttentionCall(**moved, **{name: getattr(call, name) for name in same})


def brute(name, *, tokens, present=None, starts=None, min_keys=16):
    """Means over rows, for each sequence and head."""
    call, _ = case_of(name)
    _, _, Q, K = call.shape
    logits, maps, visible, _ = whole(name)
    there = np.ones((B, Q), bool) if present is None else present
    seen = (visible & there[:, None, :, None]).any(axis=(1, 2))
    with_token = {
        token: sum(token in tokens[b][seen[b]] for b in range(B)) for token in np.unique(tokens)
    }
    found = {}
    for b, h in np.ndindex(B, H):
        rows = []
        common = np.array([with_token[token] > 1 for token in tokens[b]])
        for i in range(Q):
            if there[b, i] and visible[b, h, i].sum() >= min_keys:
                place = None if call.cross else i + K - Q
                start = int(seen[b].argmax()) if starts is None else starts[b, i]
                rows.append(
                    of_row(
                        maps[b, h, i],
                        logits[b, h, i],
                        visible[b, h, i],
                        place=place,
                        start=start,
                        tokens=tokens[b],
                        common=common,
                        sink_logit=None if call.sinks is None else call.sinks[h],
                    )
                )
        for name in rows[0]:
            values = np.array([row[name] for row in rows], float)
            found.setdefault(name, {})[b, h] = np.nanmean(values, axis=0)
    return {
        name: np.array([[cells[b, h] for h in range(H)] for b in range(B)])
        for name, cells in found.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_every_mean_over_rows_is_that_of_whole_maps(name):
    call, beside = case(name)
    found = statistics(call, **beside)
    expected = brute(name, **beside)
    assert set(expected) == {
        name for name in found if name in LABELS and LABELS[name].group == "row"
    }
    for variable, values in expected.items():
        np.testing.assert_allclose(
            found[variable].values, values, rtol=1e-5, atol=1e-6, err_msg=variable
        )
        assert (found[f"{variable}_se"] == 0).all()


@pytest.mark.parametrize("name", CASES)
def test_attention_received_by_keys(name):
    call, beside = case(name)
    found = statistics(call, **beside)
    _, maps, visible, _ = whole(name)
    there = beside.get("present", np.ones(visible.shape[::2], bool))
    counted = there[:, None, :] & (visible.sum(-1) >= 16)
    for b, h in np.ndindex(B, H):
        seen = (visible[b] & there[b][:, None]).any(axis=(0, 1))
        rows = counted[b, h]
        expected = of_keys(maps[b, h][rows], visible[b, h][rows], seen)
        np.testing.assert_allclose(
            found["received"][b, h], expected["received"], rtol=1e-5, atol=1e-7
        )
        heavy = found["heavy_mass"][b, h].item()
        assert heavy == pytest.approx(expected["heavy_mass"], rel=1e-5)
        for variable in ("strongest_mass", "strongest_is_first"):
            assert found[variable][b, h].item() == pytest.approx(expected[variable], rel=1e-5)
        every = there[b] & visible[b, h].any(-1)
        starts = beside["starts"][b] if "starts" in beside else np.full(len(every), seen.argmax())
        alpha = np.mean([maps[b, h, i, starts[i]] for i in np.flatnonzero(every)])
        assert found["alpha_1"][b, h].item() == pytest.approx(alpha, rel=1e-5)
        assert found["sink_rate"][b, h].item() == float(alpha > 0.3)
        ratio = value_norm_ratio(call.value[b, h * call.key.shape[1] // H], seen)
        assert found["value_norm_ratio"][b, h].item() == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize("rows", [None, 8])
@pytest.mark.parametrize("name", CASES)
def test_the_largest_logit_is_that_of_all_rows_even_where_rows_are_sampled(name, rows):
    call, beside = case(name)
    there = beside.get("present", np.ones((B, call.shape[2]), bool))
    logits, _, visible, _ = whole(name)
    counted = visible & there[:, None, :, None]
    expected = np.where(counted, logits, -np.inf).max(axis=(2, 3))
    for convert in (np.asarray, torch.asarray):
        one = as_kind(call, convert)
        for budget_bytes in (2**28, 10 * H * T * 5):
            found = statistics(one, rows=rows, budget_bytes=budget_bytes, **beside)
            np.testing.assert_allclose(found["max_logit"], expected, rtol=1e-6)
    means = over_sequences(found)
    np.testing.assert_allclose(means["max_logit"], expected.max(axis=0), rtol=1e-6)


def test_one_row_with_a_large_logit_is_found():
    """The mean of row maxima hides it, and a sample of rows misses it."""
    q, k = np.random.default_rng(0).normal(size=(2, 2, 3, 200, 8))
    q[1, 2, 37] *= 200
    found = record(q, k, causal=True, rows=16)
    logits = q[1, 2, 37] @ k[1, 2, :38].T / 8**0.5
    assert found["max_logit"].values[0, 2] == pytest.approx(logits.max(), rel=1e-12)
    assert found["largest_logit"].max() < 10 < 200 < logits.max()


def test_rank_correlations_are_scipys():
    from scipy.stats import spearmanr

    call, beside = case("causal")
    found, tokens = statistics(call, **beside), beside["tokens"]
    often = np.vectorize(lambda token: (tokens == token).sum())(tokens)
    idf = np.log(B / np.vectorize(lambda token: (tokens == token).any(axis=1).sum())(tokens))
    for b, h in np.ndindex(B, H):
        received = found["received"].values[b, h]
        for name, score in (("frequency_correlation", often), ("idf_correlation", idf)):
            if np.ptp(score[b]) == 0:  # ranks nothing
                assert found[name].values[b, h] == 0
                continue
            expected = spearmanr(received, score[b]).statistic
            assert found[name].values[b, h] == pytest.approx(expected, abs=1e-6)


def say_the_same(name, convert):
    call, beside = case(name)
    expected = statistics(call, **beside)
    in_float32 = as_kind(call, lambda a: a if a.dtype == bool else a.astype(np.float32))
    found = statistics(as_kind(in_float32, convert), **beside)
    assert set(found) == set(expected)
    for variable in expected:
        # a key more or less for 99 % of the mass may be a matter of rounding
        near = 0.05 if variable.startswith("keys_") else 2e-5
        np.testing.assert_allclose(
            found[variable], expected[variable], rtol=near, atol=near, err_msg=variable
        )


@pytest.mark.parametrize("name", CASES)
def test_torch_says_the_same_as_numpy(name):
    say_the_same(name, torch.asarray)


def test_jax_says_the_same_as_numpy():
    """Of the case that has all there is: JAX compiles each operation for itself."""
    say_the_same("everything", jnp.asarray)


@pytest.mark.parametrize(
    ("kind", "hidden"),
    [
        (torch.float32, torch.finfo(torch.float32).min),
        (torch.float32, -1e9),
        (torch.float32, -np.inf),
        (torch.float32, -1e4),
        (torch.float32, -100.0),
        (torch.bfloat16, -100.0),
        (torch.bfloat16, -1e4),
        (torch.bfloat16, torch.finfo(torch.bfloat16).min),
        (torch.float16, torch.finfo(torch.float16).min),
    ],
)
def test_a_key_is_hidden_however_model_code_hides_it(kind, hidden):
    call, beside = case("left padding")
    tensors = as_kind(call, torch.asarray)
    shown = tensors.mask
    additive = torch.where(shown, 0.0, hidden).to(kind)
    found = statistics(replace(tensors, mask=additive), **beside)
    expected = statistics(tensors, **beside)
    for variable in expected:
        np.testing.assert_array_equal(found[variable], expected[variable], err_msg=variable)
    biased = statistics(replace(tensors, mask=additive + 0.5), **beside)
    np.testing.assert_allclose(biased["entropy"], expected["entropy"], rtol=1e-6)
    assert (biased["visible_keys"] == expected["visible_keys"]).all()


def test_a_bias_that_falls_from_key_to_key_hides_none():
    """ALiBi of long texts goes far below a mask of -100, and even below one of -10,000."""
    call, beside = case("causal")
    distance = np.arange(T)[:, None] - np.arange(T)
    expected = statistics(call, **beside)["visible_keys"]
    for slope, offset in ((3.0, 0.0), (49.0, 0.0), (49.0, 7000.0)):
        bias = np.where(distance >= 0, -slope * distance - offset, -1e9)
        falls = replace(call, mask=bias[None, None], causal=False)
        np.testing.assert_array_equal(statistics(falls, **beside)["visible_keys"], expected)


def test_a_mask_beside_a_bias_hides_what_it_hides():
    """As Swin has it: learnt biases of positions, and -100 for other windows."""
    call, beside = case("left padding")
    rng = np.random.default_rng(0)
    bias = rng.normal(scale=4.0, size=(1, H, T, T))
    hidden = replace(call, mask=np.where(call.mask, bias, bias - 100))
    expected = statistics(replace(call, mask=np.where(call.mask, bias, -np.inf)), **beside)
    found = statistics(hidden, **beside)
    for variable in expected:
        np.testing.assert_allclose(found[variable], expected[variable], rtol=1e-9, err_msg=variable)


def test_half_precision_is_computed_in_float32_and_settings_stay():
    call, beside = case("causal")
    halves = as_kind(call, lambda a: torch.asarray(a).to(torch.bfloat16).requires_grad_())
    rounded = as_kind(halves, lambda a: a.detach().to(torch.float64).numpy())
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            found = statistics(halves, **beside)
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.is_grad_enabled()
    np.testing.assert_allclose(
        found["entropy"], statistics(rounded, **beside)["entropy"], rtol=1e-5
    )


@pytest.mark.parametrize("name", ["causal", "left padding", "sinks"])
@pytest.mark.parametrize("block_rows", [1, 7, 33])
def test_blocks_of_any_size_give_the_same(name, block_rows):
    call, beside = case(name)
    whole = statistics(call, **beside)
    cut = statistics(call, budget_bytes=48 * H * T * block_rows, **beside)
    assert set(cut) == set(whole)
    for variable in whole:
        np.testing.assert_allclose(
            cut[variable], whole[variable], rtol=1e-5, atol=1e-6, err_msg=variable
        )


def test_a_sample_is_as_far_from_all_rows_as_its_standard_error_says():
    call, beside = case("left padding")
    whole = statistics(call, **beside)
    names = ["entropy", "top_mass", "sink_mass", "mean_distance", "duplicate_mass"]
    runs = [statistics(call, rows=32, seed=seed, **beside) for seed in range(60)]
    for name in names:
        misses = np.stack([(run[name] - whole[name]).values for run in runs])
        errors = np.stack([run[f"{name}_se"].values for run in runs])
        assert (errors > 0).any()
        # over the repetitions: no bias, and as much variance as was said
        bias = misses.mean(0) / (misses.std(0) / np.sqrt(len(runs)) + 1e-12)
        assert np.abs(bias).max() < 4.5
        ratio = (misses**2).mean() / (errors**2).mean()
        assert 0.7 < ratio < 1.4, name


def test_a_sample_of_as_many_rows_as_there_are_is_all_of_them():
    call, beside = case("causal")
    whole, sampled = statistics(call, **beside), statistics(call, rows=1000, **beside)
    for variable in whole:
        np.testing.assert_array_equal(whole[variable], sampled[variable], err_msg=variable)


@pytest.mark.parametrize("name", ["causal", "sinks and window", "grouped", "sinks"])
def test_caches_follow_their_policies(name):
    call, beside = case(name)
    found = statistics(call, **beside)
    _, maps, visible, sink = whole(name)
    group = H // call.key.shape[1]
    for b, h in np.ndindex(B, H):
        rows = visible[b, h].sum(-1) >= 16
        expected = of_caches(
            maps[b, h][rows],
            visible[b, h][rows],
            call.value[b, h // group],
            sink=sink[b, h][rows],
            later=8,  # 16 of two sequences
        )
        for variable, near in {"retained_mass": 1e-5, "output_error": 1e-4}.items():
            mine = found[variable][b, h].transpose("policy", "budget")
            np.testing.assert_allclose(mine, expected[variable], rtol=near, err_msg=variable)


def test_caches_are_left_out_where_queries_see_later_keys():
    for name in ("bidirectional", "cross", "window on both sides"):
        call, beside = case(name)
        assert "retained_mass" not in statistics(call, **beside)


def test_record_is_the_mean_over_sequences_with_meanings():
    call, beside = case("grouped")
    of_each = statistics(call, rows=40, **beside)
    q, k, v = call.query, call.key, call.value
    found = record(q, k, v, layer=3, scale=SCALE, causal=True, window=33, rows=40, **beside)
    assert found.sizes["layer"] == 1
    assert found["layer"].item() == 3
    assert found["entropy"].dims == ("layer", "head")
    assert found["retained_mass"].dims == ("layer", "head", "policy", "budget")
    for name in found.data_vars:
        assert found[name].attrs["long_name"], name
    np.testing.assert_allclose(found["entropy"][0], of_each["entropy"].mean("sequence"))
    error = np.sqrt((of_each["entropy_se"] ** 2).sum("sequence")) / B
    np.testing.assert_allclose(found["entropy_se"][0], error)
    plain = record(q, k, causal=True)
    assert "output_error" not in plain
    assert "induction_mass" not in plain
    wide = record(q, k, causal=True, scale=D**-0.5)
    np.testing.assert_array_equal(plain["entropy"], wide["entropy"])


def test_every_variable_has_a_label():
    call, beside = case("sinks")
    found = {str(name).removesuffix("_se") for name in statistics(call, **beside)}
    assert found == {n for n, label in LABELS.items() if label.group in ("row", "call")} | {
        "row_query"
    }


def test_statistics_that_cannot_be_measured_are_refused():
    q = np.ones((1, 2, 10, 4))
    with pytest.raises(InputError, match="min_keys: no query sees 16 keys"):
        record(q, q, causal=True)
    with pytest.raises(InputError, match="tokens: expected shape"):
        record(q, q, tokens=np.zeros(10), min_keys=2)
    with pytest.raises(InputError, match="rows"):
        record(q, q, rows=1, min_keys=2)
    with pytest.raises(InputError, match="q: expected an array"):
        record(q.tolist(), q)
    with pytest.raises(InputError, match="q: expected an array"):
        record(np.array(1.0), q)
    with pytest.raises(InputError, match="starts: expected whole numbers"):
        record(q, q, starts=np.zeros((1, 10)), min_keys=2)
    with pytest.raises(InputError, match="seed: expected a whole number"):
        record(q, q, rows=2, seed=-1, min_keys=2)
