"""A PyTorch model learns Markov chains in context, observed: uniform, unigram, bigram, in turn.

The stages and the order of layers of papers/statistical_induction, in half a minute on a laptop.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import attnlab
from attnlab.papers.statistical_induction import theory

SYMBOLS, LENGTH, WIDTH = 3, 50, 16
STEPS, BATCH, EVERY = 240, 64, 20


class Attention(nn.Module):  # one head with a bias for each distance
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = (nn.Linear(WIDTH, n * WIDTH, bias=False) for n in (3, 1))
        self.bias = nn.Parameter(torch.zeros(LENGTH))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        lag = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        bias = self.bias[lag.clamp(min=0)].masked_fill(lag < 0, -torch.inf)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=bias))


def draw(rng, size):
    chains = theory.dirichlet(rng, size, SYMBOLS)
    return torch.tensor(theory.sample(rng, chains, LENGTH + 1))


rng = np.random.default_rng(0)
torch.manual_seed(0)
embedding, decoder = nn.Embedding(SYMBOLS, WIDTH), nn.Linear(WIDTH, SYMBOLS, bias=False)
model = nn.Sequential(embedding, Attention(), Attention(), nn.LayerNorm(WIDTH), decoder)
adam = torch.optim.AdamW(model.parameters(), 1e-2, betas=(0.9, 0.95))
held = draw(rng, 512)[:, :-1]
rules, nearest = theory.last_rules(held.numpy(), SYMBOLS), []
with attnlab.observe(model, probe=held[:16], every=EVERY) as observer:
    for step in range(STEPS + 1):
        if step % EVERY == 0:  # the rule of counting nearest to the model at the last position
            logs = model(held)[:, -1].log_softmax(-1).detach().numpy()
            nearest.append(min(rules, key=lambda name: theory.divergence(rules[name], logs).mean()))
        if step == STEPS:
            break
        tokens = draw(rng, BATCH)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
seen = observer.result().isel(head=0)
previous, induction = seen["previous_mass"].sel(layer=0), seen["induction_mass"].sel(layer=1)
print("step  nearest  layer 0: previous token  layer 1: induction above chance")
for row in zip(seen["step"].values, nearest, previous.values, induction.values, strict=True):
    print("{:4}  {:7}  {:.2f}  {:.2f}".format(*row))
