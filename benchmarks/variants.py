"""Time of a step of each model variant against one of Pairwise, on Syn-Small.

Sequences of 128 tokens in batches of 128, 16 runs together (4 learning rates, 4 seeds), no
recording. A variant and Pairwise are timed in turns, and the median of the ratios is given: other
work on the machine then slows both.
"""

from __future__ import annotations

import time

import numpy as np

STEPS, TURNS = 300, 5


def main(arguments: list[str]) -> None:
    from attnlab import Extended, Model, Pairwise, simulate

    def step_seconds(model: Model) -> float:
        begun = time.perf_counter()
        simulate(
            "syn-small",
            length=128,
            batch_size=128,
            eta_y=[0.1, 0.2, 0.3, 0.4],
            eta_z=0.1,
            steps=STEPS,
            seeds=4,
            momentum=0.9,
            model=model,
            what="loss",
            at=[STEPS],
            progress=False,
        )
        return (time.perf_counter() - begun) / STEPS

    variants = {
        "Extended()": Extended(),
        "residual": Extended(residual=True),
        "rms": Extended(normalization="rms"),
        "layer": Extended(normalization="layer"),
        "none": Extended(normalization="none"),
        "attend_self": Extended(attend_self=True),
        "4 heads, average": Extended(heads=4),
        "4 heads, concatenate": Extended(heads=4, combine="concatenate"),
        "alibi": Extended(position="alibi:0.1"),
        "learned": Extended(position="learned"),
        "learned, 4 heads": Extended(position="learned", heads=4),
        "all": Extended(
            residual=True,
            normalization="layer",
            heads=4,
            combine="concatenate",
            position="learned",
            attend_self=True,
        ),
    }
    step_seconds(Pairwise())
    print(f"{'variant':22} {'ms a step':>10} {'ratio':>7}")
    for name, model in variants.items():
        step_seconds(model)  # compiles
        pairs = [(step_seconds(model), step_seconds(Pairwise())) for _ in range(TURNS)]
        ratio = np.median([ours / plain for ours, plain in pairs])
        fastest = min(ours for ours, _ in pairs)
        print(f"{name:22} {fastest * 1e3:10.2f} {ratio:7.2f}", flush=True)
