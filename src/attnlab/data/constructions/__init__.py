"""Named sequence classes: one function per setting of the paper, and a few of our own.

Every function numbers the tokens in the same order: contextual tokens first, then query tokens,
then next tokens (one per class; of `hblt` one per label), then tokens that nothing uses, where a
vocabulary larger than that is asked for. Classes are numbered query after query. `origin` holds
the preset text that makes the same classes again (see :mod:`attnlab.data.presets`).
"""

from attnlab.data.constructions.blocks import (
    family,
    local_common,
    single_common,
    symmetric,
    syn_medium,
    syn_small,
)
from attnlab.data.constructions.hierarchies import LatentLayers, hierarchy
from attnlab.data.constructions.toys import joma_toy
from attnlab.data.constructions.trees import LatentTree, hblt
from attnlab.data.constructions.vocabularies import random, zipf

__all__ = [
    "LatentLayers",
    "LatentTree",
    "family",
    "hblt",
    "hierarchy",
    "joma_toy",
    "local_common",
    "random",
    "single_common",
    "symmetric",
    "syn_medium",
    "syn_small",
    "zipf",
]
