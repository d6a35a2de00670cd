"""Compiled programs: jax.jit with what makes XLA quick, on the backend that is there.

Most runs take less time than their compilation, so that what is compiled matters less than how
long it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax

OPTIONS: dict[str, dict[str, Any]] = {
    # Half the time to compile, and the same time to run: one LLVM module of small kernels.
    "cpu": {
        "xla_cpu_parallel_codegen_split_count": 1,
        "xla_backend_optimization_level": 1,
    },
    # Trying out kernels for products this small takes far longer than it saves.
    "gpu": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
}
if jax.__version_info__ < (0, 11):  # an XLA that does not know an option refuses to compile
    OPTIONS["cpu"]["xla_cpu_use_fusion_emitters"] = False


class Compiled:
    """A function that is compiled for the backend on which it is called."""

    def __init__(self, function: Callable[..., Any], static: tuple[str, ...]) -> None:
        self.function, self.static = function, static
        self._made = cache(self._make)

    def on(self, backend: str) -> Any:
        """The function as it is compiled there."""
        return self._made(backend, jax.config.read("jax_disable_most_optimizations"))

    def _make(self, backend: str, plain: bool) -> Any:
        options = dict(OPTIONS.get(backend, {}))
        if plain:  # who asks JAX for no optimisations gets none, and the quickest to compile
            options.pop("xla_backend_optimization_level", None)
        return jax.jit(self.function, static_argnames=self.static, compiler_options=options)

    def __call__(self, *arguments: Any) -> Any:
        return self.on(jax.default_backend())(*arguments)


def compiled(*static: str) -> Callable[[Callable[..., Any]], Compiled]:
    """Compile a function, anew for all values of the arguments that are named `static`."""
    return lambda function: Compiled(function, static)
