"""attnlab text: train a transformer on a text, watch its attention, draw it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlab.cli import options, text_classes
from attnlab.cli.arguments import PICTURES, check_writable, numbers
from attnlab.cli.exit_codes import DIVERGED
from attnlab.cli.printing import finite, or_dash, plain_console, print_table, say
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, waiting

if TYPE_CHECKING:
    import xarray as xr

HELP = "Train small transformers on real text and watch their attention."
TRAIN_HELP = """Train a small transformer on a text and measure its attention.

CORPUS is builtin (the documentation topics of your Python), wikitext-2, wikitext-103, a text file
or a folder. The defaults are one layer, one head, 200 dimensions, SGD at learning rate 5 and 1500
steps of 20 x 35 tokens. Several learning rates and seeds are trained at once. The same command
resumes a training that was interrupted. Exit code 3 when a run has diverged.

\b
Examples:
  attnlab text train builtin --steps 500 --out run
  attnlab text train builtin --layers 3 --rates 1,2,5 --seeds 5 --out sweep
  attnlab text train book.txt --tokens bpe --vocab-size 2000 --heads 4 --out book
  attnlab text train test.txt --validation valid.txt --out wiki --json
  attnlab text plot run --out run.png
"""
PLOT_HELP = """Draw a training: loss, entropy and effective tokens of each head, maps with words.

The maps are those of the best rate; of each layer, those of the head with the lowest entropy.

\b
Example:
  attnlab text plot run --out run.png
"""

MOST_LOST = 10  # diverged runs that are named

app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("classes", help=text_classes.CLASSES_HELP)(text_classes.classes_verb)
app.command("agreement", help=text_classes.AGREEMENT_HELP)(text_classes.agreement_verb)


@app.command("train", help=TRAIN_HELP)
def train_verb(
    corpus: Annotated[str, typer.Argument(help="builtin, wikitext-2, a file or a folder.")],
    out: Annotated[Path, typer.Option(help="Folder for checkpoint and result.")],
    validation: Annotated[
        Path | None, typer.Option(help="A text file to judge by; else the last tenth.")
    ] = None,
    tokens: Annotated[str, typer.Option(help="word or bpe.")] = "word",
    vocab_size: Annotated[int | None, typer.Option(help="Size of the vocabulary.")] = None,
    layers: Annotated[int, typer.Option(help="How many layers.")] = 1,
    heads: Annotated[int, typer.Option(help="Heads in each layer.")] = 1,
    dim: Annotated[int, typer.Option(help="Dimensions of the embedding.")] = 200,
    feed_forward: Annotated[int, typer.Option(help="Hidden units of a layer.")] = 200,
    activation: Annotated[str, typer.Option(help="relu, gelu or linear.")] = "relu",
    norm: Annotated[str, typer.Option(help="post or pre.")] = "post",
    positions: Annotated[
        str, typer.Option(help="sinusoidal, learned, alibi or none.")
    ] = "sinusoidal",
    dropout: Annotated[float, typer.Option(help="The chance to drop an entry.")] = 0.2,
    tied: Annotated[bool, typer.Option("--tied", help="One matrix to embed and decode.")] = False,
    context: Annotated[int, typer.Option(help="Tokens in a training sequence.")] = 35,
    rates: Annotated[str, typer.Option(help="Learning rate, or several: 1,2,5.")] = "5",
    seeds: Annotated[int, typer.Option(help="How many seeds of each rate.")] = 1,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 1500,
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adamw.")] = "sgd",
    batch: Annotated[int, typer.Option(help="Sequences in a step.")] = 20,
    clip: Annotated[float, typer.Option(help="The largest norm of a gradient.")] = 0.5,
    reset_moments: Annotated[
        bool, typer.Option("--reset-moments", help="Forget Adam's moments after each pass.")
    ] = False,
    measure_every: Annotated[
        str, typer.Option(help="Steps between measurements, doubling, or the steps: 1,10,100.")
    ] = "50",
    validation_tokens: Annotated[
        int, typer.Option(help="Tokens to measure on each time; 0 for all.")
    ] = 3500,
    probes: Annotated[int, typer.Option(help="Sequences whose maps are kept.")] = 2,
    precision: Annotated[
        str,
        typer.Option(
            help="Of products: highest (float32), default (the device's), bfloat16 (decoder)."
        ),
    ] = "highest",
    as_json: options.AsJson = False,
) -> None:
    with waiting(LOADING, quiet=as_json):
        from attnlab.text import TransformerSpec, open_corpus, train
        from attnlab.text.train import RESULT
        from attnlab.text.training import as_training

    spec = TransformerSpec(
        layers=layers, heads=heads, dim=dim, feed_forward=feed_forward, activation=activation,  # type: ignore[arg-type]
        norm=norm, positions=positions, dropout=dropout, tied=tied, context=context,  # type: ignore[arg-type]
    )  # fmt: skip
    with waiting(f"reading {corpus}", quiet=as_json):
        text = open_corpus(corpus, tokens=tokens, vocab_size=vocab_size, validation=validation)  # type: ignore[arg-type]
    before = _written(out / RESULT)
    training = as_training(
        text, spec, rates=numbers("rates", rates), seeds=seeds, steps=steps, optimizer=optimizer,
        batch=batch, clip=clip, reset_moments=reset_moments,
        measure_every=_measure_every(measure_every),
        validation_tokens=validation_tokens or None, probes=probes,
        precision=precision,  # type: ignore[arg-type]
    )  # fmt: skip
    result = train(training, out=out, progress=False if as_json else "auto")
    rows, lost = _summary(result), _diverged(result)
    if as_json:
        print(json.dumps(_document(result, rows, lost), indent=2, allow_nan=False))
    else:
        _table(repr(text), result, rows, lost)
        again = _written(out / RESULT) == before
        say(f"{out} was finished before; nothing to do" if again else f"wrote {out}")
    if lost:
        raise typer.Exit(DIVERGED)


@app.command("plot", help=PLOT_HELP)
def plot_verb(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished training.")],
    out: Annotated[Path, typer.Option(help="The picture (PNG, PDF, SVG).")],
) -> None:
    with waiting(LOADING):
        from attnlab.files.atomic import atomic_path
        from attnlab.files.netcdf import load
        from attnlab.plots import training
        from attnlab.text.train import RESULT

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


def _measure_every(text: str) -> Any:
    """A number of steps, a word, or several steps with commas between them."""
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        return text  # which `Training` knows, or refuses
    steps = tuple(int(part) for part in parts)
    return steps if len(steps) > 1 else steps[0]


def _written(path: Path) -> int | None:
    """When a file was written, if it is there."""
    return path.stat().st_mtime_ns if path.exists() else None


def _summary(result: xr.Dataset) -> list[dict[str, Any]]:
    """One entry per rate, layer and head: means over the seeds that stayed finite."""
    stayed = result.where(result["diverged_step"] < 0)
    rows = []
    for rate in result["rate"].values:
        of_rate = stayed.sel(rate=rate)
        loss, perplexity = (
            _number(of_rate[name].isel(step=-1)) for name in ("validation_loss", "perplexity")
        )
        for layer in result["layer"].values:
            for head in result["head"].values:
                one = of_rate.sel(layer=layer, head=head)
                row: dict[str, Any] = {
                    "rate": float(rate), "layer": int(layer), "head": int(head),
                    "validation_loss": loss, "perplexity": perplexity,
                }  # fmt: skip
                for name in ("entropy", "relative_entropy", "effective_tokens"):
                    row[f"{name}_start"] = _number(one[name].isel(step=0))
                    row[f"{name}_end"] = _number(one[name].isel(step=-1))
                row["top_mass_end"] = {
                    int(k): _number(one["top_mass"].isel(step=-1).sel(k=k))
                    for k in result["k"].values
                }
                row["snap_step"] = _number(one["snap_step"])
                row["diverged"] = int((result["diverged_step"].sel(rate=rate) >= 0).sum())
                rows.append(row)
    return rows


def _number(values: xr.DataArray) -> float | None:
    """Return the mean over seeds; None where it is missing or infinite."""
    return finite(float(values.mean()))


def _diverged(result: xr.Dataset) -> list[dict[str, Any]]:
    """The runs whose loss left the finite numbers, and the first step at which it did."""
    step = result["diverged_step"].transpose("rate", "seed").values
    return [
        {"rate": float(result["rate"][i]), "seed": int(result["seed"][j]), "step": int(step[i, j])}
        for i, j in zip(*(step >= 0).nonzero(), strict=True)
    ]


def _document(
    result: xr.Dataset, rows: list[dict[str, Any]], lost: list[dict[str, Any]]
) -> dict[str, Any]:
    about = ("device", "seconds", "tokens_per_second")
    return {
        "spec": json.loads(result.attrs["spec"]),
        "versions": json.loads(result.attrs["versions"]),
        **{name: result.attrs[name] for name in about},
        "steps": result["step"].values.tolist(),
        "summary": rows,
        "diverged": lost,
    }


def _table(
    corpus: str, result: xr.Dataset, rows: list[dict[str, Any]], lost: list[dict[str, Any]]
) -> None:
    console = plain_console()
    console.print(
        f"{corpus}: {int(result['step'][-1])} steps, {result.attrs['seconds']:.1f} s, "
        f"{result.attrs['tokens_per_second']:,.0f} tokens/s",
        soft_wrap=True,
    )  # fmt: skip
    columns = (
        "rate", "layer", "head", "loss", "perplexity", "entropy", "tokens", "top 1", "snap",
    )  # fmt: skip
    cells = [
        (
            f"{row['rate']:g}", str(row["layer"] + 1), str(row["head"] + 1),
            or_dash(row["validation_loss"], ".3f"), or_dash(row["perplexity"], ".1f"),
            *(
                f"{or_dash(row[f'{name}_start'], '.2f')} → {or_dash(row[f'{name}_end'], '.2f')}"
                for name in ("entropy", "effective_tokens")
            ),
            or_dash(row["top_mass_end"][1], ".3f"), or_dash(row["snap_step"], ".0f"),
        )
        for row in rows
    ]  # fmt: skip
    print_table(console, columns, cells, right=columns)
    console.print(
        "entropy in nats; tokens: mean of exp(entropy) over queries; top 1: attention to the "
        "strongest token; snap: the step, or - where attention still moves at the end",
        style="dim",
    )
    for run in lost[:MOST_LOST]:
        console.print(
            f"diverged: rate {run['rate']:g}, seed {run['seed']}, with a loss that is not finite "
            f"from step {run['step']} on",
            soft_wrap=True,
        )
    if len(lost) > MOST_LOST:
        console.print(f"and {len(lost) - MOST_LOST} more runs; --json names them all")
