"""Steps per second on Syn-Small for T to infinity, with the expected gradient and no recording."""

from __future__ import annotations

import os
import time

STEPS = 3_000_000


def main(arguments: list[str]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from attnlab import Population, simulate

    def run() -> float:
        begun = time.perf_counter()
        simulate(
            "syn-small",
            gradient=Population(),
            eta_y=0.1,
            eta_z=0.1,
            steps=STEPS,
            momentum=0.0,
            what="loss",
            at=[STEPS],
            progress=False,
        )
        return time.perf_counter() - begun

    cold = run()
    warm = min(run() for _ in range(3))
    print(f"one core: {STEPS / warm:,.0f} steps a second warm, {cold - warm:.2f} s to compile")
