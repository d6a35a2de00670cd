"""Usual runs: a task with the model, motion and records that it mostly has. They need no JAX."""

from __future__ import annotations

from typing import Any

from attnlab.models.transformer import text_transformer
from attnlab.simulation.motion import Batches, Steps
from attnlab.simulation.record import Record
from attnlab.simulation.simulation import Simulation, as_simulation
from attnlab.tasks.text.corpus import Corpus, Source
from attnlab.tasks.text.task import Text


def text_run(corpus: Corpus | Source | str | Text = "builtin", **settings: Any) -> Simulation:
    """Return a run of the usual small transformer on a text, with some settings of its own.

    Parameters
    ----------
    corpus : Corpus, Source, str or Text, optional
        The text, or the task.
    **settings
        Settings by their flat names: layers, heads, dim, mlp, learning_rate, seeds, steps,
        optimizer, batch_size, clip, length, every, validation_tokens, probes, precision, ...

    Returns
    -------
    Simulation
        By default one layer and head of width 200, 1,500 steps of SGD at learning rate 5 on 20
        sequences of 35 tokens, gradients clipped at 0.5, recorded every 50 steps.

    Examples
    --------
    >>> from attnlab.simulation import text_run
    >>> run = text_run("builtin", layers=3, learning_rate=[1.0, 2.0], steps=100)
    >>> run.model.layers, run.motion.steps, run.task.length
    (3, 100, 35)
    """
    usual = Simulation(
        corpus if isinstance(corpus, Text) else Text(corpus),
        text_transformer(),
        motion=Steps(1500, clip=0.5),
        gradient=Batches(20),
        learning_rate=5.0,
        record=Record(every=50),
        precision="highest",
    )
    return as_simulation(usual, **settings)
