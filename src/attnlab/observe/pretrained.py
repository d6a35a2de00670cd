"""Models in folders: read as data, offline, one at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.files.errors import InputError
from attnlab.observe.probe import context_of

# what the bare model has beside its layers, and some files do not: no attention goes through it
_BESIDE = ("pooler", "position_ids", "masked_bias", "inv_freq")
# any of which makes a tokenizer
_TOKENIZER = (
    "tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model",
    "sentencepiece.bpe.model",
)  # fmt: skip


def load_model(folder: Path, *, device: str = "cpu") -> nn.Module:
    """The model of a folder, in float32 and evaluation mode, without its head.

    Only what is in the folder is used. Code that comes with a model is never run, and weights are
    read as weights alone. Weights that are missing would be random ones: refused.
    """
    from transformers import AutoModel

    _require_model(folder)
    with _quiet():
        try:
            model, about = AutoModel.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, dtype=torch.float32,
                output_loading_info=True,
            )  # fmt: skip
        except (OSError, ValueError, KeyError, RuntimeError) as problem:
            raise InputError(
                f"{folder}: transformers cannot load it ({_first_line(problem)}); of an "
                "architecture of your own, make the model yourself and give it to attnlab.observe"
            ) from None
    missing = [name for name in about["missing_keys"] if not any(word in name for word in _BESIDE)]
    if missing or about.get("mismatched_keys"):
        names = ", ".join(sorted(map(str, missing))[:3]) or "tensors of other shapes"
        raise InputError(f"{folder}: not all weights are there ({names}); fetch the files again")
    model.eval()
    loaded: nn.Module = model.to(device)
    return loaded


def _context(folder: Path) -> int | None:
    """How long sequences may be that the model of a folder reads, where its configuration says."""
    from transformers import AutoConfig

    with _quiet():
        try:
            config = AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError) as problem:
            raise InputError(
                f"{folder}: an architecture that transformers does not know "
                f"({_first_line(problem)}); make the model yourself and give it to attnlab.observe"
            ) from None
    return context_of(config)


def tokens_of_text(
    text: str, folder: Path, *, tokenizer: Path | None = None
) -> tuple[Any, list[int]]:
    """The tokenizer of a model's folder, and what it makes of a text, without special tokens."""
    from transformers import AutoTokenizer

    _require_model(folder)
    place = tokenizer or folder
    remedy = "name the folder of one with --tokenizer, or give token ids from Python"
    if not any((place / name).is_file() for name in _TOKENIZER):
        raise InputError(
            f"tokenizer: {place} has none; {remedy}"
        )  # transformers makes an empty one
    with _quiet():
        try:
            words = AutoTokenizer.from_pretrained(
                place, local_files_only=True, trust_remote_code=False
            )
        except Exception as problem:  # what is missing shows in many ways
            raise InputError(
                f"tokenizer: transformers cannot load that of {place} ({_first_line(problem)}); "
                f"{remedy}"
            ) from None
        return words, words(text, add_special_tokens=False)["input_ids"]


def cut_into_sequences(
    words: Any, ids: list[int], folder: Path, *, sequences: int, length: int
) -> dict[str, Tensor]:
    """A probe of these tokens, for the model of a folder: sequences of equal length.

    Each has the special tokens that the model expects at its ends. A text that is too short gives
    fewer sequences; one that does not fill a single one gives that, shorter.
    """
    before, after = _special(words)
    context = _context(folder)
    whole = min(length, context) if context is not None else length
    room = whole - len(before) - len(after)
    if not ids:
        raise InputError("text: no token in it; give a text of at least a sentence")
    if room < 1:
        raise InputError(
            f"length: {whole} leaves no room beside the {len(before) + len(after)} special tokens "
            "of a sequence; give more"
        )
    room = min(room, len(ids))
    cut = [ids[i : i + room] for i in range(0, len(ids) - room + 1, room)][:sequences]
    rows = torch.tensor([[*before, *one, *after] for one in cut])
    return {"input_ids": rows}


def _require_model(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one that transformers has saved")
    if not (folder / "config.json").is_file():
        raise InputError(
            f"{folder}: no model in it; expected config.json and *.safetensors (if it has several "
            "models in folders, give one of them)"
        )


def _special(words: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after a sequence."""
    bare = words("a", add_special_tokens=False)["input_ids"]
    full = words("a")["input_ids"]
    for i in range(len(full) - len(bare) + 1):
        if full[i : i + len(bare)] == bare:
            return full[:i], full[i + len(bare) :]
    return [], []


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """transformers says much, and draws bars, about what is checked here."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__
