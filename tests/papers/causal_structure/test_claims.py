"""Claims of causal structure: whose they are, numbers on file, and formulas that could be wrong."""

from dataclasses import replace

import numpy as np
import pytest

from attnlab import Steps, simulate
from attnlab.auditing import Verdict, claims_of, select
from attnlab.papers.causal_structure import runs, theory
from attnlab.papers.causal_structure.evidence import EVIDENCE


def test_every_row_of_the_notes_is_a_claim_that_says_how_we_know_it():
    claims = claims_of("causal_structure")
    assert len(claims) == 17
    assert {claim.reading for claim in claims if not claim.ours} == {"as we know it"}
    assert {claim.reading for claim in claims if claim.ours} == {"ours"}
    assert {claim.id for claim in claims if claim.ours} == {
        "causal-first-gradient",
        "causal-size",
        "causal-processing",
        "causal-siblings",
        "causal-bounded",
        "causal-constant-mean",
        "causal-levels",
        "causal-order",
    }
    assert all(claim.sources and claim.how and claim.test for claim in claims)


def test_a_wrong_formula_is_noticed(monkeypatch):
    (chosen,) = select(["causal-siblings"])
    monkeypatch.setitem(theory.KINSHIPS, "sibling", (1, 2))
    assert chosen.examine().verdict is Verdict.FAILS


@pytest.mark.parametrize("name", [name for name in EVIDENCE.runs if EVIDENCE.file(name).exists()])
def test_numbers_on_file_are_of_their_runs(name):
    assert EVIDENCE.read(name).sizes["seed"] == (20 if name == "graphs" else 10)


def test_a_recorded_seed_is_trained_again():
    run, at = EVIDENCE.runs["random"](), [0, 1, 5, 20]
    short = replace(run, motion=Steps(20), seeds=1, record=replace(run.record, at=at))
    found = runs.measured(simulate(short, progress=False))
    kept = EVIDENCE.read("random").sel(seed=[0], step=at)
    for name in found:
        np.testing.assert_allclose(found[name], kept[name], rtol=1e-4)


def test_where_the_position_itself_wins():
    """E g of self is r (S - 1); the parent still wins where the sticky part is small."""
    sticky = {r: theory.sample_chains(3, 1.0, 4000, stickiness=r) for r in (0.05, 0.5)}
    for r, pi in sticky.items():
        own = theory.kinship_kernel(pi, "self").mean()
        assert own == pytest.approx(2 * r, abs=0.02)
        assert (own > theory.kinship_kernel(pi, "parent").mean()) == (r == 0.5)
    of = theory.sample_sequences(np.arange(9) - 1, 3, 1.0, 8192, stickiness=0.5)
    rows = theory.first_gradient(of, np.zeros((10, 10)), eps=0.05)[1:9]
    assert [int(row[: i + 2].argmax()) for i, row in enumerate(rows)] == list(range(1, 9))
