"""The requirements of a paper, and the checks.

A check returns a note, and raises where the paper does not pass. SkipTest says that there is
nothing to check; test runners know it.
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
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal
from unittest import SkipTest
from urllib.parse import unquote

import numpy as np

from attnlab.auditing.catalogue import claims_of
from attnlab.auditing.claims import claims_in
from attnlab.experiments import Experiment, recipe_for
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.files.markdown import tokens
from attnlab.files.recipe import Named, as_value, plain, read_recipe
from attnlab.files.shipped import documentation
from attnlab.models import Model, Pairwise
from attnlab.shelf import Paper, Reference, shelf
from attnlab.shelf import paper as paper_called
from attnlab.shelf.papers import OFFERS, SINGLES, failure, lines_in
from attnlab.simulation import Flow, Motion, Population, Record, Simulation, Steps, simulate
from attnlab.tasks import Task
from attnlab.tasks.classes import SequenceClasses, count_sampler, from_preset
from attnlab.tasks.classes.presets import CONSTRUCTIONS, presets
from attnlab.tasks.text.agreement import Agreement
from attnlab.theory import Theory, as_theory, predict

SETTINGS = "conformance.yaml"

Standing = Literal["passed", "failed", "nothing to check", "fails as expected"]


# A token's count in DRAWS tokens is within this many standard deviations. The seed is fixed, so the
# draws are the same every time; by chance one count in 500 million would be outside.
MOST_APART = 6.0
DRAWS, LENGTH = 200_000, 129
SMALLEST = 20.0  # rarer tokens are counted together: their counts are not normal
MOST_CLASSES, MOST_NUMBERS = 64, 10**5  # of a preset, for a run that takes seconds
STEPS = 10
MOST_MINUTES = 0.5  # of a figure whose standing is found again
TRAVELLING = ("theories", "tasks", "models", "presets")
BASES: dict[str, type[Named]] = {"tasks": Task, "models": Model}

_ALONE = """
import pkgutil, sys
from attnlab.shelf import paper
for name in {names!r}:
    theory = paper(name).load("theory")
    for part in pkgutil.walk_packages(getattr(theory, "__path__", ()), theory.__name__ + "."):
        __import__(part.name)
print(*sorted({{"jax", "attnlab.simulation", "torch"}} & set(sys.modules)))
"""
_CLAIM_ID = re.compile(r"[a-z0-9]+([-.][a-z0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Contents of a paper's `conformance.yaml`.

    runs: by theory, the run on which prediction and simulation are compared, as a recipe has it.
    expected_failures: by requirement, the reason why it is not fulfilled.
    """

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    expected_failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Requirement:
    """One requirement: call it, and it raises where the paper does not fulfil it.

    Parameters
    ----------
    id : str
        Its name, such as ``"theory printed: predict and simulate align"``.
    check : callable
        Returns a note, raises SkipTest where the paper has nothing to check, else any exception.
    expected : str, optional
        Why it is expected to fail; it must fail then.
    folder : Path, optional
        The paper's folder: an exception names the lines in it.
    """

    id: str
    check: Callable[[], str] = field(repr=False)
    expected: str = ""
    folder: Path = field(default=Path(), repr=False)

    def __str__(self) -> str:
        return self.id

    def __call__(self) -> str:
        """Check it, and return a note on what was checked."""
        if not self.expected:
            return self.check()
        try:
            self.check()
        except SkipTest:
            raise
        except Exception as problem:
            return f"{self.expected} ({problem})"
        raise AssertionError(
            f"it was expected to fail ({self.expected}) and does not; take it out of {SETTINGS}"
        )


@dataclass(frozen=True)
class Outcome:
    """Result of a requirement: its standing, a note or the reason, and the seconds it took."""

    id: str
    standing: Standing
    note: str
    seconds: float

    @property
    def passed(self) -> bool:
        """True unless the requirement failed."""
        return self.standing != "failed"


def requirements(
    paper: Paper | str, *, verdicts: bool | Collection[str] = True
) -> list[Requirement]:
    """Return the requirements of a paper, without importing its code.

    Parameters
    ----------
    paper : Paper or str
        The paper, or its name.
    verdicts : bool or collection of str, optional
        True to check all recorded verdicts, and the standings of quick figures, which may take
        minutes; or the claims ("theorem-2") and figures ("paper/fig6") to check.

    Returns
    -------
    list of Requirement
        In the order in which an author will want to fulfil them.
    """
    known = paper_called(paper) if isinstance(paper, str) else paper
    path = known.folder / SETTINGS
    settings = read_recipe(path, Settings) if path.exists() else Settings()
    found = dict(_listed(known, settings, verdicts))
    every = found if verdicts is True else dict(_listed(known, settings, True))
    offers: dict[str, Any] = {"expected_failures": every, "runs": known.theories}
    for part, offered in offers.items():
        for name in getattr(settings, part).keys() - offered.keys():
            raise InputError(f"{path}: {part}: {name!r}: {did_you_mean(name, offered)}")
    return [
        Requirement(name, check, settings.expected_failures.get(name, ""), known.folder)
        for name, check in found.items()
    ]


def examine(requirement: Requirement) -> Outcome:
    """Check a requirement and return its outcome; nothing is raised but an interrupt.

    Parameters
    ----------
    requirement : Requirement
        One of `requirements`.
    """
    begun = time.perf_counter()
    standing: Standing = "fails as expected" if requirement.expected else "passed"
    try:
        note = requirement()
    except SkipTest as reason:
        standing, note = "nothing to check", str(reason)
    except Exception as problem:
        ours = isinstance(problem, (AssertionError, InputError))
        named = ours and not lines_in(problem, requirement.folder)
        standing, note = "failed", str(problem) if named else failure(problem, requirement.folder)
    return Outcome(requirement.id, standing, note, time.perf_counter() - begun)


def _listed(
    paper: Paper, settings: Settings, verdicts: bool | Collection[str]
) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "manifest", partial(manifest, paper)
    for kind in OFFERS:
        for name in getattr(paper, kind):
            yield f"reference {kind}.{name}", partial(reference_loads, paper, kind, name)
    for kind in SINGLES:
        if getattr(paper, kind) is not None:
            yield f"reference {kind}", partial(single_loads, paper, kind)
    yield "theory imports no simulator", partial(theory_alone, paper)
    for name in paper.theories:
        run = settings.runs.get(name)
        yield f"predict and simulate align: {name}", partial(aligned, paper, name, run)
    for name in paper.presets:
        yield f"samples agree with the population: {name}", partial(samples, name)
    for _, _, module in paper.claim_modules():
        words = f"claims have id, source and docstring: {module}"
        yield words, partial(claims_documented, paper, module)
    if not paper.claims:
        yield "claims have id, source and docstring", partial(nothing, "no claims")
    if verdicts:
        yield "every claim has a recorded verdict", partial(all_recorded, paper)
        for claim in paper.expected["claims"]:
            if verdicts is True or claim in verdicts:
                yield f"verdict as recorded: {claim}", partial(verdict, paper, claim)
    for name in paper.figures:
        yield f"figure on a tiny recipe: {name}", partial(figure, paper, name)
        if verdicts is True or (verdicts and f"{paper.name}/{name}" in verdicts):
            yield f"standing as recorded: {name}", partial(standing, paper, name)
    yield "links of the page", partial(links, paper)
    yield "values reach worker processes", partial(travels, paper)


def nothing(words: str) -> str:
    """Say that a paper has nothing of this kind."""
    raise SkipTest(f"the paper has {words}")


def manifest(paper: Paper) -> str:
    """Check that everything that `paper.yaml` names is there, and that no name is taken."""
    for fault in shelf().faults:
        assert fault.where != str(paper.folder), fault.reason
    for _, _, module in paper.claim_modules():
        path = paper.folder.joinpath(*module.split("."))
        there = path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
        assert there, f"claims: there is no module {module} in {paper.folder}; write it"
    recorded = paper.expected
    return f"on record: {len(recorded['claims'])} claims, {len(recorded['figures'])} figures"


def reference_loads(paper: Paper, kind: str, name: str) -> str:
    """Check that a reference leads to a value of its kind, under its own name."""
    found = Reference(paper, getattr(paper, kind)[name]).load()
    if kind == "theories":
        _require(isinstance(found, type) and issubclass(found, Theory), found, "a Theory class")
        _require_name(found().name, name)
    elif kind in BASES:
        base = BASES[kind]
        fits = isinstance(found, type) and issubclass(found, base)
        _require(fits, found, f"a {base.__name__} class")
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
    """Check that a single reference has the type, or the arguments, that attnlab needs."""
    found = Reference(paper, getattr(paper, kind)).load()
    is_maps = isinstance(found, Mapping) and bool(found) and all(map(_takes, found.values()))
    fits, wanted = {
        "agreement": (isinstance(found, Agreement), "an Agreement"),
        "opening": (isinstance(found, Experiment), "an Experiment"),
        "maps": (is_maps, "functions without arguments, by name"),
        "expectation": (
            _takes(found, "dataset", "text", names=None),
            "a function of (dataset, text, *, names)",
        ),
        "commentary": (
            _takes(found, "run", "tokens", "clocks"),
            "a function of (run, tokens, clocks)",
        ),
    }[kind]
    _require(fits, found, wanted)
    return ""


def theory_alone(*papers: Paper) -> str:
    """Check that the formulas import no simulator, else agreement is no evidence."""
    files = ("theory.py", "theory/__init__.py")
    names = [of.name for of in papers if any((of.folder / file).exists() for file in files)]
    if not names:
        raise SkipTest("the paper has no theory.py of its own")
    done = _python(_ALONE.format(names=names))
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
    model = "" if simulation.model is None else f", {simulation.model.called()}"
    return f"{', '.join(map(str, shared))} on {simulation.title}{model}"


def samples(name: str) -> str:
    """Check that tokens are drawn with their probabilities."""
    import jax

    classes = from_preset(name)
    rows = np.unique(np.linspace(0, len(classes) - 1, MOST_CLASSES).astype(int))
    worst, where = 0.0, ""
    sampler = count_sampler(classes, LENGTH)
    sequences = math.ceil(DRAWS / (LENGTH - 1))
    for row in rows:
        words = jax.random.bits(jax.random.key(int(row)), (sequences, sampler.words), "uint32")
        counts = np.asarray(sampler.counts(words, jax.numpy.full(sequences, row)))
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
    """Check that each claim of a module has an id of its own, a source and a docstring with the
    statement and how it is tested."""
    found = claims_in(paper.load(module))
    assert found, f"{module} has no claim; take it out of paper.yaml"
    every = Counter(claim.id for claim in claims_of(paper.name))
    owners = {id: of.name for of in shelf().papers if of != paper for id in of.expected["claims"]}
    for claim in found:
        assert _CLAIM_ID.fullmatch(claim.id), f"{claim.id!r}: ids are words with - between them"
        assert every[claim.id] == 1, f"{claim.id}: {every[claim.id]} claims have this id; rename"
        owner = owners.get(claim.id)
        assert owner is None, f"{claim.id}: {owner} has a claim of this id; rename it"
        assert claim.sources, f"{claim.id}: has no source; write a source"
        assert claim.statement and claim.how, (
            f"{claim.id}: write a docstring of two paragraphs: the statement, and how it is tested"
        )
    return f"{len(found)} claims"


def all_recorded(paper: Paper) -> str:
    """Check that every claim has a recorded verdict, and every recorded verdict a claim."""
    recorded = set(paper.expected["claims"])
    known = {claim.id for claim in claims_of(paper.name)}
    if not known:
        raise SkipTest("the paper has no claims")
    for names, words in ((known - recorded, "not in"), (recorded - known, "in nothing but")):
        assert not names, f"{', '.join(sorted(names))}: {words} expected.json; record the audit"
    return f"{len(known)} claims"


def verdict(paper: Paper, name: str) -> str:
    """Check that the verdicts of a claim are those on record."""
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
    """Make a figure's data, judgement and picture from the tiny recipe that it ships."""
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


def standing(paper: Paper, name: str) -> str:
    """Make a quick figure by its own recipe, and check that its standing is the one on record."""
    again = f"attnlab reproduce {paper.name}/{name} --record"
    if name not in paper.expected["figures"]:
        raise SkipTest(f"no standing is recorded; {again} records it")
    of = replace(Reference(paper, paper.figures[name]).load(), paper=paper)
    recipe = recipe_for(of)
    if recipe.minutes > MOST_MINUTES:
        raise SkipTest(f"takes {recipe.minutes:g} minutes; {again} compares it")
    recorded = paper.expected["figures"][name]["standing"]
    with tempfile.TemporaryDirectory() as keep:
        found = of.judge(of.data(recipe, progress=False, keep=Path(keep)))
    assert found.standing == recorded, (
        f"{found.standing}, recorded {recorded}: {found.headline}; if that is right, {again}"
    )
    return str(found.standing)


def links(paper: Paper) -> str:
    """Check that links of the page lead to files or to its headings; others are not followed."""
    if paper.page is None:
        raise SkipTest("the paper has no page")
    page = paper.folder / paper.page
    assert page.is_file(), f"page: there is no {paper.page}; write it"
    found = tokens(page.read_text(encoding="utf-8"))
    headings = {
        _anchor(of.content) for before, of in pairwise(found) if before.type == "heading_open"
    }
    parts = [part for token in found for part in token.children or ()]
    targets = [
        str(part.attrs[name]) for part in parts for name in ("href", "src") if name in part.attrs
    ]
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


def travels(*papers: Paper) -> str:
    """Check that values reach a spawned process, pickled and by their names."""
    names = [(kind, name) for of in papers for kind in TRAVELLING for name in getattr(of, kind)]
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
                same = found == _shown(kind, value)
                assert same, f"{kind}.{name}: another value arrives in a spawned process, {how}"
    return f"{len(names)} values"


def _in_worker(kind: str, name: str, pickled: bytes) -> tuple[Any, Any]:
    """Return, in the spawned process, the value that was sent and the one that documents give."""
    return _shown(kind, pickle.loads(pickled)), _shown(kind, _value(kind, name))


def _value(kind: str, name: str) -> Any:
    if kind == "theories":
        return as_theory(name)
    if kind in BASES:
        return as_value(kind.removesuffix("s"), {"name": name}, BASES[kind])
    return from_preset(name)


def _shown(kind: str, value: Any) -> Any:
    """Return a text that equal values share in every process."""
    if kind == "presets":
        return value.digest
    return plain(value, defaults=True) if kind in BASES else value.name


def _first_admitted(paper: Paper, theory: Theory) -> Simulation:
    """Return the first short run that a theory is about, the paper's presets and models first."""
    record = Record(what=("attention", "logits"))
    motions: tuple[Motion, ...] = (Steps(STEPS), Flow(STEPS))
    models: list[Model] = [Pairwise(), *(_value("models", name) for name in paper.models)]
    refused: Exception = InputError("there is no preset")
    for classes in _small_presets(paper):
        for motion, model in product(motions, models):
            try:
                run = Simulation(
                    classes, model, motion=motion, gradient=Population(), record=record
                )
                theory.check(run)
            except InputError as problem:
                refused = problem
            else:
                return run
    raise AssertionError(
        f"no preset gives a run that the theory covers ({refused}); name one under runs: in "
        "conformance.yaml"
    )


def _small_presets(paper: Paper) -> Iterator[SequenceClasses]:
    for name in dict.fromkeys([*paper.presets, *presets()]):
        with suppress(InputError):  # of one that asks for parameters
            classes = from_preset(name)
            if len(classes) * classes.vocab_size <= MOST_NUMBERS:
                yield classes


def _cells(p: Any, counts: Any, tokens: Any) -> Iterator[tuple[float, float, str]]:
    """Yield the probability and count of each token, the rare ones together."""
    rare = p * DRAWS < SMALLEST
    for probability, count, token in zip(p[~rare], counts[~rare], tokens[~rare], strict=True):
        yield float(probability), float(count), f"token {token}"
    if p[rare].sum() * DRAWS >= SMALLEST:
        yield float(p[rare].sum()), float(counts[rare].sum()), "the rare tokens"


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr.strip().split("\n")[-1]
    return done.stdout


def _takes(function: Any, *given: Any, **named: Any) -> bool:
    """Return True if something can be called with these arguments; it is not called."""
    try:
        inspect.signature(function).bind(*given, **named)
    except TypeError:  # it is not a function, or not of these
        return False
    return True


def _require(fits: object, found: Any, wanted: str) -> None:
    assert fits, f"expected {wanted}, got {type(found).__name__}; correct the reference"


def _require_name(found: str, name: str) -> None:
    assert found == name, f"its own name is {found!r}; let it be the one in paper.yaml, {name!r}"
