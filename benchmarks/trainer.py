"""The trainer on in-context Markov chains: 3 symbols, T = 64, batch 64, two layers.

Runs of attnlab together, against the PyTorch loop of plain_torch_chains.py, one run after another,
in turns in one process; time for a step of one run. Compile time is reported apart. --runs,
--length and --layers change one size; --no-torch leaves the loop out.
"""

from __future__ import annotations

import argparse
import statistics

import jax

from attnlab.models import Transformer
from attnlab.simulation import Batches, Record, Simulation, Steps
from attnlab.tasks import MarkovChains
from benchmarks.runs import Runs, seconds

BATCH = 64


def chains_run(runs: int, *, length: int = 64, layers: int = 2) -> Simulation:
    """Return `runs` runs of an attention-only transformer on in-context Markov chains."""
    return Simulation(
        MarkovChains(vocab_size=3, length=length),
        Transformer(layers=layers, dim=16),
        motion=Steps(50, "adamw"),
        gradient=Batches(BATCH),
        learning_rate=3e-3,
        seeds=runs,
        record=Record("loss"),
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="./lab bench trainer", description=__doc__)
    parser.add_argument("--runs", type=int, default=2 if jax.default_backend() == "cpu" else 16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-torch", action="store_true")
    given = parser.parse_args(arguments)
    runs = Runs(chains_run(given.runs, length=given.length, layers=given.layers))
    print(f"start and compilation: {runs.compiling:.1f} s")
    runs.advance(given.steps)
    loop = None
    if not given.no_torch:
        from benchmarks.plain_torch_chains import Loop, chains

        device = "cuda" if jax.default_backend() == "gpu" else "cpu"
        loop = Loop(given.length, BATCH, given.layers, device)
        loop.advance(3)
        print(f"PyTorch is quickest with {loop.choose_threads()} threads")
    mine, theirs = [], []
    for _ in range(given.rounds):
        mine.append(seconds(lambda: runs.advance(given.steps)) / given.steps / given.runs)
        if loop is not None:
            theirs.append(seconds(lambda: loop.advance(given.steps)) / given.steps)
    step = statistics.median(mine)
    print(f"attnlab, {given.runs} runs together: {1e3 * step:.3f} ms a step of one run")
    if theirs:
        ratios = sorted(b / a for a, b in zip(mine, theirs, strict=True))
        print(f"plain PyTorch loop: {1e3 * statistics.median(theirs):.3f} ms a step")
        drawing = seconds(lambda: [chains(BATCH, given.length, device) for _ in range(20)]) / 20
        print(f"  of which drawing sequences: {1e3 * drawing:.3f} ms")
        print(f"ratio: {statistics.median(ratios):.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f})")
