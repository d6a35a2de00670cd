"""What is said when a run leaves the finite numbers."""

from __future__ import annotations

import xarray as xr


class Diverged(ArithmeticError):
    """Some run became non-finite.

    `dataset` holds everything that was recorded before, for every run of the call; its variable
    `diverged_step` has the first non-finite step of each run, or -1. Records of a run from that
    step on are NaN.
    """

    def __init__(self, message: str, dataset: xr.Dataset) -> None:
        super().__init__(message)
        self.dataset = dataset
