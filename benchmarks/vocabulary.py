"""A vocabulary of a million tokens, 20 classes (zipf), 1,000 steps for T to infinity."""

from __future__ import annotations

import multiprocessing
import resource
import time

VOCABULARY, CLASSES, STEPS = 1_000_000, 20, 1_000


def run(bands: int | None) -> None:
    from attnlab import Population, simulate
    from attnlab.tasks.classes import zipf

    begun = time.perf_counter()
    classes = zipf(VOCABULARY, CLASSES, bands=bands)
    simulate(classes, gradient=Population(), steps=STEPS, momentum=0.0, progress=False)
    seconds = time.perf_counter() - begun
    gibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    what = f"{bands:,} profiles" if bands else "all profiles different"
    print(f"{what}: {seconds:.1f} s with everything, {gibibytes:.2f} GiB", flush=True)


def main(arguments: list[str]) -> None:
    spawn = multiprocessing.get_context("spawn")  # each in its own process, for its own memory
    for bands in (10_000, None):
        process = spawn.Process(target=run, args=(bands,))
        process.start()
        process.join()
