"""Findings: what a figure made here says about the figure in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How the claim of a figure fares."""

    REPRODUCED = "reproduced"
    CORRECTED = "reproduced with a correction"
    PARTLY = "reproduced in part"
    DIFFERS = "not reproduced"
    OPEN = "we cannot tell"


@dataclass(frozen=True)
class Finding:
    """The outcome, in words and in numbers.

    headline: what was found, in one sentence. summary: the same in a few. alt: what the picture
    shows, for those who cannot see it. numbers: by name; a recipe has regression bounds for them.
    """

    outcome: StrEnum
    headline: str
    summary: str
    alt: str
    numbers: Mapping[str, float]
