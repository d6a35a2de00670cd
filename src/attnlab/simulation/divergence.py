"""Diverged: the error of a run that leaves the finite numbers."""

from __future__ import annotations

import xarray as xr


class Diverged(ArithmeticError):
    """Some run became non-finite, or was a flow that could not be followed to its end.

    `dataset` holds everything that was recorded before, for every run of the call; its variable
    `diverged_step` has the first non-finite step of each run, or the time at which a flow was
    given up, or -1. Records of a run from there on are NaN.
    """

    def __init__(self, message: str, dataset: xr.Dataset) -> None:
        super().__init__(message)
        self.dataset = dataset
