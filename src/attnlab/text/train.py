"""train(): transformers on a text, several rates and seeds at once, measured while they learn."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Unpack

import jax
import numpy as np
import xarray as xr

from attnlab.dynamics.stopping import Pace, Stopping, answering
from attnlab.files.checkpoint import (
    Arrays,
    Checkpoint,
    check_arrays,
    read_checkpoint,
    write_checkpoint,
)
from attnlab.files.errors import InputError
from attnlab.files.folders import claim, refuse_foreign
from attnlab.files.netcdf import DamagedFile, load, save
from attnlab.files.numerics import NUMERICS
from attnlab.files.progress import Choice, Report, reporting
from attnlab.files.provenance import provenance
from attnlab.text.cohort import Cohort
from attnlab.text.corpus import Corpus, Source
from attnlab.text.measure import TOP, map_speed, probe_entropy, snap_step
from attnlab.text.model import TransformerSpec
from attnlab.text.training import LATER, Training, TrainingFields, as_training

FILES = CHECKPOINT, RESULT = "checkpoint.safetensors", "result.nc"
CHECKPOINT_SHARE = 0.05  # of the time is spent on checkpoints at most
_RECORD = "record/"


def train(
    training: Training | Corpus | Source | str,
    model: TransformerSpec | None = None,
    *,
    out: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    progress: Choice = "auto",
    **given: Unpack[TrainingFields],
) -> xr.Dataset:
    """Train transformers on a corpus and record what their attention does.

    Rates and seeds are run together, one run for each pair. A run that leaves the finite numbers is
    NaN from there on, `diverged_step` says since when, and the others go on.

    Parameters
    ----------
    training : Training, Corpus, Source or str
        A `Training`, which explains every field, or its corpus.
    model : TransformerSpec, optional
        The transformer. With a `Training`, model and fields replace its own.
    out : path, optional
        A folder for checkpoints and the result. A training that was interrupted goes on from there
        with bit-identical results on the same machine (on a GPU as far as XLA adds in the same
        order); one that differs in any setting is refused. Ctrl-C keeps a checkpoint.
    checkpoint_seconds : float, optional
        The least time between checkpoints.
    progress : {"auto", True, False} or callable, optional
        Whether to show how far it is, or a function that is called with the fraction done.
    **given
        Other fields of the training: rates, seeds, steps, optimizer, batch, clip, reset_moments,
        measure_every, validation_tokens, probes, precision.

    Returns
    -------
    xarray.Dataset
        With dims (rate, seed, step, layer, head, probe, query, key); docs/results.md describes it,
        and `Training.of` gives the value back.

    Examples
    --------
    >>> import attnlab
    >>> from attnlab.text import TransformerSpec
    >>> small = TransformerSpec(layers=1, heads=1, dim=8, feed_forward=8, context=8)
    >>> training = attnlab.Training("builtin", small, rates=(1.0, 2.0), steps=20, measure_every=10)
    >>> attnlab.train(training, out="run", progress=False)["train_loss"].dims
    ('rate', 'seed', 'step')
    """
    plan = as_training(training, model, **given)
    folder = None if out is None else Path(out)
    corpus, document = plan.text, plan.spec
    # Another version of jax may round differently and go on; other numerics of ours may not.
    identity = {**document, "numerics": {name: NUMERICS[name] for name in ("measures", "text")}}
    kept = None if folder is None else _kept(folder, identity, plan.steps)
    if folder is not None and kept is not None and kept.step == plan.steps:
        # Where the result is not there or damaged, it is made again from the checkpoint.
        with suppress(FileNotFoundError, DamagedFile):
            return load(folder / RESULT)
    begun = time.perf_counter()
    recorded = _Record(plan)
    begin = 0 if kept is None else kept.step
    keeper = _Keeper(folder, identity, checkpoint_seconds, begin)

    def work(stopping: Stopping) -> tuple[Cohort, float]:
        cohort = Cohort(plan, corpus)  # refuses what does not fit, before anything is written
        if folder is not None:
            claim(folder, FILES)
        if folder is not None and kept is not None:
            states = {name: array.shape for name, array in cohort.arrays().items()}
            shapes = states | recorded.shapes(cohort)
            check_arrays(folder / CHECKPOINT, kept.arrays, shapes)
            cohort.restore(kept.step, kept.arrays)
            recorded.restore(kept.arrays)
        report(cohort.step * len(plan.runs))
        return cohort, _run(cohort, recorded, keeper, stopping, report)

    with reporting(progress, plan.steps * len(plan.runs), "training") as report:
        try:
            cohort, training_seconds = answering(work)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(keeper.last_words(plan.steps)) from None
    steps_left = plan.steps - begin
    tokens = steps_left * len(plan.runs) * plan.batch * plan.model.context
    result = _label(plan, corpus, cohort, recorded)
    result.attrs = provenance(
        document,
        device=jax.devices()[0].device_kind,
        dtype="float32",
        seconds=time.perf_counter() - begun,
        tokens_per_second=tokens / training_seconds if steps_left else 0.0,
    )
    if folder is not None:
        save(result, folder / RESULT, inside=folder)
    return result


class _Record:
    """What was measured: arrays (run, record, ...), NaN where it was not yet."""

    def __init__(self, plan: Training) -> None:
        self.steps = plan.record_steps
        self.values: Arrays = {}

    def put(self, step: int, found: Arrays) -> None:
        (index,) = np.flatnonzero(self.steps == step)
        for name, value in found.items():
            if name not in self.values:
                shape = (value.shape[0], self.steps.size, *value.shape[1:])
                self.values[name] = np.full(shape, np.nan, np.float32)
            self.values[name][:, index] = value

    def arrays(self) -> Arrays:
        return {_RECORD + name: value for name, value in self.values.items()}

    def shapes(self, cohort: Cohort) -> dict[str, tuple[int, ...]]:
        """Of the arrays, once there are any."""
        found = cohort.shapes().items()
        return {_RECORD + name: (n, self.steps.size, *rest) for name, (n, *rest) in found}

    def restore(self, arrays: Arrays) -> None:
        self.values = {
            name.removeprefix(_RECORD): value.copy()
            for name, value in arrays.items()
            if name.startswith(_RECORD)
        }


class _Keeper:
    """Writes checkpoints to a folder, if there is one, seldom enough to cost little."""

    def __init__(
        self, folder: Path | None, document: dict[str, Any], least: float, step: int
    ) -> None:
        self.folder, self.document, self.least = folder, document, least
        self.last, self.cost = time.perf_counter(), 0.0
        self.step = step

    def last_words(self, steps: int) -> str:
        """What is left of a training that was stopped."""
        if self.folder is None:
            return "stopped; nothing is kept without a folder (out)"
        if not self.step:
            return "stopped before the first checkpoint"
        return (
            f"stopped at step {self.step:,} of {steps:,}; the same settings go on from there "
            f"(out: {self.folder})"
        )

    def keep_if_due(self, cohort: Cohort, recorded: _Record) -> None:
        waited = time.perf_counter() - self.last
        due = waited > max(self.least, self.cost / CHECKPOINT_SHARE)
        if due or cohort.step == cohort.plan.steps:
            self.keep(cohort, recorded)

    def keep(self, cohort: Cohort, recorded: _Record) -> None:
        if self.folder is None:
            return
        begun = time.perf_counter()
        arrays = {**cohort.arrays(), **recorded.arrays()}
        checkpoint = Checkpoint(self.document, cohort.step, arrays)
        write_checkpoint(self.folder / CHECKPOINT, checkpoint, inside=self.folder)
        self.last = time.perf_counter()
        self.step, self.cost = cohort.step, self.last - begun


def _run(
    cohort: Cohort, recorded: _Record, keeper: _Keeper, stopping: Stopping, report: Report
) -> float:
    """From record to record to the end, or until asked to stop; the seconds spent on steps."""
    plan, pace, spent = cohort.plan, Pace(), 0.0
    if cohort.step == 0:
        recorded.put(0, cohort.observe())
    for moment in plan.record_steps[plan.record_steps > cohort.step]:
        while cohort.step < moment:
            if stopping.asked:
                stopping.keeping = True
                keeper.keep(cohort, recorded)
                return spent
            count = min(int(moment) - cohort.step, pace.steps)
            begun = time.perf_counter()
            cohort.advance(count)
            seconds = time.perf_counter() - begun
            spent += seconds
            pace.took(count, seconds)
            speed = count * len(plan.runs) * plan.batch * plan.model.context / seconds
            losses = cohort.train_loss()
            loss = losses[np.isfinite(losses)].mean() if np.isfinite(losses).any() else np.nan
            if cohort.step == moment:
                recorded.put(cohort.step, cohort.observe())
            keeper.keep_if_due(cohort, recorded)
            report(count * len(plan.runs), f"loss {loss:.3f}, {speed:,.0f} tokens/s")
    return spent


def _kept(folder: Path, document: dict[str, Any], steps: int) -> Checkpoint | None:
    """The checkpoint to go on from, if there is one."""
    if not folder.parent.is_dir():
        raise InputError(f"out: the folder {folder.parent} does not exist; make it first")
    refuse_foreign(folder, FILES)
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    kept = read_checkpoint(path)
    there, here = LATER | _settings(kept.spec), _settings(document)
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            raise InputError(
                f"out: {folder} holds another training ({name}: {there.get(name)} there, "
                f"{here.get(name)} here); give another folder, or the same settings to go on"
            )
    if not 0 <= kept.step <= steps:
        raise DamagedFile(path, f"it is at step {kept.step:,} of {steps:,}")
    return kept


def _settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """All that decides the numbers by its own name: model.layers and so on."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        within = _settings(value) if isinstance(value, Mapping) else None
        found |= {name: value} if within is None else {f"{name}.{n}": v for n, v in within.items()}
    # the digest tells texts apart
    named = {f"corpus.{item.name}" for item in fields(Source)} - {"corpus.digest"}
    return {name: value for name, value in found.items() if name not in named}


def _label(plan: Training, corpus: Corpus, cohort: Cohort, recorded: _Record) -> xr.Dataset:
    """The record as a Dataset of the common schema."""
    shape = (len(plan.rates), len(plan.seeds))
    run = ("rate", "seed")
    heads = ("layer", "head")
    dims = {
        "top_mass": (*heads, "k"),
        "attention": (*heads, "probe", "query", "key"),
        "mlp_stable_rank": ("layer",),
        **dict.fromkeys(("entropy", "relative_entropy", "effective_tokens"), heads),
        **dict.fromkeys(("frequent_mass", "qk_stable_rank"), heads),
    }
    variables: dict[str, Any] = {
        name: ((*run, "step", *dims.get(name, ())), values.reshape(*shape, *values.shape[1:]))
        for name, values in recorded.values.items()
    }
    variables["frequent_share"] = ((), np.float32(cohort.frequent_share))
    variables["diverged_step"] = (run, cohort.diverged().reshape(shape))
    place = np.arange(plan.model.context)
    words = np.asarray([[corpus.vocabulary[i] for i in probe] for probe in cohort.probes])
    result = xr.Dataset(
        variables,
        coords={
            "rate": list(plan.rates), "seed": list(plan.seeds), "step": plan.record_steps,
            "layer": np.arange(plan.model.layers), "head": np.arange(plan.model.heads),
            "k": list(TOP), "probe": np.arange(plan.probes), "query": place, "key": place,
            "probe_token": (("probe", "key"), cohort.probes),
            "probe_word": (("probe", "key"), words),
        },
    )  # fmt: skip
    with np.errstate(over="ignore"):
        result["perplexity"] = np.exp(result["validation_loss"])
    result["probe_entropy"] = probe_entropy(result)
    result["attention_speed"] = map_speed(result)
    result["snap_step"] = snap_step(result)
    return result
