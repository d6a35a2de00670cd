"""A new paper: the example `own_paper` under another name."""

from __future__ import annotations

import keyword
import os
import re
from pathlib import Path

from attnlab.files.errors import InputError
from attnlab.files.shipped import template_folder
from attnlab.shelf import shelf
from attnlab.shelf.papers import folder_of

EXAMPLE = "own_paper"
SUFFIXES = (".py", ".yaml", ".json", ".md", ".toml")  # what building and running leave is not ours

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def new_paper(name: str, *, out: Path | str = ".") -> Path:
    """Write a new paper, a working copy of the example, into a folder of its name.

    Parameters
    ----------
    name : str
        The paper's name: lower-case words with "_" between them. What the paper offers is named
        after it, with "-" between the words.
    out : path or str, optional
        The folder for its folder.

    Returns
    -------
    Path
        The paper's folder.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InputError(f"name: expected lower-case words with _ between them, got {name!r}")
    if any(known.name == name for known in shelf().papers):
        raise InputError(f"name: {name!r} is the name of a known paper; give another")
    if (other := folder_of(name)) is not None:
        raise InputError(f"name: a Python module is called {name!r} ({other}); give another")
    folder = Path(out) / name
    if os.path.lexists(folder):
        raise InputError(f"out: {folder} is there already; give another folder")
    example = template_folder()
    words = {EXAMPLE: name, "own-paper": name.replace("_", "-"), "Own Paper": _title(name)}
    for source in sorted(example.rglob("*")):
        inside = source.relative_to(example)
        if not source.is_file() or source.suffix not in SUFFIXES or "build" in inside.parts:
            continue
        text = source.read_text(encoding="utf-8")
        for old, new in words.items():
            text = text.replace(old, new)
        target = folder / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


def _title(name: str) -> str:
    return " ".join(word.capitalize() for word in name.split("_"))
