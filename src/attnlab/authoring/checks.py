"""The checks of a paper: each returns a note, and raises where the paper does not pass.

SkipTest says that there is nothing to check; test runners know it.
"""

from __future__ import annotations

import inspect
import math
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import SkipTest
from urllib.parse import unquote

import numpy as np

from attnlab.auditing.catalogue import claims_of
from attnlab.auditing.claim import claims_in
from attnlab.data import SequenceClasses, count_sampler, from_preset
from attnlab.data.presets import CONSTRUCTIONS, presets
from attnlab.dynamics import Flow, Limit, Model, Pairwise, Save, Simulation, simulate
from attnlab.experiments import Experiment
from attnlab.files.errors import InputError
from attnlab.files.recipe import as_value, plain, read_recipe
from attnlab.files.shipped import documentation
from attnlab.shelf import Paper, Reference, shelf
from attnlab.text.agreement import Agreement
from attnlab.theory import Theory, as_theory, predict

# A token's count in DRAWS tokens is within this many standard deviations. The seed is fixed, so the
# draws are the same every time; by chance one count in 500 million would be outside.
MOST_APART = 6.0
DRAWS, LENGTH = 200_000, 129
SMALLEST = 20.0  # rarer tokens are counted together: their counts are not normal
MOST_CLASSES, MOST_NUMBERS = 64, 10**5  # of a preset, for a run that takes seconds
STEPS = 10
TRAVELLING = ("theories", "models", "presets")

_ALONE = """
import pkgutil, sys
from attnlab.shelf import paper
theory = paper({name!r}).load("theory")
for part in pkgutil.walk_packages(getattr(theory, "__path__", ()), theory.__name__ + "."):
    __import__(part.name)
print(*sorted({{"jax", "attnlab.dynamics", "torch"}} & set(sys.modules)))
"""
_CLAIM_ID = re.compile(r"[a-z0-9]+([-.][a-z0-9]+)*")
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def nothing(words: str) -> str:
    """Say that a paper has nothing of this kind."""
    raise SkipTest(f"the paper has {words}")


def manifest(paper: Paper) -> str:
    """Everything that `paper.yaml` names is there, and no name of it is taken."""
    for fault in shelf().faults:
        assert fault.where != str(paper.folder), fault.reason
    for _, _, module in paper.claim_modules():
        path = paper.folder.joinpath(*module.split("."))
        there = path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
        assert there, f"claims: there is no module {module} in {paper.folder}; write it"
    recorded = paper.expected
    return f"{len(recorded['claims'])} claims and {len(recorded['figures'])} figures on record"


def reference_loads(paper: Paper, kind: str, name: str) -> str:
    """A reference leads to what its kind asks for, under its own name."""
    found = Reference(paper, getattr(paper, kind)[name]).load()
    if kind == "theories":
        _require(isinstance(found, type) and issubclass(found, Theory), found, "a Theory class")
        _require_name(found().name, name)
    elif kind == "models":
        _require(isinstance(found, type) and issubclass(found, Model), found, "a Model class")
        _require_name(found.called(), name)
    elif kind == "presets":
        assert name not in CONSTRUCTIONS, f"{name} is a preset of attnlab's own; rename it"
        made = from_preset(name)
        _require(isinstance(made, SequenceClasses), made, "a function that makes SequenceClasses")
    else:
        _require(isinstance(found, Experiment), found, "an Experiment")
        _require_name(found.name, name)
    return ""


def single_loads(paper: Paper, kind: str) -> str:
    """A single reference leads to what attnlab asks for; functions take what it calls them with."""
    found = Reference(paper, getattr(paper, kind)).load()
    if kind == "agreement":
        _require(isinstance(found, Agreement), found, "an Agreement")
    elif kind == "opening":
        _require(isinstance(found, Experiment), found, "an Experiment")
    elif kind == "maps":
        fits = isinstance(found, Mapping) and found and all(map(_takes, found.values()))
        _require(fits, found, "functions without arguments, by name")
    elif kind == "expectation":
        fits = _takes(found, "dataset", "text", names=None)
        _require(fits, found, "a function of (dataset, text, *, names)")
    else:
        fits = _takes(found, "trial", "tokens", "clocks")
        _require(fits, found, "a function of (trial, tokens, clocks)")
    return ""


def theory_alone(paper: Paper) -> str:
    """The formulas import no simulator, in a process of its own: else agreement is no evidence."""
    if not any((paper.folder / name).exists() for name in ("theory.py", "theory/__init__.py")):
        raise SkipTest("the paper has no theory.py of its own")
    done = _python(_ALONE.format(name=paper.name))
    loaded = done.split()
    assert not loaded, f"theory imports {' and '.join(loaded)}; keep to numpy, scipy and formulas"
    return "numpy and scipy"


def aligned(paper: Paper, name: str, run: Mapping[str, Any] | None) -> str:
    """Check that predictions have the dims and coords of the simulation."""
    theory = as_theory(name)
    simulation = _first_admitted(paper, theory) if run is None else Simulation.from_document(run)
    predicted = predict(simulation, theory=theory)
    simulated = simulate(simulation, progress=False)
    shared = [key for key in predicted.data_vars if key in simulated.data_vars]
    assert shared, f"prediction and simulation share no variable: {list(predicted.data_vars)}"
    for key in shared:
        here, there = predicted[key], simulated[key]
        assert here.dims == there.dims, f"{key}: predicted along {here.dims}, not {there.dims}"
        for dim in here.dims:
            same = np.array_equal(here[dim].values, there[dim].values)
            assert same, f"{key}: {dim} is {here[dim].values}, not {there[dim].values}"
        assert np.isfinite(here.values).all(), f"{key}: predicted values are not finite"
    origin = simulation.sets[0].origin or "its classes"
    return f"{', '.join(map(str, shared))} on {origin}, {simulation.model.called()}"


def samples(name: str) -> str:
    """Tokens are drawn as often as their probabilities say."""
    import jax

    classes = from_preset(name)
    rows = np.unique(np.linspace(0, len(classes) - 1, MOST_CLASSES).astype(int))
    worst, where = 0.0, ""
    sampler = count_sampler(classes, LENGTH)
    sequences = math.ceil(DRAWS / (LENGTH - 1))
    for row in rows:
        drawn = jax.numpy.full(sequences, row)
        counts = np.asarray(sampler.draw_counts(jax.random.key(int(row)), drawn))
        probabilities = classes.probabilities(int(row))
        total = counts[:, : probabilities.size].sum(axis=0).astype(np.float64)
        for p, count, token in _cells(probabilities, total, classes.support(int(row))):
            number = sequences * (LENGTH - 1)
            if p < 1.0:
                z = abs(count - number * p) / math.sqrt(number * p * (1 - p))
            else:
                z = 0.0 if count == number else math.inf
            if z > worst:
                worst, where = z, f"{token} in class {row}"
    assert worst <= MOST_APART, (
        f"{where} is {worst:.1f} standard deviations from its probability (at most {MOST_APART:g})"
    )
    return f"at most {worst:.1f} of {MOST_APART:g} standard deviations, {len(rows)} classes"


def claims_documented(paper: Paper, module: str) -> str:
    """Each claim of a module has an id, a source, a statement, and a docstring that says how it is
    tested; no other claim has its id."""
    found = claims_in(paper.load(module))
    assert found, f"{module} has no claim; take it out of paper.yaml"
    every = Counter(claim.id for claim in claims_of(paper.name))
    owners = {id: of.name for of in shelf().papers if of != paper for id in of.expected["claims"]}
    for claim in found:
        assert _CLAIM_ID.fullmatch(claim.id), f"{claim.id!r}: ids are words with - between them"
        assert every[claim.id] == 1, f"{claim.id}: {every[claim.id]} claims have this id; rename"
        owner = owners.get(claim.id)
        assert owner is None, f"{claim.id}: {owner} has a claim of this id; rename it"
        for key, wanted in (
            ("statement", "a statement"),
            ("source", "a source"),
            ("how", "a docstring"),
        ):
            assert getattr(claim, key), f"{claim.id}: has no {wanted[2:]}; write {wanted}"
    return f"{len(found)} claims"


def all_recorded(paper: Paper) -> str:
    """Every claim has a recorded verdict, and every recorded verdict a claim."""
    recorded = set(paper.expected["claims"])
    known = {claim.id for claim in claims_of(paper.name)}
    if not known:
        raise SkipTest("the paper has no claims")
    for names, words in ((known - recorded, "not in"), (recorded - known, "in nothing but")):
        assert not names, f"{', '.join(sorted(names))}: {words} expected.json; record the audit"
    return f"{len(known)} claims"


def verdict(paper: Paper, name: str) -> str:
    """The verdicts of a claim are those on record."""
    found = next((claim for claim in claims_of(paper.name) if claim.id == name), None)
    assert found is not None, f"there is no claim {name}; record the audit"
    finding = found.examine()
    recorded = found.recorded
    assert finding.as_recorded, (
        f"on paper {finding.verdict}, recorded {recorded.verdict}; in training {finding.training}, "
        f"recorded {recorded.training}"
    )
    return ", ".join(f"{of}" for of in (finding.verdict, finding.training) if of is not None)


def figure(paper: Paper, name: str) -> str:
    """A figure's data, judgement and picture can be made from the tiny recipe that it ships."""
    path = paper.recipe_file(name, "tiny")
    if not path.is_file():
        raise SkipTest(f"the paper ships no recipes/tiny/{name}.yaml")
    experiment = Reference(paper, paper.figures[name]).load()
    recipe = read_recipe(path, experiment.recipe)
    with tempfile.TemporaryDirectory() as keep:
        data = experiment.data(recipe, progress=False, keep=Path(keep))
    assert len(data.data_vars), "the data have no variable"
    judgement = experiment.judge(data)
    for key in ("headline", "summary", "alt"):
        assert getattr(judgement, key).strip(), f"the judgement has no {key}; write it"
    assert experiment.draw(data).axes, "the picture is empty"
    return f"{judgement.standing}: {judgement.headline}"


def links(paper: Paper) -> str:
    """Links of the page lead to files, or to headings of the page; others are not followed."""
    if paper.page is None:
        raise SkipTest("the paper has no page")
    page = paper.folder / paper.page
    assert page.is_file(), f"page: there is no {paper.page}; write it"
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    headings = {_anchor(line) for line in re.findall(r"^#+ +(.*)$", text, re.MULTILINE)}
    targets = _LINK.findall(text)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = unquote(target).partition("#")
        path = (page.parent / file).resolve()
        # the pages of attnlab lead to its documentation, which an installed attnlab has not
        lost = paper.package.startswith("attnlab.") and documentation() is None
        if file and not (lost and not path.is_relative_to(paper.folder)):
            assert path.exists(), f"{paper.page}: the link {target} leads nowhere"
        elif not file:
            assert anchor in headings, f"{paper.page}: there is no heading for #{anchor}"
    return f"{len(targets)} links"


def travels(paper: Paper) -> str:
    """Values reach a spawned process, pickled and by their names."""
    names = [(kind, name) for kind in TRAVELLING for name in getattr(paper, kind)]
    if not names:
        raise SkipTest("the paper has no theories, models or presets")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for kind, name in names:
            value = _value(kind, name)
            try:
                again, read = pool.submit(_in_worker, kind, name, pickle.dumps(value)).result()
            except Exception as problem:
                reason = f"{kind}.{name}: a spawned process cannot make it: {problem}"
                raise AssertionError(reason) from problem
            for found, how in ((again, "pickled"), (read, "by its name")):
                same = found == _told(kind, value)
                assert same, f"{kind}.{name}: another value arrives in a spawned process, {how}"
    return f"{len(names)} values"


def _in_worker(kind: str, name: str, pickled: bytes) -> tuple[Any, Any]:
    """In the spawned process: the value that was sent, and the one that documents give."""
    return _told(kind, pickle.loads(pickled)), _told(kind, _value(kind, name))


def _value(kind: str, name: str) -> Any:
    if kind == "theories":
        return as_theory(name)
    return as_value("model", {"name": name}, Model) if kind == "models" else from_preset(name)


def _told(kind: str, value: Any) -> Any:
    """Return a text that equal values share in every process."""
    if kind == "presets":
        return value.digest
    return plain(value, defaults=True) if kind == "models" else value.name


def _first_admitted(paper: Paper, theory: Theory) -> Simulation:
    """The first short run, on the paper's presets and models before others', that a theory is
    about."""
    refused: Exception = InputError("there is no preset")
    for simulation in _short_runs(paper):
        try:
            theory.check(simulation)
        except InputError as problem:
            refused = problem
        else:
            return simulation
    raise AssertionError(
        f"no preset gives a run that the theory is about ({refused}); name one under runs: in "
        "conformance.yaml"
    )


def _short_runs(paper: Paper) -> Iterator[Simulation]:
    own = list(paper.presets)
    fields: dict[str, Any] = {"steps": STEPS, "save": Save(what=("attention", "logits"))}
    models: list[Model] = [Pairwise(), *(_value("models", name) for name in paper.models)]
    for name in [*own, *(other for other in presets() if other not in own)]:
        try:
            classes = from_preset(name)
        except InputError:  # it asks for parameters
            continue
        if len(classes) * classes.vocab_size > MOST_NUMBERS:
            continue
        for engine in (Limit(), Flow()):
            for model in models:
                try:
                    yield Simulation(classes, engine, model, **fields)
                except InputError:  # of a model that does not go with the engine
                    continue


def _cells(p: Any, counts: Any, tokens: Any) -> Iterator[tuple[float, float, str]]:
    """Probability and count of each token, the rare ones together."""
    rare = p * DRAWS < SMALLEST
    for probability, count, token in zip(p[~rare], counts[~rare], tokens[~rare], strict=True):
        yield float(probability), float(count), f"token {token}"
    if p[rare].sum() * DRAWS >= SMALLEST:
        yield float(p[rare].sum()), float(counts[rare].sum()), "the rare tokens"


def _anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr.strip().split("\n")[-1]
    return done.stdout


def _takes(function: Any, *given: Any, **named: Any) -> bool:
    """Tell whether something can be called with these; it is not called."""
    try:
        inspect.signature(function).bind(*given, **named)
    except TypeError:  # it is not a function, or not of these
        return False
    return True


def _require(fits: object, found: Any, wanted: str) -> None:
    assert fits, f"expected {wanted}, got {type(found).__name__}; correct the reference"


def _require_name(found: str, name: str) -> None:
    assert found == name, f"its own name is {found!r}; let it be the one in paper.yaml, {name!r}"
