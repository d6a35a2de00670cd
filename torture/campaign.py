"""Campaigns: what is tried, and what counts as right, as refused cleanly, and as bad."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal
from unicodedata import bidirectional, category

Outcome = Literal["right", "refused", "bad"]
MOST_WORDS = 2000  # characters of a message that a person would still read
# What Unicode calls the letters on which a terminal acts: controls, ends of lines, half characters;
# and turns of the writing direction.
CONTROLS = ("Cc", "Cs", "Zl", "Zp")
TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
# Errors that say something to whoever raised them, but nothing to whoever wrote the file.
UNCLEAN = (UnicodeError, json.JSONDecodeError)


@dataclass(frozen=True)
class Verdict:
    """How a case went; words where it is bad. tries: how many it counts for."""

    outcome: Outcome
    words: str = ""
    tries: int = 1


RIGHT, REFUSED = Verdict("right"), Verdict("refused")


def bad(words: str) -> Verdict:
    return Verdict("bad", words)


@dataclass(frozen=True)
class Case:
    """One input, complete: it can be written down and tried again.

    target: what it is put to. given: what decides it, as JSON has it. data: the content of a file,
    where the input is one.
    """

    target: str
    given: dict[str, Any] = field(default_factory=dict)
    data: bytes = b""


class Campaign(ABC):
    """A kind of hostility. It runs in a process of its own (see `cell`), in which JAX may start.

    share: of the minutes. cpu_seconds, memory: more than a case may take; None leaves it unwatched.
    """

    name: ClassVar[str]
    share: ClassVar[float]
    cpu_seconds: ClassVar[float | None] = 20.0
    memory: ClassVar[int | None] = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # a place of its own

    @abstractmethod
    def cases(self, draw: Random) -> Iterator[Case]:
        """Cases without end, or all there are; the same for the same numbers drawn."""

    @abstractmethod
    def judge(self, case: Case) -> Verdict:
        """Try a case."""


def clean_words(words: str) -> Verdict:
    """Whether a message is one for people: short, printable, and about some field or file."""
    words = words.encode(errors="backslashreplace").decode()  # as a terminal gets it
    if not words.strip():
        return bad("refused without a word")
    if "Traceback" in words:
        return bad(f"a traceback: {words.strip().splitlines()[-1]}")
    if len(words) > MOST_WORDS or len(words.splitlines()) > 12:
        return bad(f"refused with a message of {len(words):,} characters: {words[:200]!r}")
    if any(map(_obeyed, words.replace("\n", ""))):
        return bad(f"refused with raw control characters: {words!r}")
    if not re.search(r"\S: \S|'--?\w|\S: $", words):
        return bad(f"refused without naming a field or a file: {words!r}")
    return REFUSED


def _obeyed(letter: str) -> bool:
    return category(letter) in CONTROLS or bidirectional(letter) in TURNS


def refusal(problem: BaseException) -> Verdict:
    """Whether an error is a clean refusal."""
    if isinstance(problem, (ValueError, OSError)) and not isinstance(problem, UNCLEAN):
        return clean_words(str(problem))
    return bad(f"{type(problem).__name__}: {problem}"[:MOST_WORDS])


def judged(attempt: Callable[[], Verdict]) -> Verdict:
    """The verdict of an attempt, or that of the error that ended it."""
    try:
        return attempt()
    except Exception as problem:
        return refusal(problem)


def written(case: Case) -> dict[str, Any]:
    """A case as JSON has it."""
    return {**vars(case), "data": case.data.decode("latin-1")}


def case_from(document: dict[str, Any]) -> Case:
    """The reverse of `written`."""
    return Case(**{**document, "data": document["data"].encode("latin-1")})
