"""Corpus: a text as token ids, in a training part and a validation part."""

from __future__ import annotations

import hashlib
import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError, not_installed, refuse_if, require_choice
from attnlab.files.folders import make_folder
from attnlab.files.netcdf import verify_open, write_with_seal
from attnlab.files.regular import open_regular
from attnlab.measures.arrays import is_torch, to_numpy
from attnlab.tasks.text.sources import RawText, read_source

Tokens = Literal["word", "bpe"]
# Part of the cache's keys: raise it when the same text gives other tokens.
TOKEN_VERSION = 1
UNKNOWN = "<unk>"
PAIRS = 4096  # byte-pair tokens by default
FEWEST_PAIRS = 256  # every byte is a token, so that no text is unknown
# A token is one of the marks . , ( ) ! ? ' or a run of anything else. Quotation marks, colons and
# semicolons part words and are dropped; a line's end is a space like any other.
_TOKEN = re.compile(r"[.,()!?']|[^\s.,()!?'\";:]+")


@dataclass(frozen=True)
class Source:
    """A corpus by name, which is read when it is used; the fields are those of `open_corpus`.

    Parameters
    ----------
    name : str, optional
        As `open_corpus` takes it.
    tokens : {"word", "bpe"}, optional
        "word" or "bpe".
    vocab_size : int, optional
        Number of tokens to keep.
    validation : str, optional
        A text file to validate on.
    digest : str, optional
        Of the corpus that it was; a text that has changed since is refused.
    """

    name: str = "builtin"
    tokens: Tokens = "word"
    vocab_size: int | None = None
    validation: str | None = None
    digest: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        _check(self.tokens, self.vocab_size)

    def open(self) -> Corpus:
        """Read it."""
        corpus = open_corpus(
            self.name, tokens=self.tokens, vocab_size=self.vocab_size, validation=self.validation
        )
        if self.digest not in (None, corpus.digest):
            raise InputError(f"corpus: {self.name} is another text than it was; take the old one")
        return corpus


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text as token ids.

    Parameters
    ----------
    name : str
        Name of the text.
    tokens : {"word", "bpe"}
        "word" (basic English, lower case) or "bpe" (bytes and pairs).
    vocabulary : tuple
        The tokens as text, in the order of their ids, from the training part.
    train, validation : NDArray[np.int32]
        Token ids in the order of the text; read-only.
    digest : str
        SHA-256 of the vocabulary and both parts. Corpora with the same are equal.
    source : Source, optional
        How it can be opened again.
    """

    name: str
    tokens: Tokens
    vocabulary: tuple[str, ...]
    train: NDArray[np.int32]
    validation: NDArray[np.int32]
    digest: str
    source: Source | None = None

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Corpus) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def vocab_size(self) -> int:
        """V, the number of tokens."""
        return len(self.vocabulary)

    @property
    def unknown(self) -> int | None:
        """The id of <unk>; None for byte-pair tokens, which know every text."""
        return 0 if self.tokens == "word" else None

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some token ids; words are joined by spaces."""
        tokens = [self.vocabulary[int(i)] for i in ids]
        return " ".join(tokens) if self.tokens == "word" else join_pairs(tokens)

    def __repr__(self) -> str:
        return (
            f"Corpus({self.name!r}: {len(self.train):,} + {len(self.validation):,} "
            f"{self.tokens} tokens, vocabulary {self.vocab_size:,})"
        )


def open_corpus(
    source: str | Path,
    *,
    tokens: Tokens = "word",
    vocab_size: int | None = None,
    validation: str | Path | None = None,
    cache: Path | None = None,
) -> Corpus:
    """Read a text and number its tokens, or take them from the cache.

    Parameters
    ----------
    source : str or path
        "builtin" (the standard library's documentation topics), "wikitext-2", "wikitext-103", a
        text file, or a folder; see `attnlab.tasks.text.sources.read_source`.
    tokens : {"word", "bpe"}, optional
        "word", lower-cased basic English, or "bpe", byte pairs (extra `text`).
    vocab_size : int, optional
        Number of tokens to keep, <unk> among them; all words by default, 4096 for "bpe".
    validation : str or path, optional
        A text file to validate on, instead of the source's own part or its last tenth.
    cache : path, optional
        The folder of the token cache; by default $ATTNLAB_CACHE, or attnlab in the user's.
    """
    _check(tokens, vocab_size)
    text = read_source(source, validation)
    key = _digest(
        f"{TOKEN_VERSION} {tokens} {vocab_size}".encode(),
        text.train.encode(),
        text.validation.encode(),
    )
    folder = cache_folder() if cache is None else cache
    path = folder / "tokens" / f"{key}.npz"
    arrays = read_arrays(path)
    if arrays is None:
        arrays = _number(text, tokens, vocab_size)
        keep_arrays(path, arrays, inside=folder)
    train, held = arrays["train"].astype(np.int32), arrays["validation"].astype(np.int32)
    letters = arrays["vocabulary"].tobytes()
    for part in (train, held):
        part.setflags(write=False)
    return Corpus(
        name=text.name,
        tokens=tokens,
        vocabulary=tuple(letters.decode().split("\n")),
        train=train,
        validation=held,
        digest=_digest(letters, train.tobytes(), held.tobytes()),
        source=Source(
            str(source), tokens, vocab_size, None if validation is None else str(validation)
        ),
    )


def _check(tokens: Any, vocab_size: int | None) -> None:
    require_choice("tokens", tokens, get_args(Tokens))
    refuse_if(vocab_size is not None and vocab_size < 2, "vocab_size", "at least 2", vocab_size)


def _number(
    text: RawText, tokens: Tokens, vocab_size: int | None
) -> dict[str, NDArray[np.generic]]:
    """Return the ids of both parts, and the vocabulary as UTF-8 lines (no token has a newline)."""
    if tokens == "word":
        words = list(split_words(text.train))
        vocabulary = count_vocabulary(words, vocab_size)
        train = number_words(words, vocabulary)
        held = number_words(split_words(text.validation), vocabulary)
    else:
        tokenizer = learn_pairs(text.train, vocab_size)
        places = tokenizer.get_vocab()
        vocabulary = tuple(sorted(places, key=lambda token: places[token]))
        train = number_pairs(text.train, tokenizer)
        held = number_pairs(text.validation, tokenizer)
    letters = np.frombuffer("\n".join(vocabulary).encode(), dtype=np.uint8)
    return {"vocabulary": letters, "train": train, "validation": held}


def _digest(*parts: bytes) -> str:
    sha = hashlib.sha256()
    for part in parts:
        sha.update(len(part).to_bytes(8, "little"))
        sha.update(part)
    return sha.hexdigest()


# -- words ---------------------------------------------------------------------------------------


def split_words(text: str) -> Iterator[str]:
    """Yield lower-cased basic English tokens: "It's (so)." gives it ' s ( so ) ."""
    return (match.group() for match in _TOKEN.finditer(text.lower()))


def count_vocabulary(words: Iterable[str], size: int | None = None) -> tuple[str, ...]:
    """Return <unk> and then the words, most frequent first, in alphabetical order where equal.

    With `size`, only the most frequent ones, so that with <unk> there are `size` words.
    """
    counts = Counter(words)
    counts.pop(UNKNOWN, None)  # WikiText marks its rare words so
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return (UNKNOWN, *ranked[: None if size is None else size - 1])


def number_words(words: Iterable[str], vocabulary: tuple[str, ...]) -> NDArray[np.int32]:
    """Return the index of each word in the vocabulary, 0 for one that is not in it."""
    places = {word: place for place, word in enumerate(vocabulary)}
    return np.fromiter((places.get(word, 0) for word in words), dtype=np.int32)


# -- byte pairs, by the `tokenizers` package (extra `text`) ---------------------------------------


def learn_pairs(text: str, size: int | None = None) -> Any:
    """Train a byte-level BPE tokeniser of `size` tokens on a text."""
    tokenizers = _tokenizers()
    size = PAIRS if size is None else size
    if size < FEWEST_PAIRS:
        raise InputError(
            f"vocab_size: byte-pair tokens need at least {FEWEST_PAIRS} (one for each byte), "
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
        raise not_installed("tokens: bpe", "tokenizers", extra="text") from None
    return tokenizers


# -- token ids that a model reads ------------------------------------------------------------------


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


# -- cache: arrays in files named by the hash of what they were made from ------------------------


def cache_folder() -> Path:
    """Return $ATTNLAB_CACHE, or attnlab in the user's cache folder."""
    chosen = os.environ.get("ATTNLAB_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "attnlab"


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]] | None:
    """Return the arrays that were kept, or None: an absent or damaged file is made again.

    Files are sealed as results are: numpy believes the size that stands before an array, and would
    return a part of a damaged file without an error.
    """
    try:
        with open_regular(path) as file:
            verify_open(file, path)
            file.seek(0)
            with np.load(file, allow_pickle=False) as kept:
                return {name: kept[name] for name in kept.files}
    except (OSError, ValueError):
        return None


def keep_arrays(path: Path, arrays: dict[str, NDArray[np.generic]], *, inside: Path) -> None:
    """Write arrays to a file in the folder `inside`, whole or not at all; warn where it fails."""
    try:
        make_folder(path.parent, inside=inside)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        with atomic_path(path, inside=inside) as temporary:
            write_with_seal(temporary, content)
    except (OSError, InputError) as problem:
        warnings.warn(f"the token cache is not used: {problem}", stacklevel=2)
