"""A layer whose queries and keys are made by hand: a head for each role."""

import torch
from torch import nn
from torch.nn import functional

LENGTH, WORDS = 48, 29
COPIES = torch.randint(WORDS, (4, LENGTH), generator=torch.Generator().manual_seed(1))
MADE = ("sink", "previous token", "self", "duplicate", "induction", "uniform", "dead")


class MadeByHand(nn.Module):
    """One layer with a head for each role; `sharp` scales the logits of the induction head."""

    def __init__(self):
        super().__init__()
        self.sharp = nn.Parameter(torch.zeros(()))

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
