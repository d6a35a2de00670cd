"""Roles of heads whose queries and keys are made by hand, and when roles form."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import attnlab
from attnlab.observing import in_words
from attnlab.observing.roles import ROLES

LENGTH, WORDS = 48, 29
PROBE = torch.randint(WORDS, (4, LENGTH), generator=torch.Generator().manual_seed(1))
MADE = ("sink", "previous token", "self", "duplicate", "induction", "uniform", "dead")


class MadeByHand(nn.Module):
    """One layer with a head for each role; `sharp` scales the logits of the induction head."""

    def __init__(self):
        super().__init__()
        self.sharp = nn.Parameter(torch.zeros(()))
        self.length = LENGTH

    def forward(self, ids):
        batch, length = ids.shape
        width = WORDS + length + 1
        tokens = functional.one_hot(ids, width).float()
        nothing = torch.zeros_like(tokens)
        at = torch.arange(length)
        place, next_place = (
            functional.one_hot(one, width).float().expand_as(tokens) for one in (at, at + 1)
        )
        before = torch.cat([nothing[:, :1], tokens[:, :-1]], 1)
        first = nothing.clone()
        first[:, 0, 0] = 1
        even = nothing.clone()
        even[..., 0] = 20
        query = torch.stack(
            [even, 20 * place, 20 * place, 20 * tokens, self.sharp * tokens, nothing, nothing], 1
        )
        key = torch.stack([first, next_place, place, tokens, before, nothing, nothing], 1)
        mask = torch.ones(length, length, dtype=torch.bool).tril().repeat(1, len(MADE), 1, 1)
        mask[:, 3] &= ~torch.eye(length, dtype=torch.bool)  # copies, not the token itself
        mask[:, 3, 0, 0] = True
        value = torch.randn(batch, len(MADE), length, 8, generator=torch.Generator().manual_seed(0))
        value[:, -1] = 0
        out = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
        return out.mean() + self.sharp


@pytest.fixture(scope="module")
def result():
    model = MadeByHand()
    observer = attnlab.observe(model, probe=PROBE, every=1, repeated=True)
    for step, model.sharp.data in enumerate(torch.tensor([0.0, 0.5, 1.0, 20.0, 20.0])):
        observer.step(step)
    return observer.result()


def test_each_head_has_the_role_it_was_made_for(result):
    names = list(ROLES)
    assert [names[role] for role in result.head_role.values[0]] == list(MADE)
    score = result.role_score.isel(step=-1, layer=0)
    for head, name in enumerate(MADE):
        assert score.sel(role=name)[head] > 0.9, name
    assert score.sel(role="position-only")[[0, 1, 2, 5]].values == pytest.approx(1.0)
    assert score.sel(role="position-only")[4] < 0.5  # by tokens
    assert score.sel(role="local").values[[1, 2]].min() > 0.9


def test_the_step_at_which_induction_forms(result):
    onset = result.role_onset.sel(role="induction").values[0]
    assert onset[4] == 3 and np.isnan(onset[[0, 1, 2, 5]]).all()
    low, high = (result[f"role_onset_{end}"].sel(role="induction")[0, 4] for end in ("low", "high"))
    assert low == 2 and high == 3
    told = " ".join(in_words(result))
    assert "1 head induction (layer 0 head 4)" in told
    assert "role induction formed first in layer 0 head 4, at step 3 (between 2 and 3" in told
    assert "rose most between steps 2 and 3" in told


def test_one_sequence_says_nothing_about_positions_alone():
    model = MadeByHand()
    observer = attnlab.observe(model, probe=PROBE[:1])
    observer.step(0)
    assert observer.result().position_only.isnull().all()
