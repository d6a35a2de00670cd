r"""Plain text of LaTeX, for terminals: `$\dot z_{ml} \le \frac{1}{2}$` as `dz_ml/dt <= 1/2`."""

from __future__ import annotations

import re
from functools import cache

from attnlab.files.errors import InputError

GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
    "lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "phi", "chi", "psi", "omega",
    "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega",
)  # fmt: skip
FUNCTIONS = ("ln", "log", "exp", "max", "min", "arg", "sup", "inf", "det", "tanh")
WORDS = {name: name for name in (*GREEK, *FUNCTIONS, "sum", "prod", "int", "in", "perp")} | {
    "top": "T", "ldots": "...", "partial": "d",
}  # fmt: skip
# They join two terms, so that a fraction before them needs no brackets.
SIGNS = {
    "le": "<=", "ge": ">=", "ll": "<<", "gg": ">>", "lesssim": "<~", "gtrsim": ">~", "ne": "!=",
    "approx": "~=", "sim": "~", "propto": "~", "equiv": "==", "to": "->", "pm": "+-", "cdot": "*",
    "circ": "*", "times": "x",
}  # fmt: skip
OPENING = {"lvert": "|", "lVert": "|", "lceil": "ceil(", "lfloor": "floor(", "{": "{"}
CLOSING = {"rvert": "|", "rVert": "|", "rceil": ")", "rfloor": ")", "}": "}"}
ACCENTS = {"bar": "bar", "hat": "hat", "tilde": "tilde"}
FONTS = ("mathbb", "mathbf", "mathcal", "mathrm", "operatorname", "text")
SPACES = (",", ";", "quad")

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
    parts = re.split(r"(?<!\\)\$", text)
    if len(parts) % 2 == 0:
        raise InputError(rf"latex: a dollar stands alone in {text!r}; a formula has two, \$ is one")
    return "".join(
        plain_formula(part) if i % 2 else part.replace(r"\$", "$") for i, part in enumerate(parts)
    )


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
            return f"{out}{self._argument()}-{ACCENTS[name]}"
        if name == "sqrt":
            return f"{out}sqrt({self._argument().strip()})"
        if name in FONTS:
            return self._font(out)
        if name in ("left", "right"):
            self._skip_space()
            return out
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
        if name in SPACES:
            return f"{out} "
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
    """Whether terms are added, subtracted or compared outside of all brackets."""
    words = re.sub(r"^-|-(?=bar|hat|tilde)", "", text)
    return _outside(words, "+-=<>~")


def _outside(text: str, signs: str) -> bool:
    """Whether one of the signs stands outside of all brackets."""
    depth = 0
    for letter in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if depth <= 0 and letter in signs:
            return True
    return False
