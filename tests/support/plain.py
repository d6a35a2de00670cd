"""Gradient descent as the theory has it."""

from typing import Any

import xarray as xr

from attnlab import simulate


def plain(*what: Any, **how: Any) -> xr.Dataset:
    """`simulate` without momentum."""
    return simulate(*what, momentum=0.0, **how)
