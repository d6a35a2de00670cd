"""Claims about runs: each distinct run is trained once, and a claim may hold in part."""

import json
from dataclasses import replace

import pytest
from made_papers import make_paper

from attnlab import Flow, Record, Simulation
from attnlab.auditing import Verdict, audit, claim, claims_of, examine_all, record
from attnlab.auditing import runs as trainings
from attnlab.auditing.document import audit_document, page
from attnlab.files.errors import InputError
from attnlab.shelf import VARIABLE
from attnlab.theory import Case, Check, Hypothesis
from attnlab.theory.relation import ABOVE, BELOW, EQUAL


def flow(time):
    return Simulation("syn-small", motion=Flow(time), record=Record(("logits", "loss")))


def long_enough(found):
    last = float(found["long"]["time"][-1])
    return (Hypothesis("here", "the run is long: its time", last, ABOVE, 1.0),)


@claim(
    BELOW,
    sources=("here", "there"),
    hypotheses=[long_enough],
    reading="as we know it",
    runs={"long": lambda: flow(4.0), "short": lambda: flow(2.0)},
)
def loss_falls(found):
    """The loss falls.

    Compare the last loss with the first, in both runs.
    """
    losses = {name: of["loss"].isel(seed=0).values for name, of in found.items()}
    return [
        Check(f"last loss, {name}", loss[0], loss[-1], training=True)
        for name, loss in losses.items()
    ]


@claim(EQUAL, sources="here", runs={"same": lambda: flow(2.0)})
def shared(found):
    """The same.

    Look at a run that another claim has trained.
    """
    return [Check("records", 101.0, found["same"].sizes["time"])]


@claim(BELOW, sources="here", runs={}, in_parts=True)
def halves(found):
    """$1 < 2$ and $2 < 1$.

    Compare numbers; nothing is trained.
    """
    assert found == {}
    return [Check("first", 2.0, 1.0), Check("second", 1.0, 2.0)]


@pytest.fixture
def trained(monkeypatch):
    """The runs that are trained from here on."""
    seen = []

    def counting(run, **settings):
        seen.append(run)
        return simulate(run, **settings)

    simulate = trainings.simulate
    monkeypatch.setattr(trainings, "simulate", counting)
    trainings.trained_run.cache_clear()
    return seen


def test_each_distinct_run_is_trained_once(trained):
    falls, same = examine_all([loss_falls, shared])
    assert trained == [flow(4.0), flow(2.0)]
    assert (falls.verdict, falls.training) == (None, Verdict.HOLDS)
    assert (same.verdict, same.training) == (Verdict.EXACT, None)
    assert [part.holds for part in falls.hypotheses] == [True]
    assert falls.case is None and falls.runs["long"] == flow(4.0)
    never = replace(
        loss_falls, hypotheses=(lambda found: (replace(long_enough(found)[0], bound=9),),)
    )
    assert never.examine().training is Verdict.OUTSIDE
    assert len(trained) == 2


def test_a_claim_may_hold_in_part():
    assert halves.examine().verdict is Verdict.PART
    assert replace(halves, in_parts=False).examine().verdict is Verdict.FAILS
    none = replace(halves, measure=lambda found: [Check("second", 1.0, 2.0)])
    assert none.examine().verdict is Verdict.FAILS


def test_its_document_names_its_runs():
    document = audit_document(examine_all([loss_falls, halves]))
    json.dumps(document, allow_nan=False)
    falls, parts = document["claims"]
    assert falls["case"] is None and falls["runs"]["short"]["motion"]["time"] == 2.0
    assert falls["source"] == "here; there" and parts["runs"] == {}
    shown = page(document)
    assert "runs: long, short" in shown and '<span class="badge in">in part</span>' in shown


def test_a_claim_about_runs_has_no_other_case():
    with pytest.raises(InputError, match="^claim: shared is tested on built-in runs only"):
        audit("syn-small", claims=[shared])
    case = Case(flow(1.0).sets[0], 1.0, 1.0, 1.0)
    with pytest.raises(InputError, match="^runs: shared has a case as well"):
        replace(shared, case=case)


CLAIMS = '''
from attnlab.auditing import claim
from attnlab.theory import Check
from attnlab.theory.relation import BELOW

@claim(BELOW, sources="here", runs={}, in_parts=True)
def made_part(found):
    """$1 < 2$.

    Compare numbers.
    """
    return [Check("first", 2.0, 1.0), Check("second", 1.0, 2.0)]
'''


def test_a_paper_s_verdict_in_part_goes_on_record(tmp_path, monkeypatch):
    claims = [{"section": "One", "modules": ["claims"]}]
    folder = make_paper(tmp_path, "in_part_paper", code={"claims": CLAIMS}, claims=claims)
    monkeypatch.setenv(VARIABLE, str(folder))
    (finding,) = examine_all(claims_of("in_part_paper"))
    assert not finding.as_recorded
    (path,) = record([finding])
    assert json.loads(path.read_text()) == {"claims": {"made-part": {"verdict": "in part"}}}
    (again,) = examine_all(claims_of("in_part_paper"))
    assert again.as_recorded
