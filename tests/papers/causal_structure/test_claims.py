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


@pytest.mark.parametrize("name", EVIDENCE.runs)
def test_numbers_on_file_are_of_their_runs(name):
    assert EVIDENCE.read(name).sizes["seed"] == (20 if name == "graphs" else 10)


def test_two_heads_divide_two_parents_between_them():
    of = EVIDENCE.read("two_parents").isel(step=-1)
    reads = of["attention"].values > 0.75  # seed head parent
    assert (reads.sum(1) == 1).all() and (reads.sum(2) == 1).all()
    assert (of["counts_excess"] < 0.03).all() and (of["one_parent_excess"] < -0.4).all()


@pytest.mark.parametrize(
    ("name", "measure", "at"),
    [
        ("chain", "parent_attention", {20: 0.93, 100: 0.990, 300: 0.997}),
        ("pairs", "root_entropy", {300: 0.80}),
        ("chain", "diagonal", {600: 1.6}),
        ("chain", "off_diagonal", {600: -0.3}),
        ("random", "off_diagonal", {600: -0.22}),
        ("sticky_0.5", "self_attention", {100: 0.97}),
        ("sticky_0.5", "parent_attention", {100: 0.015}),
        ("sticky_0.2", "parent_attention", {100: 0.97}),
        ("full", "parent_attention", {500: 0.26, 1000: 0.34, 2000: 0.58, 4000: 0.61}),
        ("full", "excess", {0: 0.098, 4000: 0.008}),
        ("full", "token_token", {4000: 0.44}),
        ("full", "token_position", {4000: 0.28}),
        ("graphs", "parent_attention", {16384: 0.837}),  # published
    ],
)
def test_numbers_measured_before_are_those_of_a_seed(name, measure, at):
    """Measured before by other code, one to three seeds: within three deviations and rounding."""
    of = EVIDENCE.read(name)[measure].sel(step=list(at))
    apart = abs(of.mean("seed") - list(at.values()))
    assert (apart <= 3 * of.std("seed", ddof=1) + 5e-3).all()


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
