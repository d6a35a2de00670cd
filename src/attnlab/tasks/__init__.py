"""Tasks: what is learned. A user's own is one class; `MarkovChains` is an example."""

from attnlab.tasks.base import Batch, Task
from attnlab.tasks.markov import MarkovChains

__all__ = ["Batch", "MarkovChains", "Task"]
