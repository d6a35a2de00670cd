"""Constructions of sequence classes, one function each.

Every function numbers the tokens in the same order: contextual tokens first, then query tokens,
then next tokens (one per class), then tokens that nothing uses, where a
vocabulary larger than that is asked for. Classes are numbered query after query. `origin` holds
the preset text that makes the same classes again (see :mod:`attnlab.tasks.classes.presets`).
"""

from attnlab.tasks.classes.constructions.blocks import (
    family,
    local_common,
    single_common,
    symmetric,
)
from attnlab.tasks.classes.constructions.vocabularies import random, zipf

__all__ = ["family", "local_common", "random", "single_common", "symmetric", "zipf"]
