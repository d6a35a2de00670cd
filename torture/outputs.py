"""Output folders of somebody else: links, files, folders and pipes planted where attnlab writes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from torture.campaign import REFUSED, RIGHT, Campaign, Case, Verdict, bad, refusal
from torture.verbs import SMALL_TEXT, SWEEP, prepare

PLANTED = ("link", "dangling", "loop", "file", "folder", "pipe")
MINE = b"somebody else's, and nowhere else\n"
ROOT = Path(__file__).resolve().parents[1]


class Outputs(Campaign):
    """Each writer with something planted at one of the paths that it writes.

    Whatever the writer does, what was there before has to be there afterwards, byte for byte.
    """

    name, share, cpu_seconds = "outputs", 0.1, 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.chdir(folder)
        self.writers = _writers(folder)
        self.places: dict[str, list[str]] = {}
        self.count = 0
        for name, write in self.writers.items():
            write(out := self._new())
            self.places[name] = sorted(str(path.relative_to(out)) for path in out.rglob("*"))

    def cases(self, draw: Random) -> Iterator[Case]:
        while True:
            name = draw.choice(list(self.writers))
            place = draw.choice(self.places[name])
            # a cache is attnlab's own from the start
            after = name == "token cache" or draw.random() < 0.5
            given = {"place": place, "planted": draw.choice(PLANTED), "after": after}
            yield Case(name, given | {"leads to": draw.choice(("file", "folder"))})

    def judge(self, case: Case) -> Verdict:
        out, write = self._new(), self.writers[case.target]
        outside = out.with_name("outside")
        (outside / "folder").mkdir(parents=True)
        (outside / "file").write_bytes(MINE)
        (outside / "folder" / "file").write_bytes(MINE)
        if case.given["after"]:  # in a folder of attnlab's own
            write(out)
        place = out / case.given["place"]
        _plant(place, case.given["planted"], outside / case.given["leads to"])
        before, planted = _snapshot(outside), _snapshot(place)
        try:
            write(out)
        except Exception as problem:
            found = refusal(problem)
        else:
            found = RIGHT
        if _snapshot(outside) != before:
            return bad("something outside of the folder was changed")
        # a pipe, or a file where attnlab had its own, is damage that is made good
        if not case.given["after"] and case.given["planted"] != "pipe":
            if _snapshot(place) != planted:
                return bad(f"{place}: what somebody else had there was changed")
            if found == RIGHT and case.given["planted"] in ("link", "dangling", "file"):
                return bad(f"{place}: written, though it is somebody else's")
        if left := [path.name for path in out.rglob(".attnlab-*")]:
            return bad(f"left behind: {left}")
        shutil.rmtree(out.parent)
        return found if found.outcome != "refused" else REFUSED

    def _new(self) -> Path:
        """Return a path for an output folder, alone in a folder of its own."""
        self.count += 1
        parent = self.folder / "made" / str(self.count)
        parent.mkdir(parents=True)
        return parent / "out"


def _plant(place: Path, kind: str, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    if kind == "link":
        place.symlink_to(target)
    elif kind == "dangling":
        place.symlink_to(target.with_name("absent"))
    elif kind == "loop":
        place.symlink_to(place.name)
    elif kind == "file":
        place.write_bytes(MINE)
    elif kind == "folder":
        place.mkdir()
        (place / "file").write_bytes(MINE)
    else:
        os.mkfifo(place)


def _snapshot(path: Path) -> Any:
    """Return all that is at a path: where links lead, contents of files, and what folders hold."""
    if path.is_symlink():
        return os.readlink(path)
    if path.is_dir():
        return {each.name: _snapshot(each) for each in path.iterdir()}
    return path.read_bytes() if path.is_file() else path.exists()


def _writers(folder: Path) -> dict[str, Callable[[Path], Any]]:
    """Return all that fills a folder, at sizes that take a fraction of a second."""
    from attnlab.files.recipe import as_value
    from attnlab.simulation import simulate, text_run
    from attnlab.sweeping import SweepRecipe, make_plan, run_in
    from attnlab.tasks.text import open_corpus

    prepare(folder)
    small = {"grid": {"common_prob": [0.1, 0.4]}, "eta_z": 1.0, "seeds": 1}
    plan = make_plan(as_value("", {**SWEEP, **small}, SweepRecipe), memory_budget=1)
    corpus = open_corpus(folder / "text.txt", cache=folder)
    training = text_run(corpus, **SMALL_TEXT)
    return {
        "sweep": lambda out: _sweep(run_in, out, plan),
        "text train": lambda out: simulate(training, out=out, progress=False),
        "experiment": _experiment(),
        "token cache": lambda out: _quietly(open_corpus, folder / "text.txt", cache=out),
        "observe": _observed(folder),
        "docs": _site(folder),
    }


def _sweep(run_in: Callable[..., Any], out: Path, plan: Any) -> None:
    from attnlab.sweeping import Stopped

    try:
        run_in(out, plan)
    except Stopped as problem:  # which the command line says
        raise ValueError(str(problem)) from None


def _quietly(act: Callable[..., Any], *given: Any, **more: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a cache that cannot be used is done without
        act(*given, **more)


def _experiment() -> Callable[[Path], Any]:
    import xarray as xr
    from matplotlib.figure import Figure

    from attnlab.experiments import experiment, recipe_for, run
    from attnlab.experiments.base import Judgement, Standing

    made = replace(
        experiment("fig9"),
        data=lambda recipe, **more: xr.Dataset({"x": ("step", [1.0, 2.0])}),
        judge=lambda data: Judgement(Standing.HOLDS, "It holds.", "It holds.", "x", {}),
        draw=lambda data: Figure(figsize=(1, 1)),
        table=None,
    )
    recipe = recipe_for("fig9")
    return lambda out: run(made, recipe, out=out)


def _observed(folder: Path) -> Callable[[Path], Any]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from attnlab.observing import observe_checkpoints

    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 20}
    GPT2LMHeadModel(GPT2Config(**sizes)).save_pretrained(folder / "models" / "checkpoint-1")
    probe = torch.arange(12).reshape(1, 12)
    return lambda out: observe_checkpoints(
        folder / "models", probe, out=out, min_keys=2, progress=False
    )


def _site(folder: Path) -> Callable[[Path], Any]:
    """Return what ./lab docs does with a folder, without Sphinx."""
    spec = importlib.util.spec_from_file_location("make", ROOT / "docs" / "make.py")
    assert spec is not None and spec.loader is not None
    make: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)

    def sphinx(*arguments: str) -> int:
        made = Path(arguments[-1])
        (made / "guides").mkdir(parents=True)
        for name in ("index.html", "guides/page.html"):
            (made / name).write_text("page")
        return 0

    make._sphinx, make.NOTEBOOKS = sphinx, folder / "notebooks"
    build: Callable[[Path], Any] = make.build
    return build
