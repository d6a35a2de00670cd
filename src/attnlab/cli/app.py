"""The application: its verbs, its error messages and its exit codes."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

import typer

from attnlab.cli import audit, observe, papers, play, predict, reproduce, simulate, sweep, text
from attnlab.cli.exit_codes import BAD_INPUT, DIVERGED, INTERRUPTED, STOPPED
from attnlab.cli.options import SEQUENCES, add, group
from attnlab.cli.printing import say
from attnlab.files.errors import InputError

_shown = {"traceback": False}  # set by --debug

app = group(
    "A test bench for theories of how attention learns.",
    name="attnlab",
    pretty_exceptions_enable=False,
)
SEQUENCES.add(app, "simulate", simulate.simulate_verb)
SEQUENCES.add(app, "predict", predict.predict_verb)
add(app, "sweep", sweep.sweep_verb)
SEQUENCES.add(app, "audit", audit.audit_verb)
add(app, "reproduce", reproduce.reproduce_verb)
add(app, "papers", papers.papers_verb)
add(app, "check-paper", papers.check_paper_verb)
add(app, "new-paper", papers.new_paper_verb)
SEQUENCES.add(app, "play", play.play_verb)
app.add_typer(text.app, name="text")
app.add_typer(observe.app, name="observe")
add(app, "cite", papers.cite_verb)


def _print_version(asked: bool) -> None:
    if asked:
        from attnlab import __version__

        print(f"attnlab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version and stop.",
        callback=_print_version,
        is_eager=True,
    ),
    debug: bool = typer.Option(
        False, "--debug", help="Show the traceback of bad input, too.", is_eager=True
    ),
) -> None:
    _shown["traceback"] = debug


def main() -> None:
    """Run the command line; bad input gives one message and exit code 2, never a traceback."""
    # What is imported and traced lives on: looking through it for garbage again and again, and
    # once more at the end, takes a quarter of a short run.
    gc.set_threshold(10_000, 50)
    atexit.register(gc.freeze)
    _keep_compiled_programs()
    warnings.showwarning = _show_warning
    try:
        os.getcwd()
    except FileNotFoundError:  # libraries do not expect it: Intel's ends the process
        _end("the working directory was deleted; change to another folder", BAD_INPUT)
    try:
        app(prog_name="attnlab")  # by whatever way it was called
    except ArithmeticError as problem:
        from attnlab.simulation.stopping import Diverged  # here, so that --help stays quick

        if not isinstance(problem, Diverged):
            raise
        _end(str(problem), DIVERGED)
    except RuntimeError as problem:
        from attnlab.formulas.solving import Unsolved
        from attnlab.sweeping.driver import Stopped

        if isinstance(problem, Unsolved):
            _end(f"theory: {problem}", DIVERGED)
        if isinstance(problem, Stopped):
            _end(str(problem), STOPPED)
        raise
    except OSError as problem:
        named = problem.filename is not None
        _end(f"{problem.filename}: {problem.strerror}" if named else str(problem), BAD_INPUT)
    except MemoryError as problem:  # what was not foreseen
        _end(f"not enough memory: {problem}", BAD_INPUT)
    except InputError as problem:
        _end("\n".join([str(problem), *getattr(problem, "__notes__", ())]), BAD_INPUT)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer makes that of a KeyboardInterrupt
            _say(_last_words(end) or "stopped")
        raise


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a warning; without the line of code that gave it, unless it is a library's."""
    whole = warnings.formatwarning(message, category, filename, lineno).strip()
    _say(str(message) if category is UserWarning else whole)


def _keep_compiled_programs() -> None:
    """Let a second run start at once: JAX keeps what it compiled in the user's cache folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(base / "attnlab" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def _last_words(end: BaseException | None) -> str:
    """Return the message of the verb that was interrupted; empty if it has none."""
    while end is not None and type(end) is not KeyboardInterrupt:
        end = end.__cause__ or end.__context__
    return str(end or "")


def _end(message: str, code: int) -> NoReturn:
    """Leave with a message alone; with --debug, the traceback comes before it."""
    if _shown["traceback"]:
        traceback.print_exc()
    _say(message)
    sys.exit(code)


def _say(message: str) -> None:
    say(f"attnlab: {message}", error=True)
