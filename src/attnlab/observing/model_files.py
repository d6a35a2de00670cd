"""Models in folders: their files are checked, read as data, and loaded offline.

Nothing in a folder is trusted, so that each name of a file (in an index, by a link) is checked.
Weights are read from safetensors only: a pickle can run code.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from attnlab.files.documents import shown
from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory, size_words
from attnlab.files.regular import open_regular, read_regular
from attnlab.observing.probe import context_of

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MOST_JSON = 2**24  # bytes
MOST_TEXT = 2**28  # bytes of a tokenizer's file
DEEPEST = 100  # levels of nesting; Python's own tools fail at about 1000
MOST_REASON = 300  # characters of an error of another library
# files that transformers may open beside weights
_TEXTS = (".json", ".txt", ".model", ".jinja")
_TEMPLATES = "additional_chat_templates"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
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
_IGNORED = re.compile(
    r"_?(attn|experts)_implementation(_internal)?|auto_map|configuration_files|_?name_or_path|"
    r"distributed_config|fusion_config|kernel_config|use_kernels|(torch_)?dtype|"
    r"transformers_weights"
)
# tensors of the bare model that some files lack; no attention depends on them
_BESIDE = ("pooler", "position_ids", "masked_bias", "inv_freq")
TOKENIZER = "tokenizer.json"
# files of which one is enough for a tokenizer
_TOKENIZER: tuple[str, ...] = (TOKENIZER, "vocab.json", "vocab.txt", "tokenizer.model")
_TOKENIZER += ("spiece.model", "sentencepiece.bpe.model")


def own_file(folder: Path, name: str) -> Path:
    """Return the path of a file of a model's folder.

    `name` is not trusted: InputError if it leads out of the folder, by itself or by a link. The
    Hugging Face cache keeps the files of a snapshot as links to its blobs, which are allowed.
    """
    path = folder / name
    if os.path.basename(name) != name or name in ("", ".", ".."):
        raise InputError(f"{folder}: {name!r} is not the name of a file in this folder; refused")
    try:
        real = Path(os.path.realpath(path))
    except ValueError:  # a NUL
        raise InputError(f"{folder}: no file can be called {name!r}") from None
    if not any(real.is_relative_to(home) for home in _homes(folder)):
        raise InputError(
            f"{path}: a link to {real}, outside of the folder; refused, put the file itself there"
        )
    return path


def check_texts(folder: Path) -> None:
    """Refuse a folder whose configuration or tokenizer could not be opened safely.

    transformers opens these files itself, and would wait for a named pipe for ever.
    """
    inner = own_file(folder, _TEMPLATES)
    for place in (folder, inner) if inner.is_dir() else (folder,):
        for entry in sorted(os.listdir(place)):
            if entry.endswith(_TEXTS) and not (place / entry).is_dir():
                with open_regular(own_file(place, entry)) as file:
                    if os.fstat(file.fileno()).st_size > MOST_TEXT:
                        raise InputError(f"{place / entry}: too large for a text of a model")


def read_object(folder: Path, name: str, *, most: int = MOST_JSON) -> dict[str, Any]:
    """Return the JSON object in a file of a model's folder, of at most `most` bytes."""
    path = own_file(folder, name)
    content = read_regular(path, most=most, advice="that is not a file of a model")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):  # not JSON, not text, or nested without end
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{path}: damaged (not a JSON object); fetch it again")
    if _too_deep(found):
        raise InputError(f"{path}: damaged (nested deeper than {DEEPEST} levels); fetch it again")
    return found


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model, as transformers chooses them: model.safetensors, or
    those of an index, or else all of the folder."""
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if WEIGHTS in names:
        names = [WEIGHTS]
    elif os.path.lexists(folder / INDEX):
        names = _listed(folder)
    if not names:
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
        raise InputError(
            f"{folder}: no weights in it; expected *.safetensors"
            + "".join(
                f" ({name} is not read: it is a pickle, which can run code; save the model with "
                "save_pretrained, which writes safetensors)"
                for name in pickles[:1]
            )
        )
    return [own_file(folder, name) for name in names]


@contextmanager
def open_weights(folder: Path) -> Iterator[dict[str, Any]]:
    """Open the weight files of a model: safetensors' view of the file, by the name of each tensor.

    Files are in order, and names in order within each.
    """
    from safetensors import safe_open

    with ExitStack() as stack:
        found: dict[str, Any] = {}
        for path in weight_files(folder):
            stack.enter_context(open_regular(path))  # safetensors would wait for a named pipe
            with as_input_error(f"{path}: damaged", "fetch it again"):
                content = stack.enter_context(safe_open(path, framework="pt"))
                names = sorted(content.keys())
            if twice := found.keys() & names:
                raise InputError(
                    f"{path}: {min(twice)!r} is in another file of the folder, too; keep one"
                )
            found |= dict.fromkeys(names, content)
        yield found


def tensors_of(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors of a model's files by name, one in memory at a time."""
    with open_weights(folder) as files:
        for name, content in files.items():
            with as_input_error(f"{folder}: {name!r} cannot be read", "fetch the files again"):
                tensor = content.get_tensor(name)
            yield name, tensor


@contextmanager
def as_input_error(what: str, remedy: str) -> Iterator[None]:
    """Turn any error of another library that reads an untrusted file into an InputError.

    Libraries raise anything there, from KeyError to panics that are not even an Exception.
    """
    try:
        yield
    except (InputError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as problem:
        raise InputError(f"{what} ({reason(problem)}); {remedy}") from problem


def reason(problem: BaseException) -> str:
    """Return an error of another library as part of a sentence."""
    words = " ".join(str(problem).split())
    kind = type(problem).__name__
    words = words if isinstance(problem, OSError) and words else f"{kind}: {words}".rstrip(": ")
    return words if len(words) <= MOST_REASON else f"{words[:MOST_REASON]}..."


def _homes(folder: Path) -> list[Path]:
    """Return the folders in which the files of a model may lie."""
    own = Path(os.path.realpath(folder))
    snapshots = next((parent for parent in own.parents if parent.name == "snapshots"), None)
    if snapshots is None:
        return [own]
    repository = snapshots.parent  # of the cache, in which repositories may share their blobs
    return [own, repository / "blobs", repository.parent / "blobs"]


def _listed(folder: Path) -> list[str]:
    """Return the files that an index lists."""
    weight_map = read_object(folder, INDEX).get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"{folder / INDEX}: weight_map: expected the file of each tensor, got "
            f"{shown(weight_map)}; fetch it again"
        )
    return sorted(set(names))


def _too_deep(value: Any) -> bool:
    """Check nesting level by level, without recursion."""
    level = [value]
    for _ in range(DEEPEST):
        several = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for inner in several for one in inner if isinstance(one, dict | list)]
    return bool(level)


def load_model(folder: Path, *, device: str = "cpu") -> nn.Module:
    """Return the model of a folder, in float32 and evaluation mode, without its head.

    Only files of the folder are used. Code that comes with a model is never run, weights are read
    from safetensors only, and the attention is PyTorch's own, whatever the configuration asks for.
    A model is refused if weights are missing (random ones would take their place) or not finite,
    or if its configuration describes more than its weights.
    """
    _require_model(folder)
    config = _config(folder)
    problem = as_input_error(f"{folder}: transformers cannot load it", _OWN_MODEL)
    with _quiet_and_offline(), open_weights(folder) as files, problem:
        # read when the model takes them
        tensors = {name: content.get_slice(name) for name, content in files.items()}
        skeleton = _skeleton(folder, config, tensors)
        model, about = type(skeleton).from_pretrained(
            None,
            config=skeleton.config,
            state_dict=tensors,
            dtype=torch.float32,
            attn_implementation=skeleton.config._attn_implementation,
            output_loading_info=True,
        )
    missing = [name for name in about["missing_keys"] if not any(word in name for word in _BESIDE)]
    if missing or about.get("mismatched_keys"):
        names = ", ".join(sorted(map(str, missing))[:3]) or "tensors of other shapes"
        raise InputError(f"{folder}: not all weights are there ({names}); fetch the files again")
    wrong = [name for name, one in model.named_parameters() if not bool(one.isfinite().all())]
    if wrong:
        raise InputError(
            f"{folder}: weights are not finite numbers in {some_of(wrong)}; the training has "
            "diverged, or the file is damaged"
        )
    model.eval()
    loaded: nn.Module = model.to(device)
    return loaded


def _config(folder: Path) -> Any:
    """Return the configuration of a folder, without the keys of `_IGNORED`.

    Numbers of layers are checked before transformers sees them: it makes lists of that length.
    """
    from transformers import AutoConfig

    config = read_object(folder, CONFIG)
    if (way := _find_key(config, "quantization_config")) is not None:
        method = way.get("quant_method") if isinstance(way, dict) else way
        raise InputError(
            f"{folder / CONFIG}: quantization_config: weights are quantised ({shown(method)}); "
            "dequantise the model and save it, or make it yourself and give it to attnlab.observe"
        )
    own = _without_ignored(config)
    _check_layers(folder, own)
    with _quiet_and_offline(), tempfile.TemporaryDirectory() as place:
        Path(place, CONFIG).write_text(json.dumps(own))
        with as_input_error(f"{folder}: transformers cannot load it", _OWN_MODEL):
            loaded = AutoConfig.from_pretrained(
                place, local_files_only=True, trust_remote_code=False, attn_implementation=None
            )
            _check_layers(folder, loaded.to_dict())
    return loaded


def _without_ignored(config: Any) -> Any:
    """Return a configuration without the keys of `_IGNORED`, at any level."""
    if isinstance(config, dict):
        kept = {key: value for key, value in config.items() if not _IGNORED.fullmatch(key)}
        return {key: _without_ignored(value) for key, value in kept.items()}
    return [_without_ignored(value) for value in config] if isinstance(config, list) else config


def _find_key(config: Any, key: str) -> Any:
    """Return the first value of a key at any level; None without one."""
    if not isinstance(config, dict):
        return None
    inner = (_find_key(value, key) for value in config.values())
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
    if asked > 2 * held + SPARE:  # tensors that some files lack are far smaller
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


@contextmanager
def _at_most_modules(folder: Path, most: int) -> Iterator[None]:
    """Refuse to build a model of more modules than `most`, such as experts or groups."""
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
    remedy = "name the folder of one with --tokenizer, or call attnlab.observing.observe_model"
    if not any((place / name).is_file() for name in _TOKENIZER):  # transformers makes an empty one
        raise InputError(f"tokenizer: {place} has none; {remedy}")
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
    """Return the ids of a text; InputError if the tokenizer fails."""
    remedy = "name the folder of another one with --tokenizer"
    with as_input_error(f"tokenizer: that of {place} cannot read the text", remedy):
        ids = list(words(text, **options)["input_ids"])
    if not all(isinstance(one, int) for one in ids):
        raise InputError(f"tokenizer: that of {place} has no id for some of the text; {remedy}")
    return ids


def cut_into_sequences(
    words: Any, ids: list[int], folder: Path, *, sequences: int, length: int
) -> dict[str, Tensor]:
    """Cut tokens into sequences of equal length: a probe for the model of a folder.

    Each has the special tokens that the model expects at its ends. A short text gives fewer
    sequences, or a single shorter one.
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


def some_of(names: Sequence[str]) -> str:
    """Name the first three, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


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


@contextmanager
def _quiet_and_offline() -> Iterator[None]:
    """Keep transformers from messages about things checked here, and from the network."""
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
