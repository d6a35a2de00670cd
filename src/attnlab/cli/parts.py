"""Experiments on the command line: their progress, and what was found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnlab.cli.exit_codes import NOT_AS_RECORDED
from attnlab.cli.printing import finite, plain_console, print_table, say, say_written
from attnlab.files.progress import watching

if TYPE_CHECKING:
    from rich.console import Console

    from attnlab.experiments import Made
    from attnlab.report import Reproduction


def _parts_document(done: Reproduction) -> dict[str, Any]:
    """What --json prints."""
    return {
        "out": str(done.out),
        "report": str(done.report),
        "seconds": round(done.seconds, 2),
        "parts": [_made_document(done.out, made) for made in done.made],
    }


def _made_document(out: Path, made: Made) -> dict[str, Any]:
    return {
        "name": made.name,
        "title": made.title,
        "claim": made.about,
        "standing": made.standing,
        "outcome": made.outcome,
        "headline": made.headline,
        "summary": made.summary,
        "numbers": {name: finite(value) for name, value in made.numbers.items()},
        "regression_bounds": {name: list(b) for name, b in made.regression_bounds.items()},
        "out_of_bounds": {name: finite(value) for name, value in made.out_of_bounds().items()},
        "halves": [{name: finite(value) for name, value in half.items()} for half in made.halves],
        "unsettled": {name: finite(value) for name, value in made.unsettled().items()},
        "settings": dict(made.settings),
        "files": [str(out / made.name / name) for name in made.files],
        "seconds": round(made.seconds, 2),
        "made_at": made.made_at,
        "reused": made.reused,
        "versions": dict(made.versions),
    }


def show_parts(done: Reproduction, written: Sequence[Path] = (), *, as_json: bool) -> None:
    """Print what was made; exit code 1 when a number is out of bounds or unsettled."""
    if as_json:
        print(json.dumps(_parts_document(done), indent=2, allow_nan=False))
    else:
        _print_parts(done)
        say_written(*written)
    if any(made.out_of_bounds() or made.unsettled() for made in done.made):
        raise typer.Exit(NOT_AS_RECORDED)


def _print_parts(done: Reproduction) -> None:
    """Print a table of what was found, what is not as recorded, and where everything is."""
    console = plain_console()
    if done.made:
        rows = [(made.name, made.outcome.split(), made.headline.split()) for made in done.made]
        print_table(console, ("part", "", "what was found"), rows)
    for made in done.made:
        for name, value in made.out_of_bounds().items():
            low, high = made.regression_bounds[name]
            console.print(
                f"{made.name}: {name} = {value:.4g} is outside its regression bounds, {low:g} to "
                f"{high:g}",
                style="red",
            )
        if made.halves:
            _show_halves(console, made)
    console.print(f"{done.report} ({done.seconds:.0f} s)", soft_wrap=True)


def _show_halves(console: Console, made: Made) -> None:
    """Whether the two halves of a study's seeds agree, and where they do not."""
    from attnlab.experiments.estimate import MOST_APART, apart

    if not made.unsettled():
        by = apart(made.halves)
        console.print(
            f"{made.name}: the halves of its seeds agree in {len(by)} numbers; at most "
            f"{max(by.values(), default=0.0):.1f} errors apart"
        )
    for name, errors in made.unsettled().items():
        first, second = (half[name] for half in made.halves)
        console.print(
            f"{made.name}: {name} is {first:.4g} on one half of the seeds and {second:.4g} on the "
            f"other, {errors:.1f} errors apart (at most {MOST_APART:g}): take more (--seeds)",
            style="red",
        )


def watching_parts(quiet: bool) -> AbstractContextManager[Any]:
    """A bar on a terminal, a line for each part elsewhere, nothing with --json."""
    return watching(quiet, bar=_Bar, lines=_Lines)


class _Lines:
    """One line on stderr as each part is finished, and words for those that are being made."""

    def __init__(self) -> None:
        self.fractions: dict[str, float] = {}
        self.left = 0

    def begin(self, name: str, left: Sequence[str]) -> None:
        self.fractions[name], self.left = 0.0, len(left)

    def progress(self, name: str, fraction: float) -> None:
        self.fractions[name] = fraction

    def words(self) -> str:
        parts = [
            f"{name}: {f'{100 * fraction:.0f} %' if fraction else 'compiling'}"
            for name, fraction in self.fractions.copy().items()
        ]
        return ", ".join([*parts, f"{self.left} left"]) if parts else "looking for what is there"

    def end(self, name: str, seconds: float, made: Made | None) -> None:
        del self.fractions[name]
        how = "there already" if made is not None and made.reused else f"{seconds:.1f} s"
        say(f"{name}: {how}, {self.left + len(self.fractions)} left", error=True)


class _Bar:
    """What is being made, how far it is, what is left, and what is done above it."""

    def __enter__(self) -> _Bar:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(), TextColumn("{task.fields[left]}", style="dim"),
        )  # fmt: skip
        self.progress_bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.progress_bar.start()
        self.tasks: dict[str, Any] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self.progress_bar.stop()

    def begin(self, name: str, left: Sequence[str]) -> None:
        waiting = f"left: {' '.join(left)}" if left else "the last one"
        for task in self.tasks.values():  # what is left is said once
            self.progress_bar.update(task, left="")
        # without a total the bar moves to and fro: compiling tells of no progress
        self.tasks[name] = self.progress_bar.add_task(name, total=None, left=waiting)

    def progress(self, name: str, fraction: float) -> None:
        self.progress_bar.update(self.tasks[name], completed=fraction, total=1.0)

    def end(self, name: str, seconds: float, made: Made | None) -> None:
        self.progress_bar.remove_task(self.tasks.pop(name))
        how = "there already" if made is not None and made.reused else f"{seconds:.1f} s"
        outcome = made.outcome if made is not None else "written"
        self.progress_bar.console.print(f"{name}: {outcome} ({how})", highlight=False)
