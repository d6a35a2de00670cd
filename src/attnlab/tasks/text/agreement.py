"""Agreement: how well scores of tokens rank what a model that was trained on a text attends to.

A paper that says which tokens gain attention offers one, as `agreement:` in its paper.yaml.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xarray as xr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Dims of the summary: what was trained on, what is ranked, of which tokens, and by which score.
CELLS = ("training", "target", "tokens", "score")


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """A paper's scores of tokens, held against trained attention.

    Parameters
    ----------
    measure : callable
        Trains on the sequence classes of a text, and holds scores against what was learnt: from a
        corpus and the keywords queries, following, context, min_count, eta_y, eta_z, steps, seeds,
        top and progress to the result. That has, over (training, sequence_class, token), the mean
        over seeds of `attention` and `probability`, over (training, query, token)
        `attention_logits`, and the coords `token_name`, `query_token` and `next_token`; the
        training "windows" is on the text itself.
    summarise : callable
        From the result to means over `CELLS`: `rank_correlation` and `recall`, each with `_low`,
        `_high` and `_seed_sd`; the attribute `queries` is their number.
    in_words : callable
        A summary of the result in a paragraph.
    draw : callable
        From the summary and `top` (the tokens of the recall) to a figure.
    """

    measure: Callable[..., xr.Dataset]
    summarise: Callable[[xr.Dataset], xr.Dataset]
    in_words: Callable[[xr.Dataset], str]
    draw: Callable[[xr.Dataset, int], Figure]
