"""The page as one file, which works where it is opened from a folder, on any host and in a frame.

Browsers load neither modules nor workers from files. So the modules become one script: each a
function that returns its exports, after those that it imports. The worker and the libraries, which
are loaded when they are needed, are texts in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\.[^"]+)"\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:const|class|function\*?) (\w+))", re.MULTILINE)
BEGIN = '<script type="application/json" id="begin">'
PLACE = "place.js"  # says where the worker and the libraries are; here they are texts
WORKER = "worker.js"


def single_page(
    start: dict[str, Any] | None = None, *, api: str | None = None, address: str | None = None
) -> str:
    """Return the page.

    Parameters
    ----------
    start : dict, optional
        The state that it opens on (`opening`); its first experiment by default.
    api : str, optional
        Where it asks for what it does not compute itself: an address, or "parent" for the notebook
        whose frame it is in.
    address : str, optional
        The address of a published page, for links to what is shown.
    """
    playground = resources.files("attnlab.playground")
    page = playground / "page"
    begin = {"start": start, "api": api, "address": address}
    known = {name: value for name, value in begin.items() if value is not None}
    texts = {WORKER: "\n".join(_bundle(page, WORKER, {}))}
    for library in (page / "vendor").iterdir():
        (licence,) = [file for file in library.iterdir() if file.name.startswith("LICENSE")]
        (code,) = [file for file in library.iterdir() if file.name.endswith("js")]
        texts[library.name] = f"/*\n{licence.read_text()}*/\n{code.read_text()}"
    place = (playground / "single_place.js").read_text().replace("TEXTS", json.dumps(texts))
    *modules, main = _bundle(page, "main.js", {PLACE: place})
    script = _in_html("\n".join((*modules, f";(async () => {{\n{main}\n}})()")))
    style = (page / "style.css").read_text()
    whole = (page / "index.html").read_text()
    whole = whole.replace(BEGIN, BEGIN + json.dumps(known).replace("<", "\\u003c"))
    whole = whole.replace('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>")
    whole = whole.replace('<script type="module" src="main.js"></script>', "")
    return whole.replace("</body>", f"<script>{script}</script>\n</body>")


def policy(page: str) -> str:
    """Return a content security policy: the page's own script and style, and nothing else."""

    def only(tag: str) -> str:
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'self'; script-src {only('script')} blob:; style-src {only('style')}; "
        "worker-src blob:; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'"
    )


def _bundle(page: Traversable, path: str, given: dict[str, str]) -> list[str]:
    """Return a module and, before it, those that it imports, each as a function; itself as text.

    given: texts of modules that stand in for those of the folder.
    """
    names: dict[str, str] = {}
    scripts: list[str] = []

    def text_of(path: str) -> str:
        folder, _, _ = path.rpartition("/")

        def imported(found: re.Match[str]) -> str:
            name = module(_resolved(folder, found[2]))
            return f"const {found[1].replace(' as ', ': ')} = {name}\n"

        return IMPORT.sub(imported, given.get(path) or (page / path).read_text())

    def module(path: str) -> str:
        if path not in names:
            names[path] = f"module{len(names)}"
            text = text_of(path)
            exports = ", ".join(EXPORT.findall(text))
            body = EXPORT.sub("", text)
            scripts.append(
                f"const {names[path]} = (() => {{\n{body}\nreturn {{ {exports} }}\n}})()"
            )
        return names[path]

    last = text_of(path)
    return [*scripts, last]


def _resolved(folder: str, name: str) -> str:
    parts = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _in_html(script: str) -> str:
    """Return a script whose texts do not end it in HTML."""
    return re.sub(r"<(?=/script|!--|script)", r"\\u003c", script)
