"""The loop that most people would write for in-context Markov chains, as a yardstick.

The same data, model and optimizer as benchmarks/trainer.py. It imports nothing of attnlab.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SYMBOLS, DIM = 3, 16


def chains(batch: int, length: int, device: str) -> Tensor:
    """Draw a transition matrix for each sequence, and walk."""
    P = torch.distributions.Dirichlet(torch.ones(SYMBOLS, device=device)).sample((batch, SYMBOLS))
    pi = torch.linalg.matrix_power(P, 1024)[:, 0]
    rows = torch.arange(batch, device=device)
    x = [torch.multinomial(pi, 1)[:, 0]]
    for _ in range(length):
        x.append(torch.multinomial(P[rows, x[-1]], 1)[:, 0])
    return torch.stack(x, 1)


class Attention(nn.Module):
    """Causal attention with learned relative positions."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(DIM, bias=False)
        maps = [nn.Linear(DIM, DIM, bias=False) for _ in range(4)]
        self.q, self.k, self.v, self.out = maps
        self.r = nn.Parameter(torch.randn(length, DIM) * DIM**-0.5)
        lag = torch.arange(length)[:, None] - torch.arange(length)
        self.register_buffer("lag", lag.clamp(min=0))
        self.register_buffer("hidden", lag < 0)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.norm(x)
        q, k, v = self.q(seen), self.k(seen), self.v(seen)
        by_lag = (q @ self.r.T).gather(-1, self.lag.expand(len(x), -1, -1))
        logits = (q @ k.transpose(1, 2) + by_lag) * DIM**-0.5
        weights = logits.masked_fill(self.hidden, -torch.inf).softmax(-1)
        return x + self.out(weights @ v)


class Loop:
    """One run; `advance` takes steps."""

    def __init__(self, length: int, batch: int, layers: int, device: str) -> None:
        torch.manual_seed(0)
        self.length, self.batch, self.device = length, batch, device
        blocks = [Attention(length) for _ in range(layers)]
        head = [nn.LayerNorm(DIM, bias=False), nn.Linear(DIM, SYMBOLS, bias=False)]
        self.model = nn.Sequential(nn.Embedding(SYMBOLS, DIM), *blocks, *head).to(device)
        self.adam = torch.optim.AdamW(self.model.parameters(), 3e-3)

    def choose_threads(self) -> int:
        """Use one thread or all, whichever is quicker here; tensors this small may gain nothing."""
        times = {}
        for threads in (torch.get_num_threads(), 1):
            torch.set_num_threads(threads)
            begun = time.perf_counter()
            self.advance(10)
            times[threads] = time.perf_counter() - begun
        best = min(times, key=lambda threads: times[threads])
        torch.set_num_threads(best)
        return best

    def advance(self, count: int) -> None:
        """Take `count` steps."""
        for _ in range(count):
            x = chains(self.batch, self.length, self.device)
            loss = F.cross_entropy(self.model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()
        if self.device == "cuda":
            torch.cuda.synchronize()
