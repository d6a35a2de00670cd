"""The long verbs at sizes that take a second or two, what each leaves, and how it may end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.shelf import recipe_file
from torture.process import Ended, Process, start

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
CLASSES = "single-common:num_classes=2,distinct=2,vocab_size=20"
SWEEP = {
    "task": CLASSES,
    "grid": {"common_prob": [0.1, 0.4], "eta_z": [0.5, 1.0]},
    "ratio": 2.0,
    "motion": {"name": "steps", "steps": 10},
    "seeds": 1,
    "record": {"what": "loss", "every": 5},
}
# Settings of a training on TEXT that takes a fraction of a second.
SMALL_TEXT: dict[str, Any] = {
    "dim": 4,
    "mlp": 4,
    "length": 6,
    "steps": 2,
    "batch_size": 2,
    "every": 1,
    "probes": 1,
}
TEXT = "the cat sat . the dog sat . a cat ran , the cat ran . the dog ran ; " * 80
BUDGET = "1"  # of memory, so that each run is a group of its own


@dataclass(frozen=True)
class Verb:
    """A verb, and how to read what it leaves in the folder {out}.

    resumes: goes on from what is there. drivers: how many of it share the work. longer: what makes
    it so long, where it does not resume, that it ends only if it is stopped. codes: of its end;
    1 where numbers are outside their bounds, as those of a short run may be.
    """

    argv: tuple[str, ...]
    read_back: Callable[[Path], Any]
    weight: float = 1.0
    drivers: int = 1
    resumes: bool = True
    longer: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0,)

    def words(self, given: Path, out: Path, *, longer: bool = False) -> list[str]:
        """The command line with its files and folder."""
        return [word.format(given=given, out=out) for word in self.argv + self.longer * longer]


def prepare(folder: Path) -> None:
    """Write what the verbs read."""
    (folder / "sweep.json").write_text(json.dumps(SWEEP))
    (folder / "text.txt").write_text(TEXT)
    for name, changes in SMALLER.items():
        path = recipe_file(name)
        text = path.read_text()
        for key, value in changes.items():
            text = re.sub(rf"(?m)^{key}:.*(\n  .*)*", f"{key}: {value}", text)
        (folder / path.name).write_text(text)


SMALLER: dict[str, dict[str, str]] = {
    "scan_and_snap/fig2": {
        "motion": "{name: steps, steps: 60, optimizer: {name: sgd, momentum: 0.9}}"
    },
    "studies/residual": {"steps": "20", "seeds": "4"},
}


def _netcdf(name: str) -> Callable[[Path], Any]:
    def read_back(out: Path) -> Any:
        from attnlab.files.netcdf import load

        return load(out / name).drop_attrs()

    return read_back


def look_at_sweep(out: Path) -> Any:
    """The whole of a sweep, and its table."""
    from attnlab.sweeping import open_sweep

    return {
        "dataset": open_sweep(out / "sweep").load().drop_attrs(),
        "table": (out / "sweep" / "table.csv").read_text(),
    }


def _look_at_classes(out: Path) -> Any:
    from attnlab.tasks.classes import classes_from

    path = out / "classes.yaml"
    path.stat()  # FileNotFoundError, as of the others, where there is none
    return classes_from(str(path)).digest


_SWEEP = ("sweep", "{given}/sweep.json", "--out", "{out}/sweep", "--memory-budget", BUDGET)
_TEXT = ("{given}/text.txt", "--queries", "1", "--next", "2", "--context", "6", "--min-count", "2")
SMALL = ("--dim", "8", "--mlp", "8", "--length", "8", "--batch-size", "4")
VERBS = {
    "sweep": Verb(_SWEEP, look_at_sweep, 8),
    "sweep, two processes": Verb((*_SWEEP, "--workers", "2"), look_at_sweep),
    "sweep, two drivers": Verb(_SWEEP, look_at_sweep, 2, drivers=2),
    "sweep, Ray": Verb((*_SWEEP, "--executor", "ray"), look_at_sweep, 0.2),
    "simulate": Verb(
        (
            "simulate",
            CLASSES,
            "--gradient",
            "population",
            "--steps",
            "20000",
            "--every",
            "5000",
            "--what",
            "loss",
            "--out",
            "{out}/result.nc",
        ),
        _netcdf("result.nc"),
        4,
        resumes=False,
        longer=("--steps", "100000000"),
    ),
    "simulate, plot": Verb(
        (
            "simulate",
            CLASSES,
            "--gradient",
            "population",
            "--steps",
            "20",
            "--plot",
            "{out}/result.png",
        ),
        lambda out: (out / "result.png").stat().st_size > 0,
        0.5,
        resumes=False,
        longer=("--steps", "100000000"),
    ),
    "text train": Verb(
        (
            "text",
            "train",
            "{given}/text.txt",
            "--out",
            "{out}/run",
            "--steps",
            "1000",
            "--every",
            "200",
            *SMALL,
        ),
        _netcdf("run/result.nc"),
        3,
    ),
    "text classes": Verb(
        ("text", "classes", *_TEXT, "--out", "{out}/classes.yaml"),
        _look_at_classes,
        0.5,
        resumes=False,
    ),
    "text agreement": Verb(
        ("text", "agreement", *_TEXT, "--steps", "20", "--seeds", "1"),
        lambda out: None,
        0.5,
        resumes=False,
        longer=("--steps", "100000000"),
    ),
    "audit": Verb(("audit", CLASSES, "--eta-z", "0.01"), lambda out: None, 0.5, resumes=False),
    "reproduce": Verb(
        ("reproduce", "fig2", "--recipes", "{given}", "--out", "{out}/figures"),
        _netcdf("figures/scan_and_snap/fig2/fig2.nc"),
        0.5,
        codes=(0, 1),
    ),
    "reproduce, a study": Verb(
        ("reproduce", "studies/residual", "--recipes", "{given}", "--out", "{out}/ours"),
        _netcdf("ours/studies/residual/residual.nc"),
        0.5,
        codes=(0, 1),
    ),
}


def same(found: Any, expected: Any) -> bool:
    """Whether two looks saw the same, to the last bit."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
    return (
        bool(found.identical(expected))
        if hasattr(expected, "identical")
        else bool(found == expected)
    )


def partly(found: Any, expected: Any) -> bool:
    """Whether a result that was cut short, or is of a longer run, agrees with the whole one as far
    as both go."""
    import xarray as xr

    if not hasattr(expected, "identical"):
        return same(found, expected)
    found, expected = xr.align(found, expected, join="inner")
    names = [name for name in found.data_vars if name in expected]
    return all(bool((found[n] == expected[n]).where(found[n].notnull(), True).all()) for n in names)


class Runner:
    """Runs verbs in folders of their own, and knows what each leaves when nothing disturbs it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.folders = folder, 0
        self.given = self.new_folder()
        prepare(self.given)
        self._known: dict[str, tuple[float, Any]] = {}

    def new_folder(self) -> Path:
        self.folders += 1
        folder = self.folder / str(self.folders)
        folder.mkdir()
        return folder

    def start(self, verb: Verb, out: Path, *, longer: bool = False, **how: Any) -> list[Process]:
        words = verb.words(self.given, out, longer=longer)
        return [start(words, self.new_folder(), **how) for _ in range(verb.drivers)]

    def run(self, verb: Verb, out: Path, **how: Any) -> list[Ended]:
        return [ended for process in self.start(verb, out, **how) if (ended := process.wait())]

    def finish(self, verb: Verb, out: Path, expected: Any) -> str:
        """Run to the end what was disturbed; what is wrong with it then, if anything."""
        for ended in self.run(verb, out):
            if problem := wrong_end(ended, verb.codes):
                return f"run again: {problem}"
        return "" if same(verb.read_back(out), expected) else "not the same as when undisturbed"

    def undisturbed(self, name: str) -> tuple[float, Any]:
        """How long a verb takes, and what it leaves."""
        verb = VERBS[name]
        for _ in range(2 if name not in self._known else 0):  # the first one compiles
            out, begun = self.new_folder(), time.monotonic()
            for ended in self.run(verb, out):
                if problem := wrong_end(ended, verb.codes):
                    raise RuntimeError(f"undisturbed: {problem}")
            self._known[name] = (time.monotonic() - begun, verb.read_back(out))
        return self._known[name]


def wrong_end(ended: Ended, codes: tuple[int, ...] = (0,)) -> str:
    """What is wrong with how a verb ended, if anything."""
    if ended.problem:
        return f"{ended.problem}: {ended.err[-800:]}"
    if ended.code not in codes:
        return f"exit code {ended.code}: {ended.err[-800:]}"
    if any(word in ended.err for word in ("Traceback", "FATAL", "Aborted", "Fatal Python")):
        return f"it said: {ended.err[-800:]}"
    return "ended without a word" if ended.code > 0 and not ended.err.strip() else ""


def whole_files(out: Path) -> dict[Path, int]:
    """The result files and when they were written; each has to be whole."""
    from attnlab.files.netcdf import verify

    found = {}
    for path in out.rglob("[!.]*.nc"):
        verify(path)
        found[path] = path.stat().st_mtime_ns
    return found
