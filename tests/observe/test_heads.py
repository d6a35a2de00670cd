"""Layers side by side: the same as each alone, in few operations, with nothing sent again."""

import numpy as np
import pytest
import torch
from small_models import NanoGPT, small_model, tokens
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import attnlab
from attnlab.files.errors import InputError
from attnlab.observing import history, layer_statistics, statistics
from attnlab.observing.probe import make_probe
from attnlab.observing.query_plan import QueryPlan
from attnlab.observing.snapshot import take_snapshot

IDS = tokens(2, 32)
LEAST = 6
VIEWS = {
    "alias",
    "as_strided",
    "detach",
    "diagonal",
    "expand",
    "permute",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unsafe_split",
    "unsqueeze",
    "view",
    "_unsafe_view",
}


class Operations(TorchDispatchMode):
    """Counts what a device would be asked to do."""

    number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.number += function.overloadpacket.__name__ not in VIEWS
        return function(*args, **(kwargs or {}))


def measured(model, inputs, monkeypatch):
    """A snapshot, and the query plans that were made for it."""
    plans, make = [], QueryPlan.of

    def note(*args, **kwargs):
        plans.append(make(*args, **kwargs))
        return plans[-1]

    with monkeypatch.context() as patch:
        patch.setattr(QueryPlan, "of", note)
        found = take_snapshot(model, make_probe(model, inputs), min_keys=LEAST)
    assert plans
    return found, plans


@pytest.mark.parametrize("name", ["plain", "llama", "gpt_oss", "bert"])
def test_layers_side_by_side_are_as_each_alone(name, monkeypatch):
    model = NanoGPT(layers=3).eval() if name == "plain" else small_model(name, "eager")
    inputs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    inputs["attention_mask"][1, 20:] = 0
    inputs = inputs if name == "bert" else IDS
    together, plans = measured(model, inputs, monkeypatch)
    assert all(plan.together > 1 for plan in plans)
    # so small that each layer is cut into blocks
    monkeypatch.setattr(statistics, "BUDGET_BYTES", 2**16)
    alone, plans = measured(model, inputs, monkeypatch)
    assert all(plan.together == 1 and len(plan.cuts[0][1]) > 1 for plan in plans)
    assert list(together.layers) == list(alone.layers)
    for layer, found in together.layers.items():
        for variable in found:
            np.testing.assert_allclose(
                found[variable],
                alone.layers[layer][variable],
                rtol=1e-5,
                atol=1e-6,
                err_msg=f"{layer} {variable}",
            )


def test_a_layer_more_adds_few_operations(monkeypatch):
    """Beside the model's own, on a device each of which takes its time to begin."""
    sent = []
    asarray = torch.asarray

    def note(values, *args, **kwargs):
        sent.extend([values] if isinstance(values, np.ndarray) else [])
        return asarray(values, *args, **kwargs)

    def operations(layers):
        model = NanoGPT(layers=layers).eval()
        observer = attnlab.observe(model, probe=IDS, every=1, min_keys=LEAST)
        for step in range(2):
            observer.step(step)
        sent.clear()
        with Operations() as all_of_them:
            observer.step(2)
        with torch.no_grad(), Operations() as own:
            model(IDS)
        return all_of_them.number - own.number

    monkeypatch.setattr(torch, "asarray", note)
    few, many = operations(4), operations(12)
    assert len(sent) <= 2  # where Lanczos begins
    assert (many - few) / 8 <= 20  # a few of them for the norms of its residual stream


def test_a_mask_that_is_changed_after_it_was_used_is_refused():
    class Careless(nn.Module):
        def forward(self, x):
            mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool)
            x = functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
            mask.tril_()
            return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    model = Careless()
    with pytest.raises(InputError, match="changes the mask of"):
        take_snapshot(model, make_probe(model, (torch.randn(1, 2, 24, 8),)), min_keys=LEAST)


def test_a_mask_is_measured_before_the_training_refills_it():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = torch.ones(24, 24, dtype=torch.bool)

        def forward(self, x):
            return functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)

    model = Masked()
    observer = attnlab.observe(model, live=True, every=1, min_keys=LEAST)
    observer.step(0)
    model(torch.randn(1, 2, 24, 8))
    model.mask.tril_()
    observer.step(1)
    assert (observer.result()["visible_keys"] == 24).all()


def test_motion_is_the_same_on_the_host_and_on_the_device(monkeypatch):
    def changes(most):
        monkeypatch.setattr(layer_statistics, "DEVICE_BYTES", most)
        model = NanoGPT().eval()
        observer = attnlab.observe(model, probe=IDS, every=1, min_keys=LEAST)
        for step in range(3):
            observer.step(step)
            with torch.no_grad():
                model.blocks[0].attention.qkv.weight.mul_(1.5)
        kept = observer.history._last.groups[0].arrays["attention"]
        return type(kept), observer.result()["attention_speed"].values

    here, expected = changes(0)  # on a processor nothing is away
    monkeypatch.setattr(
        layer_statistics, "_device_bytes", lambda values: int(isinstance(values, torch.Tensor))
    )
    monkeypatch.setattr(history, "AT_A_TIME", 1)  # layer by layer
    for most, kind in ((0, np.ndarray), (100, torch.Tensor)):
        where, found = changes(most)
        assert where is kind
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert here is np.ndarray
    assert np.nanmin(expected) > 0


def test_maps_of_another_probe_are_not_compared():
    model = NanoGPT().eval()
    told = history.History()
    told.add(0, take_snapshot(model, make_probe(model, IDS), min_keys=LEAST))
    with pytest.raises(InputError, match="observe one model on one probe"):
        told.add(1, take_snapshot(model, make_probe(model, IDS[:, :24]), min_keys=LEAST))
    assert told.steps == [0]
