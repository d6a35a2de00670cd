"""Waiting times on an accelerator: one piece, in a fresh process, as a line of JSON.

    python -m benchmarks accelerator fig6
    python -m benchmarks accelerator text --runs 40 --set library.xla_gpu_autotune_level=0

Pieces: fig6 (the grid cold, then warm), text and chains (--runs together: the first call and a
step; with --torch also a step of the plain loop). --set changes an option of XLA for a kind of
learner, as `attnlab.simulation.program.OPTIONS` has them; --unroll scans over layers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from typing import Any

BEGUN = time.perf_counter()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="bench accelerator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("piece", choices=("fig6", "text", "chains"))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KIND.OPTION=VALUE")
    parser.add_argument("--unroll", type=int, help="layers in a round of the loop over layers")
    parser.add_argument("--torch", action="store_true")
    given = parser.parse_args(arguments)
    found = {"piece": given.piece, "runs": given.runs, "set": given.set, "unroll": given.unroll}
    found["device"] = change(given.set, given.unroll)
    found["import_s"] = time.perf_counter() - BEGUN
    found |= grid() if given.piece == "fig6" else steps(given)
    print(json.dumps(found), flush=True)


def change(options: list[str], unroll: int | None) -> str:
    """Change options of XLA and the loop over layers; return the device."""
    import jax

    from attnlab.simulation.program import OPTIONS

    backend = jax.default_backend()
    for option in options:
        name, _, value = option.partition("=")
        kind, _, flag = name.partition(".")
        OPTIONS[kind].setdefault(backend, {})[flag] = json.loads(value)  # type: ignore[index]
    if unroll is not None:
        jax.lax.scan = partial(_unrolled, jax.lax.scan, unroll)
    return jax.devices()[0].device_kind


def _unrolled(scan: Any, layers: int, *arguments: Any, **options: Any) -> Any:
    """Call `jax.lax.scan` with another unrolling where it is given as 0, as over layers."""
    if options.get("unroll") == 0:
        options["unroll"] = layers
    return scan(*arguments, **options)


def grid() -> dict[str, Any]:
    """Return the seconds of the Fig. 6 grid, cold and warm."""
    from benchmarks import fig6

    cold = fig6.grid()
    return {"cold_s": cold, "warm_s": [fig6.grid() for _ in range(5)]}


def steps(given: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds to the first step, and the milliseconds of a step of all runs."""
    from attnlab.simulation import text_run
    from benchmarks.runs import Runs, seconds
    from benchmarks.trainer import BATCH, chains_run

    if given.piece == "text":
        rates = [0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0]
        swept = {"learning_rate": rates, "seeds": given.runs // 8} if given.runs > 8 else {}
        run = text_run(**swept)
        tokens = given.runs * run.gradient.size * run.task.length
    else:
        run = chains_run(given.runs)
        tokens = given.runs * BATCH * run.task.length
    runs = Runs(run)
    found: dict[str, Any] = {"first_call_s": runs.compiling, "programs": len(runs.groups)}
    runs.advance(given.steps)
    mine = [seconds(partial(runs.advance, given.steps)) / given.steps for _ in range(given.rounds)]
    found["step_ms"] = [round(1e3 * of, 4) for of in mine]
    found["tokens_per_s"] = round(tokens / statistics.median(mine))
    if given.torch:
        loop = plain_loop(given.piece, run)
        loop.advance(5)
        plain = [seconds(partial(loop.advance, 20)) / 20 for _ in range(given.rounds)]
        found["torch_step_ms"] = [round(1e3 * of, 4) for of in plain]
        found["ratio"] = given.runs * statistics.median(plain) / statistics.median(mine)
    return found


def plain_loop(piece: str, run: Any) -> Any:
    """Return the PyTorch loop of one such run on this device."""
    import jax

    from benchmarks import plain_torch_chains, plain_torch_text

    device = "cpu" if jax.default_backend() == "cpu" else "cuda"
    if piece == "chains":
        return plain_torch_chains.Loop(run.task.length, run.gradient.size, 2, device)
    corpus = run.task.text
    return plain_torch_text.Loop(corpus.train, corpus.vocab_size, 1, 1.0, "SGD", device)
