"""Papers that are made for a test: folders with a `paper.yaml` and some code."""

import json
import sys
from pathlib import Path

import yaml

FIELDS = {
    "title": "A paper",
    "short": "Paper",
    "authors": "Somebody",
    "year": 2025,
    "question": "Why?",
    "reading": "printed text",
    "attnlab": ">=0.1",
}


def make_paper(parent, name="made_paper", *, code=None, expected=None, leave_out=(), **fields):
    """Write a paper's folder; `code` is the text of each module. Gives the folder."""
    _forget(name)
    folder = parent / name
    folder.mkdir(parents=True)
    manifest = {"name": name, **FIELDS, **fields}
    for key in leave_out:
        del manifest[key]
    (folder / "paper.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    for module, text in {"__init__": "", **(code or {})}.items():
        path = folder / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    if expected is not None:
        (folder / "expected.json").write_text(json.dumps(expected))
    return folder


def _forget(name):
    """Forget the modules of a paper of this name, whose folder would be taken for the new one."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file and (Path(file).parent / "paper.yaml").exists():  # no other module of this name
        for module in [known for known in sys.modules if known.partition(".")[0] == name]:
            del sys.modules[module]
