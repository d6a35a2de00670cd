"""The pictures of these pages: `./lab python docs/theory/pictures.py` draws them all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import attnlab
from attnlab.papers.scan_and_snap import theory
from attnlab.plots.style import (
    ACCENT,
    COMMON,
    DASHES,
    DISTINCT,
    GREEN,
    legend_above,
    page,
    panel_titles,
)
from attnlab.tasks.classes import SequenceClasses, single_common

IMAGES = Path(__file__).parents[1] / "images" / "theory"
WORDS = ("the", "match", "goal", "coach", "rain", "wind", "storm", "was", "won", "cold")
TWO_KINDS = SequenceClasses(  # of sentences, about sport and about the weather
    [{0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1}, {0: 0.4, 4: 0.3, 5: 0.2, 6: 0.1}],
    query=[7, 7],
    next_token=[8, 9],
    vocab_size=len(WORDS),
    names=WORDS,
)
FOUR = single_common(num_classes=4, distinct=3, common_prob=0.4, vocab_size=200)


def velocities() -> Figure:
    """How often each word occurs, and how fast its logit moves at the start."""
    drawn = [0, 1, 2, 3, 4, 5, 6]
    moved = theory.attention_velocity(TWO_KINDS, np.zeros((1, 7)))[0, drawn]
    colours = [COMMON, *[DISTINCT] * 6]
    with page(2.2) as figure:
        often, fast = figure.subplots(1, 2)
        places = np.arange(len(drawn))
        for k, side in enumerate((-0.2, 0.2)):
            often.bar(
                places + side, TWO_KINDS.probs[k, drawn], 0.4, color=colours, alpha=1 - 0.4 * k
            )
        fast.bar(places, moved, color=colours)
        fast.axhline(0, color="0.3", linewidth=0.7)
        for ax, title in (
            (often, "how often, before won and cold"),
            (fast, "velocity at the start"),
        ):
            ax.set_xticks(places, [WORDS[i] for i in drawn])
            ax.set_title(title, loc="left")
    return figure


def clock() -> Figure:
    """The decoder's growth and gamma: what the decoder sends back to attention, over time."""
    t = np.geomspace(0.1, 1e5, 400)
    with page(2.6) as figure:
        grown, speed = figure.subplots(1, 2)
        for eta_y, dash in zip((0.1, 0.9), DASHES, strict=False):
            at = {"K": 4, "M": 1000, "eta_y": eta_y}
            growth = 1000 * np.asarray(theory.h(t / 4, M=1000, eta_y=eta_y))
            grown.semilogx(t, growth, linestyle=dash, color=DISTINCT, label=f"$\\eta_Y$ = {eta_y}")
            speed.loglog(t, theory.gamma(t, **at), linestyle=dash, color=DISTINCT)
            times = theory.transition_times(**at)
            for time in times:
                speed.axvline(float(time), linestyle=dash, color=GREEN, linewidth=0.8)
        grown.set(xlabel="step t", title="M h: the logit of the right answer")
        speed.set(
            xlabel="step t", title="$\\gamma$, with $t_0'$ and $t_0$ (green)", ylim=(0.01, 10)
        )
        legend_above(figure, grown)
    return figure


def freezing() -> Figure:
    """Attention of one class while it is trained: on two axes of time, and its speed."""
    at = np.geomspace(1, 1e7, 80)
    run = attnlab.Simulation(
        FOUR,
        motion=attnlab.Flow(1e7),
        eta_y=1.0,
        eta_z=1.0,
        dtype="float64",
        record=attnlab.Record(at=at.tolist()),
    )
    result = attnlab.simulate(run, progress=False).isel(seed=0, sequence_class=0)
    attention = result["attention"].sel(token=np.flatnonzero(result["probability"]))
    speed = abs(attention.diff("time")).sum("token") / np.diff(at)
    with page(2.5) as figure:
        looked, stretched, moved = figure.subplots(1, 3)
        for ax in (looked, stretched):
            for token, dash in zip(attention["token"].values, DASHES, strict=False):
                role = (
                    "common"
                    if token == 0
                    else f"distinct, P = {float(result['probability'].sel(token=token)):.2g}"
                )
                colour = COMMON if token == 0 else DISTINCT
                ax.plot(at, attention.sel(token=token), color=colour, linestyle=dash, label=role)
        looked.set_xlim(0, 1000)
        stretched.set_xscale("log")
        moved.loglog(at[1:], speed / speed.max(), color=ACCENT)
        for ax in (looked, stretched, moved):
            for time in theory.transition_times(K=4, M=200, eta_y=1.0):
                ax.axvline(float(time), color=GREEN, linewidth=0.8)
            ax.set_xlabel("time")
        panel_titles((looked, stretched, moved), ("it looks frozen", "it is not", "its speed"))
        legend_above(figure, looked)
    return figure


def ladder() -> Figure:
    """The logit of the most frequent distinct token by each theory, and in training."""
    at = np.geomspace(1, 1e5, 40)
    classes = single_common(num_classes=2, distinct=3, common_prob=0.3, vocab_size=1000)
    run = attnlab.Simulation(
        classes,
        motion=attnlab.Flow(1e5),
        dtype="float64",
        record=attnlab.Record(at=at.tolist()),
        eta_y=0.9,
        eta_z=0.03,
    )
    simulated = attnlab.simulate(run, progress=False)
    winner = classes.distinct_tokens(0)[-1]
    with page(2.8) as figure:
        ax = figure.subplots()
        levels = {"printed": (ACCENT, 1), "corrected": (COMMON, 2), "sgd": (GREEN, 4)}
        for name, (colour, dash) in levels.items():
            said = attnlab.predict(run, theory=name)["attention_logits"].isel(seed=0, query=0)
            ax.loglog(at, said.sel(token=winner), color=colour, linestyle=DASHES[dash], label=name)
        trained = simulated["attention_logits"].isel(seed=0, query=0).sel(token=winner)
        ax.loglog(at, trained, color="0.2", linewidth=1, label="training")
        ax.set(xlabel="time t", ylabel="z of the winner")
        legend_above(figure, ax)
    return figure


PICTURES = {"velocities": velocities, "clock": clock, "freezing": freezing, "ladder": ladder}

if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw().savefig(IMAGES / f"{name}.png", dpi=150, metadata={"Software": None})
        print(IMAGES / f"{name}.png")
