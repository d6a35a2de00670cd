"""Time of a step of Joint against one of Pairwise, on the toy of JoMA, and against a plain loop.

Full batches of 20 classes, 16 runs together (4 learning rates, 4 seeds), no recording. Joint and
Pairwise are timed in turns, and the median of the ratios is given: other work on the machine then
slows both. The loop that most people would write is one run in PyTorch with autograd (`--no-torch`
leaves it out).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

STEPS, TURNS, RUNS = 2_000, 5, 16


def main(arguments: list[str]) -> None:
    from attnlab import Model, Pairwise, Population, classes_from, simulate
    from attnlab.papers.joma.model import Joint

    def step_seconds(classes: str, model: Model) -> float:
        begun = time.perf_counter()
        simulate(
            classes,
            gradient=Population(),
            eta_y=[0.1, 0.2, 0.3, 0.4],
            eta_z=0.1,
            steps=STEPS,
            seeds=4,
            momentum=0.0,
            init="uniform",
            model=model,
            what="loss",
            at=[STEPS],
            progress=False,
        )
        return (time.perf_counter() - begun) / STEPS

    models = {
        "softmax": Joint(temperature=0.5),
        "exp": Joint(attention="exp", temperature=0.5),
        "linear": Joint(attention="linear", temperature=0.5),
        "softmax, gelu": Joint(activation="gelu", temperature=0.5),
        "softmax, 20 hidden, upper": Joint(20, temperature=0.5),
    }
    print(f"{'queries':>7} {'model':26} {'us a step':>10} {'over Pairwise':>14}")
    for queries in (1, 5):
        classes = f"joma-toy:queries={queries}"
        step_seconds(classes, Pairwise())
        for name, model in models.items():
            step_seconds(classes, model)  # compiles
            pairs = [
                (step_seconds(classes, model), step_seconds(classes, Pairwise()))
                for _ in range(TURNS)
            ]
            ratio = np.median([ours / paper for ours, paper in pairs])
            fastest = min(ours for ours, _ in pairs)
            print(f"{queries:7} {name:26} {fastest * 1e6:10.1f} {ratio:14.2f}", flush=True)
    if "--no-torch" not in arguments:
        ours = min(step_seconds("joma-toy", models["softmax"]) for _ in range(TURNS)) / RUNS
        theirs = min(_torch_step_seconds(classes_from("joma-toy")) for _ in range(TURNS))
        print(
            f"plain PyTorch loop: {theirs * 1e6:.0f} us a step of one run; Joint, of {RUNS} runs "
            f"together: {ours * 1e6:.1f} us a step and run, {theirs / ours:.0f} times quicker"
        )


def _torch_step_seconds(classes: Any) -> float:
    """Softmax attention, linear activation, hidden units as outputs; one query."""
    import torch
    import torch.nn.functional as F

    tokens = classes.in_play
    P = torch.tensor(classes.probs[:, tokens], dtype=torch.float32)
    label = torch.arange(len(classes))
    torch.manual_seed(0)
    W, r, z = (
        (torch.randn(*shape) / 100).requires_grad_()
        for shape in ((len(classes), tokens.size), (len(classes),), (tokens.size,))
    )
    optimizer = torch.optim.SGD([W, r, z], lr=0.1)
    begun = time.perf_counter()
    for _ in range(STEPS):
        b = torch.softmax(torch.log(P) + z / 0.5, dim=1)
        loss = F.cross_entropy(b @ W.T + r, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - begun) / STEPS
