"""JoMA's claims: a source of their own, and formulas that could be wrong."""

import pytest

from attnlab import theory
from attnlab.auditing import CLAIMS, SOURCES, Verdict, claims_of, examine_all, select
from attnlab.auditing.built_in import PAPER
from attnlab.auditing.document import audit_document, finding_document
from attnlab.auditing.html import page
from attnlab.auditing.theorem_map import theorem_map
from attnlab.experiments.joma import joma_invariants
from attnlab.papers.joma.claims import runs
from attnlab.papers.joma.predict import IN_SIZE


def test_every_claim_has_one_source():
    assert sum((claims_of(source) for source in SOURCES), ()) == CLAIMS
    assert not {c.id for c in claims_of("joma")} & {c.id for c in claims_of(PAPER)}
    with pytest.raises(ValueError, match="source: 'jama' is not one; did you mean 'joma'"):
        claims_of("jama")


def test_what_was_not_read_in_print_says_so():
    assert all(claim.as_read for claim in claims_of("joma"))
    assert not any(claim.as_read for claim in claims_of(PAPER))
    (found,) = examine_all(select(["joma-tree"]))
    assert finding_document(found)["as_read"]
    assert ">exact</span>, as we read it<" in page(audit_document([found]))
    rows = [line for line in theorem_map().splitlines() if line.startswith("| **joma-")]
    assert len(rows) == 15
    assert all("**, as we read it" in row for row in rows)


def test_the_size_of_z_has_one_tolerance_and_twenty_draws_or_more():
    """The experiment joma_invariants judges by the same."""
    assert {claim.tolerance for claim in select(["joma-softmax", "joma-size"])} == {IN_SIZE}
    assert joma_invariants.IN_SIZE == IN_SIZE
    draws = runs.toy_draws()
    assert draws.sizes["draw"] == runs.DRAWS >= 20
    assert float(draws["moving"].isel(time=-1).std()) > 0.05  # which one draw does not show


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
