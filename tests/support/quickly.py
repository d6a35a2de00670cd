"""Programs that are only compared with, compiled as quickly as can be."""

from collections.abc import Callable
from typing import Any

import jax

from attnlab.dynamics.compiling import OPTIONS


def quickly(function: Callable[..., Any]) -> Any:
    """jax.jit with hardly any optimisation: what is compared with runs for no time at all."""
    options = {**OPTIONS["cpu"], "xla_backend_optimization_level": 0}
    return jax.jit(function, compiler_options=options)
