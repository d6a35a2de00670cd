r"""Mathematics in texts: LaTeX between dollars, as MathML, as Markdown and as plain text.

Browsers draw MathML themselves, so that a page needs no script, no font and nothing from elsewhere.
A terminal gets plain text: `$\dot z_{ml} \le \frac{1}{2}$` as `dz_ml/dt <= 1/2`. Other texts are
plain from the start; `dollars` finds the symbols in them that a page can typeset.
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
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "pi",
    "rho",
    "sigma",
    "tau",
    "phi",
    "chi",
    "psi",
    "omega",
    "Gamma",
    "Delta",
    "Theta",
    "Lambda",
    "Xi",
    "Pi",
    "Sigma",
    "Phi",
    "Psi",
    "Omega",
)
FUNCTIONS = ("ln", "log", "exp", "max", "min", "arg", "sup", "inf", "det", "tanh")
WORDS = {name: name for name in (*GREEK, *FUNCTIONS, "sum", "prod", "int", "in", "perp")} | {
    "top": "T",
    "ldots": "...",
    "partial": "d",
    ",": " ",
    ";": " ",
    "quad": " ",
}
# They join two terms, so that a fraction before them needs no brackets.
SIGNS = {
    "le": "<=",
    "ge": ">=",
    "ll": "<<",
    "gg": ">>",
    "lesssim": "<~",
    "gtrsim": ">~",
    "ne": "!=",
    "approx": "~=",
    "sim": "~",
    "propto": "~",
    "equiv": "==",
    "to": "->",
    "pm": "+-",
    "cdot": "*",
    "circ": "*",
    "times": "x",
}
# Spaces after these are left out, and spaces before CLOSING.
OPENING = {
    "lvert": "|",
    "lVert": "|",
    "lceil": "ceil(",
    "lfloor": "floor(",
    "{": "{",
    "left": "",
    "right": "",
}
CLOSING = {"rvert": "|", "rVert": "|", "rceil": ")", "rfloor": ")", "}": "}"}
ACCENTS = ("bar", "hat", "tilde")
FONTS = ("mathbb", "mathbf", "mathcal", "mathrm", "operatorname", "text")

# Symbols and signs of plain text that become LaTeX.
LATEX = {
    "<=": r"\le",
    ">=": r"\ge",
    "<<": r"\ll",
    ">>": r"\gg",
    "->": r"\to",
    "<~": r"\lesssim",
    "infinity": r"\infty",
    "ln": r"\ln",
    ".": r" \cdot ",
    "*": "^*",
}
SHOWN = {"==": "=", "<=": "≤", ">=": "≥", "<<": "≪", ">>": "≫", "->": "→", "<~": "≲"}

_GREEK = "|".join(GREEK)
_INDEX = r"_(?:\{[^{}]*\}|[A-Za-z0-9]+)"
_POWER = r"\^-?\d+(?:\.\d+)?"
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+|\^-?\d+)?"
# beside other letters it is a word, and so it is in a name such as eta-y-denser
_BEFORE, _AFTER = r"(?<![\w\\])(?<!\w-)", r"(?!\w|-[a-z])"
_NAMED = rf"(?:(?:{_GREEK})'*(?:{_INDEX})?'*|[A-Za-z]'*{_INDEX}'*|t\*)"
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
    rf"(?P<number>\d+(?:\.\d+)?)e(?P<exponent>[-+]?\d+)|(?P<greek>{_GREEK})(?![a-z])"
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
    return LATEX[part["sign"]]


def typeset(text: str) -> Markup:
    r"""HTML of a text with formulas between dollars; the words are escaped, `\$` is a dollar."""
    return Markup(_parts(text, lambda words: str(escape(_signs(words))), mathml))


def typeset_plain(text: str) -> Markup:
    """HTML of a plain text, with its letters set."""
    return typeset(dollars(text))


def markdown(text: str) -> str:
    """Markdown of a text with formulas between dollars, fit for the cell of a table."""
    return _parts(text, lambda words: escaped(_signs(words)), lambda latex: f"${latex}$")


def escaped(words: str) -> str:
    """Markdown of words as they are."""
    return re.sub(r"[\\|*_<\[$`&]", r"\\\g<0>", words)


def _signs(words: str) -> str:
    """Signs between words as one character each; no break between a number and its %."""
    shown = re.sub(
        r"(?<![^ (])(?:==|<=|>=|<<|>>|->|<~)(?=[ )])", lambda sign: SHOWN[sign[0]], words
    )
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
    """Check for the name of a function, with an index or a power or without."""
    base = part[0] if part.tag in ("msub", "msup", "msubsup") else part
    return base.tag in ("mi", "mo") and len(base.text or "") > 1 and (base.text or "").isalpha()


def _opens(part: ElementTree.Element) -> bool:
    first = part[0] if part.tag == "mrow" and len(part) else part
    return first.tag == "mo" and first.text in ("(", "[", "{")


def _space() -> ElementTree.Element:
    return ElementTree.Element("mspace", {"width": _THIN})


# ------------------------------------------------------------------------------------ plain text

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)


def plain(text: str) -> str:
    r"""Return a text with formulas between dollars as plain text.

    Parameters
    ----------
    text : str
        Words and formulas, such as ``r"for $t \ge t_0$"``; ``\$`` is a dollar.

    Returns
    -------
    str
        Plain text. A command that is not known raises InputError.

    Examples
    --------
    >>> plain(r"$f_n^\top f_{n'} \to \frac{\eta_Y}{M}$ as $t \to +\infty$")
    "f_n^T f_n' -> eta_Y/M as t -> infinity"
    """
    return _parts(text, str, plain_formula)


@cache
def plain_formula(latex: str) -> str:
    """Return one formula as plain text."""
    return re.sub(r" +", " ", _Formula(latex).until("")).strip()


class _Formula:
    """The tokens of a formula, read from left to right."""

    def __init__(self, latex: str) -> None:
        self.latex = latex
        self.tokens: list[str] = _TOKEN.findall(latex)

    def until(self, end: str) -> str:
        """Read up to the token `end`, or to the end of the formula where it is empty."""
        out = ""
        while self.tokens and self.tokens[0] != end:
            out = self._read(out)
        if end:
            if not self.tokens:
                raise InputError(f"latex: braces do not match in {self.latex!r}")
            self.tokens.pop(0)
        return out

    def _read(self, out: str) -> str:
        """Read one token with its arguments, and return `out` with it."""
        token = self.tokens.pop(0)
        name = token[1:]
        if token.isspace():
            return f"{out} "
        if token == "{":
            return out + self.until("}")
        if token == "}":
            raise InputError(f"latex: braces do not match in {self.latex!r}")
        if token == "^":
            return _raised(out, self._argument())
        if token == "_":
            return f"{out}_{_index(self._argument())}"
        if not token.startswith("\\"):
            return out + token
        if name == "frac":
            return self._fraction(out)
        if name == "dot":
            return f"{out}d{self._with_index()}/dt"
        if name in ACCENTS:
            return f"{out}{self._argument()}-{name}"
        if name == "sqrt":
            return f"{out}sqrt({self._argument().strip()})"
        if name in FONTS:
            return self._font(out)
        if name in OPENING:
            self._skip_space()
            return out + OPENING[name]
        if name in CLOSING:
            return out.rstrip() + CLOSING[name]
        if name == "mid":
            self._skip_space()
            return f"{out.rstrip()}|"
        if name == "infty":
            return f"{out.removesuffix('+')}infinity"
        if name in WORDS or name in SIGNS:
            return out + (WORDS | SIGNS)[name]
        raise InputError(f"latex: unknown LaTeX command {token} in {self.latex!r}")

    def _argument(self) -> str:
        """Read what a command or a script applies to: a group in braces, or one symbol."""
        self._skip_space()
        if not self.tokens:
            raise InputError(f"latex: a part of {self.latex!r} is missing")
        return self._read("")

    def _with_index(self) -> str:
        found = self._argument()
        while self.tokens and self.tokens[0] in ("_", "'"):
            found = self._read(found)
        return found

    def _fraction(self, out: str) -> str:
        above, below = self._argument().strip(), self._argument().strip()
        above = f"({above})" if _is_sum(above) else above
        product = _outside(below, " /") or re.search(r"\d\(", below)
        below = f"({below})" if _is_sum(below) or product else below
        found = f"{above}/{below}"
        word = re.search(r"([A-Za-z]+)\s+$", out)
        if word and word[1] in FUNCTIONS:
            return f"{out.rstrip()}({found})"
        return f"{out}({found})" if self._factor_follows() else out + found

    def _font(self, out: str) -> str:
        found = self._argument()
        if found != "I" or self.tokens[:1] != ["("]:
            return out + found
        # the indicator of what stands in brackets
        self.tokens.pop(0)
        inside, depth = "", 1
        while self.tokens:
            depth += {"(": 1, ")": -1}.get(self.tokens[0], 0)
            if depth == 0:
                self.tokens.pop(0)
                break
            inside = self._read(inside)
        return f"{out}1[{inside}]"

    def _skip_space(self) -> None:
        while self.tokens and self.tokens[0].isspace():
            self.tokens.pop(0)

    def _factor_follows(self) -> bool:
        after = next((token for token in self.tokens if not token.isspace()), "")
        if after.startswith("\\"):
            return after[1:] not in (*SIGNS, *CLOSING, "right", "mid")
        return after.isalnum() or after in ("(", "[", "{", "^")


def _raised(out: str, power: str) -> str:
    power = power.strip()
    if power == "*":
        return f"{out}*"
    simple = re.fullmatch(r"-?\d+(\.\d+)?|[A-Za-z]|perp", power) or power in GREEK
    if re.search(r"(?<![A-Za-z_])e$", out) and not simple:
        return f"{out[:-1]}exp({power})"
    return f"{out}^{power}" if simple else f"{out}^({power})"


def _index(index: str) -> str:
    """An index without braces where it is one word: ml, n', l0 for l_0."""
    index = index.strip()
    if re.fullmatch(r"\w+'*", index):
        return index.replace("_", "")
    return f"{{{index}}}"


def _is_sum(text: str) -> bool:
    """Check whether terms are added, subtracted or compared outside of all brackets."""
    words = re.sub(r"^-|-(?=bar|hat|tilde)", "", text)
    return _outside(words, "+-=<>~")


def _outside(text: str, signs: str) -> bool:
    """Check whether one of the signs stands outside of all brackets."""
    depth = 0
    for letter in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if depth <= 0 and letter in signs:
            return True
    return False
