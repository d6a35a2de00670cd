"""attnlab simulate: one call of simulate(), a table, a file, a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlab import defaults
from attnlab.cli.arguments import PICTURES, PRESETS, check_writable, completing, number, numbers
from attnlab.cli.printing import plain_console, print_table
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, waiting

if TYPE_CHECKING:
    import xarray as xr

    from attnlab.dynamics import Engine, Simulation

HELP = """Train the paper's 1-layer transformer and see what attention does.

CLASSES is a preset (syn-small, syn-medium:num_last=3, zipf:vocab=10000,classes=20, ...) or a
YAML or JSON file of sequence classes. The defaults are the paper's protocol for Syn-Small, as in
Python's attnlab.simulate: batches of 128 sequences of 128 tokens, SGD with momentum 0.9, 100 steps.

\b
Examples:
  attnlab simulate syn-small
  attnlab simulate syn-small --eta-y 10 --plot fig4.png --out fig4.nc
  attnlab simulate syn-medium:num_last=3 --eta-z 0.5,1,2 --seeds 10 --init uniform
  attnlab simulate recipes/classes-two-words.yaml --engine flow --steps 1e6 --json

\b
The model beyond the paper's, in any mixture (docs/guides/variants.md):
  attnlab simulate syn-small --residual --normalization layer
  attnlab simulate syn-small --heads 4 --combine concatenate --init uniform
  attnlab simulate syn-small --position alibi:0.1 --attend-self
  attnlab simulate syn-small --position learned --weight-decay 0.01
  attnlab simulate syn-small --prior 0.7,0.3 --sequences 500
"""
MOST_ROWS = 40
WIDTH_IN_A_PIPE = 120  # of the table: there is no edge to keep within


def simulate_verb(
    classes: Annotated[
        str,
        typer.Argument(
            help="A preset or a file of sequence classes.", autocompletion=completing(*PRESETS)
        ),
    ],
    engine: Annotated[
        str,
        typer.Option(
            help="sampled, limit (T to infinity) or flow.",
            autocompletion=completing("sampled", "limit", "flow"),
        ),
    ] = defaults.ENGINE,
    eta_y: Annotated[
        str, typer.Option(help="Rate of the decoder Y, or several: 1,10.")
    ] = f"{defaults.ETA_Y:g}",
    eta_z: Annotated[
        str, typer.Option(help="Rate of the attention Z, or several.")
    ] = f"{defaults.ETA_Z:g}",
    steps: Annotated[
        str, typer.Option(help="Optimiser steps; flow time for the flow.")
    ] = f"{defaults.STEPS:g}",
    length: Annotated[int, typer.Option(help="T, query included (sampled).")] = defaults.LENGTH,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help=f"Default {defaults.BATCH_SIZE} if sampled; the expected gradient if limit."
        ),
    ] = None,
    sequences: Annotated[
        int | None, typer.Option(help="Train on so many sequences, drawn once (sampled).")
    ] = None,
    prior: Annotated[str | None, typer.Option(help="Probability of each class: 0.7,0.3.")] = None,
    residual: Annotated[
        bool, typer.Option("--residual", help="Add the query to what it attends to (Section 7).")
    ] = False,
    normalization: Annotated[str, typer.Option(help="l2, rms, layer or none.")] = "l2",
    heads: Annotated[int, typer.Option(help="How many; they differ by --init uniform.")] = 1,
    combine: Annotated[
        str, typer.Option(help="Of the heads' outputs: average or concatenate.")
    ] = "average",
    position: Annotated[
        str | None,
        typer.Option(help="Bias by distance: learned, alibi:SLOPE or fixed:B1,B2,... (sampled)."),
    ] = None,
    attend_self: Annotated[
        bool, typer.Option("--attend-self", help="Attend to the query's own token too (sampled).")
    ] = False,
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adamw.")] = "sgd",
    weight_decay: Annotated[
        float | None, typer.Option(help="L2 for sgd and adam, decoupled for adamw (there 0.01).")
    ] = None,
    momentum: Annotated[
        float | None,
        typer.Option(help=f"Of sgd; {defaults.MOMENTUM:g} unless the engine is the flow."),
    ] = None,
    init: Annotated[str, typer.Option(help="zero, or uniform in +-1/sqrt(M).")] = "zero",
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="Only this seed, instead of the first so many.")
    ] = None,
    own_data: Annotated[
        bool, typer.Option("--own-data", help="Each rate draws data and start of its own.")
    ] = False,
    save: Annotated[
        str, typer.Option(help="What to record: attention,logits,loss,statistics.")
    ] = "attention,logits,loss,statistics",
    every: Annotated[int | None, typer.Option(help="Record every so many steps.")] = None,
    geometric: Annotated[
        int | None, typer.Option(help="Record at about so many times, in even ratios.")
    ] = None,
    at: Annotated[str | None, typer.Option(help="Record at these steps: 0,2,4,100.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    out: Annotated[Path | None, typer.Option(help="Write the result (netCDF).")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw attention over time (PNG, PDF), of head 0.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    with waiting(LOADING, quiet=as_json):
        from attnlab.data import classes_from
        from attnlab.dynamics import (
            Diverged,
            Extended,
            Interrupted,
            Optimizer,
            Save,
            as_simulation,
            simulate,
        )

        if out is not None:  # what writes it is there when it is wanted, whatever comes between
            import h5netcdf  # noqa: F401

    chosen = _engine(engine, length, batch_size, sequences)
    # typer has only checked that they are texts; the values check themselves
    model = Extended(residual, normalization, heads, combine, position, attend_self)  # type: ignore[arg-type]
    asked = Save(
        what=tuple(word.strip() for word in save.split(",")),
        every=every,
        geometric=geometric,
        at=None if at is None else numbers("at", at),
    )
    check_writable(out, (".nc",), "out")
    check_writable(plot, PICTURES, "plot")
    if plot is not None and "attention" not in asked.what:
        raise InputError("save: --plot needs attention among what is recorded")
    with waiting(f"reading {classes}", quiet=as_json):
        known = classes_from(classes)
    if prior is not None:
        known = known.with_prior(numbers("prior", prior))
    simulation = as_simulation(
        known, chosen, eta_y=_rate("eta-y", eta_y), eta_z=_rate("eta-z", eta_z),
        steps=number("steps", steps), init=init, seeds=seeds if seed is None else [seed],
        own_data=own_data, save=asked, dtype=dtype,
        optimizer=Optimizer(optimizer, momentum, weight_decay=weight_decay),  # type: ignore[arg-type]
        model=None if model == Extended() else model,
    )  # fmt: skip
    try:
        result = simulate(simulation, progress=False if as_json else "auto")
    except Diverged as problem:
        if out is not None:
            _write(problem.dataset, out)
        raise
    except Interrupted as stopped:
        raise KeyboardInterrupt(f"{stopped}; {_keep(stopped.dataset, out)}") from None
    if out is not None:
        with waiting(f"writing {out}", quiet=as_json):
            _write(result, out)
    if plot is not None:
        with waiting(f"drawing {plot}", quiet=as_json):
            _plot(result, plot)
    summary = _summary(result, known)
    if as_json:
        print(json.dumps(_document(result, summary), indent=2, allow_nan=False))
    else:
        _table(simulation, result, summary, (out, plot))


def _engine(name: str, length: int, batch_size: int | None, sequences: int | None) -> Engine:
    from attnlab.dynamics import Flow, Limit, Sampled

    if name == "sampled":
        return Sampled(length, defaults.BATCH_SIZE if batch_size is None else batch_size, sequences)
    if sequences is not None:
        raise InputError("sequences: a training set of sequences needs the engine sampled")
    if name == "limit":
        return Limit(batch_size)
    if name == "flow":
        return Flow()
    raise InputError(f"engine: expected sampled, limit or flow, got {name!r}")


def _rate(name: str, text: str) -> float | list[float]:
    values = numbers(name, text)
    return values if len(values) > 1 else values[0]


def _keep(recorded: xr.Dataset | None, out: Path | None) -> str:
    """Write what was recorded of a run that was stopped, and say where it is."""
    if recorded is None:
        return "nothing was recorded yet"
    if out is None:
        return "what was recorded is kept only with --out"
    _write(recorded, out)
    return f"what was recorded is in {out}"


def _write(result: xr.Dataset, path: Path) -> None:
    from attnlab.files.netcdf import save

    save(result, path)


def _plot(result: xr.Dataset, path: Path) -> None:
    from attnlab.files.atomic import atomic_path
    from attnlab.plots import bars

    figure = bars(result)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=160)


def _summary(result: xr.Dataset, classes: Any) -> list[dict[str, Any]]:
    """One entry per rate point, head and class, means over seeds; absent where not recorded."""
    from attnlab import measures

    clock = "time" if "time" in result.dims else "step"
    if "attention" in result and result.sizes[clock] > 2:
        result = result.assign(snap=measures.snap_time(result))
    several = [dim for dim in ("eta_y", "eta_z", "head") if dim in result.dims]
    stacked = result.stack(point=several) if several else result.expand_dims("point")
    rows = []
    for i in range(stacked.sizes["point"]):
        point = stacked.isel(point=i)
        for k in range(len(classes)):
            row: dict[str, Any] = {dim: point[dim].item() for dim in several}
            row["sequence_class"] = k
            row["query"] = classes.token_name(int(classes.query[k]))
            row["next"] = classes.token_name(int(classes.next_token[k]))
            of_class = point.isel(sequence_class=k)
            if "attention" in point:
                last = of_class["attention"].isel({clock: -1}).mean("seed")
                dominant = int(last.argmax("token"))
                row["dominant_token"] = classes.token_name(dominant)
                row["dominant_attention"] = float(last[dominant])
            if "entropy" in point:
                for name in ("entropy", "common_mass"):
                    ends = of_class[name].mean("seed").isel({clock: [0, -1]}).values
                    row[f"{name}_start"], row[f"{name}_end"] = map(float, ends)
            if "snap" in point:
                value = float(of_class["snap"].mean("seed"))
                row[f"snap_{clock}"] = value if value == value else None
            rows.append(row)
    return rows


def _document(result: xr.Dataset, summary: list[dict[str, Any]]) -> dict[str, Any]:
    clock = "time" if "time" in result.dims else "step"
    document: dict[str, Any] = {
        "spec": json.loads(result.attrs["spec"]),
        "versions": json.loads(result.attrs["versions"]),
        "device": result.attrs["device"],
        "seconds": result.attrs["seconds"],
        f"{clock}s": result[clock].values.tolist(),
        "summary": summary,
    }
    if "loss" in result:
        document["loss"] = {
            "dims": list(result["loss"].dims),
            "values": result["loss"].values.tolist(),
        }
    return document


def _table(
    simulation: Simulation,
    result: xr.Dataset,
    summary: list[dict[str, Any]],
    written: tuple[Path | None, ...],
) -> None:
    clock = simulation.clock
    given = {name: of for name, of in vars(simulation.engine).items() if of is not None}
    engine = ", ".join(f"{name}={of}" for name, of in given.items())
    console = plain_console()
    if not console.is_terminal:
        console.width = WIDTH_IN_A_PIPE
    console.print(
        f"{simulation.sets[0].origin}: {type(simulation.engine).__name__}({engine}), "
        f"{simulation.optimizer.name}, {simulation.steps:g} {clock}s, "
        f"{simulation.grid.seeds.size} seed(s), {result.attrs['seconds']:.2f} s",
        soft_wrap=True,
    )
    titles = {
        "eta_y": "eta_y", "eta_z": "eta_z", "head": "head", "sequence_class": "class",
        "query": "query", "next": "next", "dominant_token": "winner",
        "dominant_attention": "attention", "entropy": "entropy", "common_mass": "common mass",
        f"snap_{clock}": f"snap {clock}",
    }  # fmt: skip
    shown = [key for key in titles if key in summary[0] or f"{key}_start" in summary[0]]
    cells = [[_cell(row, key) for key in shown] for row in summary[:MOST_ROWS]]
    numbers = [titles[key] for key in shown if key not in ("query", "next")]
    print_table(console, [titles[key] for key in shown], cells, right=numbers, tight=True)
    if len(summary) > MOST_ROWS:
        console.print(f"... {len(summary) - MOST_ROWS} more rows; --json prints them all")
    if f"snap_{clock}" in shown and any(row[f"snap_{clock}"] is None for row in summary):
        console.print(f"snap {clock}: - where attention is still moving at the end", style="dim")
    for path in written:
        if path is not None:
            console.print(f"wrote {path}", soft_wrap=True)


def _cell(row: dict[str, Any], key: str) -> str:
    if f"{key}_start" in row:
        return f"{row[f'{key}_start']:.3f} → {row[f'{key}_end']:.3f}"
    value = row[key]
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
