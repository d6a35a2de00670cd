"""Byte-pair tokens, by the `tokenizers` package (extra `text`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError

DEFAULT_SIZE = 4096
SMALLEST_SIZE = 256  # every byte is a token, so that no text is unknown


def learn_pairs(text: str, size: int | None = None) -> Any:
    """Train a byte-level BPE tokeniser of `size` tokens on a text."""
    tokenizers = _tokenizers()
    size = DEFAULT_SIZE if size is None else size
    if size < SMALLEST_SIZE:
        raise InputError(
            f"vocab_size: byte-pair tokens need at least {SMALLEST_SIZE} (one for each byte), "
            f"got {size}"
        )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_lines(text), trainer)
    return tokenizer


def pair_vocabulary(tokenizer: Any) -> tuple[str, ...]:
    """Return the tokens in the order of their ids, as byte-level characters (Ġ for a space)."""
    places = tokenizer.get_vocab()
    return tuple(sorted(places, key=lambda token: places[token]))


def number_pairs(text: str, tokenizer: Any) -> NDArray[np.int32]:
    """Return the ids of a text's tokens."""
    encoded = tokenizer.encode_batch_fast(_lines(text))
    return np.concatenate([np.asarray(line.ids, dtype=np.int32) for line in encoded])


def join_pairs(tokens: Iterable[str]) -> str:
    """Return the text of the tokens."""
    text: str = _tokenizers().decoders.ByteLevel().decode(list(tokens))
    return text


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise InputError(
            "tokens: byte-pair tokens need the extra 'text': pip install 'attnlab[text]'"
        ) from None
    return tokenizers
