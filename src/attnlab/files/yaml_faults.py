"""Faults of YAML in our own words: what is wrong with a text that no parser takes, and what to do.

PyYAML has two parsers and the playground's page a third, each with words of its own. So a parser
only says that a text is not YAML; what is said about it is found here, in the text itself. The page
has the same rules (`playground/page/yaml_faults.js`), and a test compares the two word for word.
"""

from __future__ import annotations

import re

# Where none of the kinds below is found; the line is the parser's.
ELSE = "expected `key: value` or `- item` here; check the indentation, colons and quotes around it"
COMPLEX_KEY = "a key that is a list or a mapping; keys are words or numbers"
MISPLACED_TAG = "a tag that does not fit its value; take it out"

_NOT_ALLOWED = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_LEADING_TAB = re.compile(r" *\t\s*[^\s#]")
_BLOCK_TEXT = re.compile(r"[|>][-+0-9]*[ \t]*(#.*)?$")
_NAME = re.compile(r"[\w-]+(?=[ \t,\[\]{}]|$)", re.ASCII)
_TAG = re.compile(r"![^ \t,\[\]{}]*")
_KNOWN_TAGS = ("!", "!!str", "!!int", "!!float", "!!bool", "!!null", "!!seq", "!!map")
_ESCAPE = re.compile(r'\\([0abt\tnvfre "/\\N_LP]|x[\da-fA-F]{2}|u[\da-fA-F]{4}|U00[\da-fA-F]{6}|$)')
_CLOSE = {"[": "]", "{": "}"}
_QUOTES = "\"'"
_BACKSLASH = "write \\\\ for a backslash, or use single quotes"


def fault(text: str) -> tuple[int, str] | None:
    """The line of the first fault of a known kind and what it is; None where there is none."""
    return _Scan().lines(re.split(r"\r\n|\r|\n", text))


class _Scan:
    """Goes through a text as an eye would: quotes, brackets, and what a value begins with."""

    def __init__(self) -> None:
        self.brackets: list[tuple[str, int]] = []  # those that are open, and their lines
        self.quote: tuple[str, int] | None = None  # that is open
        self.anchors: set[str] = set()
        self.started = self.ended = False  # the document
        self.block: int | None = None  # lines that are indented more than this are text

    def lines(self, lines: list[str]) -> tuple[int, str] | None:
        for number, line in enumerate(lines, 1):
            if found := self._line(line, number):
                return found
        if self.quote is not None:
            sign, number = self.quote
            return number, f"the quote {sign} is not closed; close it, or put quotes around all"
        if self.brackets:
            sign, number = self.brackets[-1]
            return number, _not_closed(sign)
        return None

    def _line(self, line: str, number: int) -> tuple[int, str] | None:
        if bad := _NOT_ALLOWED.search(line):
            return number, f"the character U+{ord(bad[0]):04X} is not allowed; take it out"
        indent = len(line) - len(line.lstrip(" "))
        if self.block is not None:
            if indent > self.block or not line.strip():
                return None
            self.block = None
        at = 0
        if self.quote is None and not self.brackets:
            if _LEADING_TAB.match(line):
                return number, "a tab in the indentation; indent with spaces"
            mark = line[:3]
            if mark in ("---", "...") and not line[3:4].strip():
                again = mark == "---" and self.started
                self.started, self.ended, at = True, mark == "...", 3
                if again:
                    return number, "a second document begins; keep one in a file"
            elif line.startswith("%") and not self.started:
                return None
        return self._tokens(line, number, at)

    def _tokens(self, line: str, number: int, at: int) -> tuple[int, str] | None:
        fresh = self.quote is None  # whether a value may begin
        dashes = 0  # where what follows them begins
        while at < len(line):
            sign, rest = line[at], line[at + 1 : at + 2]
            if self.quote is not None:
                at = self._quoted(line, at)
                if at < 0:
                    escape = line[-at - 1 : 1 - at]
                    return number, f"{escape} is no escape; {_BACKSLASH}"
                if self.quote is None and not re.match(r"[ \t]*([,:\]}]|#|$)", line[at:]):
                    return number, "a quote closes before the end; double a quote that is meant"
                fresh = False
            elif sign in " \t":
                at += 1
            elif sign == "#" and (at == 0 or line[at - 1] in " \t"):
                return None
            elif sign in "]}" and (self.brackets or fresh):
                if not self.brackets:
                    return number, f"{sign} closes nothing; take it out, or put it in quotes"
                open_sign, open_line = self.brackets.pop()
                if _CLOSE[open_sign] != sign:
                    return open_line, _not_closed(open_sign)
                at, fresh = at + 1, False
            elif (sign == "," and self.brackets) or (
                sign == ":" and (not rest.strip() or (self.brackets and rest in ",[]{}"))
            ):
                at, fresh = at + 1, True
            elif not fresh:
                at += 1
            elif sign in "-?" and not rest.strip():
                at += 1
                dashes = at
            else:
                if self.ended:
                    return number, "a second document begins; keep one in a file"
                self.started = True
                if sign in _QUOTES:
                    self.quote, at = (sign, number), at + 1
                elif sign in "[{":
                    self.brackets.append((sign, number))
                    at += 1
                elif sign in "&*!":
                    wrong, at = self._property(line, at)
                    if wrong:
                        return number, wrong
                    fresh = sign != "*"
                elif sign in "@`%":
                    return number, f"a value that begins with {sign}; put it in quotes"
                elif not self.brackets and _BLOCK_TEXT.match(line, at):
                    alone = not line[dashes:at].strip()
                    start = re.match(r"[ ]*(?:-[ ]+)*", line)
                    self.block = dashes - 1 if alone else len(start[0] if start else "")
                    return None
                else:
                    at, fresh = at + 1, False
        return None

    def _quoted(self, line: str, at: int) -> int:
        """Where a quoted text ends, or the line; below zero, the place of what is no escape."""
        assert self.quote is not None
        sign = self.quote[0]
        while at < len(line):
            if line[at] == sign:
                if sign == "'" and line[at + 1 : at + 2] == "'":
                    at += 2
                    continue
                self.quote = None
                return at + 1
            if sign == '"' and line[at] == "\\":
                escape = _ESCAPE.match(line, at)
                if escape is None or (escape[1][:1] == "U" and int(escape[1][1:], 16) > 0x10FFFF):
                    return -at - 1
                at += len(escape[0])
                continue
            at += 1
        return at

    def _property(self, line: str, at: int) -> tuple[str, int]:
        """What is wrong with an anchor, an alias or a tag, if anything, and where it ends."""
        sign = line[at]
        if sign == "!":
            tag = _TAG.match(line, at)
            assert tag is not None
            known = tag[0] in _KNOWN_TAGS
            words = f"the tag {tag[0][:30]} is not known; take it out, or put it in quotes"
            return "" if known else words, tag.end()
        name = _NAME.match(line, at + 1)
        if name is None or (sign == "*" and name[0] not in self.anchors):
            shown = f"{sign}{name[0][:30] if name else ''}"
            return f"{shown} stands for nothing; put it in quotes if it is a word", at + 1
        self.anchors.add(name[0])
        return "", name.end()


def _not_closed(sign: str) -> str:
    return f"the bracket {sign} is not closed; add {_CLOSE[sign]}, or put it in quotes"
