"""Compiled programs: jax.jit with the options of XLA that suit a learner, on the backend in use.

Most runs on sequence classes take less time than their compilation, so that what is compiled
matters less than how long it takes; trainings of transformers run far longer than they compile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import jax

Effort = Literal["quick", "thorough", "library"]
Options = dict[str, dict[str, Any]]

# One LLVM module, and small kernels: the quickest to compile where nothing is optimised.
SMALL: dict[str, Any] = {"xla_cpu_parallel_codegen_split_count": 1}
if jax.__version_info__ < (0, 11):  # an XLA that does not know an option refuses to compile
    SMALL["xla_cpu_use_fusion_emitters"] = False
# Half the time to compile, and the same time to run.
QUICK_CPU = {**SMALL, "xla_backend_optimization_level": 1}
OPTIONS: dict[Effort, Options] = {
    # Trying out kernels for products this small takes far longer than it saves.
    "quick": {
        "cpu": QUICK_CPU,
        "gpu": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
    },
    # Many small products gain from kernels that XLA makes for them.
    "thorough": {"cpu": QUICK_CPU, "gpu": {}},
    # Large products are as fast by the library, whose kernels are tried out in a third of the time.
    "library": {"cpu": {}, "gpu": {"xla_gpu_enable_triton_gemm": False}},
}


class Compiled:
    """A function of a plan that is compiled for the backend on which it is called."""

    def __init__(
        self, function: Callable[..., Any], static: tuple[str, ...], effort: Effort | None
    ) -> None:
        self.function, self.static, self.effort = function, static, effort
        self._made = cache(self._make)

    def _make(self, backend: str, effort: Effort, plain: bool) -> Any:
        options = OPTIONS[effort].get(backend, {})
        if plain and backend == "cpu":  # a user who asks JAX for no optimisations gets none
            options = SMALL
        return jax.jit(self.function, static_argnames=self.static, compiler_options=options)

    def _jitted(self, plan: Any) -> Any:
        plain = jax.config.read("jax_disable_most_optimizations")
        effort = self.effort or plan.learner.effort
        return self._made(jax.default_backend(), effort, plain)

    def __call__(self, plan: Any, *arguments: Any) -> Any:
        return self._jitted(plan)(plan, *arguments)

    def trace(self, plan: Any, *arguments: Any) -> jax.stages.Traced:
        """Trace a call from the shapes of its arguments, and compute nothing.

        What is lowered and compiled from it is what a call with arrays of these shapes runs.
        """
        return self._jitted(plan).trace(plan, *arguments)


def compiled(
    *static: str, effort: Effort | None = None
) -> Callable[[Callable[..., Any]], Compiled]:
    """Compile a function of a plan, anew for all values of the arguments named `static`.

    effort: that of the plan's learner by default.
    """
    return lambda function: Compiled(function, static, effort)
