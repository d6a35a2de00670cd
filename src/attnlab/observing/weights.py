"""Files of a model's folder: they lie in it, are regular, and are read as data.

Names of files come from strangers (an index, a link in the folder), so that each is checked.
Weights are read from safetensors alone: a pickle can run code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.files.documents import shown
from attnlab.files.errors import InputError
from attnlab.files.regular import open_regular, read_regular

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MOST_JSON = 2**24  # bytes
MOST_TEXT = 2**28  # bytes of a tokenizer's file
DEEPEST = 100  # levels of nesting; Python's own tools give up at about 1000
MOST_REASON = 300  # characters of an error of another library
# what transformers may open of a folder beside weights
_TEXTS = (".json", ".txt", ".model", ".jinja")
_TEMPLATES = "additional_chat_templates"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def own_file(folder: Path, name: str) -> Path:
    """Return the path of a file of a model's folder.

    `name` may come from a stranger. Raises InputError if it leads out of the folder, by itself or
    by a link. The Hugging Face cache keeps the files of a snapshot as links to its blobs, which are
    allowed.
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
    """Return the safetensors files of a model, as transformers chooses them.

    These are model.safetensors, or what an index lists, or else all of the folder.
    """
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if WEIGHTS in names:
        names = [WEIGHTS]
    elif os.path.lexists(folder / INDEX):
        names = _listed(folder)
    if not names:
        pickles = sorted(path.name for kind in _PICKLES for path in folder.glob(kind))
        raise InputError(
            f"{folder}: no weights in it; expected *.safetensors"
            + (
                f" (of {pickles[0]} nothing is read: it is a pickle, which can run code; save the "
                "model with save_pretrained, which writes safetensors)"
                if pickles
                else ""
            )
        )
    return [own_file(folder, name) for name in names]


@contextmanager
def open_weights(folder: Path) -> Iterator[dict[str, Any]]:
    """Open the weight files of a model: by the name of each tensor, safetensors' view of its file.

    Files come in their order, and names in theirs.
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
    """Turn any error of another library that reads a stranger's file into an InputError.

    Libraries raise what they like there, from KeyError to panics that are not even an Exception.
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
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return False
    return True
