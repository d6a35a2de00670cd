"""The loop that most people would write, to compare `attnlab` with.

The 1-layer transformer of "Scan and Snap" (Eqs. 1-2, Section 3.1) in plain PyTorch on the
synthetic family of Fig. 6: one-hot sequences, dense layers, autograd, one run at a time.

    python benchmarks/plain_torch.py --num-last 1 --eta-z 1 --ratio 1 --seeds 3

It imports nothing of attnlab, so that it is a second, independent implementation too.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

NUM_COMMON = 10
NUM_DISTINCT = 10  # per class


class Transformer(nn.Module):
    """One layer, one head: logits x_l^T Z^T x_m, L2 normalisation, decoder Y."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        # The default initialisation of nn.Linear is the one wanted: uniform in +-1/sqrt(M).
        self.attention = nn.Linear(vocab_size, vocab_size, bias=False)
        self.decoder = nn.Linear(vocab_size, vocab_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # B x T x M, one-hot; the last position is the query
        query = x[:, -1]  # B x M
        logits = torch.einsum("btm,bm->bt", self.attention(x), query)
        itself = torch.zeros(x.shape[1], dtype=torch.bool)
        itself[-1] = True
        weights = logits.masked_fill(itself, float("-inf")).softmax(dim=-1)  # B x T
        context = torch.einsum("bt,btm->bm", weights, x)
        return self.decoder(F.normalize(context, dim=-1))  # B x M


def vocabulary_size(num_last: int, next_per_last: int) -> int:
    """M: common tokens, distinct tokens class after class, query tokens, next tokens."""
    num_classes = num_last * next_per_last
    return NUM_COMMON + NUM_DISTINCT * num_classes + num_last + num_classes


def token_probabilities(num_last: int, next_per_last: int) -> Tensor:
    """P(l|n), K x M: 1 for each common token, a ramp from 0.1 to 1 over the class's distinct."""
    num_classes = num_last * next_per_last
    probs = torch.zeros(num_classes, vocabulary_size(num_last, next_per_last))
    probs[:, :NUM_COMMON] = 1
    for k in range(num_classes):
        start = NUM_COMMON + NUM_DISTINCT * k
        probs[k, start : start + NUM_DISTINCT] = torch.linspace(0.1, 1, NUM_DISTINCT)
    return probs / probs.sum(dim=1, keepdim=True)


def query_tokens(num_last: int, next_per_last: int) -> Tensor:
    """psi(n): the query token of each class."""
    first = NUM_COMMON + NUM_DISTINCT * num_last * next_per_last
    return first + torch.arange(num_last).repeat_interleave(next_per_last)


def train(
    num_last: int,
    next_per_last: int,
    eta_y: float,
    eta_z: float,
    steps: int,
    seed: int,
    batch_size: int = 128,
    length: int = 128,
) -> tuple[NDArray[np.float32], float]:
    """Train once; the attention logits Z (row: query, column: token) and the seconds it took."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    vocab_size = vocabulary_size(num_last, next_per_last)
    probs = token_probabilities(num_last, next_per_last)
    queries = query_tokens(num_last, next_per_last)
    num_classes = len(queries)
    next_tokens = vocab_size - num_classes + torch.arange(num_classes)

    model = Transformer(vocab_size)
    optimizer = torch.optim.SGD(
        [
            {"params": model.decoder.parameters(), "lr": eta_y},
            {"params": model.attention.parameters(), "lr": eta_z},
        ],
        momentum=0.9,
    )
    for _ in range(steps):
        classes = torch.randint(num_classes, (batch_size,))
        tokens = torch.multinomial(probs[classes], length - 1, replacement=True)
        tokens = torch.cat([tokens, queries[classes, None]], dim=1)  # B x T
        x = F.one_hot(tokens, vocab_size).float()
        loss = F.cross_entropy(model(x), next_tokens[classes])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.attention.weight.detach().numpy(), time.perf_counter() - start


def distinct_entropy(Z: NDArray[np.float32], num_last: int, next_per_last: int) -> float:
    """Fig. 6's y value: entropy (nats) of c_n over each class's distinct tokens, class mean."""
    probs = token_probabilities(num_last, next_per_last).double().numpy()
    entropies = []
    for k, query in enumerate(query_tokens(num_last, next_per_last).tolist()):
        start = NUM_COMMON + NUM_DISTINCT * k
        distinct = slice(start, start + NUM_DISTINCT)
        z = Z[query, distinct].astype(np.float64)
        c = probs[k, distinct] * np.exp(z - z.max())
        c /= c.sum()
        entropies.append(-(c * np.log(c)).sum())
    return float(np.mean(entropies))


def main() -> None:
    parser = argparse.ArgumentParser(description="Fig. 6's runs in plain PyTorch, one at a time.")
    parser.add_argument("--num-last", type=int, default=1)
    parser.add_argument("--next-per-last", type=int, default=2)
    parser.add_argument("--eta-z", type=float, default=1.0)
    parser.add_argument("--ratio", type=float, default=1.0, help="eta_Y / eta_Z")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()

    entropies, seconds = [], []
    for seed in range(options.seeds):
        Z, spent = train(
            options.num_last,
            options.next_per_last,
            options.ratio * options.eta_z,
            options.eta_z,
            options.steps,
            seed,
        )
        entropies.append(distinct_entropy(Z, options.num_last, options.next_per_last))
        seconds.append(spent)
        print(f"seed {seed}: entropy {entropies[-1]:.3f}, {spent:.2f} s")
    print(
        f"entropy over distinct tokens {np.mean(entropies):.3f} +- {np.std(entropies):.3f}, "
        f"median {np.median(seconds):.2f} s a run ({torch.get_num_threads()} threads)"
    )


if __name__ == "__main__":
    main()
