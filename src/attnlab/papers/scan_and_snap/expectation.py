"""Theory and measurement: which tokens should gain attention in the first layer, and do they?

A text's frequent bigrams are sequence classes (`attnlab.tasks.text.windows`), and Eq. 10 of "Scan
and Snap" says which of their tokens gain. The theory is of one layer without positions. So the
first layer of a model is what it can be held against, and only in rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab.files.documents import texts_of
from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.measures.received import rank_correlation
from attnlab.tasks.classes import SequenceClasses
from attnlab.tasks.text.corpus import corpus_of_ids
from attnlab.tasks.text.windows import classes_of, find_windows

from .agreement import SCORES, THEORY, score_all

if TYPE_CHECKING:
    from jaxtyping import Float, Int

WORDS = texts_of(__file__)
LEAST_TOKENS = 3  # of a sequence, to be ranked
MOST_NAMED = 5
PERMUTATIONS = 1999
LEVEL = 0.05  # of the test


@dataclass(frozen=True, eq=False)
class Expectation:
    """Rank correlations of scores with what tokens gained in the first layer.

    Parameters
    ----------
    correlation : mapping
        (score: (mean, p)): the mean over the probe's sequences, and the two-sided p of a test that
        permutes the scores over tokens. Sequences share tokens and one model, so that an interval
        over sequences would be far too narrow.
    sequences, tokens
        How many were ranked, and how many tokens in each on average.
    gained, expected : tuple
        The tokens that gained most, and those that the theory says should.
    """

    correlation: dict[str, tuple[float, float]]
    sequences: int
    tokens: float
    gained: tuple[str, ...]
    expected: tuple[str, ...]

    def in_words(self) -> list[str]:
        """Say whether the tokens that gained are those that theory expects."""
        mean, p = self.correlation[THEORY]
        each = {name: f"{mean:.2f} (p = {p:.2g})" for name, (mean, p) in self.correlation.items()}
        values = {
            "found": WORDS["no_sign" if p >= LEVEL else "alike" if mean > 0 else "opposite"],
            "correlation": each.pop(THEORY),
            "others": ", ".join(f"{name} {of}" for name, of in each.items()),
            "of": self,
            "gained": _quoted(self.gained),
            "expected": _quoted(self.expected),
        }
        return [WORDS[name].format(**values) for name in ("answer", "others", "most")]


def expectation(
    dataset: xr.Dataset, text: Any = None, *, names: Any = None, **choice: Any
) -> Expectation:
    """Compare what theories expect of a text with what an observed model's first layer did.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of an observer.
    text : array_like, optional
        The tokens that the model learns from, as for `attnlab.observing.classes`; longer texts tell
        more. By default the probe's own.
    names : tokenizer or sequence of str, optional
        A tokenizer, or the names of tokens in the order of their ids; without it a token is called
        by its number.
    **choice : optional
        Which classes of the text, and at which learning rates and for how many steps theories are
        read: `queries`, `following`, `context`, `min_count`, `eta_y`, `eta_z` and `steps`, as
        `attnlab.papers.scan_and_snap.agreement.measure` explains them.

    Returns
    -------
    Expectation
        Rank correlations with the p of a permutation test; `in_words()` puts them in words.
    """
    if "received_start" not in dataset:
        raise InputError(
            "dataset: does not say which tokens gained attention; measure token ids at two steps "
            "or more"
        )
    tokens = dataset["token"].values
    of_text, ids, expected = _scored(tokens if text is None else text, names, **choice)
    start, end = dataset["received_start"].values, dataset["received_end"].values
    gained, numbers, gains = [], [], np.zeros((2, ids.size))
    for sequence, before, after in zip(tokens, start, end, strict=True):
        gain = _gain(sequence, before, after, ids)
        there = np.isfinite(gain) & np.isfinite(expected).all(axis=0)
        gains += np.where(there, (gain, np.ones_like(gain)), 0.0)
        if there.sum() >= LEAST_TOKENS:
            gained.append(np.where(there, gain, np.nan))
            numbers.append(there.sum())
    if not gained:
        raise InputError(
            "text: no sequence of the probe has three tokens of its sequence classes; give a text "
            "that the probe is of, or a smaller min_count"
        )
    tested = [permutation_test(gained, score) for score in expected]
    with np.errstate(invalid="ignore", divide="ignore"):
        average = gains[0] / gains[1]
    seen = gains[1] > 0
    theory = expected[SCORES.index(THEORY)]
    return Expectation(
        dict(zip(SCORES, tested, strict=True)),
        len(gained),
        float(np.mean(numbers)),
        _most(of_text, np.where(seen, average, -np.inf)),
        _most(of_text, np.where(seen, theory, -np.inf)),
    )


def permutation_test(
    gained: Sequence[Float[Any, " token"]],
    score: Float[Any, " token"],
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> tuple[float, float]:
    """Test whether a score of tokens ranks what they gained, in sequences that share tokens.

    Parameters
    ----------
    gained : sequence of array
        What each token gained in each sequence; NaN where it has none there.
    score : array
        The score of each token; NaN where it has none.
    permutations : int, optional
        How often scores are dealt out to the tokens again.
    seed : int, optional
        Of these.

    Returns
    -------
    tuple
        The mean rank correlation over sequences, and the two-sided p: the share of permutations
        whose mean is as far from 0, the given order among them.
    """
    rng = np.random.default_rng(seed)
    scored = np.flatnonzero(np.isfinite(score))
    dealt = np.tile(score, (1 + permutations, 1))
    dealt[1:, scored] = rng.permuted(dealt[1:, scored], axis=1)
    total = np.zeros(1 + permutations)
    for gain in gained:
        there = np.isfinite(gain) & np.isfinite(score)
        total += rank_correlation(gain[there], dealt[:, there])
    mean = total / len(gained)
    # of equal scores, permutations give the same mean but for rounding
    return float(mean[0]), float(np.mean(np.abs(mean) >= np.abs(mean[0]) - 1e-12))


def sentences(dataset: xr.Dataset, text: Any = None, *, names: Any = None) -> list[str]:
    """Return sentences for the page of a dataset: what theory expects, or why it cannot say.

    From a single step nothing is known to have gained; then the sentence is about the text alone.
    """
    try:
        if "received_start" in dataset or text is None:
            return expectation(dataset, text, names=names).in_words()
        of_text, _, scores = _scored(text, names)
        theory = scores[SCORES.index(THEORY)]
        most = _most(of_text, np.where(np.isfinite(theory), theory, -np.inf))
        return [WORDS["expected"].format(expected=_quoted(most))]
    except InputError as problem:
        return [f"What theory expects is left out: {problem}."]


def _scored(
    text: Any,
    names: Any,
    *,
    context: int = 35,
    eta_y: float = 10.0,
    eta_z: float = 1.0,
    steps: int = 1000,
    **choice: int,
) -> tuple[SequenceClasses, IntArray, Float[Any, "score token"]]:
    """Return the classes of a text, the ids of their tokens, and each of SCORES of them."""
    corpus, id_of = corpus_of_ids(text, names=names, context=context)
    windows = find_windows(corpus, context=context, **choice)
    of_text = classes_of(windows)
    held = score_all(of_text, windows, {"eta_y": eta_y, "eta_z": eta_z, "steps": steps})
    ids = np.array([id_of[name] for name in of_text.names or ()])
    return of_text, ids, np.stack([_of_tokens(of_text, score.weight) for score in held])


def _gain(
    sequence: Int[Any, " key"], before: Float[Any, " key"], after: Float[Any, " key"], ids: Any
) -> FloatArray:
    """ln of how many times more attention each token gets; NaN where the sequence has it not."""
    same = sequence[None, :] == ids[:, None]  # token key
    known = same & np.isfinite(before) & np.isfinite(after)
    number = np.where(known.any(axis=1), known.sum(axis=1), np.nan)
    first, last = (np.where(known, one, 0.0).sum(axis=1) / number for one in (before, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.log(last / first)
    return np.where(np.isfinite(gain), gain, np.nan)


def _of_tokens(of_text: SequenceClasses, weight: FloatArray) -> FloatArray:
    """Return a score of tokens, over the classes that have them; NaN for tokens of none."""
    share = of_text.prior[:, None] * of_text.probs
    with np.errstate(invalid="ignore"):
        return (share * weight).sum(axis=0) / np.where(share.any(axis=0), share.sum(axis=0), np.nan)


def _most(of_text: SequenceClasses, values: FloatArray) -> tuple[str, ...]:
    order = np.argsort(-values, kind="stable")
    order = order[np.isfinite(values[order])][:MOST_NAMED]
    names = of_text.names or ()
    return tuple(names[i] for i in order)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"“{name.strip()}”" for name in names)
