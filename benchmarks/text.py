"""Training on text: tokens per second, the cost of measuring, and many runs at once.

By default: one run of the protocol of Fig. 7 on `builtin` against the loop of
plain_torch_text.py, in turns in one process, and what measuring costs at the default interval.
With --runs N: N runs trained with Adam as one vectorised program, against the same loop on the same
device, in float32 and with its products in bfloat16; meant for an accelerator.
With --sweep: 8 learning rates x 5 seeds in one vectorised program against the same 40 runs one
after another, each warm; meant for an accelerator. Compile time is reported apart.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import jax

from attnlab.simulation import simulate, text_run
from attnlab.tasks.text import Corpus, open_corpus
from benchmarks.runs import Runs, seconds

RATES = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0)
SEEDS = (0, 1, 2, 3, 4)
CALL_STEPS = 500  # of a whole training


def against_torch(corpus: Corpus, layers: int, steps: int, rounds: int) -> None:
    from benchmarks.plain_torch_text import Loop

    run = text_run(corpus, layers=layers)
    runs = Runs(run)
    runs.observe()
    loop = Loop(corpus.train, corpus.vocab_size, layers, run.learning_rate)
    loop.advance(2)
    tokens = run.gradient.size * run.task.length * steps
    ours, theirs, observations = [], [], []
    for _ in range(rounds):
        ours.append(seconds(lambda: runs.advance(steps)))
        observations.append(seconds(runs.observe))
        theirs.append(seconds(lambda: loop.advance(steps)))
        print(f"  attnlab {tokens / ours[-1]:,.0f}, PyTorch {tokens / theirs[-1]:,.0f} tokens/s")
    mine, plain = statistics.median(ours), statistics.median(theirs)
    print(f"start and compilation: {runs.compiling:.1f} s")
    print(f"attnlab: {tokens / mine:,.0f} tokens/s, {1e3 * mine / steps:.1f} ms a step")
    print(
        f"plain PyTorch loop: {tokens / plain:,.0f} tokens/s, {1e3 * plain / steps:.1f} ms a step"
    )
    print(f"ratio: {plain / mine:.2f} (at least 1 wanted)")
    share = statistics.median(observations) / (mine / steps * run.record.every)
    print(
        f"measuring {run.task.validation_tokens:,} tokens every {run.record.every} steps: "
        f"{100 * share:.1f} % of training time (at most 5 % wanted)"
    )


def many_against_torch(
    corpus: Corpus, layers: int, count: int, steps: int, rounds: int, precision: str
) -> None:
    """Time a step of all runs beside as many steps of the loop, which takes one run at a time."""
    from benchmarks.plain_torch_text import Loop

    rate = 1e-4
    settings = {"layers": layers, "optimizer": "adam", "precision": precision}
    runs = Runs(text_run(corpus, learning_rate=rate, seeds=count, **settings))
    print(f"{count} runs in {len(runs.groups)} program(s): compiled in {runs.compiling:.1f} s")
    device = "cpu" if jax.default_backend() == "cpu" else "cuda"
    mine = statistics.median(seconds(lambda: runs.advance(steps)) for _ in range(rounds)) / steps
    print(f"attnlab, {precision}: {1e3 * mine:.2f} ms a step of {count} runs", flush=True)
    for half, name in ((False, "float32"), (True, "bfloat16")):
        loop = Loop(corpus.train, corpus.vocab_size, layers, rate, "Adam", device, half)
        loop.advance(5)
        work = partial(loop.advance, steps)
        plain = statistics.median(seconds(work) for _ in range(rounds)) / steps
        print(
            f"plain PyTorch loop, {name}: {1e3 * plain:.2f} ms a step of one run, "
            f"{1e3 * count * plain:.1f} ms of {count}; ratio: {count * plain / mine:.1f} "
            "(at least 4 wanted)",
            flush=True,
        )


def sweep(corpus: Corpus, layers: int, steps: int, precision: str) -> None:
    whole = text_run(corpus, layers=layers, learning_rate=RATES, seeds=SEEDS, precision=precision)
    alone = [
        text_run(corpus, layers=layers, learning_rate=rate, seeds=(seed,), precision=precision)
        for rate in RATES
        for seed in SEEDS
    ]
    together = Runs(whole)
    at_once = statistics.median(seconds(lambda: together.advance(steps)) for _ in range(3))
    print(f"40 runs in {len(together.groups)} group(s): compiled in {together.compiling:.1f} s")
    # compiled by the first
    in_turn = sum(seconds(partial(Runs(run).advance, steps)) for run in alone)
    tokens = len(alone) * steps * 20 * whole.task.length
    print("steps alone:")
    _compare(at_once, in_turn, tokens)
    # what a user waits for: start, steps, measurements, the labelled result
    tokens = len(alone) * CALL_STEPS * 20 * whole.task.length
    for run in (whole, alone[0]):  # compile the measurements
        simulate(run, steps=1, progress=False)
    call = partial(simulate, steps=CALL_STEPS, progress=False)
    at_once = seconds(lambda: call(whole))
    in_turn = sum(seconds(partial(call, run)) for run in alone)
    print(f"whole calls of simulate(), {CALL_STEPS} steps, measured every 50:")
    _compare(at_once, in_turn, tokens)


def _compare(at_once: float, in_turn: float, tokens: int) -> None:
    print(f"  together:          {at_once:.2f} s, {tokens / at_once:,.0f} tokens/s")
    print(f"  one after another: {in_turn:.2f} s, {tokens / in_turn:,.0f} tokens/s")
    print(f"  ratio: {at_once / in_turn:.3f} of the time (at most 0.25 wanted)", flush=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench text", description=__doc__)
    parser.add_argument("--corpus", default="builtin", help="builtin, a file or a folder")
    parser.add_argument("--validation", help="a text file to judge by")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20, help="steps in a measurement")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, help="number of runs at once, with Adam")
    parser.add_argument("--sweep", action="store_true", help="40 runs at once and in turn")
    parser.add_argument(
        "--precision", default="highest", help="of many runs: highest, default, bfloat16"
    )
    options = parser.parse_args(arguments)
    corpus = open_corpus(options.corpus, validation=options.validation)
    print(f"device: {jax.devices()[0].device_kind}; {corpus!r}; {options.layers} layer(s)")
    if options.runs:
        many_against_torch(
            corpus, options.layers, options.runs, options.steps, options.rounds, options.precision
        )
    elif options.sweep:
        sweep(corpus, options.layers, options.steps, options.precision)
    else:
        against_torch(corpus, options.layers, options.steps, options.rounds)
