"""Compiled functions that only a test calls."""

from collections.abc import Callable
from typing import Any

import jax

from attnlab.simulation.program import SMALL


def quickly(function: Callable[..., Any], **options: Any) -> Any:
    """Return jax.jit of a function with hardly any optimisation: small programs run at once."""
    quick = {**SMALL, "xla_backend_optimization_level": 0}
    return jax.jit(function, compiler_options=quick, **options)
