"""Transformers trained on a text by recipe: what figures and studies on text share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import xarray as xr

from attnlab.experiments import ExperimentRecipe
from attnlab.files.code import digest_of
from attnlab.files.errors import InputError
from attnlab.files.folders import claim
from attnlab.files.numerics import numerics
from attnlab.files.progress import Progress
from attnlab.text import Corpus, Training, open_corpus, train

# What decides a training's numbers, apart from its recipe.
NUMBERS = ("measures", "dynamics", "text")
# Of the fastest change: attention below it has slowed to a quarter (docs/measures.md).
SLOWED = 0.25


@dataclass(frozen=True, kw_only=True)
class CorpusRecipe(ExperimentRecipe):
    """An experiment on a text.

    corpus, validation, vocab_size: as `open_corpus` takes them. training: how transformers are
    trained on it.
    """

    resumes: ClassVar[bool] = True
    corpus: str
    validation: str | None = None
    vocab_size: int | None = None
    training: Training

    def inputs(self) -> list[str]:
        """The digest of the corpus."""
        return [self.text().digest]

    def text(self) -> Corpus:
        """The corpus, with its digest."""
        return open_corpus(self.corpus, vocab_size=self.vocab_size, validation=self.validation)


@dataclass(frozen=True, kw_only=True)
class TextRecipe(CorpusRecipe):
    """layers: one training for each depth; the training's model is taken at each of these."""

    layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_depths("layers", self.layers)


def check_depths(where: str, layers: tuple[int, ...]) -> None:
    """Refuse none, and one twice."""
    if not layers or len(set(layers)) < len(layers):
        raise InputError(f"{where}: expected different depths, got {list(layers)}")


def run(
    recipe: TextRecipe, *, progress: Progress = False, keep: Path | None = None
) -> list[xr.Dataset]:
    """Train at each depth; the results of `train` in the order of `recipe.layers`."""
    at = at_depths(replace(recipe.training, corpus=recipe.text()), recipe.layers)
    return run_all(list(at.values()), progress=progress, keep=keep)


def by_depth(
    recipe: TextRecipe, measure: Callable[[xr.Dataset], xr.Dataset], *, progress: Progress,
    keep: Path | None,
) -> xr.Dataset:  # fmt: skip
    """Train at each depth; `measure` of each result, along `layers`."""
    parts = [measure(result) for result in run(recipe, progress=progress, keep=keep)]
    together = xr.concat(parts, "layers").assign_coords(layers=list(recipe.layers))
    return together.assign_attrs(corpus=recipe.corpus)


def at_depths(training: Training, layers: Sequence[int]) -> dict[int, Training]:
    """The training at each of these depths."""
    return {of: replace(training, model=replace(training.model, layers=of)) for of in layers}


def run_all(
    trainings: Sequence[Training], *, progress: Progress = False, keep: Path | None = None
) -> list[xr.Dataset]:
    """The results of `train`, in order.

    progress: called with the fraction done, a layer counting as much as the decoder. keep: a folder
    where trainings are kept, found again, and gone on with if they were stopped.
    """
    costs = [(of.model.layers + 1) * len(of.runs) * of.steps for of in trainings]
    results = []
    for i, training in enumerate(trainings):
        out = None
        if keep is not None:
            out = keep / f"text-{digest_of([training.digest, numerics(*NUMBERS)])[:20]}"
            claim(keep, [out.name])

        def report(fraction: float, done: int = sum(costs[:i]), own: int = costs[i]) -> None:
            if progress:
                progress((done + fraction * own) / sum(costs))

        results.append(train(training, out=out, progress=report))
    return results


def depth_name(layers: int) -> str:
    """1 layer, 3 layers."""
    return f"{layers} layer{'s' if layers > 1 else ''}"
