"""Agreement: do scores predict the ranks of the tokens that a trained model attends to?

The slides of "Scan and Snap" call attention a learnable TF-IDF. By Eq. 5 attention is frequency
times a weight, c proportional to P(l|m,n) exp(z_ml), and training moves the weight alone; frequency
alone already ranks attention well. The question is whether z ranks tokens as an inverse
document frequency does, or as Eq. 10 does. So a score has two parts: a weight, to be compared with
z, and an attention, to be compared with c.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.files.documents import texts_of
from attnlab.files.errors import refuse_if
from attnlab.files.progress import Choice, reporting
from attnlab.files.provenance import provenance
from attnlab.formulas import Setting
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.measures.attention import class_count
from attnlab.measures.received import rank_correlation
from attnlab.papers.scan_and_snap.fit import fit_windows
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.tasks.classes import SequenceClasses
from attnlab.tasks.text.agreement import CELLS, Agreement
from attnlab.tasks.text.corpus import Corpus
from attnlab.tasks.text.windows import Windows, classes_of, find_windows

from . import theory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = texts_of(__file__)
BATCH_SIZE = 128
CONFIDENCE = 0.95
# What was trained on: classes for T to infinity, classes at length T, the windows themselves.
TRAININGS = ("limit", "sampled", "windows")
TARGETS = ("logits", "attention")
# The levels of the theory, and scores that need none.
PRINTED, THEORY, SGD = "Eq. 10 as printed", "Eq. 10", "SGD's decoder"
IDF = ("TF-IDF of classes", "TF-IDF of windows")
SCORES = (PRINTED, THEORY, SGD, "frequency", *IDF)
SCORE_NAMES = ("printed", "theory", "sgd", "frequency", "of_classes", "of_windows")  # in sentences
MEASURES = ("rank_correlation", "recall")
# Of a class's tokens, all are ranked, and the most frequent: most tokens are rare, and hardly move.
TOKENS = ("all", "frequent")
FREQUENT = 0.1
TRAINED_ON = {
    "limit": "classes, T to infinity",
    "sampled": "classes, length T",
    "windows": "the text's own windows",
}
TARGET_WORDS = {"logits": "what is learnt, z (of TF-IDF, the idf)", "attention": "attention c"}
BOUNDS = {"rank_correlation": (-1, 1), "recall": (0, 1)}  # bars end where values do
ROWS = {
    ("rank_correlation", "all"): "rank correlation",
    ("rank_correlation", "frequent"): "rank correlation, the 10 % most frequent",
    ("recall", "all"): "recall of the top {top}",
}


def measure(
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
    """Train the paper's model on a text in three settings and compare six scores with it.

    Parameters
    ----------
    corpus : Corpus
        The text.
    queries : int, optional
        How many query words.
    following : int, optional
        Next words of each.
    context : int, optional
        Words before a pair that count.
    min_count : int, optional
        Rarer pairs and words are left out.
    eta_y : float, optional
        Rate of the decoder; well above eta_z is Assumption 1c.
    eta_z : float, optional
        Rate of attention.
    steps : int, optional
        Of each training.
    seeds : int, optional
        Of the trainings that draw.
    top : int, optional
        Of how many tokens the recall is taken.
    progress : {"auto", True, False} or callable, optional
        Whether to show how far it is, or a function that is called with the fraction done.

    Returns
    -------
    xarray.Dataset
        `rank_correlation` (Spearman's) and `recall` over (training, target, tokens, score, seed,
        sequence_class), of all tokens in the class's windows and of the 10 % most frequent; and,
        over (training, sequence_class, token), the mean over seeds of `attention` and
        `attention_logits`.
    """
    for name, value in (("steps", steps), ("seeds", seeds), ("top", top)):
        refuse_if(value < 1, name, "at least 1", value)
    rates = {"eta_y": eta_y, "eta_z": eta_z, "steps": steps}
    with reporting(progress, len(TRAININGS) + 2.0, f"{corpus.name}: agreement") as report:
        report(0.0, "looking for windows")
        windows = find_windows(
            corpus, queries=queries, following=following, context=context, min_count=min_count
        )
        classes = classes_of(windows)
        report(1.0, "scores")
        held = score_all(classes, windows, rates)
        trained = []
        for training in TRAININGS:
            report(1.0, f"training, {training}")
            trained.append(_train(training, classes, windows, rates, seeds))
        report(1.0)
    spec = {
        "corpus": {"name": corpus.name, "digest": corpus.digest},
        "classes": {"origin": classes.origin, "digest": classes.digest},
        **rates,
        "context": context,
        "min_count": min_count,
        "top": top,
        "batch_size": BATCH_SIZE,
    }
    result = _compare(classes, trained, held, top)
    return result.assign_attrs(provenance(spec, windows=len(windows), top=top))


class Score(NamedTuple):
    """A weight and an attention for each token in each class, (K, M)."""

    weight: FloatArray
    attention: FloatArray


# Scores rank tokens, so few digits are enough.
_TOLERANCES: Any = {"rtol": 1e-4, "atol": 1e-6}


def _by_logits(classes: SequenceClasses, z: FloatArray) -> Score:
    """z of contextual tokens, (query, token), and the attention that they make, over all tokens."""
    weight, attention = np.zeros((2, len(classes), classes.vocab_size))
    weight[:, classes.in_play] = z[classes.query_index]
    attention[:, classes.in_play] = formulas.attention_weights(classes, z)
    return Score(weight, attention)


def score_all(classes: SequenceClasses, windows: Windows, rates: dict[str, Any]) -> list[Score]:
    """Return the scores in the order of SCORES.

    z after `steps` by Eq. 10 as printed (class weight 1, Eq. 88), corrected (each class with its
    own clock), and by the decoder that SGD trains; P(l|m,n), where attention is before training;
    TF-IDF with the classes and with the windows as documents. Eq. 10 speaks of every token.
    Theorems 2 and 3, its corollaries for distinct tokens, are silent about common ones, and in a
    text nearly all tokens are common.
    """
    setting = Setting(classes, eta_y=rates["eta_y"], eta_z=rates["eta_z"])
    flows = (
        theory.attention_flow(setting, rates["steps"], weight=1.0, form="printed", **_TOLERANCES),
        theory.attention_flow(setting, rates["steps"], **_TOLERANCES),
        formulas.sgd_flow(setting, rates["steps"], **_TOLERANCES),
    )
    P, counts = classes.probs, windows.counts()
    # a token that none has is in no support
    idf = [np.log(len(of) / np.maximum((of > 0).sum(axis=0), 1)) for of in (P, counts)]
    return [
        *(_by_logits(classes, flow.logits) for flow in flows),
        Score(P, P),
        *(Score(np.broadcast_to(of, P.shape), P * of) for of in idf),
    ]


def _train(
    training: str, classes: SequenceClasses, windows: Windows, rates: dict[str, Any], seeds: int
) -> xr.Dataset:
    """Return logits (seed, query, token) and attention (seed, sequence_class, token) at the end."""
    if training == "windows":
        return fit_windows(windows, classes, batch_size=BATCH_SIZE, seeds=seeds, **rates)
    infinite = {"gradient": "population"}
    finite = {"length": windows.length, "batch_size": BATCH_SIZE}
    run = simulate(
        classes,
        **(infinite if training == "limit" else finite),
        **rates,
        momentum=0.0,
        seeds=seeds,
        what=("attention", "logits"),
        at=[rates["steps"]],
        progress=False,
    )
    return run.isel(step=-1, drop=True)


def _compare(
    classes: SequenceClasses, trained: list[xr.Dataset], held: list[Score], top: int
) -> xr.Dataset:
    seeds = trained[0].sizes["seed"]
    shape = (len(TRAININGS), len(TARGETS), len(TOKENS), len(SCORES), seeds, len(classes))
    ranked = [ranked_tokens(classes, k) for k in range(len(classes))]
    values = {name: np.zeros(shape) for name in MEASURES}
    for i, run in enumerate(trained):
        reached = (
            run["attention_logits"].values[:, classes.query_index],  # of each class's query
            run["attention"].values,
        )
        for j, target in enumerate(reached):
            for q, s, seed, k in np.ndindex(shape[2:]):
                tokens = ranked[k][q]
                pair = target[seed, k, tokens], held[s][j][k, tokens]
                values["rank_correlation"][i, j, q, s, seed, k] = rank_correlation(*pair)
                values["recall"][i, j, q, s, seed, k] = recall_at(*pair, top=top)
    dims = (*CELLS, "seed", "sequence_class")
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
            "training": list(TRAININGS),
            "target": list(TARGETS),
            "tokens": list(TOKENS),
            "score": list(SCORES),
            "query": classes.queries,
            "token": np.arange(classes.vocab_size),
            "token_name": ("token", np.asarray(classes.names)),
            "query_token": ("sequence_class", classes.query),
            "next_token": ("sequence_class", classes.next_token),
        },
    )


def ranked_tokens(classes: SequenceClasses, k: int) -> tuple[IntArray, ...]:
    """Return all tokens of class k, and its most frequent ones, in the order of TOKENS."""
    support = classes.support(k)
    most = max(2, round(FREQUENT * support.size))  # one alone has no rank
    return support, support[np.argsort(-classes.probs[k, support], kind="stable")[:most]]


def recall_at(target: NDArray[Any], score: NDArray[Any], *, top: int) -> float:
    """Return the share of the target's `top` largest that are also the score's; ties by order."""
    first = [set(np.argsort(-values, kind="stable")[:top].tolist()) for values in (target, score)]
    return len(first[0] & first[1]) / len(first[0])


def summarise(result: xr.Dataset) -> xr.Dataset:
    """Return means over seeds and classes, with their uncertainty.

    Dims: training, target, tokens, score. `*_low`, `*_high`: a 95 % t-interval over queries,
    because the classes of one query share its z; NaN for one query. `*_seed_sd`: the standard
    deviation over seeds of the mean over classes. `queries`: the number of queries.
    """
    out: dict[str, Any] = {}
    for name in MEASURES:
        values = result[name]
        mean, half = t_interval(by_query(values))
        of_seed = values.mean("sequence_class").values
        spread = of_seed.std(axis=-1, ddof=1) if of_seed.shape[-1] > 1 else of_seed[..., 0] * np.nan
        ends = {"": mean, "_low": mean - half, "_high": mean + half, "_seed_sd": spread}
        out |= {f"{name}{end}": (CELLS, found) for end, found in ends.items()}
    found = xr.Dataset(out, {dim: result[dim] for dim in CELLS})
    return found.assign_attrs(queries=np.unique(result["query_token"]).size)


def by_query(values: xr.DataArray) -> FloatArray:
    """Return means over the seeds and classes of each query, along the last axis."""
    of_class = values.mean("seed").transpose(..., "sequence_class").values
    query = values["query_token"].values
    return np.stack([of_class[..., query == token].mean(axis=-1) for token in np.unique(query)], -1)


def difference(result: xr.Dataset, score: str, other: str, **cell: str) -> tuple[float, float]:
    """Return how much better a score ranks than another: the mean over queries, paired, and half of
    its 95 % t-interval. cell: training, target and tokens."""
    values = result["rank_correlation"].sel(cell)
    mean, half = t_interval(by_query(values.sel(score=score)) - by_query(values.sel(score=other)))
    return float(mean), float(half)


def t_interval(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean along the last axis, and half of its interval."""
    from scipy.stats import t

    n = values.shape[-1]
    if n < 2:
        return values.mean(axis=-1), np.full(values.shape[:-1], np.nan)
    error = values.std(axis=-1, ddof=1) / np.sqrt(n)
    return values.mean(axis=-1), t.ppf((1 + CONFIDENCE) / 2, n - 1) * error


def in_words(result: xr.Dataset) -> str:
    """Say whether attention is a learnable TF-IDF, for the model on the real windows."""
    found = summarise(result)
    c = found["rank_correlation"].sel(training="windows", target="attention", tokens="all")
    c = c.to_series()
    carriers = class_count(result).values
    values = {
        "distinct": int((carriers == 1).sum()),
        "contextual": int((carriers > 0).sum()),
        "frequency": c["frequency"],
        "idf": f"{IDF[1]}: {c[IDF[1]]:.2f}",
        "theory": f"{THEORY}: {c[THEORY]:.2f}",
        "percent": 100 * FREQUENT,
        "queries": found.attrs["queries"],
        **{f"{tokens}_z": _of_z(result, found, tokens) for tokens in TOKENS},
    }
    said = WORDS["whole"].format(**values)
    shared = np.flatnonzero(carriers == result.sizes["sequence_class"])
    if shared.size:
        z = result["attention_logits"].sel(training="windows").isel(token=shared)
        percent = 100 * float((z < 0).mean())
        said += " " + WORDS["shared"].format(shared=shared.size, percent=percent)
    return said


def _of_z(result: xr.Dataset, found: xr.Dataset, tokens: str) -> str:
    """Return in words which scores rank z, and how an idf compares with Eq. 10."""
    cell = {"training": "windows", "target": "logits", "tokens": tokens}
    z = found.sel(cell)["rank_correlation"].to_series()
    low = found.sel(cell)["rank_correlation_low"].to_series()
    best = max(IDF, key=lambda name: z[name])
    mean, half = difference(result, best, THEORY, **cell)
    values = {name: f"{z[key]:.2f}" for name, key in zip(SCORE_NAMES, SCORES, strict=True)}
    return WORDS["z"].format(
        **values,
        clearly="in part" if low[best] > 0 else "not clearly",
        # NaN, of one query, is no difference
        than=("less" if mean < 0 else "more") + " so than" if abs(mean) > half else WORDS["open"],
        by=f"{mean:+.2f}" + (f" ± {half:.2f}" if np.isfinite(half) else ""),
    )


def draw(found: xr.Dataset, top: int) -> Figure:
    """Draw the means of a summary with their 95 % intervals: a panel per measure and target."""
    from matplotlib.figure import Figure

    names = [str(name) for name in found["score"].values]
    row = np.arange(len(names))
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 5.6), layout="constrained")
        axes = figure.subplots(len(ROWS), len(TARGET_WORDS), sharey=True, sharex="row")
        for ax, ((quantity, tokens), target) in zip(
            axes.ravel(), product(ROWS, TARGET_WORDS), strict=True
        ):
            cells = found.sel(target=target, tokens=tokens)
            for i, (training, words) in enumerate(TRAINED_ON.items()):
                one = cells.sel(training=training)
                mean = one[quantity].values
                ends = [one[f"{quantity}_{end}"].values for end in ("low", "high")]
                low, high = np.clip(ends, *BOUNDS[quantity])
                reach = np.abs([mean - low, high - mean])
                colour = style.ordered(len(TRAINED_ON))[i]
                styles: Any = {"color": colour, "marker": style.MARKERS[i], "linestyle": "none"}
                ax.errorbar(mean, row + 0.2 * (i - 1), xerr=reach, capsize=2, label=words, **styles)
            ax.axvline(0, color=style.OUTLINE, linewidth=0.6)
            ax.set_xlabel(ROWS[quantity, tokens].format(top=top))
        axes[0][0].set_yticks(row, names)
        axes[0][0].invert_yaxis()
        style.panel_titles(axes.ravel(), [*TARGET_WORDS.values()] * len(ROWS))
        handles, labels = axes[0][0].get_legend_handles_labels()
        title = f"trained on; bars: 95 % t-interval over {found.attrs['queries']} queries"
        above: Any = {"loc": "outside upper center", "ncols": 3, "title_fontsize": 7.5}
        figure.legend(handles, labels, title=title, **above)
    return figure


AGREEMENT = Agreement(measure=measure, summarise=summarise, in_words=in_words, draw=draw)
