"""In words: what happened to a model's attention, from the dataset of an observer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.measures.places import SINK_RATE
from attnlab.observe.schema import checked

SPARSE = 0.25  # 95 % of the attention in this share of the visible keys
INDUCTION = 0.1  # above chance
_INDUCTION = {"induction_mass": "", "repeated_induction": "On random tokens that come twice, "}
SURE = 0.05  # of the resamples may be without a snap
MOST_NAMED = 6  # heads that a sentence names
# what a moment alone, taken out of a history, does not tell
_OF_SEVERAL = ("snap_", "attention_speed", "log_speed", "heavy_overlap", "received_")
BUDGET = 0.1  # the cache that a sentence speaks of
POLICY_WORDS = {
    "oracle": "the best choice there is",
    "sinks_recent": "the first four and the latest keys (StreamingLLM)",
    "heavy_recent": "heavy hitters and the latest (H2O)",
    "window_vote": "the vote of the last queries (SnapKV)",
}


def in_words(dataset: xr.Dataset) -> list[str]:
    """Sentences about what was measured, each of which says what it counts.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of an observer, over (step, layer, head); one over (layer, head) is one moment.

    Returns
    -------
    list of str
        The sentences.
    """
    dataset = with_steps(dataset)
    there = dataset["entropy"].notnull().any(("layer", "head")).values
    known = dataset.isel(step=there)
    told = [_sparsity, _keys, _sinks, _snaps, _induction, _caches] if there.any() else []
    if not there.all():  # maps that are no numbers do not come to rest
        told = [tell for tell in told if tell is not _snaps]
    sentences = [sentence for tell in told for sentence in tell(known)]
    return [*_measured(dataset), *_diverged(dataset, there), *sentences, *_left_out(dataset)]


def with_steps(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset of an observer over (step, layer, head); one moment is one step."""
    dataset = checked(dataset)
    if "step" in dataset.dims:
        return dataset
    step = dataset.coords["step"].item() if "step" in dataset.coords else 0
    moved = [name for name in dataset.data_vars if str(name).startswith(_OF_SEVERAL)]
    return dataset.drop_vars(["step", *moved], errors="ignore").expand_dims(step=[step])


def _diverged(dataset: xr.Dataset, there: NDArray[np.bool_]) -> Iterator[str]:
    if not there.all():
        steps = dataset["step"].values[~there]
        yield (
            f"At {_count(steps.size, 'step')}, the first of them {steps[0]:,}, attention is not a "
            "number: the model has diverged. What follows is of the other steps, and no snap is "
            "claimed."
        )


def _measured(dataset: xr.Dataset) -> Iterator[str]:
    steps = dataset["step"].values
    heads = int(dataset["entropy"].notnull().any("step").sum())
    when = f"at step {steps[0]:,}"
    if steps.size > 1:
        when = f"{steps.size} times from step {steps[0]:,} to {steps[-1]:,}"
    model = json.loads(dataset.attrs.get("spec", "{}")).get("model", "The training")
    layers = _count(dataset.sizes["layer"], "layer")
    yield f"{model} was measured {when}: {heads} heads in {layers}."


def _sparsity(dataset: xr.Dataset) -> Iterator[str]:
    share = dataset["keys_share"].sel(mass=0.95)
    last, first = share.isel(step=-1).values, share.isel(step=0).values
    sparse = last <= SPARSE
    total = int(np.isfinite(last).sum())
    words = (
        f"{int(sparse.sum())} of {total} heads are sparse at the end (95 % of a query's attention "
        f"in at most {100 * SPARSE:g} % of the keys that it sees)"
    )
    if dataset.sizes["step"] > 1:
        before = first <= SPARSE
        words += f"; at the start {int(before.sum())} were"
        became = _named(sparse & ~before, first - last)
        words += f". Became sparse: {became}" if became else ""
        lost = _named(before & ~sparse, last - first)
        words += f". No longer sparse: {lost}" if lost else ""
    yield words + "."
    entropy = dataset["relative_entropy"].mean("head")
    ends = entropy.isel(step=-1).values
    if dataset.sizes["layer"] > 1 and np.isfinite(ends).any():
        low, high = int(np.nanargmin(ends)), int(np.nanargmax(ends))
        yield (
            f"Attention is sharpest in layer {low} (entropy {ends[low]:.2f} of the largest "
            f"possible) and broadest in layer {high} ({ends[high]:.2f})."
        )


def _keys(dataset: xr.Dataset) -> Iterator[str]:
    keys = dataset["keys_for"].sel(mass=0.95)
    last = keys.isel(step=-1).values
    seen = float(np.nanmean(_last(dataset, "visible_keys")))
    words = f"95 % of a query's attention is on {np.nanmedian(last):.0f} keys in the median head"
    if dataset.sizes["step"] > 1:
        words += f" ({np.nanmedian(keys.isel(step=0).values):.0f} at the start)"
    words += (
        f", on {np.nanmin(last):.0f} in the sparsest and {np.nanmax(last):.0f} in the broadest; "
        f"a query sees {seen:.0f} on average."
    )
    yield words


def _sinks(dataset: xr.Dataset) -> Iterator[str]:
    if "sink_mass" not in dataset:
        return
    mass = dataset["sink_mass"].sel(first=1).isel(step=-1).values
    sinks = mass > SINK_RATE
    if not sinks.any():
        yield (
            f"No head sinks: none gives the first key more than {100 * SINK_RATE:g} % of its "
            f"attention (the most is {100 * np.nanmax(mass):.0f} %)."
        )
        return
    layers = ", ".join(str(layer) for layer in np.flatnonzero(sinks.any(axis=1)))
    yield (
        f"{_count(int(sinks.sum()), 'head')} in {'layers' if ',' in layers else 'layer'} {layers} "
        f"{'sink' if sinks.sum() > 1 else 'sinks'}: more than {100 * SINK_RATE:g} % of the "
        f"attention goes to the first key ({_named(sinks, mass, percent=True)})."
    )


def _snaps(dataset: xr.Dataset) -> Iterator[str]:
    if "attention_speed" not in dataset:
        yield "No snap is claimed: " + _no_history(dataset)
        return
    snap = dataset["snap_step"].values
    sure = snap_is_sure(dataset)
    total = int(np.isfinite(_last(dataset, "entropy")).sum())
    if sure.any():
        some = "; ".join(_told_snap(dataset, *at) for at in _order(sure, -snap)[:MOST_NAMED])
        more = int(sure.sum()) - MOST_NAMED
        yield (
            f"{int(sure.sum())} of {total} heads snapped (from then on their maps move at less "
            "than 2 % of their fastest, to the end): "
            + some
            + (f"; and {more} more" if more > 0 else "")
            + "."
        )
    unsure = np.isfinite(snap) & ~sure
    moving = np.isfinite(_last(dataset, "entropy")) & ~np.isfinite(snap)
    if unsure.any():
        yield (
            f"In {_count(int(unsure.sum()), 'head')} a snap was seen but is not claimed: more than "
            f"{100 * SURE:g} % of the resamples of the probe's sequences have none, or there is "
            "one sequence alone to tell from."
        )
    if moving.any():
        alone = int(moving.sum()) == total
        which = "No head snapped" if alone else f"{_count(int(moving.sum()), 'head')} did not snap"
        faults = _faults(dataset)
        reason = "their maps still move at 2 % of their fastest or more when the record ends"
        if faults:
            reason += ", or faults of the checkpoints hide when they came to rest"
        yield f"{which}: {reason}."


def snap_is_sure(dataset: xr.Dataset) -> NDArray[np.bool_]:
    """Of which heads a snap is claimed: nearly all resamples of the sequences have one."""
    missing: NDArray[np.bool_] = np.isfinite(dataset["snap_step"].values)
    if "snap_missing" in dataset:
        missing = missing & (dataset["snap_missing"].values <= SURE)
    return missing


def _induction(dataset: xr.Dataset) -> Iterator[str]:
    for name, where in _INDUCTION.items():
        if name not in dataset:
            continue
        mass = _last(dataset, name)
        strong = mass > INDUCTION
        if strong.any():
            yield (
                f"{where}{_count(int(strong.sum()), 'head')} "
                f"{'look' if strong.sum() > 1 else 'looks'} for what followed the same token "
                f"before, by more than {100 * INDUCTION:g} % above chance "
                f"({_named(strong, mass, percent=True)})."
            )


def _caches(dataset: xr.Dataset) -> Iterator[str]:
    if "retained_mass" not in dataset:
        return
    kept = dataset["retained_mass"].isel(step=-1).sel(budget=BUDGET)
    means = {str(p): float(kept.sel(policy=p).mean()) for p in kept["policy"].values}
    if not np.isfinite(list(means.values())).all():
        return
    real = {name: mean for name, mean in means.items() if name != "oracle"}
    best = max(real, key=lambda name: real[name])
    worst = kept.sel(policy=best)
    low = float(worst.min())
    at = _order(worst.values <= low, -worst.values)[0]
    yield (
        f"With {100 * BUDGET:g} % of the KV cache, {100 * real[best]:.0f} % of the attention are "
        f"kept on average over heads by {POLICY_WORDS[best]} "
        f"({POLICY_WORDS['oracle']}: {100 * means['oracle']:.0f} %), and {100 * low:.0f} % in "
        f"the worst, {_head(*at)}."
    )


def _left_out(dataset: xr.Dataset) -> Iterator[str]:
    unseen = json.loads(dataset.attrs.get("unseen", "{}"))
    if unseen:
        kinds = ", ".join(sorted(set(unseen.values())))
        number = _count(len(unseen), "module")
        yield f"Nothing is known of {number} that no seam sees ({kinds})."
    faults = _faults(dataset)
    if faults:
        yield (
            f"The checkpoints have {_count(len(faults), 'fault')}; steps that cannot be relied on "
            "are left out, and no snap is claimed across them."
        )


def _no_history(dataset: xr.Dataset) -> str:
    steps = dataset.sizes["step"]
    if steps > 1:
        return "each measurement is of other tokens, so that maps cannot be said to move."
    return "there is one measurement alone."


def _told_snap(dataset: xr.Dataset, layer: int, head: int) -> str:
    here = dataset.isel(layer=layer, head=head)
    words = f"{_head(layer, head)} at step {float(here['snap_step']):,.0f}"
    if "snap_low" in here and np.isfinite(float(here["snap_low"])):
        ends = f"{float(here['snap_low']):,.0f} to {float(here['snap_high']):,.0f}"
        words += f" (90 %: {ends})"
    return words


def _faults(dataset: xr.Dataset) -> Sequence[Any]:
    found: Sequence[Any] = json.loads(dataset.attrs.get("lint", "{}")).get("faults", [])
    return found


def _last(dataset: xr.Dataset, name: str) -> NDArray[Any]:
    return dataset[name].isel(step=-1).values


def _order(chosen: NDArray[np.bool_], strength: NDArray[Any]) -> list[tuple[int, int]]:
    """The chosen heads, the strongest first."""
    at = np.argwhere(chosen)
    order = np.argsort(-strength[chosen], kind="stable")
    return [(int(layer), int(head)) for layer, head in at[order]]


def _named(chosen: NDArray[np.bool_], strength: NDArray[Any], *, percent: bool = False) -> str:
    """Some of the chosen heads by name, the strongest first."""
    order = _order(chosen, strength)
    names = [
        _head(*at) + (f" {100 * strength[at]:.0f} %" if percent else "")
        for at in order[:MOST_NAMED]
    ]
    more = len(order) - MOST_NAMED
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _head(layer: int, head: int) -> str:
    return f"layer {layer} head {head}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
