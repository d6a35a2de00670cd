"""Trainings on text, as a sweep runs them: their rates and corpora, what they cost, what sums them
up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.dynamics.optimizers import Optimizer
from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory
from attnlab.files.recipe import as_value, plain
from attnlab.sweeping.kind import Axes, Cost, Given, Kind, Tell
from attnlab.text import Corpus, Source, Training, TransformerSpec, train
from attnlab.text.cohort import numbers_of
from attnlab.text.training import FIELD_KINDS, Precision

# Read off two CPU cores, as those of `simulations` were.
STEP_SECONDS = 2e-3  # of a step of a run, however small
PRODUCT_SECONDS = 3e-11  # for each term of a product of tokens and parameters, forth and back
RECORD_COPIES = 4  # as they come, labelled, summed up and checked against the file
# Numbers as large as the parameters that a run needs: themselves, gradient, memory of an optimiser.
STATE_COPIES = 5

SUMMED_UP = ("validation_loss", "train_loss", "perplexity", "entropy", "effective_tokens")


class Trainings(Kind):
    """`Training`, whose source is its corpus; one corpus at a time."""

    value = Training
    source = "corpus"
    rates: ClassVar[dict[str, str]] = {"rate": "rates"}
    numbers = ("measures", "dynamics", "text", "sweep")
    compile_seconds = 8.0

    def fields(self) -> dict[str, Any]:
        return FIELD_KINDS

    def swept(self) -> dict[str, Any]:
        return {
            "steps": int, "corpus": str | Source, "model": TransformerSpec,
            "optimizer": Optimizer, "batch": int, "clip": float, "reset_moments": bool,
            "measure_every": int, "precision": Precision,
        }  # fmt: skip

    def check(self, given: Given, grid: Given) -> None:
        if "rate" in grid and "rates" in given:
            raise InputError("rates: rate is swept in the grid; leave it out here")
        for i, rate in enumerate(grid.get("rate", ())):
            if not as_value(f"grid.rate[{i}]", rate, float) > 0:
                raise InputError(f"grid.rate[{i}]: expected a positive number, got {rate}")

    def axes(self, given: Given, grid: Given) -> Axes:
        rates = grid.get("rate", given.get("rates", Training.rates))
        return {"rate": tuple(float(rate) for rate in np.atleast_1d(rates))}

    def points(self, given: Given, grid: Given) -> dict[str, NDArray[np.float64]]:
        return {"rates": np.asarray(self.axes(given, grid)["rate"])}

    def source_with(self, source: Corpus | Source | str, parameters: Given) -> Corpus:
        if isinstance(source, Corpus) and not parameters:
            return source
        named = source.source if isinstance(source, Corpus) else source
        if named is None:
            raise InputError(f"{next(iter(parameters))}: a corpus made in memory has no parameters")
        document = {"name": named} if isinstance(named, str) else {**plain(named)}
        corpus: Source = as_value("corpus", {**document, **parameters}, Source)
        return corpus.open()

    def way(self, source: Corpus, fields: Given) -> Training:
        return Training(source, **{**fields, "rates": 1.0, "seeds": 1})

    def written(self, source: Corpus | Source | str) -> Any:
        named = source.source if isinstance(source, Corpus) else source
        if isinstance(named, Source):
            return {"name": named.name, **plain(named)}
        return self.title(source)

    def sizes(self, source: Corpus) -> int:
        return id(source)

    def record_steps(self, way: Training) -> tuple[float, ...]:
        return tuple(map(float, way.record_steps))

    def value_at(
        self, way: Training, sources: Sequence[Corpus], points: Given, seeds: Sequence[int],
        record_steps: Sequence[float],
    ) -> Training:  # fmt: skip
        (corpus,) = sources
        rates = tuple(points["rates"].tolist())
        return replace(way, corpus=corpus, rates=rates, seeds=tuple(seeds))

    def title(self, source: Corpus | Source | str) -> str:
        return source if isinstance(source, str) else source.name

    def cost(self, way: Training, source: Corpus, records: int) -> Cost:
        parameters, activations = numbers_of(way, source.vocab_size)
        tokens = way.batch * way.model.context
        kept = way.record_bytes(runs=1)
        memory = 4.0 * (STATE_COPIES * parameters + activations) + RECORD_COPIES * kept
        require_memory(source.name, memory, "take a smaller model, batch or context")
        measured = records * way.windows(len(source.validation)) * way.model.context
        step = STEP_SECONDS + PRODUCT_SECONDS * tokens * parameters
        seconds = way.steps * step + PRODUCT_SECONDS * measured * parameters
        return Cost(memory, kept, seconds)

    def run(self, value: Training, tell: Tell) -> tuple[xr.Dataset, str]:
        result = train(value, progress=tell)
        lost = result["diverged_step"]
        cause = ""
        if count := int((lost >= 0).sum()):
            first = int(lost.where(lost >= 0).min())
            cause = (
                f"{count} of {lost.size} runs have a loss that is not finite from step {first} on"
            )
        last = result.isel(step=-1, drop=True)
        heads = [dim for dim in ("layer", "head") if dim in result.dims]
        for name in SUMMED_UP:
            over = [dim for dim in heads if dim in last[name].dims]
            result[f"final_{name}"] = last[name].mean(over)
        words = ["probe_token", "probe_word"]
        result = result.rename(rate="cell").drop_vars("cell").reset_coords(words)
        return result.expand_dims(setting=1).set_coords(words), cause


TRAININGS = Trainings()
