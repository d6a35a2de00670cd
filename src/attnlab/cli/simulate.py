"""attnlab simulate: one call of simulate(), a table, a file, a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlab import defaults
from attnlab.cli import options
from attnlab.cli.arguments import (
    MODELS,
    PICTURES,
    PRESET,
    PRESETS,
    check_writable,
    number,
    numbers,
)
from attnlab.cli.printing import say_written
from attnlab.cli.summary import in_a_line, print_summary, summarise, wide_console
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, waiting

if TYPE_CHECKING:
    import xarray as xr

    from attnlab.dynamics import Simulation

HELP = f"""Train a 1-layer transformer and see what its attention does.

CLASSES is a preset (with parameters, as zipf:vocab=10000,classes=20) or a YAML or JSON file of
sequence classes. Presets: {", ".join(PRESETS)}. The defaults are those of Python's
attnlab.simulate: batches of 128 sequences of 128 tokens, SGD with momentum 0.9, 100 steps.

\b
Examples:
  attnlab simulate {PRESET}
  attnlab simulate {PRESET} --eta-y 10 --plot run.png --out run.nc
  attnlab simulate recipes/classes-sport-weather.yaml --animate run.gif
  attnlab simulate family:classes=4 --eta-z 0.5,1,2 --seeds 10 --init uniform
  attnlab simulate recipes/classes-two-words.yaml --engine flow --steps 1e6 --json

\b
More of the model, in any mixture (docs/guides/variants.md):
  attnlab simulate {PRESET} --residual --normalization layer
  attnlab simulate {PRESET} --heads 4 --combine concatenate --init uniform
  attnlab simulate {PRESET} --position alibi:0.1 --attend-self
  attnlab simulate {PRESET} --position learned --weight-decay 0.01
  attnlab simulate {PRESET} --prior 0.7,0.3 --sequences 500

\b
Another model, by its name and fields ({", ".join(MODELS)}):
  attnlab simulate {PRESET} --model extended:residual=true,heads=2 --engine limit
"""


def simulate_verb(
    classes: options.ClassesName,
    engine: options.EngineName = defaults.ENGINE,
    eta_y: options.EtaY = f"{defaults.ETA_Y:g}",
    eta_z: options.EtaZ = f"{defaults.ETA_Z:g}",
    steps: options.Steps = f"{defaults.STEPS:g}",
    length: options.Length = defaults.LENGTH,
    batch_size: options.BatchSize = None,
    sequences: Annotated[
        int | None, typer.Option(help="Train on this many sequences, drawn once (sampled).")
    ] = None,
    prior: options.Prior = None,
    model: options.ModelName = None,
    residual: Annotated[
        bool, typer.Option("--residual", help="Add the query to what it attends to.")
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
    momentum: options.Momentum = None,
    init: options.Init = "zero",
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="Run this seed only (overrides --seeds).")
    ] = None,
    independent: Annotated[
        bool,
        typer.Option("--independent", help="Each learning rate draws data and start of its own."),
    ] = False,
    save: Annotated[
        str, typer.Option(help="What to record: attention,logits,loss,statistics.")
    ] = "attention,logits,loss,statistics",
    every: Annotated[int | None, typer.Option(help="Record every N steps.")] = None,
    geometric: Annotated[
        int | None, typer.Option(help="Record at about N times, in even ratios.")
    ] = None,
    at: options.At = None,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    out: options.Out = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw attention over time (PNG, PDF), of head 0.")
    ] = None,
    animate: Annotated[
        Path | None, typer.Option(help="Draw attention as it moves (GIF), of head 0.")
    ] = None,
    show_classes: options.ShowClasses = None,
    show_tokens: options.ShowTokens = None,
    as_json: options.AsJson = False,
) -> None:
    with waiting(LOADING, quiet=as_json):
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

    chosen = options.engine_of(engine, length, batch_size, sequences)
    # typer has only checked that they are texts; the values check themselves
    extended = Extended(residual, normalization, heads, combine, position, attend_self)  # type: ignore[arg-type]
    if model is not None and extended != Extended():
        raise InputError(
            "model: --residual, --heads and the like are fields of the model extended; give them "
            "without --model, or within it"
        )
    asked = Save(
        what=tuple(word.strip() for word in save.split(",")),
        every=every,
        geometric=geometric,
        at=None if at is None else numbers("at", at),
    )
    check_writable(out, (".nc",), "out")
    check_writable(plot, PICTURES, "plot")
    check_writable(animate, (".gif",), "animate")
    shown = options.drawn(show_classes, show_tokens, plot, animate)
    for option, path in (("plot", plot), ("animate", animate)):
        if path is not None and "attention" not in asked.what:
            raise InputError(f"save: --{option} needs attention among what is recorded")
    with waiting(f"reading {classes}", quiet=as_json):
        known = options.classes_of(classes, prior)
    simulation = as_simulation(
        known, chosen, eta_y=options.rate_of("eta-y", eta_y), eta_z=options.rate_of("eta-z", eta_z),
        steps=number("steps", steps), init=init, seeds=seeds if seed is None else [seed],
        independent=independent, save=asked, dtype=dtype,
        optimizer=Optimizer(optimizer, momentum, weight_decay=weight_decay),  # type: ignore[arg-type]
        model=options.model_of(model) if extended == Extended() else extended,
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
            from attnlab.plots import bars
            from attnlab.plots.style import save as save_picture

            save_picture(bars(result, **shown), plot)
    if animate is not None:
        from attnlab.plots import animate as draw_moving

        draw_moving(result, animate, progress=False if as_json else "auto", **shown)
    summary = summarise(result, known)
    if as_json:
        print(json.dumps(_document(result, summary), indent=2, allow_nan=False))
    else:
        _table(simulation, result, summary, (out, plot, animate))


def _keep(recorded: xr.Dataset | None, out: Path | None) -> str:
    """Write what was recorded of a stopped run; return where it is, in words."""
    if recorded is None:
        return "nothing was recorded yet"
    if out is None:
        return "what was recorded is kept only with --out"
    _write(recorded, out)
    return f"what was recorded is in {out}"


def _write(result: xr.Dataset, path: Path) -> None:
    from attnlab.files.netcdf import save

    save(result, path)


def _document(result: xr.Dataset, summary: list[dict[str, Any]]) -> dict[str, Any]:
    from attnlab.measures import clock_of

    clock = clock_of(result)
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
    console = wide_console()
    console.print(
        f"{in_a_line(simulation)}, {simulation.grid.seeds.size} seed(s), "
        f"{result.attrs['seconds']:.2f} s",
        soft_wrap=True,
    )
    print_summary(console, summary, simulation.clock)
    say_written(*written)
