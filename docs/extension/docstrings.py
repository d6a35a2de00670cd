"""Docstrings as reStructuredText: what is plain text in `help()` stays what it says on a page.

A docstring is prose with `names` in backticks, numpydoc's sections or paragraphs "name: meaning",
examples, and indented lines that are code or formulas. Signs such as * and | mean themselves in it.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from sphinx.application import Sphinx

NAMED = re.compile(r"(\w+(?:, \w+)*): (.*)")
UNDERLINE = re.compile(r"-{3,}")
MARKUP = re.compile(
    r"(``.+?``|(?::[\w:]+:)?`[^`]+`_{0,2}|(?<![\w*])\*{1,2}\w[^*]*?\w\*{1,2}(?![\w*]))"
)


def explained(value: Any) -> dict[str, str]:
    """What a docstring says of each parameter, in plain words."""
    known, found, name, column = _parameters(value), {}, "", 0
    for line in (inspect.getdoc(value) or "").splitlines():
        text, depth = line.strip(), len(line) - len(line.lstrip())
        started = NAMED.fullmatch(text)
        header = re.fullmatch(r"(\w+(?:, \w+)*)(?: : .*)?", text)  # of numpydoc
        if started and known & set(started[1].split(", ")):
            name, column = started[1], depth
            found[name] = [started[2]]
        elif header and depth == 0 and known & set(header[1].split(", ")):
            name, column = header[1], depth
            found[name] = []
        elif name and text and depth > column:
            found[name].append(text)
        else:
            name = ""
    return {one: " ".join(text) for names, text in found.items() for one in names.split(", ")}


def as_rst(lines: list[str], known: set[str]) -> list[str]:
    """The lines of a docstring as reStructuredText.

    known: parameters; a paragraph "name: meaning" of one is an entry of a list.
    """
    found: list[str] = []
    literal: int | None = None  # the depth of what is laid out by hand
    entry: int | None = None  # the depth of a parameter's name
    directive: int | None = None  # the depth of `.. math::`
    before, blank, example = 0, True, False
    for line in lines:
        text, depth = line.strip(), len(line) - len(line.lstrip())
        if not text:
            blank, example = True, False
            found.append("")
            continue
        if directive is not None and depth > directive:
            found.append(line)
            continue
        directive = depth if re.match(r"\.\. \w+::", text) else None
        if literal is not None and depth < literal:
            literal = None
        if literal is None and blank and depth > before and entry is None and not _is_list(text):
            literal = depth
            found += [f"{' ' * before}.. code-block:: {_language(text)}", ""]
        example = example or text.startswith(">>> ")
        named = NAMED.fullmatch(text)
        if literal is not None or example:
            found.append(("   " if literal is not None else "") + line)
        elif named and known & set(named[1].split(", ")):
            entry = depth
            found += ["", f"{' ' * depth}{named[1]}", f"{' ' * depth}    {_escaped(named[2])}"]
        else:
            if entry is not None and depth <= entry:
                entry = None
                found.append("")
            found.append(line[:depth] + (text if UNDERLINE.fullmatch(text) else _escaped(text)))
        if literal is None:
            before = depth
        blank = False
    return [*found, ""]


def _is_list(text: str) -> bool:
    return re.match(r"[-*] |\d+\. ", text) is not None


def _language(text: str) -> str:
    try:
        ast.parse(text)
    except SyntaxError:
        return "text"
    return "python" if re.search(r"[(=]|import", text) else "text"


def _escaped(text: str) -> str:
    """Signs of plain text, kept from meaning something else; markup stays."""
    parts = MARKUP.split(text)
    for i in range(0, len(parts), 2):
        plain = re.sub(r"([\\*|])", r"\\\1", parts[i])
        plain = re.sub(r"(?<=\w)_(?!\w)", r"\\_", plain)
        # markup begins and ends at a space or a sign; elsewhere one is put that is not shown
        plain = "\\ " + plain if i and re.match(r"[\w(\[]", plain) else plain
        parts[i] = plain + "\\ " if i + 1 < len(parts) and re.search(r"[\w)\].]$", plain) else plain
    return "".join(parts)


def _parameters(value: Any) -> set[str]:
    """Those of a function; of a class its fields, too."""
    fields = {
        name for of in getattr(value, "__mro__", ()) for name in vars(of).get("__annotations__", ())
    }
    try:
        return {*fields, *inspect.signature(value).parameters}
    except (TypeError, ValueError):
        return fields


def _process(_: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines, _parameters(value))


def _as_written(
    _: Sphinx, what: str, name: str, value: Any, options: Any, signature: str, returns: str
) -> tuple[str, str | None] | None:
    """The signature with its annotations as the source has them, not as they are resolved."""
    ours = str(getattr(value, "__module__", "")).startswith("attnlab")
    if not (ours and (inspect.isfunction(value) or inspect.isclass(value))):
        return None
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    if isinstance(made, ast.ClassDef):
        return _fields_as_written(made, value)
    if not isinstance(made, ast.FunctionDef):
        return None
    given = made.args
    if what == "method" and given.args and given.args[0].arg in ("self", "cls"):
        del given.args[0]
    return f"({ast.unparse(given)})", ast.unparse(made.returns) if made.returns else None


def _fields_as_written(made: ast.ClassDef, value: Any) -> tuple[str, None] | None:
    """Those of a NamedTuple or a dataclass, if they are all its own."""
    lines = [line for line in made.body if isinstance(line, ast.AnnAssign)]
    written = {ast.unparse(line.target): line for line in lines}
    try:
        known = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return None
    if not known or not {*known} <= {*written}:
        return None
    shown = []
    for name, of in known.items():
        if of.kind is of.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        line = re.sub(r"field\(default_factory=(\w+)\)", r"\1()", ast.unparse(written[name]))
        shown.append(re.sub(r"field\(default=([^,]+),.*", r"\1", line))
    return f"({', '.join(shown)})", None


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", _as_written)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
