"""Relative positions: a bias on the attention logits that depends on the distance to the query.

The token at position t of a sequence of T has distance T - t, from T - 1 (first) to 1 (just
before the query). Its logit is z_{ml} + p_{T-t} (Section 7, positional encoding). The query's own
token, where it is attended to, has distance 0 and no bias; a softmax leaves one number free.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, refuse_if
from attnlab.files.recipe import Named


class Position(Named, ABC):
    """Bias of the attention logits by distance to the query.

    Attributes
    ----------
    learned
        True if the bias is trained, so that the order of tokens is needed.
    """

    learned: ClassVar[bool] = False

    @abstractmethod
    def biases(self, distances: int) -> NDArray[np.float64]:
        """Return p at distances 1, 2, ..., at the start."""

    def check(self, distances: int) -> None:
        """Refuse sequences with this many contextual tokens, if the bias does not fit them."""


@dataclass(frozen=True)
class LearnedPosition(Position):
    """One bias for each distance and head (T5), zero at the start, with the learning rate eta_z."""

    learned: ClassVar[bool] = True

    def biases(self, distances: int) -> NDArray[np.float64]:
        """Return p at distances 1, 2, ..., at the start."""
        return np.zeros(distances)


@dataclass(frozen=True)
class AlibiPosition(Position):
    """A fixed bias -`slope` * distance (ALiBi); a negative slope favours what is far away.

    Parameters
    ----------
    slope : float
        Per step of distance.
    """

    slope: float

    def __post_init__(self) -> None:
        refuse_if(not np.isfinite(self.slope), "slope", "a finite number", self.slope)

    def biases(self, distances: int) -> NDArray[np.float64]:
        """p at distances 1, 2, ..."""
        return -self.slope * np.arange(1.0, distances + 1.0)


@dataclass(frozen=True)
class FixedPosition(Position):
    """A fixed prior of any shape: `bias` at distances 1, 2, ..., one number for each.

    Parameters
    ----------
    bias : tuple
        Of distances 1, 2, ...
    """

    bias: tuple[float, ...]

    def __post_init__(self) -> None:
        bias = tuple(float(p) for p in self.bias)
        if not bias or not np.all(np.isfinite(bias)):
            raise InputError("bias: expected finite numbers, one for each distance 1, 2, ...")
        object.__setattr__(self, "bias", bias)

    def biases(self, distances: int) -> NDArray[np.float64]:
        """p at distances 1, 2, ..."""
        return np.array(self.bias)

    def check(self, distances: int) -> None:
        """Refuse sequences of another length."""
        if distances != len(self.bias):
            raise InputError(
                f"position: {len(self.bias)} biases were given, but sequences have {distances} "
                "contextual tokens; give length - 1 biases, from distance 1 on"
            )


def position_from(text: str) -> Position:
    """Read "learned", "alibi:SLOPE" or "fixed:P1,P2,..." (the biases of distances 1, 2, ...).

    Parameters
    ----------
    text : str
        As on the command line.

    Returns
    -------
    Position
        The position.

    Examples
    --------
    >>> from attnlab.models import position_from
    >>> position_from("alibi:0.1")
    AlibiPosition(slope=0.1)
    """
    name, _, rest = text.partition(":")
    try:
        numbers = tuple(float(part) for part in rest.split(",")) if rest else ()
    except ValueError:
        raise InputError(f"position: expected numbers after {name}:, got {rest!r}") from None
    if name == "learned" and not numbers:
        return LearnedPosition()
    if name == "alibi" and len(numbers) == 1:
        return AlibiPosition(numbers[0])
    if name == "fixed" and numbers:
        return FixedPosition(numbers)
    raise InputError(
        f"position: expected learned, alibi:SLOPE or fixed:BIAS,BIAS,..., got {text!r}"
    )
