"""Transformers trained on a text by recipe: what figures and studies on text share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import xarray as xr

from attnlab.experiments import ExperimentRecipe
from attnlab.files.errors import InputError, refuse_if
from attnlab.files.folders import claim
from attnlab.files.numerics import numerics
from attnlab.files.progress import Progress
from attnlab.files.provenance import digest_of
from attnlab.simulation import Diverged, Simulation, simulate, text_run
from attnlab.tasks.text import Corpus, open_corpus

# What decides a training's numbers, apart from its recipe.
NUMBERS = ("measures", "tasks", "models", "simulation")
# Of the fastest change: attention below it has slowed to a quarter (docs/measures.md).
SLOWED = 0.25


@dataclass(frozen=True, kw_only=True)
class CorpusRecipe(ExperimentRecipe):
    """An experiment on a text.

    corpus, validation, vocab_size: as `open_corpus` takes them. training: settings of `text_run`.
    """

    resumes: ClassVar[bool] = True
    corpus: str
    validation: str | None = None
    vocab_size: int | None = None
    training: dict[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self.run("builtin")  # any text: it is not read
        except InputError as error:
            raise InputError(f"training.{error}") from error

    def inputs(self) -> list[str]:
        """Return the digest of the corpus."""
        return [self.text().digest]

    def text(self) -> Corpus:
        """Return the corpus, with its digest."""
        return open_corpus(self.corpus, vocab_size=self.vocab_size, validation=self.validation)

    def run(self, corpus: Corpus | str | None = None, **settings: Any) -> Simulation:
        """Return the run on the text, read unless it is given, with some settings replaced."""
        return text_run(corpus or self.text(), **{**self.training, **settings})


@dataclass(frozen=True, kw_only=True)
class TextRecipe(CorpusRecipe):
    """layers: one training for each depth; the training's model is taken at each of these."""

    layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_depths("layers", self.layers)


def check_depths(where: str, layers: tuple[int, ...]) -> None:
    """Refuse none, and one twice."""
    refuse_if(not layers or len(set(layers)) < len(layers), where, "different depths", list(layers))


def by_depth(
    recipe: TextRecipe,
    measure: Callable[[xr.Dataset], xr.Dataset],
    *,
    progress: Progress,
    keep: Path | None,
) -> xr.Dataset:
    """Train at each depth; return `measure` of each result, along `layers`."""
    corpus = recipe.text()
    runs = [recipe.run(corpus, layers=of) for of in recipe.layers]
    parts = [measure(result) for result in run_all(runs, progress=progress, keep=keep)]
    together = xr.concat(parts, "layers").assign_coords(layers=list(recipe.layers))
    return together.assign_attrs(corpus=recipe.corpus)


def run_all(
    runs: Sequence[Simulation], *, progress: Progress = False, keep: Path | None = None
) -> list[xr.Dataset]:
    """Return the results in order, each with a dim `rate`, as results on record have it.

    progress: called with the fraction done, a layer counting as much as the decoder. keep: a folder
    where trainings are kept, found again, and gone on with if they were stopped.
    """
    costs = [(of.model.layers + 1) * of.grid.runs * of.motion.steps for of in runs]
    results = []
    for i, run in enumerate(runs):
        out = None
        if keep is not None:
            out = keep / f"text-{digest_of([run.digest, numerics(*NUMBERS)])[:20]}"
            claim(keep, [out.name])

        def report(fraction: float, done: int = sum(costs[:i]), own: int = costs[i]) -> None:
            if progress:
                progress((done + fraction * own) / sum(costs))

        try:
            result = simulate(run, out=out, progress=report)
        except Diverged as problem:
            result = problem.dataset.reindex(step=run.record_steps)
        if "diverged_step" not in result:
            none = xr.full_like(result["train_loss"].isel(step=0, drop=True), -1.0)
            result["diverged_step"] = none
        results.append(result.rename(learning_rate="rate"))
    return results


def depth_name(layers: int) -> str:
    """1 layer, 3 layers."""
    return f"{layers} layer{'s' if layers > 1 else ''}"
