"""Transformers trained on a text by recipe: what Figs. 7 and 10 share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import xarray as xr

from attnlab.experiments.recipe import ExperimentRecipe
from attnlab.files.code import digest_of
from attnlab.files.errors import InputError
from attnlab.files.numerics import numerics
from attnlab.files.progress import Progress
from attnlab.text import Corpus, Training, open_corpus, train

# What decides a training's numbers, apart from its recipe.
NUMBERS = ("measures", "dynamics", "text")


@dataclass(frozen=True, kw_only=True)
class TextRecipe(ExperimentRecipe):
    """A figure that comes from transformers trained on a text.

    corpus, validation, vocab_size: as `open_corpus` takes them. layers: one training for each
    depth. training: how; its model is taken at each of these depths.
    """

    resumes: ClassVar[bool] = True
    corpus: str
    validation: str | None = None
    vocab_size: int | None = None
    layers: tuple[int, ...]
    training: Training

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers or len(set(self.layers)) < len(self.layers):
            raise InputError(f"layers: expected different depths, got {list(self.layers)}")

    def inputs(self) -> list[str]:
        """The digest of the corpus."""
        return [self.text().digest]

    def text(self) -> Corpus:
        """The corpus, with its digest."""
        return open_corpus(self.corpus, vocab_size=self.vocab_size, validation=self.validation)


def run(
    recipe: TextRecipe, *, progress: Progress = False, keep: Path | None = None
) -> list[xr.Dataset]:
    """Train at each depth; the results of `train` in the order of `recipe.layers`.

    progress: called with the fraction done, a layer counting as much as the decoder. keep: a folder
    where trainings are kept, found again, and gone on with if they were stopped.
    """
    corpus = recipe.text()
    costs = [layers + 1 for layers in recipe.layers]
    results = []
    for i, layers in enumerate(recipe.layers):
        model = replace(recipe.training.model, layers=layers)
        training = replace(recipe.training, corpus=corpus, model=model)
        out = None
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            out = keep / f"text-{digest_of([training.digest, numerics(*NUMBERS)])[:20]}"

        def report(fraction: float, done: int = sum(costs[:i]), own: int = costs[i]) -> None:
            if progress:
                progress((done + fraction * own) / sum(costs))

        results.append(train(training, out=out, progress=report))
    return results


def depth_name(layers: int) -> str:
    """1 layer, 3 layers."""
    return f"{layers} layer{'s' if layers > 1 else ''}"
