"""Backcopy: a Markov chain in which frequent tokens, the triggers, copy what came before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, refuse_if, require_whole
from attnlab.formulas.chains import stationary
from attnlab.tasks import Batch, Task, markov

if TYPE_CHECKING:
    import jax

IMPOSSIBLE = 1e-30  # probability of what never follows: its logarithm must be finite


@dataclass(frozen=True)
class Backcopy(Task):
    """Next-token prediction; x_{t+1} = x_{t-1} if x_t is a trigger, else x_{t+1} ~ P(x_t, .).

    Tokens are numbered by falling frequency under P, so that the triggers are 0 to k - 1; <s>,
    which opens every sequence, is the last token. The first token after it is drawn by frequency
    from those that are not triggers, so that no two triggers are ever adjacent. The process is the
    released code's.

    Parameters
    ----------
    tokens : int, optional
        V, ordinary tokens.
    triggers : int, optional
        k, how many of them copy.
    length : int, optional
        Positions, <s> among them.
    start_token : bool, optional
        Open sequences with <s>.
    """

    learner: ClassVar[str] = "attnlab.papers.active_dormant.learner:learner_of"

    tokens: int = 16
    triggers: int = 3
    length: int = 48
    start_token: bool = True

    def __post_init__(self) -> None:
        for name, least in (("tokens", 2), ("triggers", 0), ("length", 3)):
            require_whole(name, getattr(self, name), least)
        most, k = self.tokens, self.triggers
        refuse_if(k >= most, "triggers", f"fewer than {most}", k)

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        """Ordinary tokens and <s>."""
        return self.tokens + self.start_token

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw `size` sequences.

        Only ordinary draws are random, and a trigger leads back to the token it was drawn from. So
        the tokens drawn from are a Markov chain; its steps, which fill one position or two, are
        written one behind the other.
        """
        import jax
        import jax.numpy as jnp

        V, wanted = self.tokens, self.length + 1 - self.start_token
        of_first, of_draws = jax.random.split(key)
        bounds = jnp.cumsum(data["P"], -1)[:, :-1]
        u = jax.random.uniform(of_draws, (wanted, size))
        drawn = jax.vmap(lambda row: jnp.searchsorted(row, u))(bounds)  # from each token: V T B
        drawn = jnp.moveaxis(drawn, 0, -1)  # T B V
        back = jnp.where(drawn < self.triggers, jnp.arange(V, dtype=drawn.dtype), drawn)

        def after(before: jax.Array, maps: jax.Array) -> jax.Array:
            return jnp.take_along_axis(maps, before, axis=-1)

        later = jax.lax.associative_scan(after, back)  # where the first t draws lead
        u = jax.random.uniform(of_first, (size,))
        first = jnp.searchsorted(jnp.cumsum(data["first"])[:-1], u, side="right")
        at = jnp.broadcast_to(first[None, :, None], (wanted, size, 1))
        to = jnp.take_along_axis(later, at, axis=-1)[..., 0]
        origin = jnp.concatenate([first[None], to[:-1]])  # T B
        token = jnp.take_along_axis(drawn, origin[..., None], axis=-1)[..., 0]
        copies = token < self.triggers
        place = jnp.cumsum(1 + copies, axis=0) - copies  # of the drawn token; the first has 0
        row = jnp.broadcast_to(jnp.arange(size), place.shape)
        x = jnp.zeros((size, wanted), token.dtype).at[:, 0].set(first)
        x = x.at[row, place].set(token, mode="drop")
        x = x.at[row, jnp.where(copies, place + 1, wanted)].set(origin, mode="drop")
        if self.start_token:
            x = jnp.pad(x, ((0, 0), (1, 0)), constant_values=V)
        return Batch(x[:, :-1], x[:, 1:])

    def references(self, data: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return log-probabilities of the true rule and of bigrams alone, (B, T, vocab_size)."""
        import jax
        import jax.numpy as jnp

        x = batch.inputs
        table = data["P"]
        if self.start_token:
            table = jnp.concatenate([table, data["first"][None]])
            table = jnp.pad(table, ((0, 0), (0, 1)))  # <s> never follows
        bigram = table[x]
        before = jnp.pad(x, ((0, 0), (1, 0)))[:, :-1]
        copied = jax.nn.one_hot(before, self.vocab_size, dtype=bigram.dtype)
        rule = jnp.where((x < self.triggers)[..., None], copied, bigram)
        return {
            name: jnp.log(jnp.maximum(of, IMPOSSIBLE))
            for name, of in (("rule", rule), ("bigram", bigram))
        }


@dataclass(frozen=True)
class BigramBackcopy(Backcopy):
    """Backcopy with random P, drawn once for each seed; random P in place of a text's is ours.

    Rows are Dirichlet(concentration), mixed with a uniform row.

    Parameters
    ----------
    tokens, triggers, length, start_token : optional
        As of `Backcopy`.
    concentration : float, optional
        Of the Dirichlet distribution of each row.
    uniform : float, optional
        Weight of the uniform row, which keeps every token within reach.
    """

    concentration: float = 0.3
    uniform: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        alpha, weight = self.concentration, self.uniform
        refuse_if(not 0 < alpha < float("inf"), "concentration", "more than 0", alpha)
        refuse_if(not 0 < weight <= 1, "uniform", "a number in (0, 1]", weight)

    def draw(self, key: jax.Array) -> dict[str, jax.Array]:
        """Draw P (V, V) and the distribution of the first ordinary token (V,)."""
        import jax
        import jax.numpy as jnp

        V = self.tokens
        P = jax.random.dirichlet(key, jnp.full(V, self.concentration), (V,))
        P = (1 - self.uniform) * P + self.uniform / V
        frequency = markov.stationary(P)
        order = jnp.argsort(-frequency)
        first = jnp.where(jnp.arange(V) < self.triggers, 0.0, frequency[order])
        return {"P": P[order][:, order], "first": first / first.sum()}


@dataclass(frozen=True)
class TextBackcopy(Backcopy):
    """Backcopy with the bigrams of a text's characters, the published setting.

    Published are the 65 characters of tiny Shakespeare and 256 positions; the text that comes with
    attnlab is another, of which these are the most frequent characters.

    Parameters
    ----------
    tokens, triggers, length, start_token : optional
        As of `Backcopy`; the most frequent characters are the tokens.
    text : str, optional
        "builtin", the documentation of Python's standard library, or a text file.
    """

    tokens: int = 64
    length: int = 256
    text: str = "builtin"

    def bigrams(self) -> NDArray[np.float64]:
        """Return the bigram counts of the most frequent characters, normalised, (V, V)."""
        return _bigrams(self.text, self.tokens)

    def tables(self) -> list[dict[str, Any]]:
        """Return P and the distribution of the first ordinary token, the same for all seeds."""
        P = self.bigrams()
        first = stationary(P)
        first[: self.triggers] = 0
        return [{"P": P.astype(np.float32), "first": (first / first.sum()).astype(np.float32)}]

    def draw(self, key: jax.Array, tables: Any = None) -> dict[str, jax.Array]:
        """Return nothing: all seeds share the text."""
        return {}


@lru_cache(maxsize=4)
def _bigrams(source: str, tokens: int) -> NDArray[np.float64]:
    from attnlab.tasks.text.sources import builtin_text, read_text

    text = builtin_text() if source == "builtin" else read_text(Path(source))
    kept = [letter for letter, _ in Counter(text).most_common(tokens)]
    if len(kept) < tokens:
        raise InputError(f"tokens: the text has {len(kept)} characters, got {tokens}; give fewer")
    number = {letter: i for i, letter in enumerate(kept)}
    ids = np.array([number.get(letter, -1) for letter in text])
    pairs = np.stack([ids[:-1], ids[1:]], -1)
    counts = np.zeros((tokens, tokens))
    np.add.at(counts, tuple(pairs[(pairs >= 0).all(-1)].T), 1)
    if not counts.sum(-1).all():
        raise InputError(f"tokens: not all of the {tokens} characters are followed; give fewer")
    P = counts / counts.sum(-1, keepdims=True)
    order = np.argsort(-stationary(P), kind="stable")
    return P[order][:, order]
