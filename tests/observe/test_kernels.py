"""The fused Triton programs against the path through torch, without a GPU.

Triton decides as it is imported whether its interpreter runs the programs, so that the tests that
need it run in a process of their own, which `test_under_tritons_interpreter` starts.
"""

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attnlab.files.errors import InputError
from attnlab.observing import kernels
from attnlab.observing.call import AttentionCall
from attnlab.observing.kernels.bounds import key_bounds, row_bounds
from attnlab.observing.kernels.tiles import Tile, tile
from attnlab.observing.statistics import statistics

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
INNER: list[str] = []
RANKED = ("top_mass", "keys_for", "keys_share")  # of the rows that torch measures, a sample
HEADS = 2


def interpreted(test):
    """A test under the interpreter."""
    INNER.append(test.__name__)
    return pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own")(test)


def drawn(seed, *, batch=1, queries=140, keys=140, kv_heads=1, width=16, dtype=torch.float32):
    made = torch.Generator().manual_seed(seed)

    def normal(*shape, times=1.0):
        return (times * torch.randn(shape, generator=made)).to(dtype)

    q = normal(batch, HEADS, queries, width, times=1.5)
    k, v = (normal(batch, kv_heads, keys, width) for _ in range(2))
    return AttentionCall(q, k, v, 0.6, 0)


def additive(call):
    batch, head, queries, keys = call.shape
    mask = torch.randn(batch, head, queries, keys, generator=torch.Generator().manual_seed(0))
    mask[..., -9:] = -torch.inf
    mask[..., 30, :] = -torch.inf  # a row that sees nothing
    return mask


def padded(call):
    batch, _, _, keys = call.shape
    there = torch.arange(keys) >= torch.tensor([[0], [21]])[:batch]
    return there[:, None, None, :]


CASES = {
    "causal": (lambda c: {"causal": True}, {}),
    "grouped, wide, a window, half": (
        lambda c: {"causal": True, "window": 90},
        {"kv_heads": 1, "width": 80, "dtype": torch.float16},
    ),
    "both directions, bfloat16": (lambda c: {"window": 50}, {"dtype": torch.bfloat16}),
    "softcap and sinks, padding": (
        lambda c: {
            "causal": True,
            "softcap": 3.0,
            "sinks": torch.tensor([1.0, -2.0]),
            "mask": padded(c),
        },
        {"batch": 2, "queries": 75, "keys": 75},
    ),
    "a bias for each head and row": (
        lambda c: {"mask": additive(c), "sinks": torch.tensor([0.0, 30.0])},
        {"queries": 60, "keys": 75, "kv_heads": 2},
    ),
    "more keys": (lambda c: {"causal": True}, {"queries": 40, "keys": 140, "kv_heads": 2}),
    "cross": (lambda c: {"cross": True}, {"queries": 40, "keys": 70}),
    "packed": (lambda c: {"causal": True}, {"queries": 100, "keys": 100}),
}


def case(name):
    of_call, sizes = CASES[name]
    call = drawn(sorted(CASES).index(name), **sizes)
    batch, _, queries, keys = call.shape
    rng = np.random.default_rng(0)
    given = {"tokens": rng.integers(0, 9, size=(batch, keys)), "min_keys": 4}
    if name == "packed":
        text = np.arange(queries) // 37 * 37
        given["starts"] = text[None]
        mask = torch.tensor(text[:, None] == text[None, :])
        return replace(call, causal=True, mask=mask), given
    return replace(call, **of_call(call)), given


@pytest.fixture
def fused(monkeypatch):
    """The programs measure, and torch a few rows."""
    monkeypatch.setenv(kernels.VARIABLE, "triton")
    monkeypatch.setattr(kernels, "WEIGHTS", 0)
    monkeypatch.setattr(kernels, "FEWEST", 12)
    yield
    kernels._wrong.clear()


def by_torch(monkeypatch, call, **given):
    with monkeypatch.context() as context:
        context.setenv(kernels.VARIABLE, "torch")
        return statistics(call, **given)


@interpreted
@pytest.mark.parametrize("name", CASES)
def test_every_statistic_is_that_of_torch(name, fused, monkeypatch):
    call, given = case(name)
    found, expected = statistics(call, **given), by_torch(monkeypatch, call, **given)
    assert found.attrs["kernel"].startswith("triton; top_mass, keys_for and keys_share from 12")
    assert expected.attrs["kernel"] == "none: ATTNLAB_KERNEL=torch"
    assert set(found) == set(expected)
    for variable in expected:
        if str(variable).removesuffix("_se") in RANKED:
            continue
        near = 0.02 if variable == "output_error" else 1e-5  # a key more or less of equal ones
        np.testing.assert_allclose(
            found[variable], expected[variable], rtol=near, atol=near, err_msg=str(variable)
        )


@interpreted
def test_what_ranks_keys_is_sampled_with_its_error(fused, monkeypatch):
    call, given = case("causal")
    found, expected = statistics(call, **given), by_torch(monkeypatch, call, **given)
    for name in RANKED:
        error = found[f"{name}_se"]
        assert (error > 0).sum() >= error.size / 2  # the strongest 64 keys of most rows hold all
        assert (abs(found[name] - expected[name]) <= 4 * error + 0.02 * expected[name]).all()


@interpreted
def test_the_largest_logit_of_all_rows_where_rows_are_sampled(fused, monkeypatch):
    for name in ("softcap and sinks, padding", "a bias for each head and row", "packed", "causal"):
        call, given = case(name)
        found = statistics(call, rows=6, **given)
        expected = by_torch(monkeypatch, call, rows=6, **given)
        assert found.attrs["kernel"] == "triton"
        assert set(found) == set(expected)
        for variable in expected:  # torch measures the sampled rows
            np.testing.assert_allclose(found[variable], expected[variable], rtol=1e-5, atol=1e-6)


@interpreted
def test_layers_of_a_model_are_measured_together(fused, monkeypatch):
    from transformers import GPT2Config, GPT2LMHeadModel

    import attnlab

    sizes = {"n_layer": 3, "n_head": 2, "n_embd": 32, "n_positions": 48, "vocab_size": 50}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**sizes, **ends, attn_implementation="sdpa")).eval()
    ids = torch.randint(0, 50, (1, 48))
    found = {}
    for kernel in ("triton", "torch"):
        monkeypatch.setenv(kernels.VARIABLE, kernel)
        observer = attnlab.observe(model, probe=ids, every=1)
        observer.step(0)
        found[kernel] = observer.result()
    assert found["triton"].attrs["kernel"].startswith("triton; top_mass")
    for name in ("entropy", "max_logit", "induction_mass", "heavy_mass", "retained_mass"):
        mine, expected = (found[kernel][name] for kernel in ("triton", "torch"))
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


@interpreted
def test_a_mismatch_warns_and_torch_measures(fused, monkeypatch):
    from attnlab.observing.kernels import launch

    call, given = case("more keys")
    expected, right = by_torch(monkeypatch, call, **given), launch.chosen_rows

    def wrong(plan, heads):
        columns, totals = right(plan, heads)
        return columns, totals * 1.01

    monkeypatch.setattr(launch, "chosen_rows", wrong)
    with pytest.warns(UserWarning, match="off by 0.*torch measures instead"):
        found = statistics(call, **given)
    assert found.attrs["kernel"].startswith("none: it was off by 0")
    for variable in expected:
        if str(variable).removesuffix("_se") not in RANKED:
            np.testing.assert_array_equal(found[variable], expected[variable])
    again = statistics(call, **given)  # from now on without the program, and without a warning
    np.testing.assert_array_equal(again["top_mass"], expected["top_mass"])


@interpreted
@pytest.mark.filterwarnings("ignore:All-NaN")  # of the interpreter
def test_logits_that_are_not_numbers_come_out(fused):
    call, given = case("more keys")
    query = call.query.clone()
    query[0, 1, 20] = torch.nan
    found = statistics(replace(call, query=query), **given)
    assert found.attrs["kernel"].startswith("triton")
    assert np.isnan(found["max_logit"].values).tolist() == [[False, True]]


@needs_triton
def test_under_tritons_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    tests = [f"{__file__}::{name}" for name in INNER]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# each program and each device; the longest program with every kind of mask
COMPILED = ("rows:100", "keys:80", "largest:90")


@needs_triton
@pytest.mark.slow
def test_programs_compile_for_devices(tmp_path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).parents[1] / "support" / "compiled_kernels.py"
    command = [sys.executable, str(script), *COMPILED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == list(COMPILED), done.stderr


def test_refusals(monkeypatch):
    call = drawn(0)
    numbers = {name: getattr(call, name).numpy() for name in ("query", "key", "value")}
    assert kernels.refuses(replace(call, **numbers)) == "the arrays are of numpy"
    double = {name: getattr(call, name).double() for name in ("query", "key", "value")}
    assert kernels.refuses(replace(call, **double)) == "queries are float64 and keys float64"
    mixed = replace(call, key=call.key.bfloat16())
    assert kernels.refuses(mixed) == "queries are float32 and keys bfloat16"
    mask = torch.zeros(140, 140, dtype=torch.float64)
    assert kernels.refuses(replace(call, mask=mask)) == "the mask is float64"
    assert kernels.refuses(drawn(0, width=8)) == "heads have width 8, not 16 to 256"
    assert kernels.refuses(drawn(0, width=320)) == "heads have width 320, not 16 to 256"
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "triton" else find(name, *a)
    )
    assert kernels.refuses(call) == "Triton is not installed"


def test_on_a_processor_torch_measures_unless_asked(monkeypatch, caplog):
    call = drawn(0)
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    assert kernels.refusal(call) == "there is no CUDA device"
    assert not caplog.records  # the usual case
    monkeypatch.setenv(kernels.VARIABLE, "triton")
    monkeypatch.setattr(kernels, "_logged", set())
    wide = drawn(0, width=320)
    for _ in range(2):
        assert kernels.refusal(wide) == "heads have width 320, not 16 to 256"
    assert [record.message.count("width 320") for record in caplog.records] == [1]
    monkeypatch.setenv(kernels.VARIABLE, "fast")
    with pytest.raises(InputError, match="expected auto, torch, triton, got 'fast'"):
        kernels.refusal(call)


def test_triton_is_not_imported_where_torch_measures():
    code = (
        "import sys, torch\n"
        "from attnlab.observing import record\n"
        "before = 'triton' in sys.modules\n"
        "q, k, v = torch.randn(3, 1, 2, 32, 16)\n"
        "found = record(q, k, v, causal=True)\n"
        "print(found.attrs['kernel'], before == ('triton' in sys.modules), sep='|')"
    )
    environment = {name: v for name, v in os.environ.items() if name != kernels.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "none: there is no CUDA device|True"


def brute_keys(first, last, there, keys, rows, size):
    """Tiles of keys that each tile of rows needs, and those that all its rows see whole."""
    for tile_of_rows in range(-(-len(first) // rows)):
        inside = [
            r
            for r in range(tile_of_rows * rows, min(len(first), (tile_of_rows + 1) * rows))
            if there[r]
        ]
        tiles = range(-(-keys // size))
        some = {
            t
            for t in tiles
            for r in inside
            if first[r] <= min(keys, (t + 1) * size) - 1 and last[r] >= t * size
        }
        whole = {
            t
            for t in tiles
            if inside
            and (t + 1) * size <= keys
            and all(first[r] <= t * size and last[r] >= (t + 1) * size - 1 for r in inside)
        }
        yield some, whole


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 5, 30])
def test_every_tile_that_is_seen_is_visited_once(causal, window):
    queries, keys, rows, size = 50, 61, 8, 4
    call = replace(drawn(0, queries=queries, keys=keys), causal=causal, window=window)
    position = np.arange(queries)[None] + 11
    there = np.random.default_rng(0).random((1, queries)) < 0.6
    ends = call.span(position)
    found = key_bounds(ends, ends, there, keys, (rows, size))[0]
    wanted = brute_keys(ends[0][0], ends[1][0], there[0], keys, rows, size)
    for (begin, plain_begin, plain_end, end), (some, whole) in zip(found, wanted, strict=True):
        assert set(range(begin // size, end // size)) >= some
        assert set(range(plain_begin // size, plain_end // size)) == whole
        assert begin <= plain_begin <= plain_end <= end
    by_rows = row_bounds(ends, there, keys, (rows, size), masked=False)[0]
    first, last = ends[0][0], ends[1][0]
    for t, (begin, plain_begin, plain_end, end) in enumerate(by_rows):
        n = np.arange(t * size, min(keys, (t + 1) * size))
        sees = (first[:, None] <= n) & (last[:, None] >= n) & there[0][:, None]
        assert not sees[:begin].any() and not sees[end:].any()
        inside = slice(plain_begin, plain_end)
        assert sees[inside][there[0][inside]].all()
    masked = row_bounds(ends, there, keys, (rows, size), masked=True)[0]
    assert (masked[:, 1] == masked[:, 2]).all() and (masked[:, [0, 3]] == by_rows[:, [0, 3]]).all()


def test_tiles_of_an_older_device_serve_a_newer_one(monkeypatch):
    table = {("rows", 90, 64, "bfloat16"): Tile(128, 64, 8, 3)}
    monkeypatch.setattr("attnlab.observing.kernels.tiles.table", lambda: table)
    assert tile("rows", 90, 64, "bfloat16") == tile("rows", 100, 64, "bfloat16") == (128, 64, 8, 3)
    assert tile("rows", 80, 64, "bfloat16") != (128, 64, 8, 3)  # may not have its memory
    assert tile("rows", 90, 128, "bfloat16").rows == 64
