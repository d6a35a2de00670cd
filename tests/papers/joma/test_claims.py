"""JoMA's claims: known to us otherwise than in print, and formulas that could be wrong."""

import pytest

from attnlab.auditing import Verdict, claims_of, examine_all, select
from attnlab.auditing.claim_map import claim_map
from attnlab.auditing.document import audit_document, finding_document, page
from attnlab.experiments import recipe_for
from attnlab.papers.joma import theory
from attnlab.papers.joma.claims import runs
from attnlab.papers.joma.figures import invariants
from attnlab.papers.joma.predict import IN_SIZE


def test_what_was_not_read_in_print_says_so():
    claims = claims_of("joma")
    readings = {(claim.ours, claim.reading) for claim in claims}
    assert readings == {(False, "as we know it"), (True, "ours")}
    assert {claim.origin for claim in claims} == {
        "JoMA, as we know it",
        "our own questions about JoMA",
    }
    (found,) = examine_all(select(["joma-tree"]))
    assert finding_document(found)["reading"] == "as we know it"
    assert ">exact</span>, as we know it<" in page(audit_document([found]))
    rows = [line for line in claim_map().splitlines() if line.startswith("| **joma-")]
    assert len(rows) == 15
    assert all(("**, as we know it" in row) != ("** (ours)" in row) for row in rows)


def test_the_size_of_z_has_one_tolerance_and_is_over_twenty_draws_or_more():
    """The figure `invariants` judges by the same."""
    assert {claim.tolerance for claim in select(["joma-softmax", "joma-size"])} == {IN_SIZE}
    assert invariants.IN_SIZE == IN_SIZE
    assert min(runs.DRAWS, recipe_for("invariants").seeds, recipe_for("salience").draws) >= 20


@pytest.mark.parametrize(
    ("claim", "name"),
    [
        ("joma-tree", "tree_co_occurrence"),
        ("joma-delta", "discriminancy"),
        ("joma-ratio", "salient_ratio"),
    ],
)
def test_a_wrong_formula_is_noticed(monkeypatch, claim, name):
    (chosen,) = select([claim])
    right = getattr(theory, name)
    monkeypatch.setattr(theory, name, lambda *args, **kwargs: 1.02 * right(*args, **kwargs))
    assert chosen.examine().verdict is Verdict.FAILS
