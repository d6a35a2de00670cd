"""Small texts: one whose signs announce two next words of two queries, and one that counts."""

from pathlib import Path
from typing import Any

import numpy as np

from attnlab.simulation import Simulation, text_run
from attnlab.tasks.text import Corpus, open_corpus

# Signs without letters are never queries, so that only the bigrams below make classes.
FILLERS = (".", ",", "(", ")")
# (query, next) -> the signs that stand only before it, the first of them most often
ANNOUNCED = {
    ("the", "cat"): ("11", "12", "13"),
    ("the", "dog"): ("21", "22", "23"),
    ("a", "ship"): ("31", "32", "33"),
    ("a", "train"): ("41", "42", "43"),
}


def corpus_of(words: list[str]) -> Corpus:
    """Words as a corpus whose validation part is its training part."""
    vocabulary = ("<unk>", *dict.fromkeys(word for word in words if word != "<unk>"))
    ids = np.array([vocabulary.index(word) for word in words], dtype=np.int32)
    return Corpus("small", "word", vocabulary, ids, ids, digest="0")


def announced_text(sentences: int, *, length: int = 12, seed: int = 0) -> list[str]:
    """Sentences of `length` words, of which the last two are a query and its next word."""
    draw = np.random.default_rng(seed)
    words: list[str] = []
    for _ in range(sentences):
        ends, own = list(ANNOUNCED.items())[draw.integers(len(ANNOUNCED))]
        weights = np.array([1.0] * len(FILLERS) + [1.2, 0.6, 0.3])
        words += draw.choice([*FILLERS, *own], length - 2, p=weights / weights.sum()).tolist()
        words += ends
    return words


def write_text(folder: Path) -> Path:
    """The file that tests share, so that programs compiled for its shapes are shared too."""
    path = folder / "text.txt"
    path.write_text(" ".join(announced_text(300)))
    return path


def read_corpus(folder: Path) -> Corpus:
    """The corpus of that file."""
    return open_corpus(write_text(folder), cache=folder)


def counting_corpus() -> Corpus:
    """A text in which every token follows from the one before."""
    ids = 1 + (np.arange(4000) * 3 % 17).astype(np.int32)
    vocabulary = ("<unk>", *(f"w{i}" for i in range(17)))
    return Corpus("counting", "word", vocabulary, ids[:3000], ids[3000:], "counting")


def counting_run(**settings: Any) -> Simulation:
    """A small run on it, with some settings of its own; tests share its compiled programs."""
    usual = {
        "length": 8,
        "validation_tokens": 160,
        "heads": 2,
        "dim": 16,
        "mlp": 16,
        "batch_size": 4,
        "steps": 60,
        "every": 20,
        "learning_rate": [0.5, 2.0],
        "seeds": 2,
    }
    return text_run(counting_corpus(), **{**usual, **settings})
