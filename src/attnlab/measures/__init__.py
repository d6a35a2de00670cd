"""What is seen: measures of the labelled schema, one definition for whatever made it.

`maps`, `places` and `received` measure plain maps of attention, (..., query, key), of numpy, JAX or
torch; the functions here measure labelled datasets with them.
"""

from attnlab.measures import maps, places, received
from attnlab.measures.attention import (
    clock_of,
    common_mass,
    distinct_entropy,
    effective_tokens,
    entropy,
    growth_factor,
    recall,
    recall_fall,
    relative_gain,
)
from attnlab.measures.motion import attention_speed, moved_since, slowed_time, snap_time
from attnlab.measures.turning import turning_points
from attnlab.measures.weights import stable_rank

__all__ = [
    "attention_speed",
    "clock_of",
    "common_mass",
    "distinct_entropy",
    "effective_tokens",
    "entropy",
    "growth_factor",
    "maps",
    "moved_since",
    "places",
    "recall",
    "recall_fall",
    "received",
    "relative_gain",
    "slowed_time",
    "snap_time",
    "stable_rank",
    "turning_points",
]
