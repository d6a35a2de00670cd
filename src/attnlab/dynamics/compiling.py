"""Compiled programs: jax.jit with what makes XLA quick, on the backend that is there.

Most runs take less time than their compilation, so that what is compiled matters less than how
long it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax

Options = dict[str, dict[str, Any]]

# One LLVM module, and small kernels: the quickest to compile where nothing is optimised.
SMALL: dict[str, Any] = {"xla_cpu_parallel_codegen_split_count": 1}
if jax.__version_info__ < (0, 11):  # an XLA that does not know an option refuses to compile
    SMALL["xla_cpu_use_fusion_emitters"] = False
OPTIONS: Options = {
    # Half the time to compile, and the same time to run.
    "cpu": {**SMALL, "xla_backend_optimization_level": 1},
    # Trying out kernels for products this small takes far longer than it saves.
    "gpu": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
}
XLAS_OWN: Options = {}  # for trainings that run for far longer than they compile


class Compiled:
    """A function that is compiled for the backend on which it is called."""

    def __init__(
        self, function: Callable[..., Any], static: tuple[str, ...], options: Options, donate: str
    ) -> None:
        self.function, self.static, self.donate = function, static, donate
        self.options = options
        self._made = cache(self._make)

    def on(self, backend: str) -> Any:
        """The function as it is compiled there."""
        return self._made(backend, jax.config.read("jax_disable_most_optimizations"))

    def _make(self, backend: str, plain: bool) -> Any:
        options = self.options.get(backend, {})
        if plain and backend == "cpu":  # who asks JAX for no optimisations is given none
            options = SMALL
        return jax.jit(
            self.function, static_argnames=self.static, donate_argnames=self.donate or None,
            compiler_options=options,
        )  # fmt: skip

    def __call__(self, *arguments: Any) -> Any:
        return self.on(jax.default_backend())(*arguments)


def compiled(
    *static: str, options: Options = OPTIONS, donate: str = ""
) -> Callable[[Callable[..., Any]], Compiled]:
    """Compile a function, anew for all values of the arguments that are named `static`.

    options: of XLA, by backend. donate: an argument whose memory the result may take.
    """
    return lambda function: Compiled(function, static, options, donate)
