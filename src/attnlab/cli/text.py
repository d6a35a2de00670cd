"""attnlab text: train a transformer on a text, watch its attention, draw it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnlab.cli import options, text_classes
from attnlab.cli.exit_codes import DIVERGED
from attnlab.cli.options import PICTURES, check_writable, numbers
from attnlab.cli.printing import about, records, say, say_json, show, show_table
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, waiting

if TYPE_CHECKING:
    import xarray as xr

ROW_DIMS = ("learning_rate", "layer", "head")
MOST_LOST = 10  # diverged runs that are named

app = options.group("Train small transformers on text and watch their attention.")


def train_verb(
    corpus: str,
    *,
    out: Path,
    validation: Path | None = None,
    tokens: str = "word",
    vocab_size: int | None = None,
    learning_rate: str = "5",
    every: str | None = None,
    validation_tokens: int = 3500,
    as_json: bool = False,
    **settings: Any,
) -> None:
    """Train a small transformer on a text and measure its attention.

    CORPUS is builtin (the documentation topics of your Python), wikitext-2, wikitext-103, a text
    file or a folder. The defaults are one layer, one head, 200 dimensions, SGD at learning rate 5
    and 1500 steps of 20 x 35 tokens. Several learning rates and seeds are trained at once. The same
    command resumes a training that was interrupted. Exit code 3 when a run has diverged.

    \b
    Examples:
      attnlab text train builtin --steps 500 --out run
      attnlab text train builtin --layers 3 --learning-rate 1,2,5 --seeds 5 --out sweep
      attnlab text train book.txt --tokens bpe --vocab-size 2000 --heads 4 --out book
      attnlab text train test.txt --validation valid.txt --out wiki --json
      attnlab text plot run --out run.png

    Arguments
    ---------
    corpus
        builtin, wikitext-2, a file or a folder.

    Task
    ----
    validation
        A text file to judge by; else the last tenth.
    tokens
        word or bpe.
    vocab_size
        Size of the vocabulary.
    validation_tokens
        Tokens that a record measures; 0 for all.

    Run
    ---
    learning_rate
        Learning rate, or several: 1,2,5.

    Record
    ------
    every
        Steps between records, doubling, or the steps: 1,10,100.  [default: 50]

    Output
    ------
    out
        Folder for checkpoint and result.
    """
    with waiting(LOADING, quiet=as_json):
        from attnlab.files.netcdf import save
        from attnlab.simulation import Diverged, Interrupted, as_simulation, simulate, text_run
        from attnlab.simulation.trainer import RESULT
        from attnlab.tasks.text import open_corpus

    with waiting(f"reading {corpus}", quiet=as_json):
        text = open_corpus(corpus, tokens=tokens, vocab_size=vocab_size, validation=validation)  # type: ignore[arg-type]
    before = _written(out / RESULT)
    run = text_run(
        text,
        learning_rate=numbers("learning-rate", learning_rate),
        validation_tokens=validation_tokens or None,
        **settings,
    )
    if every is not None:
        run = as_simulation(run, **_when(every, run.motion.steps))
    try:
        result = simulate(run, out=out, progress=False if as_json else "auto")
    except Diverged as problem:
        result = problem.dataset
        save(result, out / RESULT, inside=out)
    except Interrupted as stopped:
        raise KeyboardInterrupt(str(stopped)) from None
    rows, lost = _summary(result), _diverged(result)
    if as_json:
        say_json(_document(result, rows, lost))
    else:
        _table(repr(text), result, rows, lost)
        again = _written(out / RESULT) == before
        say(f"{out} was finished before; nothing to do" if again else f"wrote {out}")
    if lost:
        raise typer.Exit(DIVERGED)


def plot_verb(folder: Path, *, out: Path) -> None:
    """Draw a training: loss, entropy and effective tokens of each head, attention to words.

    Attention is that of the best learning rate and, in each layer, of the head with the lowest
    entropy.

    \b
    Example:
      attnlab text plot run --out run.png

    Options
    -------
    folder
        The folder of a finished training.
    out
        The picture (PNG, PDF, SVG).
    """
    with waiting(LOADING):
        from attnlab.files.atomic import atomic_path
        from attnlab.files.netcdf import load
        from attnlab.plots import training
        from attnlab.simulation.trainer import RESULT

    check_writable(out, PICTURES, "out")
    path = folder / RESULT
    if not path.exists():
        raise InputError(
            f"{folder}: no finished training in it; run attnlab text train ... --out {folder}"
        )
    with waiting(f"drawing {out}"), atomic_path(out) as temporary:
        figure = training.draw(training.data(load(path)))
        figure.savefig(temporary, format=out.suffix[1:], dpi=200)
    say(f"wrote {out}")


def _when(text: str, steps: int) -> dict[str, Any]:
    """Return when to record: every number of steps, doubling, or at the steps that are listed."""
    parts = text.split(",")
    if len(parts) == 1:
        return {"every": int(text) if text.isdecimal() else text}
    listed = {int(of) for of in numbers("every", text)}
    return {"at": sorted({0, *listed, steps})}


def _written(path: Path) -> int | None:
    """Return when a file was written, None if it is not there."""
    return path.stat().st_mtime_ns if path.exists() else None


def _summary(result: xr.Dataset) -> list[dict[str, Any]]:
    """Return an entry per learning rate, layer and head: means over seeds that stayed finite."""
    from attnlab.measures.motion import stayed_finite

    stayed = stayed_finite(result)
    kept = result.where(stayed)
    first, last = (kept.isel(step=at, drop=True).mean("seed") for at in (0, -1))
    columns = {name: last[name] for name in ("validation_loss", "perplexity")}
    for name in ("entropy", "relative_entropy", "effective_tokens"):
        columns |= {f"{name}_start": first[name], f"{name}_end": last[name]}
    columns |= {"snap_step": last["snap_step"], "diverged": (~stayed).sum("seed")}
    rows = records(result, ROW_DIMS, **columns)
    for row in rows:
        top = last["top_mass"].sel({dim: row[dim] for dim in ROW_DIMS})
        row["top_mass_end"] = dict(zip(top["k"].values.tolist(), top.values.tolist(), strict=True))
    return rows


def _diverged(result: xr.Dataset) -> list[dict[str, Any]]:
    """Return the runs that left the finite numbers, and the first step at which they did."""
    if "diverged_step" not in result:
        return []
    step = result["diverged_step"].transpose("learning_rate", "seed").values
    rates, seeds = result["learning_rate"].values.tolist(), result["seed"].values.tolist()
    return [
        {"learning_rate": rates[i], "seed": seeds[j], "step": int(step[i, j])}
        for i, j in zip(*(step >= 0).nonzero(), strict=True)
    ]


def _document(
    result: xr.Dataset, rows: list[dict[str, Any]], lost: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        **about(result, "device", "seconds"),
        "steps": result["step"].values.tolist(),
        "summary": rows,
        "diverged": lost,
    }


def _table(
    corpus: str, result: xr.Dataset, rows: list[dict[str, Any]], lost: list[dict[str, Any]]
) -> None:
    say(f"{corpus}: {int(result['step'][-1])} steps, {result.attrs['seconds']:.1f} s")
    columns = {
        "learning_rate": ("learning rate", "g"),
        "layer": "layer",
        "head": "head",
        "validation_loss": ("loss", ".3f"),
        "perplexity": ("perplexity", ".1f"),
        "entropy": ("entropy", ".2f"),
        "tokens": ("tokens", ".2f"),
        "top 1": ("top 1", ".3f"),
        "snap_step": ("snap", ".0f"),
    }
    shown = [
        {
            **row,
            "layer": row["layer"] + 1,
            "head": row["head"] + 1,
            "entropy": (row["entropy_start"], row["entropy_end"]),
            "tokens": (row["effective_tokens_start"], row["effective_tokens_end"]),
            "top 1": row["top_mass_end"][1],
        }
        for row in rows
    ]
    show_table(shown, columns)
    show(
        "*entropy in nats; tokens: mean of exp(entropy) over queries; top 1: attention to the "
        "strongest token; snap: the step, or - where attention still moves at the end*"
    )
    for run in lost[:MOST_LOST]:
        rate, seed, step = (run[name] for name in ("learning_rate", "seed", "step"))
        say(f"diverged: learning rate {rate:g}, seed {seed}, at step {step}")
    if len(lost) > MOST_LOST:
        say(f"and {len(lost) - MOST_LOST} more runs; --json names them all")


options.TEXT.add(app, "train", train_verb)
options.add(app, "plot", plot_verb)
options.add(app, "classes", text_classes.classes_verb)
options.add(app, "agreement", text_classes.agreement_verb)
