"""attnlab text classes and attnlab text agreement: sequence classes of a text."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli.options import PICTURES, check_writable
from attnlab.cli.printing import about, records, say, say_json, say_written, show_table
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, waiting

if TYPE_CHECKING:
    import xarray as xr

    from attnlab.tasks.classes import SequenceClasses
    from attnlab.tasks.text import Corpus
    from attnlab.tasks.text.agreement import Agreement

TOKENS = {
    "all": "all tokens of each class:",
    "frequent": "the 10 % most frequent tokens of each class:",
}


def classes_verb(
    source: str,
    *,
    out: Path,
    queries: int = 5,
    following: int = 4,
    context: int = 35,
    min_count: int = 10,
    tokens: str = "word",
    vocab_size: int | None = None,
    as_json: bool = False,
) -> None:
    """Estimate sequence classes from a text, for simulate, audit and play.

    CORPUS is builtin, wikitext-2, wikitext-103, or a text file or folder. A class is a frequent
    bigram: a query word m followed by a next word n. P(l|m,n) is how often word l stands among the
    words before it. A next word serves one query only.

    \b
    Examples:
      attnlab text classes builtin --out classes.yaml
      attnlab text classes novel.txt --out novel.yaml --queries 2 --next 3 --min-count 20
      attnlab simulate classes.yaml --gradient population --eta-y 10 --steps 1000

    Options
    -------
    source : CORPUS
        builtin, a text file, a folder, ...
    out
        Where the classes go (.yaml, .json).
    queries
        How many query words.
    following : --next
        How many next words for each query.
    context
        T: tokens in a window, the query included.
    min_count
        Leave out bigrams and words that are rarer.
    tokens
        word, or bpe (byte pairs).
    vocab_size
        Size of the vocabulary.
    """
    _check_next(following)
    with waiting(LOADING, quiet=as_json):
        from attnlab.files.documents import SUFFIXES
        from attnlab.tasks.classes import write_classes
        from attnlab.tasks.text import estimate_classes

    check_writable(out, SUFFIXES, "out")
    with waiting(f"reading {source}", quiet=as_json):
        corpus = _open(source, tokens, vocab_size)
        classes = estimate_classes(
            corpus, queries=queries, following=following, context=context, min_count=min_count
        )
        write_classes(classes, out)
    rows = _class_rows(classes)
    if as_json:
        say_json({"corpus": _about(corpus), "out": str(out), "classes": rows})
        return
    say(f"{corpus!r}\n{classes!r}")
    _show_rows(rows)
    say(f"wrote {out}; go on with: attnlab simulate {shlex.quote(str(out))}")


def agreement_verb(
    source: str,
    *,
    queries: int = 5,
    following: int = 4,
    context: int = 35,
    min_count: int = 10,
    tokens: str = "word",
    vocab_size: int | None = None,
    eta_y: float = 10.0,
    eta_z: float = 1.0,
    steps: int = 1000,
    seeds: int = 3,
    top: int = 10,
    plot: Path | None = None,
    paper: str | None = None,
    as_json: bool = False,
) -> None:
    """Find out which scores rank the tokens that attention on a text favours.

    The 1-layer model is trained on the classes of a text (see attnlab text classes), for T to
    infinity and at the length of the windows, and on the windows themselves. Then the scores of a
    paper, such as its theory, frequency and TF-IDF, are held against what the model learnt (z) and
    what it attends to (c).

    \b
    Examples:
      attnlab text agreement builtin
      attnlab text agreement novel.txt --queries 3 --next 3 --plot agreement.png
      attnlab text agreement builtin --context 128 --json

    Options
    -------
    source : CORPUS
        builtin, a text file, a folder, ...
    queries
        How many query words.
    following : --next
        How many next words for each query.
    context
        T: tokens in a window, the query included.
    min_count
        Leave out bigrams and words that are rarer.
    tokens
        word, or bpe (byte pairs).
    vocab_size
        Size of the vocabulary.
    eta_y
        Learning rate of the decoder Y.
    eta_z
        Learning rate of the attention Z.
    steps
        Optimizer steps.
    seeds
        How many seeds.
    top
        Recall of how many tokens.
    plot
        Draw the table (PNG, PDF, SVG).
    paper
        Whose scores, if several papers have some.
    """
    _check_next(following)
    with waiting(LOADING, quiet=as_json):
        instrument = _agreement(paper)
    check_writable(plot, PICTURES, "plot")
    with waiting(f"reading {source}", quiet=as_json):
        corpus = _open(source, tokens, vocab_size)
    counts = {"queries": queries, "following": following, "context": context}
    counts |= {"min_count": min_count, "steps": steps, "seeds": seeds, "top": top}
    progress: Any = False if as_json else "auto"
    result = instrument.measure(corpus, eta_y=eta_y, eta_z=eta_z, progress=progress, **counts)
    found = instrument.summarise(result)
    words = instrument.in_words(result)
    if plot is not None:
        with waiting(f"drawing {plot}", quiet=as_json):
            from attnlab.plots.style import save

            save(instrument.draw(found, top), plot)
    from attnlab.tasks.text.agreement import CELLS

    rows = records(found, CELLS, **{str(name): of for name, of in found.data_vars.items()})
    winners = _winners(result)
    if as_json:
        document = {
            "corpus": _about(corpus),
            **about(result, "windows"),
            "agreement": rows,
            "winners": winners,
            "in_words": words,
        }
        say_json(document)
        return
    say(repr(corpus))
    say(
        f"{len(winners)} classes, {result.attrs['windows']} windows of {context} tokens; mean over "
        f"classes and seeds ± half the 95 % t-interval over {found.attrs['queries']} queries\n"
        "rank: correlation of ranks with what is learnt (z) and attended to (c); z is held against "
        "the idf of TF-IDF"
    )
    for kind, heading in TOKENS.items():
        say(heading)
        _show_rows(_side_by_side([row for row in rows if row["tokens"] == kind], top))
    _show_rows(winners)
    say(words)
    say_written(plot)


def _check_next(following: int) -> None:
    if following < 2:
        raise InputError(f"next: expected at least 2 next words for each query, got {following}")


def _agreement(paper: str | None) -> Agreement:
    """Return the agreement that a paper offers."""
    from attnlab.shelf import single

    offers = {of.name: reference for of, reference in single("agreement")}
    if paper is None and len(offers) == 1:
        paper = next(iter(offers))
    if paper not in offers:
        raise InputError(f"paper: {paper!r} offers no scores; {did_you_mean(paper, offers)}")
    found: Agreement = offers[paper].load()
    return found


def _open(source: str, tokens: str, vocab_size: int | None) -> Corpus:
    from attnlab.tasks.text import open_corpus

    return open_corpus(source, tokens=tokens, vocab_size=vocab_size)  # type: ignore[arg-type]


def _about(corpus: Corpus) -> dict[str, Any]:
    return {
        "name": corpus.name,
        "tokens": corpus.tokens,
        "train": len(corpus.train),
        "vocabulary": corpus.vocab_size,
        "digest": corpus.digest,
    }


def _class_rows(classes: SequenceClasses) -> list[dict[str, Any]]:
    """Return a row per class, with the words that tell most about it: the terms of the information
    that a contextual token has about the class, P(l|m,n) ln(P(l|m,n) / P(l))."""
    import numpy as np

    P = classes.probs
    mean = classes.prior @ P
    telling = P * np.log(np.where(P > 0, P, 1) / np.where(P > 0, mean, 1))
    return [
        {
            "query": classes.token_name(int(classes.query[k])),
            "next": classes.token_name(int(classes.next_token[k])),
            "prior": float(classes.prior[k]),
            "tokens": int(classes.support(k).size),
            "distinct": int(classes.distinct_tokens(k).size),
            "telling": [
                classes.token_name(int(i)) for i in (-telling[k]).argsort()[:5] if telling[k, i] > 0
            ],
        }
        for k in range(len(classes))
    ]


def _winners(result: xr.Dataset, most: int = 5) -> list[dict[str, Any]]:
    """Return, for each class, the tokens whose logits gained most and those attended most."""
    one = result.sel(training="windows")
    names = result["token_name"].values
    rows = []
    for k in range(result.sizes["sequence_class"]):
        klass = one.isel(sequence_class=k)
        z = klass["attention_logits"].sel(query=int(klass["query_token"]))
        z = z.where(klass["probability"] > 0, -float("inf"))
        rows.append(
            {
                "query": str(names[int(klass["query_token"])]),
                "next": str(names[int(klass["next_token"])]),
                "gained most": names[(-z.values).argsort()[:most]].tolist(),
                "attended most": names[(-klass["attention"].values).argsort()[:most]].tolist(),
            }
        )
    return rows


def _side_by_side(rows: list[dict[str, Any]], top: int) -> list[dict[str, str]]:
    """Return a row for each training and score, with both targets."""
    titles = {  # the second title of recall differs by a space, as keys must
        "logits": {"rank_correlation": "z: rank", "recall": f"top {top}"},
        "attention": {"rank_correlation": "c: rank", "recall": f"top {top} "},
    }
    table: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        key = row["training"], row["score"]
        cells = table.setdefault(key, {"training": key[0], "score": key[1]})
        for name, title in titles[row["target"]].items():
            half = row[f"{name}_high"] - row[name]  # nan of one query
            sure = "" if math.isnan(half) else f" ± {half:.2f}"
            cells[title] = f"{row[name]:.2f}{sure}"
    return list(table.values())


def _show_rows(rows: list[dict[str, Any]]) -> None:
    forms = {name: (name, ".3f") if isinstance(of, float) else name for name, of in rows[0].items()}
    show_table(rows, forms)
