"""The public names of a folder, and a page for each name, from their docstrings.

    ```{names} attnlab.theory
    ```

lists those of a folder; their pages are written to docs/reference/api/, which git ignores.
tests/surface.txt has all names. One that several folders list has its page under the one that makes
it; all lists lead there.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

SHORT = 70  # characters of a constant that is shown
REFERENCE = Path(__file__).parents[1] / "reference"
API = REFERENCE / "api"
PAGES = {  # by folder
    page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# "): page
    for page in (REFERENCE / "names").iterdir()
}
PAGE = """\
---
orphan: true
---
# {path}

Of [{folder}]({list}).

{entry}
"""


class Names(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        folder = self.arguments[0]
        rows = [
            f"| {{py:obj}}`{name} <{_target(folder, name, value)}>` | {_told(value)} |"
            for name, value in _values(folder).items()
        ]
        head = ("```{eval-rst}", f".. py:module:: {folder}", "```", "", *_symbols(folder))
        text = "\n".join((*head, "| name | what it is |", "|---|---|", *rows))
        return self.parse_text_to_nodes(text)


def _values(folder: str) -> dict[str, Any]:
    """Public names of a folder, with their values."""
    module = import_module(folder)
    return {name: getattr(module, name) for name in module.__all__}


def _write(_: Sphinx) -> None:
    """Write a page for each name, and remove those of names that are gone."""
    API.mkdir(exist_ok=True)
    written = set()
    for folder, listing in {**PAGES, "attnlab": REFERENCE / "python.md"}.items():
        for name, value in _values(folder).items():
            if _home(folder, name, value) != folder:
                continue
            path = f"{folder}.{name}"
            text = PAGE.format(
                path=path,
                folder=folder,
                list=f"../{listing.relative_to(REFERENCE)}",
                entry=_entry(path, value),
            )
            page = API / f"{path}.md"
            written.add(page)
            if not page.exists() or page.read_text(encoding="utf-8") != text:
                page.write_text(text, encoding="utf-8")
    for page in {*API.glob("*.md")} - written:
        page.unlink()


def _symbols(folder: str) -> list[str]:
    """Symbols that a folder explains once for all of its functions, as a table of Markdown."""
    _, _, section = (inspect.getdoc(import_module(folder)) or "").partition("Symbols\n-------\n")
    entries = re.findall(r"^(\S.*)\n((?:    .*(?:\n|$))+)", section, re.MULTILINE)
    if not entries:
        return []
    rows = [f"| `{name}` | {_escaped(' '.join(meaning.split()))} |" for name, meaning in entries]
    return ["| symbol | meaning |", "|---|---|", *rows, ""]


def _home(folder: str, name: str, value: Any) -> str:
    """The folder whose page explains a value: the one that makes it, if it lists it, too."""
    if inspect.ismodule(value):
        return value.__name__ if value.__name__ in PAGES else folder
    parts = (getattr(value, "__module__", None) or "").split(".")
    above = [".".join(parts[:n]) for n in range(len(parts), 1, -1)]
    homes = [page for page in above if page in PAGES and name in import_module(page).__all__]
    return homes[0] if homes else folder


def _target(folder: str, name: str, value: Any) -> str:
    home = _home(folder, name, value)
    return home if home != folder and inspect.ismodule(value) else f"{home}.{name}"


def _told(value: Any) -> str:
    """The first sentence of a docstring, for a table of Markdown."""
    first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    sentence = re.split(r"(?<!Eq)(?<!Eqs)(?<!Fig)(?<!Figs)[.] ", first)[0].rstrip(".:")
    return _escaped(sentence)


def _escaped(text: str) -> str:
    """Plain text in a cell of a table of Markdown; `names` in backticks stay code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([|*_<$])", r"\\\1", part) for part in parts
    )


def _entry(path: str, value: Any) -> str:
    module = [f".. py:currentmodule:: {path.rpartition('.')[0]}", ""]
    lines = [f".. auto{_kind(value)}:: {path}"]
    if inspect.isclass(value) or inspect.ismodule(value):
        lines.append("   :members:")
        if inspect.isclass(value) and issubclass(value, tuple):  # fields are explained above
            lines.append(f"   :exclude-members: {', '.join(value._fields)}")
    elif not inspect.isroutine(value):
        shown = repr(value)
        lines = [f".. py:data:: {path}"] + ([f"   :value: {shown}"] if len(shown) < SHORT else [])
    return "\n".join(("```{eval-rst}", *module, *lines, "```"))


def _kind(value: Any) -> str:
    if inspect.ismodule(value):
        return "module"
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function"


def _share_contents(app: Sphinx, page: str, _: str, context: dict[str, Any], __: Any) -> None:
    """Make the navigation once for all pages of names: it lists none of them, and they are in one
    folder. For each page anew it takes a fifth of the time of a build."""
    if page.startswith("reference/api/"):
        if not hasattr(app, "names_contents"):
            app.names_contents = cache(context["toctree"])  # type: ignore[attr-defined]
        context["toctree"] = app.names_contents  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("names", Names)
    app.connect("html-page-context", _share_contents, priority=400)  # before the theme
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
