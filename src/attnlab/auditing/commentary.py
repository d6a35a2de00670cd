"""Commentary: what a paper makes of an audit, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.auditing.clocks import Clock
from attnlab.auditing.trial import Trial
from attnlab.shelf import single
from attnlab.theory.hypothesis import Hypothesis


class Commentary(Protocol):
    """Comments of a paper on an audited run.

    signs_claimed: whether each token gains (+1) or loses (-1) by the paper's statements, along
    (query, token); 0 where it says nothing. assumptions: what the paper asks for, each with its
    value. sentences: what was found, in words.
    """

    @property
    def signs_claimed(self) -> NDArray[np.int64]: ...
    @property
    def assumptions(self) -> tuple[Hypothesis, ...]: ...
    @property
    def sentences(self) -> list[str]: ...
    def document(self) -> dict[str, Any]: ...


def comment(
    trial: Trial, tokens: xr.Dataset, clocks: Mapping[str, Sequence[Clock]]
) -> dict[str, Commentary]:
    """Return the commentary of each paper that has something to say, by the paper's name."""
    said = {
        paper.name: offer.load()(trial, tokens, clocks) for paper, offer in single("commentary")
    }
    return {name: words for name, words in said.items() if words is not None}
