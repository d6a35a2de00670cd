"""How what a study found stands to what the paper says."""

from __future__ import annotations

from enum import StrEnum


class Answer(StrEnum):
    """The outcome of a study."""

    AGREES = "as the paper says"
    PARTLY = "in part as the paper says"
    CONTRADICTS = "not as the paper says"
    OPEN = "the paper does not say"
