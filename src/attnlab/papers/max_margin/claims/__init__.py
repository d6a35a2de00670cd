"""Claims of the max-margin papers, as we know them, and our own about the same runs.

Those about training read the numbers of `evidence`; nothing is fitted unless a claim says so.
"""

from __future__ import annotations

from collections.abc import Callable

from attnlab.theory import Hypothesis


def asked(*hypotheses: Hypothesis) -> tuple[Callable[[object], tuple[Hypothesis, ...]]]:
    """Return the `hypotheses` of a claim whose values are those of its settings."""
    return (lambda found: hypotheses,)
