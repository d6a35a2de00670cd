"""attnlab simulate: one call of simulate(), a table, a file, a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli import options
from attnlab.cli.options import PICTURES, check_writable
from attnlab.cli.printing import (
    about,
    in_a_line,
    say,
    say_json,
    say_written,
    show_summary,
    summarise,
)
from attnlab.files.errors import InputError
from attnlab.files.progress import LOADING, waiting

if TYPE_CHECKING:
    import xarray as xr


def simulate_verb(
    given: str,
    *,
    prior: str | None = None,
    seed: int | None = None,
    out: Path | None = None,
    plot: Path | None = None,
    animate: Path | None = None,
    show_classes: str | None = None,
    show_tokens: str | None = None,
    as_json: bool = False,
    **settings: Any,
) -> None:
    """Train a 1-layer transformer and see what its attention does.

    The first argument is a preset (with parameters, as zipf:vocab=10000,classes=20), a YAML, JSON
    or CSV file of sequence classes, or a YAML or JSON file of a run, whose settings the options
    replace. Presets: {presets}. The defaults are those of Python's attnlab.simulate: batches of 128
    sequences of 128 tokens, SGD with momentum 0.9, 100 steps.

    \b
    Examples:
      attnlab simulate {preset}
      attnlab simulate {preset} --eta-y 10 --plot run.png --out run.nc
      attnlab simulate recipes/classes-sport-weather.yaml --animate run.gif
      attnlab simulate family:classes=4 --eta-z 0.5,1,2 --seeds 10 --init uniform
      attnlab simulate {preset} --length inf --gradient population
      attnlab simulate recipes/classes-two-words.yaml --motion flow --time 1e6 --json

    \b
    More of the model, in any mixture (docs/guides/variants.md):
      attnlab simulate {preset} --residual --normalization layer
      attnlab simulate {preset} --heads 4 --combine concatenate --init uniform
      attnlab simulate {preset} --position alibi:0.1 --attend-self
      attnlab simulate {preset} --position learned --weight-decay 0.01
      attnlab simulate {preset} --prior 0.7,0.3 --training-set 500

    \b
    Another model, by its name and fields ({models}):
      attnlab simulate {preset} --model extended:residual=true,heads=2 --gradient population

    Output
    ------
    plot
        Draw attention over time (PNG, PDF), of head 0.
    animate
        Draw attention as it moves (GIF), of head 0.
    """
    check_writable(out, (".nc",), "out")
    check_writable(plot, PICTURES, "plot")
    check_writable(animate, (".gif",), "animate")
    shown = options.drawn(show_classes, show_tokens, plot, animate)
    with waiting(f"reading {given}", quiet=as_json):
        run = options.run_of(given, settings, prior=prior, seed=seed)
    for option, path in (("plot", plot), ("animate", animate)):
        if path is not None and "attention" not in (run.record.what or ("attention",)):
            raise InputError(f"what: --{option} needs attention among what is recorded")
    with waiting(LOADING, quiet=as_json):
        from attnlab.simulation import Diverged, Interrupted, simulate

        if out is not None:  # what writes it is there when it is wanted, whatever comes between
            import h5netcdf  # noqa: F401

    try:
        result = simulate(run, progress=False if as_json else "auto")
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
    summary = summarise(result, run.sets[0])
    if as_json:
        say_json(_document(result, summary))
    else:
        seeds, seconds = run.grid.seeds.size, result.attrs["seconds"]
        say(f"{in_a_line(run)}, {seeds} seed(s), {seconds:.2f} s")
        show_summary(summary, run.clock)
        say_written(out, plot, animate)


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
    times = {f"{clock}s": result[clock].values.tolist()}
    document = {**about(result, "device", "seconds"), **times, "summary": summary}
    if "loss" in result:
        loss = result["loss"]
        document["loss"] = {"dims": list(loss.dims), "values": loss.values.tolist()}
    return document
