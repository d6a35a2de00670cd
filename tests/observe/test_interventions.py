"""Losses without a head and with smaller caches, against the same made by hand."""

import copy

import numpy as np
import pytest
import torch
from small_models import NanoGPT, small_model, tokens
from torch.nn import functional

from attnlab.files.errors import InputError
from attnlab.observing import ablate_heads, cache_losses
from attnlab.observing.interventions import CACHES

PROBE = tokens(3)


def loss(logits):
    return float(functional.cross_entropy(logits[:, :-1].flatten(0, 1), PROBE[:, 1:].flatten()))


@torch.no_grad()
def test_a_head_set_to_zero_is_one_whose_output_weights_are_zero():
    model = small_model("gpt2").train()
    found = ablate_heads(model, PROBE, heads=[(1, 2)])
    assert model.training
    model.eval()
    whole = loss(model(PROBE).logits)
    assert float(found.loss) == pytest.approx(whole, rel=1e-5)
    without = copy.deepcopy(model)
    width = model.config.n_embd // model.config.n_head
    without.transformer.h[1].attn.c_proj.weight[2 * width : 3 * width] = 0
    change = found.loss_change.sel(layer=1, head=2)
    assert float(change) == pytest.approx(loss(without(PROBE).logits) - whole, abs=1e-5)
    assert abs(float(change)) > 1e-4 and found.loss_change.notnull().sum() == 1
    assert float(found.loss_change_se.sel(layer=1, head=2)) > 0


@torch.no_grad()
def test_attention_of_torch_alone_can_be_changed_too():
    found = ablate_heads(NanoGPT().eval(), PROBE)
    assert found.loss_change.shape == (2, 4) and (abs(found.loss_change) > 1e-6).all()


@torch.no_grad()
def test_a_cache_of_everything_changes_nothing_and_less_costs_more():
    model = small_model("llama")
    found = cache_losses(model, PROBE, prompt=12, budgets=(0.2, 1.0))
    np.testing.assert_allclose(found.loss_change.sel(policy="SnapKV", budget=1.0), 0, atol=1e-5)
    assert (abs(found.loss_change.sel(budget=0.2)) > 1e-4).all()
    model.eval()
    later = functional.cross_entropy(model(PROBE).logits[:, 12:-1].transpose(1, 2), PROBE[:, 13:])
    assert float(found.loss) == pytest.approx(float(later), rel=1e-5)


def weights(prompt=20, length=26):
    drawn = torch.rand(2, 3, length, length, generator=torch.Generator().manual_seed(0)).tril()
    return drawn / drawn.sum(-1, keepdim=True)


def test_policies_keep_what_their_papers_say():
    prompt, size = 20, 8
    maps = weights(prompt)
    kept = {name: policy(maps, prompt, size) for name, policy in CACHES.items()}
    streaming = kept["StreamingLLM"][0, 0, 2].nonzero()[:, 0]
    assert streaming.tolist() == [0, 1, 2, 3, 19, 20, 21, 22]
    assert (kept["oracle"].sum(-1) == size).all()
    one = torch.where(kept["oracle"], maps[:, :, prompt:], 2.0).amin(-1)
    other = torch.where(kept["oracle"], -1.0, maps[:, :, prompt:]).amax(-1)
    assert (one >= other).all()
    assert (kept["SnapKV"][..., prompt - size : prompt]).all()  # its window is the whole budget
    assert not (kept["SnapKV"][..., : prompt - size]).any()
    for b, h in np.ndindex(2, 3):
        alive = set(range(16, 20))
        score = maps[b, h, :prompt].sum(0)
        alive |= set(score[:16].argsort(descending=True)[:4].tolist())
        for query in range(prompt, maps.shape[-1]):
            alive.add(query)
            assert set(kept["H2O"][b, h, query - prompt].nonzero()[:, 0].tolist()) == alive
            held = sorted(alive)
            own = maps[b, h, query, held]
            score[held] += own / own.sum()
            alive.remove(
                min((key for key in alive if key <= query - 4), key=lambda key: score[key])
            )
    assert (kept["TOVA"] == kept["TOVA"][:, :1]).all() and (kept["TOVA"].sum(-1) == size + 1).all()
    lowest = maps.mean(1)[:, prompt - 1, :prompt].argsort(descending=True)[:, :size]
    assert set(lowest[0].tolist()) <= set(kept["TOVA"][0, 0, 0].nonzero()[:, 0].tolist())


def test_what_has_no_loss_is_refused():
    with pytest.raises(InputError, match="model: its output has no logits for each token"):
        ablate_heads(small_model("llama").model, PROBE)
    with pytest.raises(InputError, match="is not causal self-attention"):
        cache_losses(small_model("bert"), PROBE)
    with pytest.raises(InputError, match="heads: layer 5 head 0"):
        ablate_heads(NanoGPT(), PROBE, heads=[(5, 0)])
    with pytest.raises(InputError, match="policies: LRU is not one of oracle"):
        cache_losses(NanoGPT(), PROBE, policies=["LRU"])
    with pytest.raises(InputError, match="prompt: expected 2 to 22 of 24 tokens"):
        cache_losses(NanoGPT(), PROBE, prompt=24)
