"""Sentences about a model's attention over training, from the dataset of an observer.

The dataset is checked first: it may have been changed and saved again, with a valid seal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.documents import shown
from attnlab.files.errors import InputError
from attnlab.files.recipe import as_value
from attnlab.measures.motion import FEWEST_RECORDS, SNAP_SHARE
from attnlab.measures.positions import SINK_RATE, SINK_SEEN
from attnlab.observing.alerts import Alerts
from attnlab.observing.layer_statistics import COORDS, LABELS
from attnlab.observing.roles import ROLES, with_roles
from attnlab.observing.snap import MOVING, NEVER, SNAPPED, STATES, STOPPED, UNKNOWN

MOST_HEADS = 2**17  # of all layers together, because a page has a number for each
_OF_HEADS = ("layer", "head")
_NEEDED = ("entropy", "relative_entropy", "keys_for", "keys_share", "visible_keys")
SNAP = ("snap_step", "snap_low", "snap_high", "snap_missing", "snap_speed_left", "snap_moved_since")
# a variable, and another that always comes with it
_BESIDE = (
    ("attention_speed", "snap_step"),
    ("head_role", "role_score"),
    ("role_onset", "role_onset_high"),
    ("role_onset", "role_onset_low"),
    ("snap_low", "snap_high"),
    ("received_start", "received_end"),
    ("received_end", "token"),
    *(("snap_state", name) for name in SNAP),
)
_OF_KEYS = ("sequence", "key")
# dims beside step of the variables that the page and its words read
_DIMS = {
    **{name: ("layer", *label.dims) for name, label in LABELS.items()},
    **dict.fromkeys(("received_start", "received_end", "token"), _OF_KEYS),
    "module": ("layer",),
}
_WITHOUT_STEP = re.compile("snap_|received_|token$|module$|head_role$|role_onset")
_ERRORS = re.compile("_sequence_se$|_se$")
# the entry of each dim that the page and its words name
_NAMED = {"mass": 0.95, "k": 1, "first": 1, "budget": 0.1, "policy": "oracle", "role": "sink"}
_FLAGS = {"snap_state": (0, len(STATES)), "head_role": (-1, len(ROLES))}  # whole numbers
SPARSE = 0.25  # 95 % of the attention in this share of the visible keys
INDUCTION = 0.1  # above chance
_INDUCTION = {"induction_mass": "", "repeated_induction": "On random tokens that come twice, "}
SURE = 0.05  # share of the resamples that may have no snap
MOST_NAMED = 6  # heads that a sentence names
# variables of several steps, which mean nothing for a single snapshot
_OF_A_SNAP = ("snap_step", "snap_low", "snap_high", "snap_moved_since")
_OF_SEVERAL = ("snap_", "attention_speed", "log_speed", "heavy_overlap", "received_", "role_")
BUDGET = 0.1  # of the cache in the sentence about caches
POLICY_WORDS = {
    "oracle": "the keys that each query attends to most (the most attention that can be kept)",
    "sinks_recent": "the first four and the latest keys",
    "heavy_recent": "the keys that received most, and the latest",
    "window_vote": "the keys that the prompt's last queries attended to most, and the latest",
}


def checked(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset of an observer with its dims in order; refuse any other.

    Variables and attributes that neither words nor pages read are not checked.
    """
    if "entropy" not in dataset or not set(_OF_HEADS) <= set(dataset.dims):
        raise InputError(
            "dataset: was not produced by attnlab.observe (no entropy over layer and head); give "
            "what observer.result() returns, or a file that it was saved to"
        )
    for name, problem in _problems(dataset):
        raise InputError(
            f"dataset: {name}: {problem}; it was changed after attnlab.observe made it, measure "
            "again"
        )
    order = ("step", *_OF_HEADS, "policy", "budget", *_OF_KEYS)
    return dataset.transpose(*order, ..., missing_dims="ignore")


def _problems(dataset: xr.Dataset) -> Iterator[tuple[str, str]]:
    """Yield names and problems of a dataset; later checks rely on earlier ones."""
    yield from ((name, "is missing") for name in _NEEDED if name not in dataset)
    for name, other in _BESIDE:
        if name in dataset and other not in dataset.variables:
            yield other, f"is missing beside {name}"
    for name, (first, end) in _FLAGS.items():
        if name in dataset:
            flags = dataset[name]
            if flags.dtype.kind not in "iu" or not bool(flags.isin(range(first, end)).all()):
                yield name, f"expected whole numbers from {first} to {end - 1}"
    for dim in ("step", *_OF_HEADS):
        if dataset.sizes.get(dim, 1) < 1:
            yield dim, "has no entries"
        if dim in dataset.coords and dataset[dim].dtype.kind not in "iu":
            yield dim, f"expected whole numbers, got {dataset[dim].dtype}"
    heads = dataset.sizes["layer"] * dataset.sizes["head"]
    if heads > MOST_HEADS:
        yield "head", f"{heads:,} heads are more than a page can show ({MOST_HEADS:,})"
    if "step" in dataset.coords and dataset["step"].dims not in ((), ("step",)):
        yield "step", "expected one step for all heads, or a dim of its own"
    if "step" in dataset.dims and not (np.diff(dataset["step"].values) > 0).all():
        yield "step", "steps do not grow"
    for key, variable in dataset.variables.items():
        yield from _problems_of_variable(str(key), variable, stepped="step" in dataset.dims)
    for dim, entry in _NAMED.items():
        if dim in dataset.dims:
            values = dataset[dim].values.tolist() if dim in dataset.indexes else []
            strange = dim == "role" and values != list(ROLES)
            if dim == "policy":
                strange = len(values) < 2 or not set(values) <= set(COORDS[dim])
            if entry not in values or len(set(values)) < len(values) or strange:
                yield dim, f"expected {shown(entry)} among different entries, got {values[:6]}"
    for name, is_right in _ATTRIBUTES.items():
        if name in dataset.attrs and not is_right(dataset.attrs[name]):
            yield f"attribute {name}", f"is not what attnlab writes: {shown(dataset.attrs[name])}"


def _problems_of_variable(
    name: str, variable: xr.Variable, *, stepped: bool
) -> Iterator[tuple[str, str]]:
    dims = _DIMS.get(_ERRORS.sub("", name))
    if dims is None:
        return
    if stepped and not _WITHOUT_STEP.match(name):
        dims = ("step", *dims)
    if set(variable.dims) != set(dims):
        got = ", ".join(map(str, variable.dims))
        yield name, f"expected dims {', '.join(dims)}, got {got}"
    if name == "module":
        if not all(isinstance(one, str) for one in variable.values.ravel().tolist()):
            yield name, f"expected text, got {variable.dtype}"
    elif variable.dtype.kind not in ("iu" if name == "token" else "fiu"):
        yield name, f"expected numbers, got {variable.dtype}"


def _is_json(kind: Any) -> Callable[[Any], bool]:
    """Return a function that checks for JSON text of a value of this kind."""

    def is_right(attribute: Any) -> bool:
        try:
            as_value("", json.loads(attribute), kind)
        except (TypeError, ValueError, RecursionError):
            return False
        return True

    return is_right


@dataclass(frozen=True)
class _Fault:
    kind: str
    words: str
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Lint:
    """The parts of `Lint.document` that pages read."""

    steps: tuple[int, ...]
    faults: tuple[_Fault, ...]
    unusable: tuple[int, ...] = ()
    breaks: tuple[int, ...] = ()


_ATTRIBUTES: Mapping[str, Callable[[Any], bool]] = {
    "spec": lambda text: (
        _is_json(dict[str, Any])(text) and isinstance(json.loads(text).get("checkpoints", []), list)
    ),
    "versions": _is_json(dict[str, Any]),
    "lint": _is_json(_Lint),
    "theory": _is_json(tuple[str, ...]),
    "unseen": _is_json(dict[str, str]),
    "seconds": lambda value: isinstance(value, int | float),
    "snap_spans": lambda value: isinstance(value, int | np.integer),
}


def in_words(dataset: xr.Dataset) -> list[str]:
    """Return sentences about the measurements, each of which names what it counts.

    Parameters
    ----------
    dataset : xarray.Dataset
        Result of an observer, over (step, layer, head); one over (layer, head) is one snapshot.

    Returns
    -------
    list of str
        The sentences.
    """
    dataset = with_steps(dataset)
    there = dataset["entropy"].notnull().any(("layer", "head")).values
    known = dataset.isel(step=there)
    topics = [_sparsity, _keys, _roles, _onsets, _sinks, _snaps, _induction, _caches]
    topics = topics if there.any() else []
    if not there.all():  # NaN does not come to rest
        topics = [topic for topic in topics if topic is not _snaps]
    sentences = [sentence for topic in topics for sentence in topic(known)]
    told = [*_measured(dataset), *_diverged(dataset, there), *_alerts(known)]
    return [*told, *sentences, *_left_out(dataset)]


def with_steps(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset of an observer over (step, layer, head); one snapshot is one step."""
    dataset = checked(dataset)
    if "step" not in dataset.dims:
        step = dataset.coords["step"].item() if "step" in dataset.coords else 0
        moved = [name for name in dataset.data_vars if str(name).startswith(_OF_SEVERAL)]
        dataset = dataset.drop_vars(["step", *moved], errors="ignore").expand_dims(step=[step])
    return dataset if "role_onset" in dataset else with_roles(dataset)  # of an older attnlab


def _diverged(dataset: xr.Dataset, there: NDArray[np.bool_]) -> Iterator[str]:
    if not there.all():
        steps = dataset["step"].values[~there]
        yield (
            f"At {_count(steps.size, 'step')}, the first of them {steps[0]:,}, attention is not a "
            "number: the model has diverged. What follows describes the other steps, and no snap "
            "is claimed."
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


def _alerts(dataset: xr.Dataset) -> Iterator[str]:
    if not dataset.sizes["step"] or "sink_mass" not in dataset:
        return
    found = [one for one in Alerts().found(dataset) if one.kind != "nan"]
    if found:
        some = "; ".join(f"at step {one.step:,} {one.words}" for one in found[:MOST_NAMED])
        more = len(found) - MOST_NAMED
        end = f"; and {more} more." if more > 0 else "."
        yield f"{_count(len(found), 'alert')}: {some}{end}"


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


def _roles(dataset: xr.Dataset) -> Iterator[str]:
    if "head_role" not in dataset:
        return
    role, score = dataset["head_role"].values, _last(dataset, "role_score")
    there = np.isfinite(_last(dataset, "entropy"))
    parts = [
        f"{_count(int(some.sum()), 'head')} {name} ({_named(some, score[..., i])})"
        for i, name in enumerate(ROLES)
        if (some := role == i).any()
    ]
    none = int(((role < 0) & there).sum())
    parts += [f"{_count(none, 'head')} without a role"] if none else []
    yield f"Roles at the end: {'; '.join(parts)}."


def _onsets(dataset: xr.Dataset) -> Iterator[str]:
    """Say when each role with a path of its own formed: previous tokens, induction, sinks."""
    if "role_onset" not in dataset or dataset.sizes["step"] < 2:
        return
    steps = dataset["step"].values
    for name in ("previous token", "induction", "sink"):
        one = dataset.sel(role=name)
        onset = one["role_onset"].values
        formed = onset > steps[0]
        if not formed.any():
            continue
        layer, head = _order(formed, -onset)[0]
        low, high = (one[f"role_onset_{end}"].values[layer, head] for end in ("low", "high"))
        between = ""
        if np.isfinite([low, high]).all():
            between = f" (between {low:,.0f} and {high:,.0f} for other sequences)"
        rise = np.nanmax(one["role_score"].where(formed).diff("step").values, axis=(1, 2))
        at = int(np.nanargmax(rise))
        yield (
            f"Attention of the role {name} formed first in {_head(layer, head)}, at step "
            f"{onset[layer, head]:,.0f}{between}; {_count(int(formed.sum()), 'head')} formed it "
            f"by the end, and it rose most between steps {steps[at]:,} and {steps[at + 1]:,}."
        )


def _sinks(dataset: xr.Dataset) -> Iterator[str]:
    if "strongest_mass" not in dataset:
        return
    mass, first = _last(dataset, "strongest_mass"), _last(dataset, "strongest_is_first")
    sinks = mass > SINK_RATE
    seen = f"that at least {100 * SINK_SEEN:g} % of the queries see"
    if not sinks.any():
        yield (
            f"No head sinks: no key {seen} gets more than {100 * SINK_RATE:g} % of a head's "
            f"attention on average (the most is {100 * np.nanmax(mass):.0f} %)."
        )
        return
    at_first = sinks & (first > 0.5)
    for some, where in ((at_first, "the first key"), (sinks & ~at_first, "a later key")):
        if some.any():
            yield (
                f"{_count(int(some.sum()), 'head')} {'sink' if some.sum() > 1 else 'sinks'}: more "
                f"than {100 * SINK_RATE:g} % of the attention goes to {where} on average, of keys "
                f"{seen} ({_named(some, mass, percent=True)})."
            )
    alpha = _last(dataset, "alpha_1")
    yield (
        f"By the measure of Gu et al. (2025), the mean over all queries of their attention to the "
        f"first key (alpha_1 > {SINK_RATE:g}), {int((alpha > SINK_RATE).sum())} of "
        f"{int(np.isfinite(alpha).sum())} heads sink; the largest alpha_1 is "
        f"{np.nanmax(alpha):.2f}."
    )


def _snaps(dataset: xr.Dataset) -> Iterator[str]:
    if "snap_state" not in dataset:
        yield "No snap is claimed: " + _no_history(dataset)
        return
    state = np.where(np.isfinite(_last(dataset, "entropy")), dataset["snap_state"].values, -1)
    total = int((state >= 0).sum())
    sure = snap_is_sure(dataset)
    if sure.any():
        snap = dataset["snap_step"].values
        some = "; ".join(_snap_words(dataset, *at) for at in _order(sure, -snap)[:MOST_NAMED])
        more = int(sure.sum()) - MOST_NAMED
        yield (
            f"{int(sure.sum())} of {total} heads snapped (from then on their attention changes at "
            f"less than {100 * SNAP_SHARE:g} % of its fastest, per learning rate): {some}"
            + (f"; and {more} more" if more > 0 else "")
            + ". Intervals are over sequences of this one training."
        )
    unsure = (state == SNAPPED) & ~sure
    if unsure.any():
        yield (
            f"In {_count(int(unsure.sum()), 'head')} a snap was seen but is not claimed: more than "
            f"{100 * SURE:g} % of the resamples of the probe's sequences have none, or there is "
            "only one sequence."
        )
    for value, words in _OTHER_STATES.items():
        some = state == value
        if some.any():
            which = "No head snapped" if some.sum() == total else _count(int(some.sum()), "head")
            yield f"{which}: {words(dataset, some)}."


def _stopped(dataset: xr.Dataset, some: NDArray[np.bool_]) -> str:
    return (
        f"stopped by the schedule. The learning rate fell below {100 * SNAP_SHARE:g} % of its peak "
        f"while attention, per learning rate, still moved at {_left(dataset, some)} of its fastest"
    )


def _moving(dataset: xr.Dataset, some: NDArray[np.bool_]) -> str:
    per = (
        " per learning rate" if dataset.attrs.get("snap_clock") == "learning rate" else " per step"
    )
    return f"still moving at the end, at {_left(dataset, some)} of the fastest{per}"


def _unknown(dataset: xr.Dataset, some: NDArray[np.bool_]) -> str:
    spans = int(dataset.attrs.get("snap_spans", 0))
    if spans + 1 < FEWEST_RECORDS:
        return (
            f"cannot tell. The records hold {_count(spans, 'span')} of equal length, and a snap "
            f"needs {FEWEST_RECORDS - 1}; measure at even steps"
        )
    if dataset.attrs.get("snap_clock") != "learning rate":
        return (
            "cannot tell. Attention came to rest, but the learning rate is not known, and a "
            "schedule may have stopped it; give learning_rate"
        )
    reason = "cannot tell. Attention is quiet at the end, but not for long enough"
    if _faults(dataset):
        reason += ", or faults of the checkpoints hide when it came to rest"
    return reason


def _never(dataset: xr.Dataset, some: NDArray[np.bool_]) -> str:
    return "attention never moved"


_OTHER_STATES = {STOPPED: _stopped, MOVING: _moving, UNKNOWN: _unknown, NEVER: _never}


def _left(dataset: xr.Dataset, some: NDArray[np.bool_]) -> str:
    """Return the speed in the last span over the peak: the median head, and the range."""
    left = dataset["snap_speed_left"].values[some]
    if left.size == 1:
        return f"{left[0]:.2g}"
    return f"{np.nanmin(left):.2g} to {np.nanmax(left):.2g} (median {np.nanmedian(left):.2g})"


def snap_is_sure(dataset: xr.Dataset) -> NDArray[np.bool_]:
    """Return the heads for which a snap is claimed: nearly all resamples of sequences have one."""
    if "snap_state" not in dataset:
        return np.zeros(dataset["entropy"].isel(step=-1).shape, bool)
    sure: NDArray[np.bool_] = dataset["snap_state"].values == SNAPPED
    return sure & (dataset["snap_missing"].values <= SURE)


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
    of_policy = {str(policy): kept.sel(policy=policy) for policy in kept["policy"].values}
    if not all(np.isfinite(float(mean.mean())) for mean in of_policy.values()):
        return
    shares = "; ".join(
        f"{100 * float(of_heads.mean()):.0f} % ({100 * float(of_heads.min()):.0f} to "
        f"{100 * float(of_heads.max()):.0f} %) by {POLICY_WORDS[name]}"
        for name, of_heads in of_policy.items()
    )
    yield (
        f"If the last queries may keep {100 * BUDGET:g} % of the keys that they see, their "
        f"attention is kept to, mean over heads and range, {shares}."
    )


def _left_out(dataset: xr.Dataset) -> Iterator[str]:
    unseen = json.loads(dataset.attrs.get("unseen", "{}"))
    if unseen:
        kinds = ", ".join(sorted(set(unseen.values())))
        number = _count(len(unseen), "module")
        yield f"Nothing is known of {number} whose attention cannot be captured ({kinds})."
    faults = _faults(dataset)
    if faults:
        yield (
            f"The checkpoints have {_count(len(faults), 'fault')}; steps that cannot be relied on "
            "are left out, and no snap is claimed across them."
        )


def _no_history(dataset: xr.Dataset) -> str:
    steps = dataset.sizes["step"]
    if "attention_speed" in dataset:
        return "this file was written by an older attnlab that did not know the learning rate."
    if steps > 1:
        return "each measurement is of other tokens, so the motion of attention is not known."
    return "there is only one measurement."


def _snap_words(dataset: xr.Dataset, layer: int, head: int) -> str:
    here = {n: float(dataset[n].isel(layer=layer, head=head)) for n in _OF_A_SNAP}
    return (
        f"{_head(layer, head)} at step {here['snap_step']:,.0f} (90 %: {here['snap_low']:,.0f} to "
        f"{here['snap_high']:,.0f}; {100 * here['snap_moved_since']:.2g} % of its attention at "
        "most went elsewhere since)"
    )


def _faults(dataset: xr.Dataset) -> Sequence[Any]:
    found: Sequence[Any] = json.loads(dataset.attrs.get("lint", "{}")).get("faults", [])
    return found


def _last(dataset: xr.Dataset, name: str) -> NDArray[Any]:
    return dataset[name].isel(step=-1).values


def _order(chosen: NDArray[np.bool_], strength: NDArray[Any]) -> list[tuple[int, int]]:
    """Return the chosen heads, the strongest first."""
    at = np.argwhere(chosen)
    order = np.argsort(-strength[chosen], kind="stable")
    return [(int(layer), int(head)) for layer, head in at[order]]


def _named(chosen: NDArray[np.bool_], strength: NDArray[Any], *, percent: bool = False) -> str:
    """Name some of the chosen heads, the strongest first."""
    order = _order(chosen, strength)
    names = [
        _head(*at) + (f": {100 * strength[at]:.0f} %" if percent else "")
        for at in order[:MOST_NAMED]
    ]
    more = len(order) - MOST_NAMED
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _head(layer: int, head: int) -> str:
    return f"layer {layer} head {head}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
