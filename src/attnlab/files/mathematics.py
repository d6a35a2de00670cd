"""Mathematics in texts: LaTeX between dollars, as MathML on a page and as it is in Markdown.

Browsers draw MathML themselves, so that a page needs no script, no font and nothing from elsewhere.
The terminal has plain text: `dollars` finds the letters in it that a page can set.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from functools import cache
from xml.etree import ElementTree

from markupsafe import Markup, escape

from attnlab.files.errors import InputError

GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|lambda|mu|nu|xi|rho|sigma|chi|psi|omega"
    "|Gamma|Delta|Theta"
)
SIGNS = {
    "<=": r"\le", ">=": r"\ge", "<<": r"\ll", ">>": r"\gg", "->": r"\to", "<~": r"\lesssim",
    "infinity": r"\infty", "ln": r"\ln", ".": r" \cdot ", "*": "^*",
}  # fmt: skip
SHOWN = {"==": "=", "<=": "≤", ">=": "≥", "<<": "≪", ">>": "≫", "->": "→", "<~": "≲"}

_INDEX = r"_(?:\{[^{}]*\}|[A-Za-z0-9]+)"
_POWER = r"\^-?\d+(?:\.\d+)?"
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+|\^-?\d+)?"
# beside other letters it is a word, and so it is in a name such as eta-y-denser
_BEFORE, _AFTER = r"(?<![\w\\])(?<!\w-)", r"(?!\w|-[a-z])"
_NAMED = rf"(?:(?:{GREEK})'*(?:{_INDEX})?'*|[A-Za-z]'*{_INDEX}'*|t\*)"
# A symbol needs nothing beside it; a letter alone may be a word, and is taken beside a sign only.
_SYMBOL = (
    rf"{_BEFORE}(?:{_NAMED}(?:{_POWER})?|[A-Za-z]{_POWER}"
    rf"|\|(?:{_NAMED}(?:\(E\))?|[A-Za-z])\|(?:{_POWER})?"
    rf"|\({_NAMED}/{_NAMED}\){_POWER}"
    rf"|(?:(?<!\.)\d+ )?(?:[A-Z] )?ln [A-Z]|10\^-?\d+|-?\d+(?:\.\d+)?e[-+]\d+){_AFTER}"
)
_TERM = rf"(?:{_SYMBOL}|{_BEFORE}(?:{_NUMBER}|[A-Za-z]'*|infinity|sqrt\([A-Z]\)){_AFTER})"
_SIGN = r"(?:/|\.(?=f_)| (?:=|<=|>=|<<|>>|<~|->|<|>) )"
_FORMULA = re.compile(
    rf'"[^"]*"|(?P<formula>(?:{_BEFORE}{_NUMBER} <=? )?'
    rf"(?:{_SYMBOL}(?:{_SIGN}{_TERM})*|{_BEFORE}[A-Za-z]{_AFTER}(?:{_SIGN}{_TERM})+))"
)
_PART = re.compile(
    rf"(?P<number>\d+(?:\.\d+)?)e(?P<exponent>[-+]?\d+)|(?P<greek>{GREEK})(?![a-z])"
    # a prime after n is the index's own, as in f_n'; after 0 it is the letter's, as in t_0'
    r"|(?P<script>[_^])(?:\{(?P<braced>[^{}]*)\}|(?P<bare>[a-z]+'*|-?[A-Za-z0-9]+(?:\.\d+)?))"
    r"|(?P<sign><=|>=|<<|>>|->|<~|infinity|\bln\b|\.(?=f)|\*|\|)|sqrt\((?P<root>[A-Z])\)"
)


def dollars(text: str) -> str:
    """Plain text with the letters and signs of formulas in it between dollars: `t_0` as `$t_0$`.

    What is quoted, such as a word of a corpus, stays as it is.
    """

    def found(match: re.Match[str]) -> str:
        formula = match["formula"]
        return match[0] if formula is None else f"${_PART.sub(_as_latex, formula)}$"

    return _FORMULA.sub(found, text.replace("$", r"\$"))


def _as_latex(part: re.Match[str]) -> str:
    if part["number"]:
        times = "" if float(part["number"]) == 1 else rf"{part['number']} \times "
        return f"{times}10^{{{int(part['exponent'])}}}"
    if part["greek"]:
        return f"\\{part['greek']}"
    if part["script"]:
        index = part["braced"] or part["bare"]
        return f"{part['script']}{index if len(index) == 1 else f'{{{index}}}'}"
    if part["root"]:
        return rf"\sqrt{{{part['root']}}}"
    if part["sign"] == "|":
        return r"\lvert " if part.string[part.end() : part.end() + 1].isalpha() else r" \rvert"
    return SIGNS[part["sign"]]


def typeset(text: str) -> Markup:
    r"""HTML of a text with formulas between dollars; the words are escaped, `\$` is a dollar."""
    return Markup(_parts(text, lambda words: str(escape(_signs(words))), mathml))


def typeset_plain(text: str) -> Markup:
    """HTML of a plain text, with its letters set."""
    return typeset(dollars(text))


def markdown(text: str) -> str:
    """Markdown of a text with formulas between dollars, fit for the cell of a table."""

    def escaped(words: str) -> str:
        return re.sub(r"[\\|*_<\[$]", r"\\\g<0>", _signs(words))

    return _parts(text, escaped, lambda latex: f"${latex}$")


def _signs(words: str) -> str:
    """Signs between words as one character each; no break between a number and its %."""
    shown = re.sub(r"(?<=[ (])(?:==|<=|>=|<<|>>|->|<~)(?=[ )])", lambda sign: SHOWN[sign[0]], words)
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", shown)


def _parts(text: str, words: Callable[[str], str], formula: Callable[[str], str]) -> str:
    parts = re.split(r"(?<!\\)\$", text)
    if len(parts) % 2 == 0:
        raise InputError(rf"latex: a dollar stands alone in {text!r}; a formula has two, \$ is one")
    return "".join(
        formula(part) if i % 2 else words(part.replace(r"\$", "$")) for i, part in enumerate(parts)
    )


# ---------------------------------------------------------------------------------------- MathML

_CHILDREN = {"mfrac": 2, "msub": 2, "msup": 2, "mover": 2, "munder": 2, "msubsup": 3}
_THIN = "0.17em"


@cache
def mathml(latex: str) -> str:
    """A formula as MathML. What is not LaTeX is refused, and so is a command that is not known."""
    from latex2mathml.converter import convert_to_element

    braces = re.sub(r"\\[{}]", "", latex)
    if braces.count("{") != braces.count("}"):
        raise InputError(f"latex: braces do not match in {latex!r}")
    try:
        math = convert_to_element(latex.replace(":=", "≔"))
    except Exception as problem:  # the library's errors have no class in common
        raise InputError(f"latex: {latex!r} is not LaTeX: {type(problem).__name__}") from problem
    for part in math.iter():
        part.text = html.unescape(part.text or "")  # the library writes signs as entities
        if part.text.startswith("\\"):
            raise InputError(f"latex: {part.text} is no command that we know, in {latex!r}")
        if len(part) != _CHILDREN.get(part.tag, len(part)):
            raise InputError(f"latex: a part of {latex!r} is missing, in {part.tag}")
    for part in list(math.iter()):
        _primed(part)
    for part in list(math.iter()):
        _spaced(part)
    math.attrib.clear()
    return ElementTree.tostring(math, encoding="unicode")


def _primed(part: ElementTree.Element) -> None:
    """A prime beside its letter: raised, it cannot be seen unless a mathematical font is there."""
    if part.tag not in ("msup", "msubsup") or part[-1].text not in ("′", "″"):
        return
    base, prime = part[0], ElementTree.Element("mo", {"lspace": "0", "rspace": "0"})
    prime.text = part[-1].text
    if part.tag == "msup":
        part.tag, part[:] = "mrow", [base, prime]
    else:
        letter = ElementTree.Element("mrow")
        letter[:] = [base, prime]
        part.tag, part[:] = "msub", [letter, part[1]]


def _spaced(part: ElementTree.Element) -> None:
    """The spaces of TeX, where a browser has others: around ln and max, none at | and /."""
    text = part.text or ""
    if part.tag == "mo" and text in ("|", "‖", "/"):
        # of a pair of bars, one may have an index: neither grows unless \left and \right say so
        part.attrib |= {"lspace": "0", "rspace": "0", "stretchy": part.get("stretchy", "false")}
    if text == "≔":
        part.tag = "mo"
    if part.tag == "mo" and (text.isalpha() or text == "∞"):
        part.tag = "mi"
    if part.tag == "mi" and len(text) == 1 and "Α" <= text <= "Ω":
        part.set("mathvariant", "normal")
    if part.tag != "mrow":
        return
    before: ElementTree.Element | None = None
    at = 0
    for child in list(part):
        if _is_name(child) and before is not None and before.tag != "mo":
            part.insert(at, _space())
            at += 1
        if before is not None and _is_name(before) and not (_opens(child) or _is_name(child)):
            part.insert(at, _space())
            at += 1
        if child.text in ("+", "−") and (before is None or before.tag == "mo"):
            closes = before is not None and before.text in (")", "]", "|", "‖", "⌉")
            child.attrib |= {} if closes else {"form": "prefix", "lspace": "0", "rspace": "0"}
        before, at = child, at + 1


def _is_name(part: ElementTree.Element) -> bool:
    """Whether this is the name of a function, with an index or a power or without."""
    base = part[0] if part.tag in ("msub", "msup", "msubsup") else part
    return base.tag in ("mi", "mo") and len(base.text or "") > 1 and (base.text or "").isalpha()


def _opens(part: ElementTree.Element) -> bool:
    first = part[0] if part.tag == "mrow" and len(part) else part
    return first.tag == "mo" and first.text in ("(", "[", "{")


def _space() -> ElementTree.Element:
    return ElementTree.Element("mspace", {"width": _THIN})
