"""What of a result a drawing shows: one run, the classes and tokens that fit or are asked for.

Whatever is left out is told, so that a picture of 6 of 20 classes says so itself.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.measures import clock_of
from attnlab.measures.roles import in_play, is_common

Results = TypeVar("Results", xr.Dataset, xr.DataArray)
Choice = int | str | Sequence[int | str]  # of classes or tokens, by number or by name
MOST_CLASSES = 6
MOST_TOKENS, MOST_WORDS = 60, 24  # words need room to be read
LONGEST_NAME = 32  # of classes, in a heading


def frames(
    result: xr.Dataset, *, classes: Choice | None = None, tokens: Choice | None = None
) -> xr.Dataset:
    """Attention of one run, of the classes and tokens that fit or are chosen.

    Beside it stand `common`, the `word` of each token and the `label` of each class. Of many
    tokens, those with the largest probability in the shown classes are kept. The attribute
    `left_out` says how many of how many are shown, and is empty where all are.
    """
    clock = clock_of(result)
    if "attention" not in result:
        raise InputError("attention: not in the result; record it, Save(what=('attention',))")
    one = one_run(result[["attention", "probability"]], clock)
    common, contextual = is_common(one).values, in_play(one).values
    rows = chosen_classes(one, classes)
    shown = one.isel(sequence_class=rows)
    columns = _tokens(shown, tokens)
    told = [
        runs_left_out(result["attention"], clock),
        how_many(len(rows), one.sizes["sequence_class"], "classes"),
        how_many(len(columns), int(contextual.sum()), "tokens"),
    ]
    shown = shown.isel(token=columns).assign_coords(
        common=("token", common[columns]),
        word=("token", [str(token) for token in shown["token"].values[columns]]),
        label=("sequence_class", labels(shown)),
    )
    return shown.assign_attrs(left_out=", ".join(filter(None, told)))


def chosen_classes(result: Any, classes: Choice | None) -> list[int]:
    """Positions of the classes: those that are chosen, or as many as fit.

    A class goes by its number, by its next word, or by both words as `labels` writes them.
    """
    count = result.sizes["sequence_class"]
    if classes is None:
        return list(range(min(count, MOST_CLASSES)))
    named = labels(result)
    following = [label.rpartition(" → ")[2] for label in named]
    numbers = result["sequence_class"].values.tolist()

    def places(given: int | str) -> list[int]:
        return [i for i in range(count) if given in (numbers[i], named[i], following[i])]

    return _chosen("classes", classes, places, numbers, [*named, *following])


def _tokens(result: xr.Dataset, tokens: Choice | None) -> list[int]:
    """Positions of the tokens, in their order."""
    names = result["token"].values.tolist()
    if tokens is None:
        weight = result["probability"].max("sequence_class").values
        most = MOST_WORDS if has_words(result) else MOST_TOKENS
        likeliest = np.argsort(-weight, kind="stable")[:most]
        return [int(i) for i in np.sort(likeliest) if weight[i] > 0]
    numbers = result["token_id"].values.tolist() if has_words(result) else names

    def places(given: int | str) -> list[int]:
        return [i for i in range(len(names)) if given in (numbers[i], names[i])]

    return _chosen("tokens", tokens, places, numbers, map(str, names))


def _chosen(
    field: str,
    given: Choice,
    places: Callable[[int | str], list[int]],
    numbers: list[int],
    names: Iterable[str],
) -> list[int]:
    asked = [given] if isinstance(given, (int, str)) else list(given)
    found: list[int] = []
    for each in asked:
        here = places(each)
        if not here:
            near = difflib.get_close_matches(str(each), list(names), n=1, cutoff=0.0)
            hint = f"did you mean {near[0]!r}?"
            if isinstance(each, int):
                hint = f"they are numbered from {min(numbers)} to {max(numbers)}"
            raise InputError(f"{field}: {each!r} is not in the result; {hint}")
        found += [i for i in here if i not in found]
    if not found:
        raise InputError(f"{field}: expected at least one, got none")
    return found


def has_words(result: Any) -> bool:
    """Whether tokens go by name."""
    return "token_id" in result.coords


def labels(result: Any) -> list[str]:
    """query → next, of each class, by name where there are names."""
    if "query_name" in result.coords:
        pairs = zip(result["query_name"].values, result["next_name"].values, strict=True)
        return [f"{m} → {n}" for m, n in pairs]
    pairs = zip(result["query_token"].values, result["next_token"].values, strict=True)
    return [f"token {m} → token {n}" for m, n in pairs]


def one_run(results: Results, clock: str) -> Results:
    """The first of them all."""
    kept = (clock, "sequence_class", "token")
    return results.isel({dim: 0 for dim in results.dims if dim not in kept})


def runs_left_out(attention: xr.DataArray, clock: str) -> str:
    """Which run is shown, where there are several."""
    kept = (clock, "sequence_class", "token")
    several = {dim: n for dim, n in attention.sizes.items() if dim not in kept and n > 1}
    if not several:
        return ""
    first = ", ".join(f"{dim} = {attention[dim].values[0]}" for dim in several)
    return f"1 of {int(np.prod(list(several.values())))} runs ({first})"


def how_many(shown: int, there: int, noun: str) -> str:
    """6 of 20 classes; nothing where all are shown."""
    return f"{shown} of {there} {noun}" if shown < there else ""


def heading(result: xr.Dataset, what: str) -> str:
    """What is drawn, of which classes, at which rates; as far as the result says it."""
    spec = json.loads(result.attrs.get("spec", "{}"))
    classes = spec.get("classes")
    title = f"{what} during training"
    if isinstance(classes, dict):  # of one set
        name = Path(str(classes["origin"])).name
        name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        title = f"{what} while {name} is learnt".replace("$", r"\$")
    rates = []
    for name, letter in (("eta_y", r"$\eta_Y$"), ("eta_z", r"$\eta_Z$")):
        rate: Any = result[name].values.flat[0] if name in result.coords else spec.get(name)
        if rate is not None and np.ndim(rate) == 0:
            rates.append(f"{letter} = {rate:g}")
    return f"{title}: {', '.join(rates)}" if rates else title


def spread(moments: NDArray[Any], most: int) -> list[int]:
    """Positions of at most so many moments: the first, then evenly in ratio up to the last."""
    positive = np.flatnonzero(moments > 0)
    if not positive.size:
        return [0]
    wanted = np.geomspace(moments[positive[0]], moments[-1], most - 1)
    return sorted({0, *(int(np.argmin(np.abs(moments - t))) for t in wanted)})
