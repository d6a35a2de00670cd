r"""Mathematics in texts: LaTeX between dollars, as MathML, as Markdown and as plain text.

Browsers draw MathML themselves, so that a page needs no script, no font and nothing from elsewhere.
A terminal gets plain text: `$\dot z_{ml} \le \frac{1}{2}$` as `dz_ml/dt <= 1/2`. Other texts are
plain from the start; `dollars` finds the symbols in them that a page can typeset.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from xml.etree import ElementTree

from markupsafe import Markup, escape

from attnlab.files.errors import InputError

GREEK = re.findall(
    r"\w+",
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi "
    "chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega",
)
FUNCTIONS = ("ln", "log", "exp", "max", "min", "arg", "sup", "inf", "det", "tanh")

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
    """Return plain text with the symbols in it between dollars: `t_0` as `$t_0$`.

    Quoted text, such as a word of a corpus, is left unchanged.
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
    r"""Return HTML of a text with formulas between dollars; words are escaped, `\$` is a dollar."""
    return Markup(_parts(text, lambda words: str(escape(_signs(words))), mathml))


def typeset_plain(text: str) -> Markup:
    """Return HTML of a plain text, with its symbols typeset."""
    return typeset(dollars(text))


def markdown(text: str) -> str:
    """Return Markdown of a text with formulas between dollars, fit for the cell of a table."""
    # a bar would end the cell: U+2223 looks the same
    return _parts(
        text, lambda words: escaped(_signs(words)), lambda latex: f"${latex.replace('|', '∣')}$"
    )


def escaped(words: str) -> str:
    """Return a text with the characters that mean something in Markdown escaped."""
    return re.sub(r"[\\|*_<\[$`&]", r"\\\g<0>", words)


def _signs(words: str) -> str:
    """Return a text with one character for each sign, and no break before %."""
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
    """Return a formula as MathML; refuse unknown commands and what is not LaTeX."""
    math = _tree(latex)
    for part in list(math.iter()):
        _primed(part)
    for part in list(math.iter()):
        _spaced(part)
    math.attrib.clear()
    return ElementTree.tostring(math, encoding="unicode")


def _tree(latex: str) -> ElementTree.Element:
    """Return a formula as a tree of MathML, as the library makes it."""
    from latex2mathml.converter import convert_to_element

    braces = re.sub(r"\\[{}]", "", latex)
    if braces.count("{") != braces.count("}"):
        raise InputError(f"latex: braces do not match in {latex!r}")
    try:
        known = latex.replace(":=", "≔").replace(r"\arg\m", r"\text{arg }\m")
        math = convert_to_element(known)
    except Exception as problem:  # the library's errors have no class in common
        raise InputError(f"latex: {latex!r} is not LaTeX: {type(problem).__name__}") from problem
    for part in math.iter():
        part.text = html.unescape(part.text or "")  # the library writes signs as entities
        if part.text.startswith("\\"):
            raise InputError(f"latex: unknown LaTeX command {part.text} in {latex!r}")
        if len(part) != _CHILDREN.get(part.tag, len(part)):
            raise InputError(f"latex: a part of {latex!r} is missing, in {part.tag}")
    return math


def _primed(part: ElementTree.Element) -> None:
    """Set a prime after its letter: raised, it is invisible without a mathematical font."""
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
    """Set spaces as TeX does: around ln and max, none at | and /."""
    if part.tag == "mi" and part.text == "∣":  # as `markdown` writes a bar
        part.tag, part.text = "mo", "|"
    text = part.text or ""
    if part.tag == "mo" and text in ("|", "‖", "/"):
        # of a pair of bars, one may have an index: neither grows unless \left and \right say so
        stretchy = part.attrib.pop("stretchy", "false")
        part.attrib |= {"lspace": "0", "rspace": "0", "stretchy": stretchy}
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

# Signs of MathML as a terminal shows them; letters are found by their names in Unicode.
PLAIN = {
    **{"≤": "<=", "≥": ">=", "≪": "<<", "≫": ">>", "≲": "<~", "≳": ">~", "≠": "!=", "≈": "~="},
    **{"∼": "~", "∝": "~", "≡": "==", "≔": ":=", "→": "->", "±": "+-", "−": "-", "×": "x"},
    **{"⋅": "*", "·": "*", "∘": "*", "∑": "sum", "∏": "prod", "∫": "int", "∈": "in"},
    **{"⟂": "perp", "⊤": "T"},
    **{"∂": "d", "∞": "infinity", "‖": "|", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")"},
    **{"′": "'", "…": "...", "∣": "∣"},
}
ACCENTS = {"¯": "bar", "^": "hat", "~": "tilde"}
# The tree has no spaces of the source. Those that stand between two terms are written as "\\ ",
# which it keeps; those that only end a command, or pad brackets, are left to TeX.
_SPACE = re.compile(
    r"(?P<kept>\\text\{[^}]*\}"
    r"|\\(?:lvert|lVert|lceil|lfloor|left|sqrt|dot|bar|hat|tilde|frac|math\w+)\s+)"
    r"|(?P<padding>\s+(?=\\(?:rvert|rVert|rceil|rfloor|right)))|\s+"
)


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
    spaced = _SPACE.sub(lambda found: found["kept"] or (" " if found["padding"] else r"\ "), latex)
    text = _line(list(_tree(spaced)))
    return re.sub(r" +", " ", re.sub(r" *∣ *", "|", text)).strip()


def _line(parts: list[ElementTree.Element]) -> str:
    """Return the plain text of a sequence of parts."""
    out = ""
    for i, part in enumerate(parts):
        text = _plain(part)
        if part.tag == "mfrac":
            word = re.search(r"([A-Za-z]+)\s+$", out)
            if word and word[1] in FUNCTIONS:
                out, text = out.rstrip(), f"({text})"
            elif _is_factor(parts[i + 1 : i + 3]):
                text = f"({text})"
        elif part.text == "𝕀" and i + 1 < len(parts) and parts[i + 1].text == "(":
            # the indicator of what stands in brackets
            depth = [_depth(of.text) for of in parts[i + 1 :]]
            end = next(n for n in range(len(depth)) if sum(depth[: n + 1]) == 0)
            inside = _line(parts[i + 2 : i + 1 + end])
            return f"{out}1[{inside}]{_line(parts[i + 2 + end :])}"
        elif part.text == "∞":
            out = out.removesuffix("+")
        out += text
    return out


def _plain(part: ElementTree.Element) -> str:
    """Return the plain text of one part of a tree."""
    parts = list(part)
    match part.tag:
        case "mfrac":
            above, below = (_plain(of).strip() for of in parts)
            product = _outside(below, " /") or re.search(r"\d\(", below)
            above = f"({above})" if _is_sum(above) else above
            return f"{above}/({below})" if _is_sum(below) or product else f"{above}/{below}"
        case "msqrt":
            return f"sqrt({_line(parts).strip()})"
        case "mover":
            accent = parts[1].text or ""
            under = _plain(parts[0])
            return f"d{under}/dt" if accent == "˙" else f"{under}-{ACCENTS[accent]}"
        case "mspace":
            return " "
        case "msub" | "munder" | "msup" | "msubsup" | "munderover":
            return _scripts(part.tag, parts)
    if parts:
        return _line(parts)
    return "".join(map(_symbol, part.text or ""))


def _scripts(tag: str, parts: list[ElementTree.Element]) -> str:
    base, *scripts = parts
    power = _plain(scripts.pop()).strip() if tag in ("msup", "msubsup", "munderover") else ""
    dotted = base.tag == "mover" and base[1].text == "˙"
    out = _plain(base[0] if dotted else base)
    index = f"_{_index(_plain(scripts[0]))}" if scripts else ""
    primes = bool(power) and not power.strip("'")
    if primes and len(index) > 2:  # E'_nn, but t_0'
        out, power = f"{out}{power}", ""
    out = f"d{out}{index}/dt" if dotted else f"{out}{index}"
    if not power or primes or power == "*":
        return f"{out}{power}"
    if index.startswith("_{"):  # a long index reads better after the power
        return f"{out.removesuffix(index)}^{power}{index}"
    simple = re.fullmatch(r"-?\d+(\.\d+)?|[A-Za-z]|perp", power) or power in GREEK
    if out == "e" and not simple:
        return f"exp({power})"
    return f"{out}^{power}" if simple else f"{out}^({power})"


def _symbol(letter: str) -> str:
    """Return a letter or a sign as plain text; Greek letters by their names."""
    if letter in PLAIN:
        return PLAIN[letter]
    named = re.match(
        r"GREEK (?:(SMALL|CAPITAL) LETTER |LUNATE )?(\w+)", unicodedata.name(letter, "")
    )
    if named:
        name = named[2].replace("LAMDA", "LAMBDA")
        return name.capitalize() if named[1] == "CAPITAL" else name.lower()
    text = unicodedata.normalize("NFKC", letter)  # of double-struck and bold letters
    if not text.isascii():
        raise InputError(f"latex: the sign {letter!r} has no plain text; add it to PLAIN")
    return text


def _is_factor(after: list[ElementTree.Element]) -> bool:
    """Check whether what follows a fraction is multiplied by it, so that it needs brackets."""
    spaced = bool(after) and after[0].text == "\N{NO-BREAK SPACE}"
    following = after[1:] if spaced else after[:1]
    if not following:
        return False
    first = following[0]
    while first.tag in ("mrow", "msub", "msup", "msubsup") and len(first):
        first = first[0]
    if first.tag != "mo" or (first.text or "").isalpha():
        return True
    return first.text in ("(", "[", "{", "∑", "∏", "∫", "⌈", "⌊") or (
        spaced and first.text in ("|", "‖")
    )


def _depth(bracket: str | None) -> int:
    return {"(": 1, ")": -1}.get(bracket or "", 0)


def _index(index: str) -> str:
    """Return an index, without braces if it is one word: ml, n', l0 for l_0."""
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
