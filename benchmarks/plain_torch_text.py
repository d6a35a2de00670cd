"""The training loop on text that most people would write, as the yardstick for `attnlab text`.

The same model, batches, optimiser and clipping as `attnlab.simulation.text_run` by default, with
PyTorch's own modules. It imports nothing of attnlab.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

DIM, HIDDEN, CONTEXT, BATCH, DROPOUT, CLIP = 200, 200, 35, 20, 0.2, 0.5


class Transformer(nn.Module):
    """Embedding, sinusoidal positions, post-norm encoder layers, linear decoder."""

    def __init__(self, vocab_size: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 1, HIDDEN, DROPOUT, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.decoder = nn.Linear(DIM, vocab_size)
        self.dropout = nn.Dropout(DROPOUT)
        for weight in (self.embedding.weight, self.decoder.weight):
            nn.init.uniform_(weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        places = torch.arange(CONTEXT)[:, None]
        angles = places * torch.exp(torch.arange(0, DIM, 2) * (-math.log(10000) / DIM))
        positions = torch.stack([angles.sin(), angles.cos()], -1).reshape(CONTEXT, DIM)
        self.register_buffer("positions", positions)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, tokens: Tensor) -> Tensor:  # B x T
        x = self.dropout(self.embedding(tokens) * DIM**0.5 + self.positions)  # B x T x d
        return self.decoder(self.encoder(x, mask=self.mask, is_causal=True))  # B x T x V


class Loop:
    """One run; `advance` takes steps and gives the last loss. half: products in bfloat16."""

    def __init__(
        self,
        ids: NDArray[np.int32],
        vocab_size: int,
        layers: int,
        rate: float,
        optimizer: str = "SGD",
        device: str = "cpu",
        half: bool = False,
    ) -> None:
        torch.manual_seed(0)
        self.model = Transformer(vocab_size, layers).to(device)
        self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), lr=rate)
        length = len(ids) // BATCH
        streams = torch.tensor(ids[: length * BATCH].reshape(BATCH, length)).long()
        self.streams, self.device, self.half = streams.to(device), device, half
        self.step = 0

    def advance(self, count: int) -> float:
        windows = (self.streams.shape[1] - 1) // CONTEXT
        loss = torch.zeros(())
        for _ in range(count):
            first = self.step % windows * CONTEXT
            both = self.streams[:, first : first + CONTEXT + 1]
            with torch.autocast(self.device, torch.bfloat16, enabled=self.half):
                logits = self.model(both[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), both[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.step += 1
        return loss.item()
