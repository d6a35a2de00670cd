"""The browser's simulator and theory against Python's, in a real Chromium.

They are written independently from the same formulas, so that agreement is evidence for both.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import page_files
import pytest
import xarray as xr
from small_run import PATIENCE

import attnlab
from attnlab.files.errors import InputError
from attnlab.models import Extended
from attnlab.papers.linear_icl import theory as linear_icl
from attnlab.simulation import Optimizer, Record, Simulation, as_simulation
from attnlab.tasks.classes import SequenceClasses, classes_from, random
from attnlab.tasks.classes.class_files import classes_document, parse_classes

AT = (0, 1, 2, 5, 10, 20, 40)
PRESETS = (
    "syn-small",
    "syn-medium:num_last=2,next_per_last=2,local_common=3",
    "family:classes=3,queries=2,common=4,distinct=5,common_mass=0.4,lowest=0.3,vocab_size=60",
    "single-common:num_classes=4,distinct=5,common_prob=0.2,vocab_size=200",
    "symmetric:num_classes=3,common=3,distinct=4,common_mass=0.5",
    "local-common:num_last=2,next_per_last=2,local=4,distinct=5",
    "zipf:vocab=50,classes=3,exponent=1.2,common=5,queries=2",
    "random:vocab=30,classes=3,concentration=0.7,overlap=0.4,queries=2,seed=4",
)
OPTIMIZERS = (Optimizer("sgd", momentum=0.9), Optimizer("sgd", momentum=0.0), Optimizer("adam"))
# vocabulary, classes, queries and overlap of the random sets, and how many: one program in Python
SHAPES = ((14, 2, 1, 0.5, 20), (42, 5, 5, 0.8, 15), (36, 6, 3, 0.3, 15))

RUN = """
async (documents) => {
  const { Run } = await import("/simulator/run.js")
  const { measures } = await import("/simulator/measures.js")
  return documents.map(({ document, counts }) => {
    const run = new Run(document, { counts })
    while (!run.advance(1000));
    const { attention, logits, loss } = run.result
    const { entropy, commonMass } = measures(run.classes, attention)
    return { attention: [...attention], logits: [...logits], loss: [...loss],
      entropy: [...entropy], common_mass: [...commonMass], size: run.classes.size,
      steps: [...run.result.steps] }
  })
}
"""
PREDICT = """
async (asked) => {
  const { Prediction, transitions } = await import("/theory/prediction.js")
  return asked.map(({ document, rung, steps }) => {
    const prediction = new Prediction(document, rung, steps)
    while (!prediction.advance(1000));
    return { ...transitions(document, prediction.classes), size: prediction.classes.size,
      attention: [...prediction.result.attention], logits: [...prediction.result.logits] }
  })
}
"""


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page that has loaded nothing but may import every module."""
    with page_files.served() as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.route("**/blank", lambda route: route.fulfill(body="<p>", content_type="text/html"))
        page.goto(f"{address}/blank")
        yield page


def document(simulation: Simulation) -> dict[str, Any]:
    """A simulation as the page has it; a preset that it does not make itself entry by entry."""
    found = simulation.to_document()
    if str(found["task"]["classes"]).startswith("random"):
        found["task"]["classes"] = classes_document(simulation.sets[0])
    return found


def entries(classes: SequenceClasses, attention: xr.DataArray) -> np.ndarray:
    """(step, class, token) on the non-zeros of P, in the order of the page."""
    return attention.values[:, classes.class_of_entry, classes.tokens]


def logits_of(classes: SequenceClasses, result: xr.Dataset) -> np.ndarray:
    rows = classes.query_index[classes.class_of_entry]
    return result["attention_logits"].values[:, rows, classes.tokens]


def agree(classes: SequenceClasses, said: dict[str, Any], result: xr.Dataset, far: float) -> None:
    """Attention and its logits everywhere, and what follows from them."""
    shape = (-1, said["size"])
    attention = np.reshape(said["attention"], shape)
    np.testing.assert_allclose(attention, entries(classes, result["attention"]), atol=far)
    z = logits_of(classes, result)
    np.testing.assert_allclose(
        np.reshape(said["logits"], shape), z, atol=far * max(1.0, np.abs(z).max())
    )
    for name in ("entropy", "common_mass"):
        if name in said:
            np.testing.assert_allclose(
                np.reshape(said[name], (-1, len(classes))), result[name], atol=10 * far
            )


def simulation_of(preset: str, i: int) -> Simulation:
    return as_simulation(
        preset,
        gradient="population",
        optimizer=OPTIMIZERS[i % 3],
        eta_y=(1.0, 5.0, 0.1)[i % 3],
        eta_z=(1.0, 0.5, 0.2)[i % 3],
        steps=AT[-1],
        at=AT,
        dtype="float64",
    )


@cache
def random_sets() -> tuple[tuple[Simulation, tuple[SequenceClasses, ...]], ...]:
    """Fifty random sets of classes of a few shapes, with the run that trains those of each."""
    made = []
    for i, (vocab, classes, queries, overlap, count) in enumerate(SHAPES):
        sets = tuple(
            random(
                vocab,
                classes,
                concentration=(0.3, 1.0, 3.0)[seed % 3],
                overlap=overlap,
                queries=queries,
                seed=seed,
            )
            for seed in range(count)
        )
        made.append((as_simulation(simulation_of("syn-small", i), classes=sets), sets))
    return tuple(made)


def test_the_limit_is_trained_as_in_python_on_every_preset(page: Any) -> None:
    runs = [simulation_of(preset, i) for i, preset in enumerate(PRESETS)]
    found = page.evaluate(RUN, [{"document": document(run)} for run in runs])
    for run, said in zip(runs, found, strict=True):
        result = attnlab.simulate(run).isel(seed=0)
        agree(run.sets[0], said, result, 1e-9)
        np.testing.assert_allclose(said["loss"], result["loss"], atol=1e-9)


@pytest.mark.parametrize("eta_y", [1.0, 0.0])
def test_without_the_norm_and_with_a_fixed_decoder_it_trains_as_in_python(
    page: Any, eta_y: float
) -> None:
    model = Extended(normalization="none")
    run = replace(simulation_of(PRESETS[2], 0), model=model)
    run = as_simulation(run, eta_y=eta_y)
    (said,) = page.evaluate(RUN, [{"document": document(run)}])
    result = attnlab.simulate(run).isel(seed=0)
    agree(run.sets[0], said, result, 1e-9)
    assert (np.ptp(said["attention"]) > 0) and (eta_y or np.allclose(said["loss"], said["loss"][0]))


REGRESSION = """
async ([lambda, examples, asked]) => {
  const { InContextRegression } = await import("/simulator/regression.js")
  const task = new InContextRegression(lambda, examples)
  return { levels: task.levels, found: asked.map(({ times, ...of }) => {
    const start = task.start(of)
    return { start: [...start], losses: task.train({ ...of, start, times }) }
  }) }
}
"""


def test_regression_in_context_follows_the_flow_of_the_theory(page: Any) -> None:
    task, times, heads = linear_icl.Regression((0.5, 0.3, 0.1), 20), [0.0, 30.0, 300.0, 3e3], 4
    asked = [
        {"separate": separate, "heads": heads, "std": 0.1, "seed": 3, "times": times}
        for separate in (False, True)
    ]
    said = page.evaluate(REGRESSION, [list(task.spectrum), task.examples, asked])
    np.testing.assert_allclose(said["levels"], linear_icl.plateau_losses(task), atol=1e-12)
    merged, separate = (np.reshape(of["start"], (heads, -1)) for of in said["found"])
    flows = (
        linear_icl.population_flow(
            task, linear_icl.Merged(merged[:, 0], merged[:, 1:].reshape(-1, 3, 3)), times
        ),
        linear_icl.population_flow(
            task,
            linear_icl.Separate(separate[:, 0], separate[:, None, 1:4], separate[:, None, 4:]),
            times,
        ),
    )
    for found, flow in zip(said["found"], flows, strict=True):
        wanted = linear_icl.population_loss(task, flow.matrix)
        np.testing.assert_allclose(found["losses"], wanted, atol=1e-5)
        assert wanted[-1] < 0.5 * wanted[0]


def test_the_limit_is_trained_as_in_python_on_fifty_random_sets(page: Any) -> None:
    asked, wanted = [], []
    for run, sets in random_sets():
        result = attnlab.simulate(run).isel(seed=0)
        for i, classes in enumerate(sets):
            asked.append({"document": document(as_simulation(run, classes=classes))})
            wanted.append((classes, result.isel(setting=i)))
    for (classes, result), said in zip(wanted, page.evaluate(RUN, asked), strict=True):
        agree(classes, said, result, 1e-5)
    assert len(wanted) == 50


def test_a_start_with_given_logits_and_an_uneven_prior(page: Any) -> None:
    classes = classes_from("syn-medium:num_last=2").with_prior([0.1, 0.2, 0.3, 0.4])
    start = np.linspace(-1, 1, 2 * classes.vocab_size).reshape(2, -1)
    run = as_simulation(simulation_of("syn-small", 0), classes=classes, init=start)
    (said,) = page.evaluate(RUN, [{"document": document(run)}])
    agree(classes, said, attnlab.simulate(run).isel(seed=0), 1e-9)


SAMPLED = as_simulation(
    PRESETS[1],
    length=12,
    batch_size=8,
    eta_y=1.0,
    eta_z=0.7,
    steps=12,
    seeds=[3],
    at=(0, 1, 5, 12),
    dtype="float64",
)


@cache
def drawn_in_python() -> list[list[dict[str, Any]]]:
    """The sequences of `SAMPLED`, step by step."""
    import jax

    from attnlab.simulation.program import base_keys, use_of
    from attnlab.tasks.classes.sampling import classes_from_words

    source = SAMPLED.tables[0].source
    seeds = jax.numpy.asarray(SAMPLED.seeds, np.uint32)
    key = use_of(base_keys(seeds, None)[0], SAMPLED.learner.uses.batch)

    @jax.jit
    def draw(step: Any) -> Any:
        shape = (source.batch_size, 1 + source.counts.words)
        words = jax.random.bits(jax.random.fold_in(key, step), shape, np.uint32)
        drawn = classes_from_words(source.prior, words[:, 0])
        return drawn, source.counts.counts(words[:, 1:], drawn)

    steps = []
    for step in range(int(SAMPLED.last) + 1):
        drawn, counts = map(np.asarray, draw(step))
        found = [np.flatnonzero(row) for row in counts]
        steps.append(
            [
                {"k": int(k), "slots": slots.tolist(), "counts": row[slots].tolist()}
                for k, slots, row in zip(drawn, found, counts, strict=True)
            ]
        )
    return steps


@pytest.mark.parametrize("optimizer", OPTIMIZERS[::2])
def test_sampled_sequences_train_as_in_python_when_they_are_the_same(
    page: Any, optimizer: Optimizer
) -> None:
    run = as_simulation(SAMPLED, optimizer=optimizer)
    (said,) = page.evaluate(RUN, [{"document": document(run), "counts": drawn_in_python()}])
    result = attnlab.simulate(run).isel(seed=0)
    agree(run.sets[0], said, result, 1e-9)
    np.testing.assert_allclose(said["loss"], result["loss"], atol=1e-9)


def test_sampled_runs_agree_in_distribution(page: Any) -> None:
    """Means over seeds differ by their standard error; seeds are fixed: nothing is left to luck."""
    seeds = range(60)
    run = as_simulation(
        "family:common=3,distinct=3",
        length=6,
        batch_size=8,
        eta_y=1.0,
        eta_z=0.5,
        steps=12,
        seeds=list(seeds),
        at=(4, 12),
        dtype="float64",
    )
    asked = [{"document": {**document(run), "seeds": [seed]}} for seed in seeds]
    found = page.evaluate(RUN, asked)
    classes = run.sets[0]
    ours = np.array([np.reshape(of["attention"], (2, -1)) for of in found])
    result = attnlab.simulate(run)
    theirs = np.array([entries(classes, result["attention"].isel(seed=i)) for i in range(60)])
    error = np.sqrt((ours.var(0) + theirs.var(0)) / len(seeds))
    assert (np.abs(ours.mean(0) - theirs.mean(0)) / error).max() < 4.5
    ratio = ours.std(0) / theirs.std(0)
    assert ratio.min() > 0.6 and ratio.max() < 1.6


DRAW = """
async ([n, p, draws, seed]) => {
  const { Binomials } = await import("/simulator/sampling.js")
  const { Random } = await import("/simulator/random.js")
  const random = new Random(seed), binomials = new Binomials(p), found = new Array(n + 1).fill(0)
  for (let i = 0; i < draws; i++) found[binomials.draw(random, n)] += 1
  return found
}
"""


@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (20, 0.02), (40, 0.7), (127, 0.06), (2500, 0.4)])
def test_binomials_are_exact(page: Any, n: int, p: float) -> None:
    from scipy.stats import binom, chisquare

    draws = 40_000
    found = np.array(page.evaluate(DRAW, [n, p, draws, 5]))
    wanted = draws * binom(n, p).pmf(np.arange(n + 1))
    usual = wanted > 8
    seen = np.append(found[usual], found[~usual].sum())
    said = np.append(wanted[usual], wanted[~usual].sum())
    if said[-1] < 1e-6:
        seen, said = seen[:-1], said[:-1]
    assert chisquare(seen, said * seen.sum() / said.sum()).pvalue > 1e-3


COUNTS = """
async ([text, length, k, draws]) => {
  const { fromPreset } = await import("/simulator/presets.js")
  const { CountSampler } = await import("/simulator/sampling.js")
  const { Random } = await import("/simulator/random.js")
  const classes = fromPreset(text), sampler = new CountSampler(classes, length)
  const width = classes.offsets[k + 1] - classes.offsets[k], random = new Random(1)
  const slots = new Int32Array(length), counts = new Float64Array(length)
  const sum = new Array(width).fill(0), square = new Array(width * width).fill(0)
  for (let i = 0; i < draws; i++) {
    const found = sampler.drawCounts(random, k, slots, counts)
    const row = new Array(width).fill(0)
    for (let s = 0; s < found; s++) row[slots[s]] = counts[s]
    for (let a = 0; a < width; a++) {
      sum[a] += row[a] / draws
      for (let b = 0; b < width; b++) square[a * width + b] += (row[a] * row[b]) / draws
    }
  }
  return { sum, square }
}
"""


@pytest.mark.parametrize("length", [5, 40])
def test_counts_are_multinomial(page: Any, length: int) -> None:
    """Their means and covariances, by tokens where a sequence is short and by binomials else."""
    text, draws = "family:common=4,distinct=4", 20_000
    p = classes_from(text).probabilities(1)
    found = page.evaluate(COUNTS, [text, length, 1, draws])
    mean = np.array(found["sum"])
    covariance = np.reshape(found["square"], (p.size, p.size)) - np.outer(mean, mean)
    n = length - 1
    np.testing.assert_allclose(mean, n * p, atol=5 * np.sqrt(n * 0.25 / draws))
    wanted = n * (np.diag(p) - np.outer(p, p))
    np.testing.assert_allclose(covariance, wanted, atol=0.06 * np.diag(wanted).max())


def theory_cases() -> list[tuple[Simulation, str]]:
    """Levels on every preset and on fifteen of the random sets, with and without momentum."""
    runs = [simulation_of(preset, i % 2) for i, preset in enumerate(PRESETS)]
    for i, (run, sets) in enumerate(random_sets()):
        runs += [
            as_simulation(run, classes=classes, optimizer=OPTIMIZERS[i % 2], eta_y=1.0, eta_z=0.5)
            for classes in sets[:5]
        ]
    uneven = classes_from("syn-medium:num_last=2").with_prior([0.1, 0.2, 0.3, 0.4])
    runs.append(as_simulation(runs[0], classes=uneven))
    free = Extended(normalization="none")
    alone = [(as_simulation(run, model=free), "polarisation-class") for run in runs[::2]]
    return [*itertools.product(runs, ("corrected", "sgd")), *alone]


def test_the_theory_says_what_predict_says(page: Any) -> None:
    cases = theory_cases()
    asked = [{"document": document(run), "rung": rung, "steps": list(AT)} for run, rung in cases]
    for (run, rung), said in zip(cases, page.evaluate(PREDICT, asked), strict=True):
        result = attnlab.predict(run, theory=rung).isel(seed=0)
        agree(run.sets[0], said, result, 1e-5)
        if rung == "corrected":
            np.testing.assert_allclose(said["t0Prime"], result["t0_prime"].max(), rtol=1e-9)
            np.testing.assert_allclose(said["t0"], result["t0"].max(), rtol=1e-9)


RECORDS = """
async (asked) => {
  const { recordSteps } = await import("/simulator/run.js")
  return asked.map(([record, last]) => recordSteps(record, last))
}
"""


def test_runs_are_recorded_at_the_same_steps(page: Any) -> None:
    records = (
        {},
        {"geometric": 60},
        {"geometric": 2},
        {"every": 7},
        {"every": "doubling"},
        {"at": [0, 3]},
    )
    cases = [(record, last) for record in records for last in (5, 100, 777, 5000)]
    for (record, last), steps in zip(cases, page.evaluate(RECORDS, cases), strict=True):
        assert steps == Record(**record).clock(last, whole=True).tolist(), (record, last)


PRESET = """
async (texts) => {
  const { fromPreset } = await import("/simulator/presets.js")
  return texts.map((text) => fromPreset(text).toDocument())
}
"""


def test_presets_are_the_same_classes(page: Any) -> None:
    texts = [text for text in PRESETS if not text.startswith("random")]
    for text, found in zip(texts, page.evaluate(PRESET, texts), strict=True):
        ours, theirs = parse_classes(json.dumps(found)), classes_from(text)
        assert ours.vocab_size == theirs.vocab_size
        np.testing.assert_array_equal(ours.tokens, theirs.tokens)
        np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-13)
        np.testing.assert_array_equal(ours.query, theirs.query)
        np.testing.assert_array_equal(ours.next_token, theirs.next_token)


GOOD = {
    "vocabulary": ["a", "b", "m", "n", "o"],
    "classes": [
        {"query": "m", "next": "n", "probs": {"a": 0.5, "b": 0.5}},
        {"query": "m", "next": "o", "probs": {"a": 1}},
    ],
}


def changed(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


def with_class(**changes: Any) -> dict[str, Any]:
    return changed(classes=[{**GOOD["classes"][0], **changes}, GOOD["classes"][1]])


BAD = (
    None,
    [],
    {},
    changed(vocabulary=[]),
    changed(vocabulary="x"),
    changed(vocabulary=0),
    changed(vocabulary=["a", "a"]),
    changed(vocabulary=["a", None]),
    changed(normalize=1),
    changed(classes=[]),
    changed(classes={}),
    changed(more=1),
    with_class(query=True),
    with_class(query=17),
    with_class(query=None),
    with_class(probs={}),
    with_class(probs=[1]),
    with_class(probs={"a": 0.5}),
    with_class(probs={"a": "0.5", "b": 0.5}),
    with_class(probs={"a": -0.5, "b": 1.5}),
    with_class(probs={"a": True}),
    with_class(probs={"0": 0.5, "9": 0.5}),
    with_class(prior=0.5),
    changed(classes=[{**of, "prior": 0.7} for of in GOOD["classes"]]),
    changed(
        vocabulary=["1", "b", "m", "n", "o", "a"],
        classes=[{"query": 3, "next": "n", "probs": {"a": 1}}],
    ),
    changed(vocabulary=5, classes=[{"query": "m", "next": 1, "probs": {"0": 1}}]),
)
READ = """
async (documents) => {
  const { classesFromDocument } = await import("/simulator/classes.js")
  return documents.map((document) => {
    try { return JSON.stringify(classesFromDocument(document).toDocument()) }
    catch (error) { return `${error.name}: ${error.message}` }
  })
}
"""


def test_bad_classes_are_refused_as_on_the_command_line(page: Any) -> None:
    found = page.evaluate(READ, [GOOD, *BAD])
    assert json.loads(found[0]) == json.loads(json.dumps(GOOD))
    for given, said in zip(BAD, found[1:], strict=True):
        with pytest.raises(InputError) as refused:
            parse_classes(json.dumps(given))
        field = str(refused.value).partition(":")[0]
        assert said.startswith(f"InputError: {field}"), given


CANCEL = """
async ([long, short]) => {
  const worker = new Worker("/worker.js", { type: "module" })
  const heard = []
  const done = new Promise((resolve) => {
    worker.onmessage = ({ data }) => {
      heard.push([data.id, data.kind])
      if (data.kind === "done") resolve()
    }
  })
  worker.postMessage({ id: 1, document: long })
  await new Promise((resolve) => setTimeout(resolve, 100))
  worker.postMessage({ id: 2, document: short, rungs: ["sgd", "corrected"] })
  await done
  await new Promise((resolve) => setTimeout(resolve, 100))
  worker.terminate()
  return heard
}
"""


def test_the_worker_drops_a_run_for_the_next_one(page: Any) -> None:
    short = {
        "task": "syn-small",
        "gradient": "population",
        "motion": {"name": "steps", "steps": 10},
    }
    # about as long as the page takes on: still under way when a busy machine comes to the next
    long = {
        "task": "syn-small",
        "gradient": {"name": "batches", "size": 512},
        "motion": {"name": "steps", "steps": 40_000},
    }
    heard = page.evaluate(CANCEL, [long, short])
    assert heard == [[2, "run"], [2, "prediction"], [2, "prediction"], [2, "done"]]


def test_a_run_that_diverges_says_so(page: Any) -> None:
    asked = {
        "task": "syn-small",
        "eta_y": 1.5e308,
        "eta_z": 1.5e308,
        "motion": {"name": "steps", "optimizer": {"name": "adam"}},
    }
    found = page.evaluate(
        """async (document) => {
          const { Run } = await import("/simulator/run.js")
          try { new Run(document).advance(1e5) }
          catch (error) { return `${error.name}: ${error.message}` }
        }""",
        asked,
    )
    assert found.startswith("InputError: the run diverged by step ")


SETTINGS = """
async (documents) => {
  const { settingsOf } = await import("/simulator/settings.js")
  return documents.map(settingsOf).map(({ length, batch, trainingSet, isFlow, last, momentum, etaY, etaZ, seed }) =>
    [length === Infinity ? "inf" : length, batch, trainingSet, isFlow, last, momentum, etaY, etaZ, seed])
}
"""  # noqa: E501


def test_the_page_reads_a_document_with_the_defaults_of_python(page: Any) -> None:
    def task(**settings: Any) -> dict[str, Any]:
        return {"name": "sequences", "classes": "syn-small", **settings}

    documents: list[dict[str, Any]] = [
        {"task": "syn-small"},
        {"task": task()},
        {"task": task(length=8), "eta_y": 3},
        {"task": "syn-small", "gradient": "population"},
        {"task": "syn-small", "motion": "flow"},
        {"task": task(length="inf"), "gradient": "batches"},
        {"task": task(training_set=9)},
        {"task": task(), "gradient": {"name": "batches", "size": 4}, "seeds": [7]},
        {"task": "syn-small", "motion": {"name": "steps", "optimizer": "adam", "steps": 3}},
        {"task": "syn-small", "motion": {"name": "steps", "optimizer": {"name": "sgd"}}},
        {"task": "syn-small", "motion": {"name": "flow", "time": 30}, "eta_z": 2},
    ]
    for document, found in zip(documents, page.evaluate(SETTINGS, documents), strict=True):
        run = Simulation.from_document(document)
        assert found == [
            "inf" if run.task.infinite else run.task.length,
            run.gradient.size,
            run.task.training_set,
            run.clock == "time",
            run.last,
            run.momentum,
            run.eta_y,
            run.eta_z,
            run.seeds[0],
        ], document
