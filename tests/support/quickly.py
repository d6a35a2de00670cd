"""Programs of a test alone, compiled as quickly as can be."""

from collections.abc import Callable
from typing import Any

import jax

from attnlab.dynamics.compiling import SMALL


def quickly(function: Callable[..., Any], **how: Any) -> Any:
    """jax.jit with hardly any optimisation: what is small runs for no time at all."""
    options = {**SMALL, "xla_backend_optimization_level": 0}
    return jax.jit(function, compiler_options=options, **how)
