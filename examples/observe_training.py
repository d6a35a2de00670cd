"""A small GPT learns the built-in text, observed; two minutes on a laptop. Writes observed.html."""

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab.tasks.text import open_corpus

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 64, 4, 2, 64, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), wide, nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1))  # batch place 3 head width
        q, k, v = parts.movedim(-3, 0).transpose(2, 3)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, words, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(ids) + self.places.weight[: ids.shape[1]]))


torch.manual_seed(0)
corpus = open_corpus("builtin", vocab_size=1000)
text, held = (torch.tensor(part).long() for part in (corpus.train, corpus.validation))
model = GPT(corpus.vocab_size)
adam = torch.optim.AdamW(model.parameters(), 3e-3)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
probe = held[: 8 * CONTEXT].view(8, CONTEXT)
with attnlab.observe(model, probe=probe, every=max(1, STEPS // 50)) as observer:  # the one line
    for _ in range(STEPS):
        ids = text[torch.randint(len(text) - CONTEXT, (BATCH, 1)) + torch.arange(CONTEXT + 1)]
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        cosine.step()
observer.report("observed.html", text=text, names=corpus.vocabulary, maps=[(1, 1)])
print(*attnlab.observing.in_words(observer.result()), sep="\n")
