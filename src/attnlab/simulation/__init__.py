"""Simulation: one trainer for any task and model, and for a paper's closed equations."""

from attnlab.simulation.learner import Learner, TaskLearner
from attnlab.simulation.motion import Batches, Flow, Piecewise, Population, Steps
from attnlab.simulation.record import Record
from attnlab.simulation.run import Run
from attnlab.simulation.train import train_run

__all__ = [
    "Batches", "Flow", "Learner", "Piecewise", "Population", "Record", "Run", "Steps",
    "TaskLearner", "train_run",
]  # fmt: skip
