"""Agreement: do the tokens that the trained model attends to rank as a score said they would?

The slides of "Scan and Snap" call attention a learnable TF-IDF. By Eq. 5 attention is term
frequency times a learnt weight exp(z), so frequency alone already ranks it well; what is to be
found out is whether z ranks tokens as an inverse document frequency does, or as Eq. 10 does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.data import SequenceClasses
from attnlab.dynamics import Limit, Sampled, Save, simulate
from attnlab.dynamics.progress import Choice, reporting
from attnlab.results import provenance
from attnlab.text import scores
from attnlab.text.classes import classes_of
from attnlab.text.corpus import Corpus
from attnlab.text.fit import fit_windows
from attnlab.text.windows import Windows, find_windows

BATCH_SIZE = 128
RESAMPLES = 2000
# What was trained on: classes for T to infinity, classes at length T, the windows themselves.
TRAININGS = ("limit", "sampled", "windows")
TARGETS = ("logits", "attention")
SCORES = ("Eq. 10", "frequency", "TF-IDF of classes", "TF-IDF of windows")
MEASURES = ("rank_correlation", "recall")


def measure_agreement(
    corpus: Corpus,
    *,
    queries: int = 5,
    following: int = 4,
    context: int = 35,
    min_count: int = 10,
    eta_y: float = 10.0,
    eta_z: float = 1.0,
    steps: int = 1000,
    seeds: int = 3,
    top: int = 10,
    progress: Choice = "auto",
) -> xr.Dataset:
    """Train the paper's model on a text in three ways, and hold four scores against it.

    The first four arguments choose the classes (see `find_windows`). eta_y well above eta_z is
    Assumption 1c. top: of how many tokens the recall is taken.

    Returns `rank_correlation` (Spearman's) and `recall` over (training, target, score, seed,
    sequence_class), each over the tokens in the class's windows; and, over (training,
    sequence_class, token), the mean over seeds of `attention` and `attention_logits`.
    """
    for name, value in (("steps", steps), ("seeds", seeds), ("top", top)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    rates = {"eta_y": eta_y, "eta_z": eta_z, "steps": steps}
    with reporting(progress, len(TRAININGS) + 2.0, f"{corpus.name}: agreement") as report:
        report(0.0, "looking for windows")
        windows = find_windows(
            corpus, queries=queries, following=following, context=context, min_count=min_count
        )
        classes = classes_of(windows)
        report(1.0, "scores")
        held = _scores(classes, windows, rates)
        trained = []
        for training in TRAININGS:
            report(1.0, f"training, {training}")
            trained.append(_train(training, classes, windows, rates, seeds))
        report(1.0)
    spec = {
        "corpus": {"name": corpus.name, "digest": corpus.digest},
        "classes": {"origin": classes.origin, "digest": classes.digest},
        **rates, "context": context, "min_count": min_count, "top": top, "batch_size": BATCH_SIZE,
    }  # fmt: skip
    result = _compare(classes, trained, held, top)
    return result.assign_attrs(provenance(spec, windows=len(windows), top=top))


def _scores(
    classes: SequenceClasses, windows: Windows, rates: dict[str, Any]
) -> list[scores.Score]:
    """In the order of SCORES."""
    return [
        scores.eq10(classes, **rates),
        scores.frequency(classes),
        scores.tf_idf_of_classes(classes),
        scores.tf_idf_of_windows(classes, windows),
    ]


def _train(
    training: str, classes: SequenceClasses, windows: Windows, rates: dict[str, Any], seeds: int
) -> xr.Dataset:
    """Logits (seed, query, token) and attention (seed, sequence_class, token) at the end."""
    if training == "windows":
        return fit_windows(windows, classes, batch_size=BATCH_SIZE, seeds=seeds, **rates)
    engine = Limit() if training == "limit" else Sampled(windows.length, BATCH_SIZE)
    save = Save(("attention", "logits"), at=[rates["steps"]])
    run = simulate(classes, engine, **rates, momentum=0.0, seeds=seeds, save=save, progress=False)
    return run.isel(step=-1, drop=True)


def _compare(
    classes: SequenceClasses, trained: list[xr.Dataset], held: list[scores.Score], top: int
) -> xr.Dataset:
    seeds = trained[0].sizes["seed"]
    shape = (len(TRAININGS), len(TARGETS), len(SCORES), seeds, len(classes))
    values = {name: np.zeros(shape) for name in MEASURES}
    for i, run in enumerate(trained):
        reached = (
            run["attention_logits"].values[:, classes.query_index],  # of each class's query
            run["attention"].values,
        )
        for j, target in enumerate(reached):
            for s, score in enumerate(held):
                for seed, k in np.ndindex(seeds, len(classes)):
                    support = classes.support(k)
                    pair = target[seed, k, support], score[j][k, support]
                    values["rank_correlation"][i, j, s, seed, k] = rank_correlation(*pair)
                    values["recall"][i, j, s, seed, k] = recall_at(*pair, top=top)
    dims = ("training", "target", "score", "seed", "sequence_class")
    ends = {
        name: np.stack([run[name].mean("seed").values for run in trained])
        for name in ("attention", "attention_logits")
    }
    return xr.Dataset(
        {
            **{name: (dims, array) for name, array in values.items()},
            "attention": (("training", "sequence_class", "token"), ends["attention"]),
            "attention_logits": (("training", "query", "token"), ends["attention_logits"]),
            "probability": (("sequence_class", "token"), classes.probs),
        },
        {
            "training": list(TRAININGS), "target": list(TARGETS), "score": list(SCORES),
            "query": classes.queries, "token": np.arange(classes.vocab_size),
            "token_name": ("token", np.asarray(classes.names)),
            "query_token": ("sequence_class", classes.query),
            "next_token": ("sequence_class", classes.next_token),
        },
    )  # fmt: skip


def rank_correlation(target: NDArray[Any], score: NDArray[Any]) -> float:
    """Spearman's; 0 where one of the two is constant, because then it ranks nothing."""
    from scipy.stats import rankdata

    a, b = (rankdata(values) - (len(values) + 1) / 2 for values in (target, score))
    norm = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / norm) if norm > 0 else 0.0


def recall_at(target: NDArray[Any], score: NDArray[Any], *, top: int) -> float:
    """The share of the target's `top` largest that are among the score's; ties by position."""
    first = [set(np.argsort(-values, kind="stable")[:top].tolist()) for values in (target, score)]
    return len(first[0] & first[1]) / len(first[0])


def summary(result: xr.Dataset) -> xr.Dataset:
    """Means over seeds and classes over (training, target, score), with their uncertainty.

    `*_low`, `*_high`: a 95 % interval by resampling queries, because the classes of one query share
    its z. `*_seed_sd`: the standard deviation over seeds of the mean over classes.
    """
    query = np.unique(result["query_token"].values, return_inverse=True)[1]
    count = query.max() + 1
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    # how often each class is in each resample
    weight = np.stack([np.bincount(row, minlength=count) for row in drawn])[:, query]
    out = {}
    for name in MEASURES:
        values = result[name]
        per_class = values.mean("seed").values
        means = per_class @ (weight / weight.sum(axis=1, keepdims=True)).T
        low, high = np.quantile(means, [0.025, 0.975], axis=-1)
        dims = values.dims[:3]
        out[name] = (dims, per_class.mean(axis=-1))
        out[f"{name}_low"], out[f"{name}_high"] = (dims, low), (dims, high)
        of_seed = values.mean("sequence_class").values
        spread = of_seed.std(axis=-1, ddof=1) if of_seed.shape[-1] > 1 else of_seed[..., 0] * np.nan
        out[f"{name}_seed_sd"] = (dims, spread)
    return xr.Dataset(out, {dim: result[dim] for dim in ("training", "target", "score")})


def in_words(result: xr.Dataset) -> str:
    """Is attention a learnable TF-IDF? What the numbers say, for the model on the real windows."""
    found = summary(result).sel(training="windows")
    z, c = (found["rank_correlation"].sel(target=target).to_series() for target in TARGETS)
    low, high = (
        found[f"rank_correlation_{end}"].sel(target="logits").to_series() for end in ("low", "high")
    )
    carriers = (result["probability"] > 0).sum("sequence_class").values
    theory, _, *idf = SCORES
    best = max(idf, key=lambda name: z[name])
    # as far as the intervals tell them apart
    if high[best] < low[theory]:
        beside = "less so than"
    else:
        beside = "more so than" if low[best] > high[theory] else "about as much as"
    return (
        f"{int((carriers == 1).sum())} of {int((carriers > 0).sum())} contextual tokens are "
        f"distinct, and of those alone Theorem 2 speaks; Eq. 10 speaks of all. Attention is term "
        f"frequency times a learnt weight, P exp(z), and frequency alone ranks it with "
        f"{c['frequency']:.2f} ({idf[1]}: {c[idf[1]]:.2f}, {theory}: {c[theory]:.2f}). What is "
        f"learnt, z, ranks as {theory} says with {z[theory]:.2f}, as the idf of classes with "
        f"{z[idf[0]]:.2f}, as that of windows with {z[idf[1]]:.2f}. So the learnt weight is "
        f"{'in part' if low[best] > 0 else 'not clearly'} an inverse document frequency, and "
        f"{beside} it is the z of {theory}."
    )
