"""Token ids that a model reads, as a corpus of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.files.errors import InputError
from attnlab.measures.arrays import is_torch, to_numpy
from attnlab.tasks.text.corpus import UNKNOWN, Corpus


def corpus_of_ids(ids: Any, *, names: Any, context: int) -> tuple[Corpus, dict[str, int]]:
    """Return the tokens as a corpus of words, and the id of each name.

    Sequences are separated by `context` unknown tokens, so that no window crosses an end. Unknown
    tokens, and those that are called so, belong to no class.

    Parameters
    ----------
    ids : array_like
        Token ids, (sequence, position) or one long sequence, as a model takes them.
    names : tokenizer, sequence of str or None
        A tokenizer, or the names of tokens in the order of their ids; None names a token by its id.
    context : int
        The length of windows that will be looked for.

    Returns
    -------
    tuple
        The corpus, and the id of each name.
    """
    rows = to_numpy(ids) if is_torch(ids) else np.asarray(ids)
    if rows.ndim == 1:
        rows = rows[None]
    if rows.ndim != 2 or rows.size == 0 or not np.issubdtype(rows.dtype, np.integer):
        raise InputError("ids: expected token ids, (sequence, position), as your model takes them")
    used, at = np.unique(rows, return_inverse=True)
    called = _names(used.tolist(), names)
    known = np.array([name != UNKNOWN for name in called])
    at = np.where(known[at], at + 1, 0).reshape(rows.shape)
    apart = np.zeros((len(rows), context), np.int64)
    text = np.concatenate([at, apart], axis=1).ravel()
    corpus = Corpus(
        "the text", "word", (UNKNOWN, *called), text.astype(np.int32), np.zeros(0, np.int32), ""
    )
    return corpus, dict(zip(called, used.tolist(), strict=True))


def _names(used: Sequence[int], names: Any) -> list[str]:
    """Return a name for each of these ids; no two are equal."""
    if names is None:
        return [f"token {i}" for i in used]
    if hasattr(names, "decode"):
        try:
            found = [str(names.decode([i])) for i in used]
        except Exception as problem:  # the tokenizer's own
            raise InputError(
                f"names: the tokenizer cannot decode the tokens ({type(problem).__name__})"
            ) from problem
    else:
        if max(used) >= len(names):
            raise InputError(
                f"names: {len(names)} names, and a token with the id {max(used)}; give the names "
                "of all tokens, or the tokenizer"
            )
        found = [str(names[i]) for i in used]
    seen: set[str] = set()
    for at, (i, name) in enumerate(zip(used, found, strict=True)):
        if name in seen:
            found[at] = f"{name} ({i})"
        seen.add(found[at])
    return found
