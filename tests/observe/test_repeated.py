"""Random tokens that come twice show a head that copies."""

import numpy as np
import pytest
import torch
from small_models import NanoGPT, small_model, tokens
from torch import nn
from torch.nn import functional

import attnlab
from attnlab.files.errors import InputError
from attnlab.observing import snapshot
from attnlab.observing.probe import make_probe
from attnlab.observing.snapshot import LENGTH, random_twice


class Copying(nn.Module):
    """Attention by hand: head 0 looks for what followed the same token, head 1 for the token, head
    2 at all alike."""

    def __init__(self, words=97):
        super().__init__()
        self.one_hot = nn.Parameter(torch.eye(words), requires_grad=False)

    def forward(self, ids):
        now = self.one_hot[ids]
        before = functional.pad(now, (0, 0, 1, 0))[:, :-1]
        key = torch.stack([before, now, torch.zeros_like(now)], 1)
        query = torch.stack([now] * 3, 1)
        seen = torch.ones(2 * [ids.shape[1]], dtype=torch.bool).tril(-1)
        seen[:, 0] = True  # the first has to look somewhere
        return functional.scaled_dot_product_attention(
            query, key, key, attn_mask=seen, scale=50.0
        )  # the sharper the surer


def test_are_the_probe_s_own_tokens_and_the_same_again():
    probe = make_probe(NanoGPT(), tokens(3, 60))
    ids = random_twice(NanoGPT(), probe).side.tokens
    assert ids.shape == (4, 60)
    assert torch.equal(ids[:, :30], ids[:, 30:])
    assert set(ids.flatten().tolist()) <= set(probe.side.tokens.flatten().tolist())
    assert all(len(set(one[:30].tolist())) == 30 for one in ids)
    long = make_probe(NanoGPT(context=512), tokens(3, 400))
    assert random_twice(NanoGPT(), long).side.tokens.shape == (4, 2 * LENGTH)


def test_a_head_that_copies_is_found():
    model = Copying()
    observer = attnlab.observe(model, probe=tokens(2, 64), every=1, repeated=True)
    observer.step(0)
    found = observer.result().isel(step=0, layer=0)
    # of the i keys that query i sees, one is meant
    n = np.arange(32, 64)
    chance = (1 / n).mean()
    np.testing.assert_allclose(found.repeated_induction, [1 - chance, -chance, 0], atol=1e-5)
    np.testing.assert_allclose(found.repeated_duplicate, [-chance, 1 - chance, 0], atol=1e-5)
    assert "On random tokens that come twice, 1 head looks for" in observer.report()


def test_repeated_tokens_may_be_shorter_than_min_keys(monkeypatch):
    monkeypatch.setattr(snapshot, "LENGTH", 4)
    model = NanoGPT()
    observer = attnlab.observe(model, probe=tokens(), every=1, repeated=True)
    observer.step(0)
    assert observer.result().repeated_induction.notnull().all()


def test_is_left_out_unless_asked_for():
    model = NanoGPT()
    observer = attnlab.observe(model, probe=tokens(), every=1)
    observer.step(0)
    assert "repeated_induction" not in observer.result()
    with pytest.raises(InputError, match="repeated: live=True"):
        attnlab.observe(NanoGPT(), live=True, repeated=True)
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    with pytest.raises(InputError, match="repeated: the probe has no token ids"):
        attnlab.observe(layer, probe=(torch.randn(2, 16, 8),), repeated=True)


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_repeated_tokens_are_never_padding(name):
    ids, mask = tokens(2), torch.ones(2, 24, dtype=torch.long)
    ids[1, 15:], mask[1, 15:] = 0, 0
    model = small_model(name)
    probe = random_twice(model, make_probe(model, {"input_ids": ids, "attention_mask": mask}))
    assert 0 not in probe.side.tokens
    attnlab.observe(model, probe={"input_ids": ids, "attention_mask": mask}, repeated=True).step(0)
