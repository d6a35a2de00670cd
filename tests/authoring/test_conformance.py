"""Requirements of a paper: each requirement fails where it should.

Our own papers fulfil them all: tests/papers/test_conformance.py.
"""

import re
from zlib import crc32

import pytest
import yaml
from made_papers import make_paper

from attnlab.authoring import Requirement, examine, requirements
from attnlab.files.errors import InputError
from attnlab.shelf import VARIABLE, add_folder, papers


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make a paper with these parts, and say what came of a requirement."""
    monkeypatch.setenv(VARIABLE, "")  # which is put back
    papers._find.cache_clear()
    count = iter(range(100))

    def outcome(wanted, *, settings=None, files=None, **parts):
        folder = make_paper(
            tmp_path, f"asked_{next(count)}_{crc32(tmp_path.name.encode())}", **parts
        )
        monkeypatch.setenv(VARIABLE, "")  # the papers before it offer the same names
        for name, text in (files or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if settings is not None:
            (folder / "conformance.yaml").write_text(yaml.safe_dump(settings))
        listed = {of.id: of for of in requirements(add_folder(folder))}
        return examine(listed[wanted])

    yield outcome
    papers._find.cache_clear()


THEORY = """
from attnlab.theory import ClassTheory
class {name}(ClassTheory):
    name = "{called}"
    def assumptions(self, case): return ()
    def predict(self, case, t):
        return {{"attention_logits": (("time", "query", "token"), {values})}}
"""


def theory(called="still", values="0.0 * t[:, None, None] + 0.0 * case.P[None, :1]"):
    return THEORY.format(name="Still", called=called, values=values)


def test_a_theory_is_loaded_by_its_own_name(made):
    theories = {"still": "predict:Still"}
    found = made("reference theories.still", code={"predict": theory()}, theories=theories)
    assert found.standing == "passed"
    for code, words in {
        theory("other"): "its own name is 'other'; let it be the one in paper.yaml, 'still'",
        "Still = 3": "expected a Theory class, got int",
        "Stil = 3": "predict has no 'Still'",
        "import nothing_at_all": "No module named 'nothing_at_all'",
    }.items():
        found = made("reference theories.still", code={"predict": code}, theories=theories)
        assert found.standing == "failed" and words in found.note


def test_presets_models_and_figures_are_what_they_should_be(made):
    code = {"a": "value = 3\ndef three(): return 3"}
    for wanted, offers, words in (
        ("presets.one", {"presets": {"one": "a:three"}}, "a function that makes SequenceClasses"),
        ("presets.zipf", {"presets": {"zipf": "a:three"}}, "a preset of attnlab's own; rename it"),
        ("models.one", {"models": {"one": "a:value"}}, "expected a Model class, got int"),
        ("figures.one", {"figures": {"one": "a:value"}}, "expected an Experiment, got int"),
        ("commentary", {"commentary": "a:valeu"}, "a has no 'valeu'; correct it in"),
    ):
        found = made(f"reference {wanted}", code=code, **offers)
        assert found.standing == "failed" and words in found.note


SINGLES = """
from attnlab.experiments import Experiment, ExperimentRecipe
from attnlab.tasks.text.agreement import Agreement
value = 3
def told(dataset, text=None, *, names=None): return []
def conclude(run, tokens, clocks): return None
def made(): return None
def asks(size): return None
MAPS, NONE, ASKING = {"one": made}, {}, {"one": made, "two": asks}
AGREEMENT = Agreement(measure=made, summarise=made, in_words=made, draw=made)
FIRST = Experiment(
    name="first", title="First", recipe=ExperimentRecipe, data=made, judge=made, draw=made
)
"""


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "words"),
    [
        ("agreement", "AGREEMENT", ("told", "value"), "expected an Agreement, got "),
        ("opening", "FIRST", ("made", "AGREEMENT"), "expected an Experiment, got "),
        ("maps", "MAPS", ("NONE", "ASKING", "made"), "functions without arguments, by name, got"),
        ("expectation", "told", ("conclude", "value"), "a function of (dataset, text, *, names)"),
        ("commentary", "conclude", ("told", "value"), "a function of (run, tokens, clocks)"),
    ],
)
def test_single_references_are_what_attnlab_asks_for(made, kind, right, wrong, words):
    found = made(f"reference {kind}", code={"a": SINGLES}, **{kind: f"a:{right}"})
    assert found.standing == "passed", found.note
    for name in wrong:
        found = made(f"reference {kind}", code={"a": SINGLES}, **{kind: f"a:{name}"})
        assert found.standing == "failed" and words in found.note


@pytest.mark.slow
def test_formulas_that_import_the_simulator(made):
    wanted = "theory imports no simulator"
    assert made(wanted).standing == "nothing to check"
    assert made(wanted, code={"theory": "import numpy"}).standing == "passed"
    for code in ({"theory": "import jax"}, {"theory.__init__": "", "theory.deep": "import jax"}):
        found = made(wanted, code=code)
        assert found.standing == "failed" and "theory imports jax" in found.note
    found = made("reference presets.one", code={"a": "def b(): 1 / 0"}, presets={"one": "a:b"})
    assert found.standing == "failed" and found.note.startswith("a.py:1: ZeroDivisionError")
    found = made(wanted, code={"theory": "1 / 0"})
    assert found.standing == "failed" and "division by zero" in found.note


def test_predictions_align_with_the_run(made):
    wanted, theories = "predict and simulate align: still", {"still": "predict:Still"}
    run = {"task": "syn-small", "gradient": "population", "motion": {"name": "steps", "steps": 3}}
    good = theory(values="0.0 * t[:, None, None] + [[[0.0] * 30] * 2]")
    found = made(
        wanted, code={"predict": good}, theories=theories, settings={"runs": {"still": run}}
    )
    assert found.standing == "passed" and "attention" in found.note
    bad = theory(values="float('nan') * t[:, None, None] + [[[0.0] * 30] * 2]")
    found = made(
        wanted, code={"predict": bad}, theories=theories, settings={"runs": {"still": run}}
    )
    assert found.standing == "failed"
    silent = theory() + "    def check(self, run): raise ValueError('of nothing')"
    silent = silent.replace(
        "ValueError", "__import__('attnlab.files.errors').files.errors.InputError"
    )
    found = made(wanted, code={"predict": silent}, theories=theories)
    assert found.standing == "failed" and "no preset gives a run" in found.note


@pytest.mark.slow
def test_samples_that_are_not_as_likely_as_they_say(made, monkeypatch):
    from attnlab.authoring import conformance as checks
    from attnlab.tasks.classes import from_preset

    assert checks.samples("syn-small")
    other = from_preset("single-common:num_classes=2,distinct=3,common_prob=0.1,vocab_size=40")
    near = from_preset("single-common:num_classes=2,distinct=3,common_prob=0.11,vocab_size=40")
    monkeypatch.setattr(checks, "from_preset", lambda name: other)
    sampler = checks.count_sampler(near, checks.LENGTH)
    monkeypatch.setattr(checks, "count_sampler", lambda classes, length: sampler)
    with pytest.raises(AssertionError, match="standard deviations from its probability"):
        checks.samples("other")


CLAIMS = """
from attnlab.auditing import Measurement, claim
from attnlab.tasks.classes import from_preset
from attnlab.theory import Case, Check
from attnlab.theory.relation import BELOW
CASE = Case(from_preset("syn-small"), 1.0, 1.0, 1.0)
@claim(BELOW, {source} case=CASE)
def one_below_two(case):
    {docstring}
    return Measurement(Check("one", 2.0, {measured}))
"""


def claims(source='sources="here",', docstring='"""$1 < 2$.\n\n    Compare."""', measured="1.0"):
    text = CLAIMS.format(source=source, docstring=docstring, measured=measured)
    return {"code": {"claims": text}, "claims": [{"section": "One", "modules": ["claims"]}]}


def test_claims_are_documented(made):
    wanted = "claims have id, source and docstring: claims"
    assert made(wanted, **claims()).note == "1 claims"
    for parts, words in (
        (claims(source=""), "one-below-two: has no source; write a source"),
        (claims(docstring=""), "one-below-two: write a docstring of two paragraphs"),
        (claims(docstring='"""Compare."""'), "one-below-two: write a docstring of two"),
        (claims() | {"code": {"claims": ""}}, "claims has no claim; take it out of paper.yaml"),
    ):
        found = made(wanted, **parts)
        assert found.standing == "failed" and words in found.note
    found = made("manifest", **claims() | {"code": {}})
    assert found.standing == "failed" and "there is no module claims" in found.note


def test_verdicts_are_those_on_record(made):
    recorded = {"expected": {"claims": {"one-below-two": {"verdict": "holds"}}}}
    wanted = "verdict as recorded: one-below-two"
    found = made(wanted, **claims(), **recorded)
    assert found.standing == "passed" and found.note == "holds"
    found = made(wanted, **claims(measured="3.0"), **recorded)
    assert found.standing == "failed" and "recorded holds" in found.note
    found = made("every claim has a recorded verdict", **claims())
    assert found.standing == "failed" and "one-below-two: not in expected.json" in found.note


FIGURE = """
import xarray as xr
from attnlab.experiments import Experiment, ExperimentRecipe, Judgement, Standing
def data(recipe, *, progress=False, keep=None): return xr.Dataset({"a": 1.0})
def judge(found): return Judgement(Standing.HOLDS, "It holds.", "It holds.", "A line.", {})
EXPERIMENT = Experiment(
    name="one", title="One", recipe=ExperimentRecipe, data=data, judge=judge, draw=None
)
"""
RECIPE = (
    "figure: one\nabout: It.\nhardware: two cores\nminutes: {}\nregression_bounds: {{a: [0, 1]}}"
)


@pytest.mark.parametrize(
    ("recorded", "minutes", "standing", "words"),
    [
        ("holds", 0.1, "passed", "holds"),
        ("fails", 0.1, "failed", "holds, recorded fails: It holds.; if that is right, attnlab"),
        ("fails", 20, "nothing to check", "takes 20 minutes; attnlab reproduce"),
        (None, 0.1, "nothing to check", "no standing is recorded"),
    ],
)
def test_standings_of_quick_figures_are_those_on_record(made, recorded, minutes, standing, words):
    figures = {} if recorded is None else {"one": {"standing": recorded, "numbers": {}}}
    found = made(
        "standing as recorded: one",
        code={"figures": FIGURE},
        figures={"one": "figures:EXPERIMENT"},
        expected={"figures": figures},
        files={"recipes/one.yaml": RECIPE.format(minutes)},
    )
    assert found.standing == standing and words in found.note


def test_links_of_the_page(made):
    for text, words in {
        "# A page\n\n[up](#a-page) [out](https://example.org) [here](paper.yaml)": None,
        "`[a](nowhere.md)`": None,
        "[a](nowhere.md)": "page.md: the link nowhere.md leads nowhere",
        "[a](#nothing)": "page.md: there is no heading for #nothing",
    }.items():
        found = made("links of the page", page="page.md", files={"page.md": text})
        assert (found.standing == "passed") == (words is None)
        assert words is None or words in found.note
    assert "there is no page.md" in made("links of the page", page="page.md").note
    assert made("links of the page").standing == "nothing to check"


@pytest.mark.slow
def test_values_that_do_not_reach_other_processes(made):
    code = """
import os
from attnlab.tasks.classes import SequenceClasses
def pair():
    shared = 0.5 if os.getpid() == {} else 0.4
    rows = [{{0: shared, 1: 1 - shared}}, {{0: shared, 2: 1 - shared}}]
    return SequenceClasses(rows, query=[3, 3], next_token=[4, 5], vocab_size=6)
"""
    import os

    presets = {"asked-pair": "classes:pair"}
    found = made(
        "values reach worker processes", code={"classes": code.format(os.getpid())}, presets=presets
    )
    assert found.standing == "failed" and "another value arrives in a spawned process" in found.note


def test_expected_failures_are_strict(made):
    reason = {"links of the page": "the page comes later"}
    settings = {"expected_failures": reason}
    found = made("links of the page", page="page.md", settings=settings)
    assert found.passed and found.standing == "fails as expected" and "comes later" in found.note
    found = made("links of the page", page="page.md", settings=settings, files={"page.md": "# P"})
    assert not found.passed and "was expected to fail" in found.note
    with pytest.raises(
        InputError, match=re.escape("expected_failures: 'links of a page': did you mean")
    ):
        made("manifest", settings={"expected_failures": {"links of a page": "x"}})
    with pytest.raises(InputError, match="expected_failure: unknown key"):
        made("manifest", settings={"expected_failure": {}})
    with pytest.raises(InputError, match="runs: 'printed'"):
        made("manifest", settings={"runs": {"printed": {}}})


def test_a_bug_is_named_by_its_type():
    def broken():
        raise KeyError("x")

    found = examine(Requirement("one", broken))
    assert found.standing == "failed" and found.note == "KeyError: 'x'"
