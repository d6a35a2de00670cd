"""attnlab predict: a theory's expectation of a run, and its assumptions with their values."""

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
    show_table,
    summarise,
)
from attnlab.files.progress import LOADING, waiting

if TYPE_CHECKING:
    import xarray as xr


ROW_DIMS = ("eta_y", "eta_z", "sequence_class")


def predict_verb(
    given: str,
    *,
    theory: str | None = None,
    prior: str | None = None,
    seed: int | None = None,
    out: Path | None = None,
    plot: Path | None = None,
    show_classes: str | None = None,
    show_tokens: str | None = None,
    as_json: bool = False,
    **settings: Any,
) -> None:
    """Say what a theory expects of a run, without running it.

    The first argument and the options are those of attnlab simulate. The theory is one that a paper
    offers: {theories}. Each of its assumptions is listed with the value it has here. A theory
    covers some runs only, the model of its paper above all: what it does not cover it refuses.

    \b
    Examples:
      attnlab predict {preset}
      attnlab predict {preset} --motion flow --eta-y 3 --eta-z 0.1 --time 1e4
      attnlab predict recipes/classes-two-words.yaml --motion flow --time 1e4 --plot compared.png
      attnlab predict {preset} --theory {theory} --json

    --plot runs the simulation as well and draws both.

    Theory
    ------
    theory
        Name of a theory; by default the last that covers the run.

    Output
    ------
    plot
        Simulate too, and draw both (PNG, PDF).
    """
    check_writable(out, (".nc",), "out")
    check_writable(plot, PICTURES, "plot")
    shown = options.drawn(show_classes, show_tokens, plot)
    with waiting(f"reading {given}", quiet=as_json):
        run = options.run_of(given, settings, prior=prior, seed=seed)
    with waiting(LOADING, quiet=as_json):
        from attnlab.theory import as_theory, predict

    with waiting("solving the theory's equations", quiet=as_json):
        predicted = predict(run, theory=theory)
    if out is not None:
        from attnlab.files.netcdf import save

        save(predicted, out)
    if plot is not None:
        from attnlab.plots import compare
        from attnlab.plots.style import save as save_picture
        from attnlab.simulation import simulate

        simulated = simulate(run, progress=False if as_json else "auto")
        save_picture(compare(simulated, predicted, **shown), plot)
    name = predicted.attrs["theory"]
    times = _times(predicted, as_theory(name).times)
    summary = summarise(predicted, run.sets[0], times)
    if as_json:
        say_json(_document(predicted, summary))
        return
    say(f"{in_a_line(run)}; theory: {name}")
    show_summary(summary, run.clock, times)
    say("")
    show_table(_assumptions(predicted))
    say_written(out, plot)


def _times(predicted: xr.Dataset, times: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of predicted times that are one number in each row of the table."""
    return tuple(
        name for name in times if name in predicted and {*predicted[name].dims} <= {*ROW_DIMS}
    )


def _assumptions(predicted: xr.Dataset) -> list[dict[str, Any]]:
    """Return each assumption; with several learning rates, at the first where it fails."""
    names = [name for name in predicted if str(name).startswith("assumption_")]
    found, rates = predicted[names], set(predicted["assumption_holds"].dims) - {"assumption"}
    rows = []
    for i in range(found.sizes["assumption"]):
        one = found.isel(assumption=i)
        if rates:
            one = one.stack(point=sorted(map(str, rates)))
            one = one.isel(point=int(one["assumption_holds"].values.argmin()))
        rows.append(
            {
                "assumption": str(one["assumption"].values),
                "source": str(one["assumption_source"].values),
                "value": float(one["assumption_value"]),
                "needs": f"{one['assumption_sign'].values!s} {float(one['assumption_bound']):.4g}",
                "holds": bool(one["assumption_holds"]),
            }
        )
    return rows


def _document(predicted: xr.Dataset, summary: list[dict[str, Any]]) -> dict[str, Any]:
    from attnlab.measures import clock_of

    clock = clock_of(predicted)
    return {
        **about(predicted, "theory"),
        f"{clock}s": predicted[clock].values.tolist(),
        "summary": summary,
        "assumptions": _assumptions(predicted),
    }
