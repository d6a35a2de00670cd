"""What papers on the shelf expect of an observed model, in words."""

from __future__ import annotations

from typing import Any

import xarray as xr

from attnlab.shelf import single


def expected(dataset: xr.Dataset, text: Any = None, names: Any = None) -> list[str]:
    """Return what each paper says about a measured model, given the tokens that it learns from.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `attnlab.observe` makes it.
    text : array_like, optional
        Tokens that the model learns from; by default those that came with the dataset.
    names : tokenizer or sequence of str, optional
        A tokenizer, or the names of tokens in the order of their ids.

    Returns
    -------
    list of str
        Sentences; where a paper cannot tell, why.
    """
    return [
        sentence
        for _, offer in single("expectation")
        for sentence in offer.load()(dataset, text, names=names)
    ]
