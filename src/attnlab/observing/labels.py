"""Names, dims and meanings of what is measured of a call."""

from __future__ import annotations

from typing import Any, NamedTuple

from attnlab.measures import maps, places
from attnlab.observing import budget


class Label(NamedTuple):
    """What a variable means, its unit, and its dims beside sequence and head."""

    meaning: str
    units: str = "1"
    dims: tuple[str, ...] = ()


KEPT = ("policy", "budget")
# Means over rows.
ROW_MEANS = {
    "entropy": Label("entropy of a query's attention, -sum p ln p", "nat"),
    "relative_entropy": Label("entropy over the logarithm of the number of visible keys"),
    "effective_tokens": Label("exp(entropy)", "keys"),
    "participation": Label("1 / sum p^2", "keys"),
    "top_mass": Label("attention to the k strongest keys", dims=("k",)),
    "keys_for": Label("keys that hold this share of the attention", "keys", ("mass",)),
    "keys_share": Label("keys_for over the number of visible keys", dims=("mass",)),
    "largest_logit": Label("largest logit of a query's visible keys, mean over queries"),
    "logit_norm": Label("norm of the visible logits about their mean, a learnable sink's included"),
    "entropy_floor": Label("the least entropy that logits of this norm can have", "nat"),
    "entropy_slack": Label("entropy, a learnable sink's share included, above its floor", "nat"),
    "visible_keys": Label("keys that a query sees", "keys"),
    "learnable_sink_mass": Label("attention that the learnable sink takes"),
    "sink_mass": Label("attention to the first keys of the text", dims=("first",)),
    "self_mass": Label("attention of a query to its own place"),
    "previous_mass": Label("attention to the key just before"),
    "local_mass": Label(f"attention to keys nearer than {places.LOCAL}"),
    "mean_distance": Label("mean distance of what is attended to", "keys"),
    "induction_mass": Label(
        "attention to what followed the query's token before, minus chance, where it occurred"
    ),
    "duplicate_mass": Label(
        "attention to earlier occurrences of the query's token, minus chance, where it occurred"
    ),
    "common_mass": Label("attention to tokens that are in several sequences"),
    "distinct_mass": Label("attention to tokens that are in one sequence only"),
}
# Of all rows together, or of the last ones.
OTHERS = {
    "max_logit": Label(
        "largest logit of all queries and visible keys, never sampled; over sequences the largest"
    ),
    "alpha_1": Label("attention to the first key, mean over all queries (Gu et al. 2025)"),
    "sink_rate": Label(
        f"whether alpha_1 is above {places.SINK_RATE}; over sequences, how often (Gu et al. 2025)"
    ),
    "strongest_mass": Label(
        "mean attention to the key that gets most, of those that at least "
        f"{100 * places.SINK_SEEN:g} % of the queries see"
    ),
    "strongest_is_first": Label("whether that is the first key; over sequences, how often"),
    "value_norm_ratio": Label("norm of the first key's value over the mean of the others'"),
    "received": Label("mean attention that a key gets from queries that see it", dims=("key",)),
    "received_total": Label("attention that a key gets from all queries", dims=("key",)),
    "heavy_mass": Label("share of all attention that the heaviest tenth of keys receives"),
    "frequency_correlation": Label("rank correlation of received with the token's frequency"),
    "idf_correlation": Label("rank correlation of received with the token's idf"),
    "retained_mass": Label("share of the attention that a cache of this size keeps", dims=KEPT),
    "output_error": Label("relative error of the attention output with that cache", dims=KEPT),
    "attention": Label(
        "maps of a few fixed rows, by which their speed is measured", dims=("row", "key")
    ),
}
# Over sequences the largest of these is taken, of all others the mean.
MAXIMA = ("max_logit",)
COORDS: dict[str, list[Any]] = {
    "k": list(maps.TOP),
    "mass": list(maps.MASS),
    "first": list(places.FIRST),
    "policy": list(budget.POLICIES),
    "budget": list(budget.BUDGETS),
}
