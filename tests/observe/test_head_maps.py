"""Maps, profiles and planted facts, of heads that are made by hand."""

import base64
import json
import re

import numpy as np
import pytest
import torch
from made_by_hand import COPIES, LENGTH, MADE, MadeByHand
from small_models import NanoGPT, small_model, tokens

import attnlab
from attnlab.files.errors import InputError
from attnlab.observing import attention_profiles, head_map, needle_scores, parent_scores


@pytest.fixture
def model():
    made = MadeByHand()
    made.sharp.data.fill_(20.0)
    return made


def test_the_map_of_one_head(model):
    names = [f"word {i}" for i in range(100)]
    found = head_map(model, COPIES, layer=0, head=1, sequence=2, names=names)
    assert found.dims == ("query", "key") and found.shape == (LENGTH, LENGTH)
    assert found.values[1:] == pytest.approx(np.eye(LENGTH)[:-1], abs=1e-5)
    assert found.word.values[3] == f"word {COPIES[2, 3]}"
    with pytest.raises(InputError, match="head: layer 0 has 7 heads, got 7"):
        head_map(model, COPIES, layer=0, head=7)
    with pytest.raises(InputError, match="layer: the model has no attention layer 1"):
        head_map(model, COPIES, layer=1, head=0)


def test_the_map_is_drawn_in_the_report(model):
    observer = attnlab.observe(model, probe=COPIES, min_keys=4)
    observer.step(0)
    names = [f"<{i}>" for i in range(100)]
    page = observer.report(maps=[(0, 1), (0, 2)], names=names)
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    first, second = json.loads(held[1])["maps"]
    assert second["title"] == "attention of layer 0 head 2" and "One head on one sequence" in page
    assert first["words"] == [f"<{token}>" for token in COPIES[0].tolist()]
    drawn, (low, high) = first["values"], (first["values"]["low"], first["values"]["high"])
    levels = np.frombuffer(base64.b64decode(drawn["data"]), "<u2").reshape(LENGTH, LENGTH)
    wanted = head_map(model, COPIES, layer=0, head=1)
    np.testing.assert_allclose(low + (high - low) * levels / 65534, wanted, atol=1e-4)
    assert "One head on one sequence" not in observer.report()


@torch.no_grad()
def test_maps_of_a_model_are_those_it_computes():
    model = small_model("gpt2").eval()
    model.set_attn_implementation("eager")
    probe = tokens(2)
    wanted = model(probe, output_attentions=True).attentions[1][1, 3]
    model.set_attn_implementation("sdpa")
    found = head_map(model, probe, layer=1, head=3, sequence=1)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_profiles_say_how_far_heads_look(model):
    found = attention_profiles(model, COPIES).isel(layer=0)
    heads = {name: found.isel(head=i) for i, name in enumerate(MADE)}
    assert heads["sink"].first_mass.values == pytest.approx(1, abs=1e-4)
    assert heads["previous token"].distance_mass.sel(distance=1) == pytest.approx(46 / 48, abs=1e-4)
    assert heads["self"].effective_context == 0 and heads["previous token"].effective_context == 1
    whole = found.distance_mass.sum("distance") + found.first_mass.mean("position")
    assert whole.values == pytest.approx(np.ones(7), abs=1e-5)
    # even attention to i + 1 keys: distance d in the rows from d on, but not at the first key
    even = sum(1 / (i + 1) for i in range(2, LENGTH)) / LENGTH
    assert heads["uniform"].distance_mass.sel(distance=1) == pytest.approx(even, abs=1e-6)


def test_heads_that_follow_a_graph_are_found(model):
    """The previous-token head follows a chain; on pairs, so does each child of a pair."""
    chain = np.arange(LENGTH) - 1
    pairs = np.where(np.arange(LENGTH) % 2, chain, -1)
    for parents in (chain, pairs):
        found = parent_scores(model, COPIES, parents).isel(layer=0)
        heads = {name: found.isel(head=i) for i, name in enumerate(MADE)}
        for name in found:
            assert heads["previous token"][name] == pytest.approx(1, abs=1e-4)
        assert heads["self"].parent_attention < 1e-4 and heads["self"].parent_recovery == 0
    with pytest.raises(InputError, match="parents: no position has a parent"):
        parent_scores(model, COPIES, [-1, -1])


def test_a_planted_fact_is_found_by_the_head_that_copies():
    model = CopyingByHand()
    probe = torch.randint(20, (3, LENGTH), generator=torch.Generator().manual_seed(0))
    found = needle_scores(model, probe, depths=(0.0, 0.5, 1.0))
    assert found.attention.sel(layer=0, head=4).values == pytest.approx(1, abs=1e-3)
    assert (found.attention.sel(layer=0, head=1) < 1e-3).all()
    assert found.loss.shape == (3,)
    with pytest.raises(InputError, match="sequences of at least 8 tokens"):
        needle_scores(NanoGPT(), tokens(1)[:, :6])


class CopyingByHand(MadeByHand):
    """The same with logits, which are even."""

    def __init__(self):
        super().__init__()
        self.sharp.data.fill_(20.0)

    def get_input_embeddings(self):
        return torch.nn.Embedding(29, 1)

    def forward(self, ids):
        return 0 * super().forward(ids) + torch.zeros(*ids.shape, 29)
