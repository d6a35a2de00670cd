"""Labels: arrays of runs as a Dataset of the common schema, and back to what they are about."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.models.sequence import SequenceModel
from attnlab.simulation.rates import Grid
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.presets import classes_from

PER_TOKEN = {"attention", "attention_logits"}


def label(
    sets: Sequence[SequenceClasses],
    grid: Grid,
    values: Mapping[str, NDArray[Any]],
    *,
    clock: str,
    steps: NDArray[Any],
    model: SequenceModel,
) -> xr.Dataset:
    """Return arrays (setting, seed, rate point, step, ...) with their dims and coords.

    steps: the steps or times along the dim `clock`.

    The dataset also has the classes: P(l|m,n) where there are tokens, and query, next token and
    prior. There is an axis of heads where the model has several.
    """
    outer = ("setting", *grid.dims())
    head = ("head",) if model.heads > 1 else ()
    inner = {
        "loss": (),
        "attention": (*head, "sequence_class", "token"),
        "attention_logits": (*head, "query", "token"),
        **model.extra_dims(),
    }
    per_class = (*head, "sequence_class")  # the statistics
    variables: dict[str, Any] = {
        name: ((*outer, clock, *inner.get(name, per_class)), grid.label(array))
        for name, array in values.items()
    }
    coords: dict[Any, Any] = {
        **grid.coords(),
        clock: steps,
        "sequence_class": np.arange(len(sets[0])),
        "query_token": (("setting", "sequence_class"), [of.query for of in sets]),
        "next_token": (("setting", "sequence_class"), [of.next_token for of in sets]),
        "prior": (("setting", "sequence_class"), [of.prior for of in sets]),
    }
    if head:
        coords["head"] = np.arange(model.heads)
    if PER_TOKEN & set(values):
        coords["token"] = np.arange(sets[0].vocab_size)
        if sets[0].names is not None:
            coords["token_name"] = (("setting", "token"), [of.names for of in sets])
        probs = [of.probs for of in sets]
        variables["probability"] = (("setting", "sequence_class", "token"), probs)
    if "attention_logits" in values:
        coords["query"] = sets[0].queries
    for name in model.extra_dims().keys() & values.keys():
        dims = model.extra_dims()[name]
        for dim, size in zip(reversed(dims), reversed(values[name].shape), strict=False):
            first = int(dim == "distance")  # the token just before the query has distance 1
            coords.setdefault(dim, np.arange(first, first + size))
    return xr.Dataset(variables, coords)


def of_one_set(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset without its dim `setting`, which has one entry.

    Tokens that have names are then labelled by them, so that ``.sel(token="goal")`` works;
    `token_id` has their numbers, and `query_name` and `next_name` the names of each class's query
    and next token.
    """
    dataset = dataset.squeeze("setting")
    if "token_name" not in dataset.coords:
        return dataset
    names, numbers = dataset["token_name"].values, dataset["token"].values
    return dataset.drop_vars("token_name").assign_coords(
        token=names,
        token_id=("token", numbers),
        query_name=("sequence_class", names[dataset["query_token"]]),
        next_name=("sequence_class", names[dataset["next_token"]]),
    )


def classes_of(result: xr.Dataset, written: Any) -> SequenceClasses | tuple[SequenceClasses, ...]:
    """Return the classes of a result, from its probabilities or else from their origin.

    written: origin and digest of each set; the classes that are found must have this digest.
    """
    if not isinstance(written, list):
        return _one_set(result, written)
    if "setting" not in result.dims:
        return _chosen_set(result, written)
    sets = [result.isel(setting=i) for i in range(len(written))]
    return tuple(_one_set(of, item) for of, item in zip(sets, written, strict=True))


def _chosen_set(result: xr.Dataset, written: Sequence[Mapping[str, Any]]) -> SequenceClasses:
    """Return the set that `.isel(setting=i)` left: the one with these probabilities."""
    if "probability" in result:
        for item in written:
            with suppress(InputError):
                return _one_set(result, item)
    raise InputError(
        "result: it is not known which of several sets of classes it is about; record attention, "
        "with which their probabilities are kept"
    )


def _one_set(result: xr.Dataset, written: Mapping[str, Any]) -> SequenceClasses:
    origin = str(written["origin"])
    if "probability" in result and "prior" in result.coords:
        named = "token" if "token_id" in result.coords else "token_name"
        names = result[named].values.tolist() if named in result.coords else None
        found = SequenceClasses(
            result["probability"].transpose("sequence_class", "token").values,
            result["query_token"].values,
            result["next_token"].values,
            result["prior"].values,
            names=names,
            origin=origin,
        )
    else:
        found = classes_from(origin)
    if found.digest != written["digest"]:
        raise InputError(
            f"result: its classes cannot be made again from {origin}; record attention, with which "
            "their probabilities are kept"
        )
    return found
