"""Models in folders: read as data, offline, one at a time."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from attnlab.files.documents import shown
from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory, size_words
from attnlab.observing.probe import context_of
from attnlab.observing.weights import (
    CONFIG,
    MOST_TEXT,
    as_input_error,
    check_texts,
    open_weights,
    read_object,
)

MOST_LAYERS = 1000  # of a configuration, unless the files have more tensors than that
SPARE = 2**24  # parameters of the bare model that some files do not have: a pooler, positions
MOST_MODULES = 100_000  # of a model, unless its files have a tenth as many tensors
MOST_GROWTH = 64  # times that a tokenizer may lengthen a text; rules replace a character by one
MOST_BUFFERS = 2**31  # bytes of a model's tables, such as causal masks
_OWN_MODEL = (
    "of an architecture of your own, make the model yourself and give it to attnlab.observe"
)
# keys of a configuration by whose numbers transformers makes lists: n_layer, encoder_layers, depths
_COUNTS = re.compile(
    r"(^|[._])(n|num|number)_\w*(layer|block)|layers(_\w*)?$|depths?$|layer_types$|attention_types$"
)
# Keys of a configuration that choose code, kernels, other files or a dtype. The model is measured
# in float32 with PyTorch's own attention, and of files only those in the folder are read.
_IGNORED = {
    "_attn_implementation", "_attn_implementation_internal", "_experts_implementation",
    "_experts_implementation_internal", "attn_implementation", "auto_map", "configuration_files",
    "distributed_config", "dtype", "experts_implementation", "fusion_config", "kernel_config",
    "name_or_path", "_name_or_path", "torch_dtype", "transformers_weights", "use_kernels",
}  # fmt: skip
# what the bare model has beside its layers, and some files do not: no attention goes through it
_BESIDE = ("pooler", "position_ids", "masked_bias", "inv_freq")
# any of which makes a tokenizer
TOKENIZER = "tokenizer.json"
_TOKENIZER = (
    TOKENIZER, "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model",
    "sentencepiece.bpe.model",
)  # fmt: skip


def load_model(folder: Path, *, device: str = "cpu") -> nn.Module:
    """Return the model of a folder, in float32 and evaluation mode, without its head.

    Only what is in the folder is used. Code that comes with a model is never run, weights are read
    from safetensors alone, and the attention is PyTorch's own, whatever the configuration asks for.
    Refused are weights that are missing (random ones would take their place) or not finite, and
    configurations of models that are larger than their weights.
    """
    _require_model(folder)
    config = _config(folder)
    problem = as_input_error(f"{folder}: transformers cannot load it", _OWN_MODEL)
    with _quiet_and_offline(), open_weights(folder) as files, problem:
        # read when the model takes them
        tensors = {name: content.get_slice(name) for name, content in files.items()}
        skeleton = _skeleton(folder, config, tensors)
        model, about = type(skeleton).from_pretrained(
            None, config=skeleton.config, state_dict=tensors, dtype=torch.float32,
            attn_implementation=skeleton.config._attn_implementation, output_loading_info=True,
        )  # fmt: skip
    missing = [name for name in about["missing_keys"] if not any(word in name for word in _BESIDE)]
    if missing or about.get("mismatched_keys"):
        names = ", ".join(sorted(map(str, missing))[:3]) or "tensors of other shapes"
        raise InputError(f"{folder}: not all weights are there ({names}); fetch the files again")
    wrong = [name for name, one in model.named_parameters() if not bool(one.isfinite().all())]
    if wrong:
        more = "" if len(wrong) <= 3 else f" and {len(wrong) - 3} more"
        raise InputError(
            f"{folder}: weights are not finite numbers in {', '.join(wrong[:3])}{more}; the "
            "training has diverged, or the file is damaged"
        )
    model.eval()
    loaded: nn.Module = model.to(device)
    return loaded


def _config(folder: Path) -> Any:
    """Return the configuration of a folder, without what says how to compute or where to look.

    Numbers of layers are checked before transformers sees them: it makes lists as long as them.
    """
    from transformers import AutoConfig

    config = read_object(folder, CONFIG)
    if (way := _find(config, "quantization_config")) is not None:
        method = way.get("quant_method") if isinstance(way, dict) else way
        raise InputError(
            f"{folder / CONFIG}: quantization_config: weights are quantised ({shown(method)}); "
            "dequantise the model and save it, or make it yourself and give it to attnlab.observe"
        )
    own = _without(config)
    _check_layers(folder, own)
    with _quiet_and_offline(), tempfile.TemporaryDirectory() as place:
        Path(place, CONFIG).write_text(json.dumps(own))
        with as_input_error(f"{folder}: transformers cannot load it", _OWN_MODEL):
            made = AutoConfig.from_pretrained(
                place, local_files_only=True, trust_remote_code=False, attn_implementation=None
            )
            _check_layers(folder, made.to_dict())
    return made


def _without(config: Any) -> Any:
    """Return a configuration without the keys of `_IGNORED`, at any level."""
    if isinstance(config, dict):
        return {key: _without(value) for key, value in config.items() if key not in _IGNORED}
    return [_without(value) for value in config] if isinstance(config, list) else config


def _find(config: Any, key: str) -> Any:
    """Return the first value of a key at any level, None if it is not there."""
    if not isinstance(config, dict):
        return None
    inner = (_find(value, key) for value in config.values())
    return config.get(key) or next((found for found in inner if found is not None), None)


def _check_layers(folder: Path, config: Any, key: str = "") -> None:
    """Refuse more layers than MOST_LAYERS, unless the weights have as many tensors."""
    if isinstance(config, dict):
        for name, value in config.items():
            _check_layers(folder, value, f"{key}.{name}".lstrip("."))
    elif _COUNTS.search(key):
        several = config if isinstance(config, list) else [config]
        most = max([len(several), *(one for one in several if isinstance(one, int | float))])
        if most > MOST_LAYERS:
            with open_weights(folder) as files:
                held = len(files)
            if most > held:
                raise InputError(
                    f"{folder / CONFIG}: {key}: {shown(most)} are more than the weights in the "
                    f"folder can be of, which have {held:,} tensors; fetch the files again"
                )
        for one in several:
            if isinstance(one, list):
                _check_layers(folder, one, key)


def _skeleton(folder: Path, config: Any, tensors: Mapping[str, Any]) -> Any:
    """Return the model without memory for its weights; refuse it if it is larger than its files."""
    from transformers import AutoModel

    most = max(MOST_MODULES, 10 * len(tensors))
    with torch.device("meta"), _at_most_modules(folder, most):
        skeleton = AutoModel.from_config(config)
    asked = sum(one.numel() for one in skeleton.parameters())
    held = sum(math.prod(one.get_shape()) for one in tensors.values())
    if asked > 2 * held + SPARE:  # what some files do not have is far less
        raise InputError(
            f"{folder / CONFIG}: describes a model of {asked:,} parameters, where the weights in "
            f"the folder are {held:,}; fetch the files again"
        )
    beside = sum(one.numel() * one.itemsize for one in skeleton.buffers())
    if beside > MOST_BUFFERS:
        raise InputError(
            f"{folder / CONFIG}: asks for {size_words(beside)} of tables beside the weights, more "
            f"than {size_words(MOST_BUFFERS)}; is max_position_embeddings right?"
        )
    require_memory(f"{folder}: in float32", 4 * asked + beside)
    return skeleton


@contextlib.contextmanager
def _at_most_modules(folder: Path, most: int) -> Iterator[None]:
    """Refuse to build a model of more modules than `most`: experts, groups, whatever multiplies."""
    count = itertools.count(1)

    def registered(*_: Any) -> None:
        if next(count) > most:
            raise InputError(
                f"{folder / CONFIG}: describes a model of more than {most:,} modules, which the "
                "weights in the folder cannot be of; fetch the files again"
            )

    hook = register_module_module_registration_hook(registered)
    try:
        yield
    finally:
        hook.remove()


def tokens_of_text(
    text: str, folder: Path, *, tokenizer: Path | None = None
) -> tuple[Any, list[int]]:
    """Return the tokenizer of a model's folder, and the ids of a text, without special tokens."""
    from transformers import AutoTokenizer

    _require_model(folder)
    place = tokenizer or folder
    remedy = "name the folder of one with --tokenizer, or give token ids from Python"
    if not any((place / name).is_file() for name in _TOKENIZER):
        raise InputError(
            f"tokenizer: {place} has none; {remedy}"
        )  # transformers makes an empty one
    check_texts(place)
    if (place / TOKENIZER).is_file():
        _check_growth(place, read_object(place, TOKENIZER, most=MOST_TEXT))
    with _quiet_and_offline():
        with as_input_error(f"tokenizer: transformers cannot load that of {place}", remedy):
            words = AutoTokenizer.from_pretrained(
                place, local_files_only=True, trust_remote_code=False
            )
        return words, _ids(words, text, place, add_special_tokens=False)


def _check_growth(place: Path, tokenizer: dict[str, Any]) -> None:
    """Refuse a tokenizer that makes a text many times longer: a few rules fill any memory."""
    growth, rules = 1, [tokenizer.get("normalizer"), tokenizer.get("pre_tokenizer")]
    while rules:
        rule = rules.pop()
        if isinstance(rule, dict):
            rules += rule.values()
            if rule.get("type") == "Replace" and isinstance(rule.get("content"), str):
                growth *= max(1, len(rule["content"]))
        elif isinstance(rule, list):
            rules += rule
    if growth > MOST_GROWTH:
        raise InputError(
            f"tokenizer: {place / TOKENIZER}: its rules can make a text more than {MOST_GROWTH} "
            "times longer; fetch it again"
        )


def _ids(words: Any, text: str, place: Path, **options: Any) -> list[int]:
    """Return the ids of a text, or the tokenizer's problem with it."""
    remedy = "name the folder of another one with --tokenizer"
    with as_input_error(f"tokenizer: that of {place} cannot read the text", remedy):
        ids = list(words(text, **options)["input_ids"])
    if not all(isinstance(one, int) for one in ids):
        raise InputError(f"tokenizer: that of {place} has no id for some of the text; {remedy}")
    return ids


def cut_into_sequences(
    words: Any, ids: list[int], folder: Path, *, sequences: int, length: int
) -> dict[str, Tensor]:
    """A probe of these tokens, for the model of a folder: sequences of equal length.

    Each has the special tokens that the model expects at its ends. A text that is too short gives
    fewer sequences; one that does not fill a single one gives that, shorter.
    """
    before, after = _special(words, folder)
    context = context_of(_config(folder))
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
    if not (folder / CONFIG).is_file():
        raise InputError(
            f"{folder}: no model in it; expected config.json and *.safetensors (if it has several "
            "models in folders, give one of them)"
        )


def _special(words: Any, folder: Path) -> tuple[list[int], list[int]]:
    """Return the ids that the tokenizer puts before and after a sequence."""
    bare = _ids(words, "a", folder, add_special_tokens=False)
    full = _ids(words, "a", folder)
    for i in range(len(full) - len(bare) + 1):
        if full[i : i + len(bare)] == bare:
            return full[:i], full[i + len(bare) :]
    return [], []


@contextlib.contextmanager
def _quiet_and_offline() -> Iterator[None]:
    """Keep transformers from messages about what is checked here, and from the network."""
    from huggingface_hub import constants
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    offline = constants.HF_HUB_OFFLINE
    logging.set_verbosity(logging.CRITICAL)  # errors are raised as well
    logging.disable_progress_bar()
    constants.HF_HUB_OFFLINE = True  # a configuration can name models to fetch
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
