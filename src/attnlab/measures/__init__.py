"""What is seen: measures of the labelled schema, one definition for whatever made it."""

from attnlab.measures.attention import (
    attention_speed,
    clock_of,
    common_mass,
    distinct_entropy,
    effective_tokens,
    entropy,
    growth_factor,
    recall,
    recall_fall,
    relative_gain,
    snap_time,
)

__all__ = [
    "attention_speed",
    "clock_of",
    "common_mass",
    "distinct_entropy",
    "effective_tokens",
    "entropy",
    "growth_factor",
    "recall",
    "recall_fall",
    "relative_gain",
    "snap_time",
]
