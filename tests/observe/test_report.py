"""The page about a model's attention: its words and numbers, and that it needs nothing else."""

import base64
import json
import re
import sys

import numpy as np
import pytest
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.files.netcdf import load, save
from attnlab.observing.layer_statistics import LABELS
from attnlab.observing.report_page import page_data, report
from attnlab.observing.snap import MOVING, NEVER, SNAPPED, STOPPED, UNKNOWN
from attnlab.observing.words import in_words, with_steps

STEPS = (0, 100, 200, 300, 400)
POLICIES = ("oracle", "sinks_recent", "heavy_recent", "window_vote")


def history(**attrs):
    """Two layers of two heads: layer 1 head 0 sinks, snaps and becomes sparse; the others stay."""
    shape = dims = ("step", "layer", "head")
    shape = (len(STEPS), 2, 2)
    steady = np.ones(shape)
    share = 0.8 * steady
    share[:, 1, 0] = (0.8, 0.4, 0.125, 0.125, 0.125)
    first = 0.02 * steady
    first[:, 1, 0] = (0.02, 0.3, 0.61, 0.62, 0.62)
    kept = np.full((*shape, 4, 4), 0.5)
    kept[..., 0, :] = 0.9
    kept[..., 3, :] = 0.75
    speed = 0.01 * steady
    speed[:, 1, 0] = (0.01, 0.005, 1e-5, 1e-5, np.nan)
    of_head = np.full((2, 2), np.nan)
    snap, missing = of_head.copy(), np.ones((2, 2))
    snap[1, 0], missing[1, 0] = 200, 0.01
    error = 0.01 * steady
    return xr.Dataset(
        {
            "entropy": (dims, 2 * steady, {"long_name": "entropy of a query's attention"}),
            "entropy_se": (dims, error),
            "relative_entropy": (dims, share),
            "effective_tokens": (dims, 7 * steady),
            "visible_keys": (dims, 40 * steady),
            "keys_for": ((*dims, "mass"), (40 * share)[..., None]),
            "keys_share": ((*dims, "mass"), share[..., None]),
            "sink_mass": ((*dims, "first"), first[..., None]),
            "strongest_mass": (dims, first),
            "strongest_is_first": (dims, steady),
            "alpha_1": (dims, first / 3),
            "induction_mass": (dims, 0.3 * steady),
            "attention_speed": (dims, speed),
            "retained_mass": ((*dims, "policy", "budget"), kept),
            "output_error": ((*dims, "policy", "budget"), 1 - kept),
            "snap_step": (dims[1:], snap),
            "snap_median": (dims[1:], snap),
            "snap_low": (dims[1:], snap - 100),
            "snap_high": (dims[1:], snap + 100),
            "snap_missing": (dims[1:], missing),
            "snap_state": (dims[1:], np.where(np.isfinite(snap), SNAPPED, MOVING)),
            "snap_speed_left": (dims[1:], np.where(np.isfinite(snap), 0.001, 1.0)),
            "snap_moved_since": (dims[1:], 0.0001 * snap),
        },
        {
            "step": list(STEPS),
            "layer": [0, 1],
            "head": [0, 1],
            "mass": [0.95],
            "first": [1],
            "policy": list(POLICIES),
            "budget": [0.05, 0.1, 0.2, 0.5],
            "module": ("layer", ["block.0", "block.1</script><b>"]),
        },
        {
            "spec": json.dumps({"model": "<i>Tiny</i> & co", "every": 100}),
            "snap_clock": "learning rate",
            "snap_spans": 4,
            **attrs,
        },
    )


def test_words_describe_the_training():
    told = " ".join(in_words(history()))
    assert "measured 5 times from step 0 to 400: 4 heads in 2 layers" in told
    assert "1 of 4 heads are sparse at the end" in told
    assert "at the start 0 were. Became sparse: layer 1 head 0." in told
    assert "1 head sinks" in told and "layer 1 head 0: 62 %" in told
    assert "goes to the first key on average" in told and "alpha_1 > 0.3), 0 of 4 heads" in told
    assert "on 32 keys in the median head (32 at the start), on 5 in the sparsest" in told
    assert "1 of 4 heads snapped" in told
    assert "layer 1 head 0 at step 200 (90 %: 100 to 300; 2 % of its attention at most" in told
    assert "Intervals are over sequences of this one training" in told
    assert "3 heads: still moving at the end, at 1 to 1 (median 1) of the fastest per lear" in told
    assert "75 % (75 to 75 %) by the keys that the prompt's last queries attended to most" in told
    assert "SnapKV" not in told and "H2O" not in told
    assert "4 heads look for what followed the same token before" in told


def test_words_claim_no_snap_without_reason_to():
    doubtful = history()
    doubtful["snap_missing"][1, 0] = 0.2
    told = " ".join(in_words(doubtful))
    assert "heads snapped" not in told and "a snap was seen but is not claimed" in told
    alone = history().isel(step=[0]).drop_vars(["attention_speed", "snap_step", "snap_state"])
    assert "No snap is claimed: there is only one measurement." in in_words(alone)
    live = history().drop_vars(["attention_speed", "snap_state"])
    assert "each measurement is of other tokens" in " ".join(in_words(live))


def test_words_give_the_reason_why_there_is_no_snap():
    for state, attrs, words in (
        (STOPPED, {}, "3 heads: stopped by the schedule. The learning rate fell below 2 %"),
        (
            UNKNOWN,
            {"snap_clock": "step"},
            "3 heads: cannot tell. Attention came to rest, but the l",
        ),
        (UNKNOWN, {"snap_spans": 2}, "3 heads: cannot tell. The records hold 2 spans of equal"),
        (UNKNOWN, {}, "3 heads: cannot tell. Attention is quiet at the end, but not for long"),
        (NEVER, {}, "3 heads: attention never moved."),
    ):
        dataset = history(**attrs)
        dataset["snap_state"] = dataset["snap_state"].where(dataset["snap_state"] == SNAPPED, state)
        assert words in " ".join(in_words(dataset))


def test_a_sink_at_a_later_key_is_one():
    dataset = history()
    dataset["strongest_mass"][-1, 0, 1] = 0.86
    dataset["strongest_is_first"][-1, 0, 1] = 0
    told = " ".join(in_words(dataset))
    assert "1 head sinks: more than 30 % of the attention goes to a later key on average" in told
    assert "layer 0 head 1: 86 %" in told


def test_the_page_is_whole_and_escaped():
    lint = {
        "steps": [0, 100],
        "unusable": [100],
        "breaks": [],
        "faults": [{"kind": "final", "steps": [100], "words": "step 100 <b>holds</b> the last"}],
    }
    page = report(history(lint=json.dumps(lint), unseen=json.dumps({"a": "Own<Attention>"})))
    assert "<title>Attention of &lt;i&gt;Tiny&lt;/i&gt; &amp; co</title>" in page
    assert "step 100 &lt;b&gt;holds&lt;/b&gt; the last" in page and "Own&lt;Attention&gt;" in page
    assert page.count("</script>") == 2  # no name of a module ends one
    code = re.sub(r'"data": "[^"]*"', "", page)  # of numbers
    assert not re.search(r"https?:|//[a-z]|src=|@import|url\(", code)
    assert "75.0 %" in page and "error 0.25" in page
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    data = json.loads(held[1])
    assert data["steps"] == list(STEPS) and data["modules"][1] == "block.1</script><b>"
    entropy = {one["name"]: one for one in data["statistics"]}["entropy"]
    assert unpacked(entropy["values"])[4].tolist() == [[2, 2], [2, 2]]
    assert unpacked(entropy["band"])[0, 1, 1] == pytest.approx(0.0196)
    roles, snaps, *caches = data["tables"]
    assert [one["title"] for one in (roles, snaps, caches[1])] == [
        "Roles",
        "Snaps",
        "KV cache of 10 %",
    ]
    assert roles["rows"][2] == ["1", "0", "sink", "0.62", "100", "–"]
    assert snaps["rows"][2][:6] == ["1", "0", "snapped", "200", "100 to 300", "1"]
    assert caches[1]["rows"][0] == [
        "0",
        "0",
        "0.9",
        "0.1",
        "0.5",
        "0.5",
        "0.5",
        "0.5",
        "0.75",
        "0.25",
    ]


def unpacked(packed):
    """Numbers as the page's script reads them."""
    levels = np.frombuffer(base64.b64decode(packed["data"]), "<u2").reshape(len(STEPS), 2, 2)
    low, high = packed["low"], packed["high"]
    return np.where(levels == 65535, np.nan, low + (high - low) * (levels / 65534))


@pytest.mark.slow
def test_a_page_of_a_thousand_heads_is_small():
    steps, heads = np.arange(200), np.arange(32)
    one = history()
    names = [name for name, found in one.data_vars.items() if found.dims[0] == "step"]
    wide = one.isel(layer=[0] * 32, head=[0] * 32, step=[0] * 200)
    wide = wide.assign_coords(layer=heads, head=heads, step=steps)
    rng = np.random.default_rng(0)
    for name in names:
        wide[name] = wide[name] + 0.01 * rng.random(wide[name].shape)
    for name, label in LABELS.items():
        if label.title and label.dims == ("head",) and name not in wide:
            wide[name] = wide["entropy"] * rng.random()
    page = report(wide)
    assert len(page.encode()) < 3_000_000 and "are left out of this page" in page
    assert len(page_data(with_steps(wide))["steps"]) >= 20


def test_a_saved_dataset_gives_the_same_page(tmp_path):
    dataset = history()
    dataset["module"] = ("layer", ["block.0", "block.1"])
    save(dataset, tmp_path / "x.nc")
    page = report(load(tmp_path / "x.nc"), tmp_path / "page.html")
    assert page == report(dataset) == (tmp_path / "page.html").read_text()


def test_long_histories_leave_steps_out_and_say_so(monkeypatch):
    monkeypatch.setattr(
        sys.modules["attnlab.observing.report_page"], "MOST_BYTES", 4 * 10 * 3 * 2.7
    )
    data = page_data(with_steps(history()))
    assert data["steps"] == [0, 200, 400] and data["left_out"] == 2
    assert "2 of the measurements are left out of this page" in report(history())


def test_one_step_of_a_history_is_one_snapshot():
    alone = history().isel(step=2)
    assert "was measured at step 200: 4 heads in 2 layers." in in_words(alone)[0]
    assert "No snap is claimed: there is only one measurement." in in_words(alone)
    assert "was measured at step 200" in report(alone)


def test_one_snapshot_is_a_page_and_other_datasets_are_refused():
    alone = (
        history().drop_vars(["attention_speed", "snap_step", "snap_state"]).isel(step=-1, drop=True)
    )
    assert "measured at step 0" in report(alone)
    with pytest.raises(InputError, match=r"observer.result\(\)"):
        report(xr.Dataset({"loss": ("step", [1.0])}))


def with_attrs(**attrs):
    return lambda dataset: dataset.assign_attrs(attrs)


@pytest.mark.parametrize(
    "change, field",
    [
        (lambda d: d.drop_vars("keys_share"), "keys_share"),
        (lambda d: d.drop_vars("visible_keys"), "visible_keys"),
        (lambda d: d.drop_vars("snap_step"), "snap_step"),
        (lambda d: d.drop_vars("snap_high"), "snap_high"),
        (lambda d: d.drop_vars("mass"), "mass"),
        (lambda d: d.isel(layer=[]), "layer"),
        (lambda d: d.isel(head=[]), "head"),
        (lambda d: d.isel(step=[]), "step"),
        (lambda d: d.isel(step=slice(None, None, -1)), "step"),
        (lambda d: d.assign_coords(step=[0.5, 1, 2, 3, 4]), "step"),
        (lambda d: d.assign_coords(mass=[0.5]), "mass"),
        (lambda d: d.assign_coords(policy=["oracle", "a", "b", "c"]), "policy"),
        (lambda d: d.assign_coords(policy=["oracle"] * 4), "policy"),
        (lambda d: d.isel(budget=[0, 2]), "budget"),
        (lambda d: d.assign(entropy=d["entropy"].astype(str)), "entropy"),
        (lambda d: d.assign(entropy=d["entropy"] > 0), "entropy"),
        (lambda d: d.assign(sink_mass=d["entropy"]), "sink_mass"),
        (lambda d: d.assign(snap_step=d["entropy"]), "snap_step"),
        (lambda d: d.assign(entropy_se=d["snap_step"]), "entropy_se"),
        (lambda d: d.assign_coords(module=("layer", [1, 2])), "module"),
        (lambda d: d.assign(received_start=("key", [1.0])), "received_end"),
        (with_attrs(spec="[]"), "attribute spec"),
        (with_attrs(spec="{"), "attribute spec"),
        (with_attrs(spec='{"checkpoints": 5}'), "attribute spec"),
        (with_attrs(spec=7), "attribute spec"),
        (with_attrs(lint="{}"), "attribute lint"),
        (with_attrs(lint='{"steps": [], "faults": [{}]}'), "attribute lint"),
        (with_attrs(theory='"x"'), "attribute theory"),
        (with_attrs(theory="[" * 10**5), "attribute theory"),
        (with_attrs(unseen='{"a": ["b"]}'), "attribute unseen"),
        (with_attrs(versions="5"), "attribute versions"),
        (with_attrs(seconds="long"), "attribute seconds"),
    ],
)
def test_a_changed_dataset_is_refused_by_name(change, field):
    for make in (report, in_words):
        with pytest.raises(InputError, match=f"dataset: {field}: .*; it was changed after"):
            make(change(history()))


def test_the_order_of_dims_does_not_matter():
    turned = history().transpose("budget", "policy", "head", "layer", "step", "mass", "first")
    assert report(turned) == report(history())
