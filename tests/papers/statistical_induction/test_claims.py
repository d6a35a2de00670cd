"""Claims: whose they are, and formulas that could be wrong."""

import numpy as np
import pytest
import xarray as xr

from attnlab.auditing import Verdict, claims_of, select
from attnlab.papers.statistical_induction import theory
from attnlab.papers.statistical_induction.claims import minimal, transformer


def test_every_row_of_the_notes_is_a_claim_that_says_how_we_know_it():
    claims = claims_of("statistical_induction")
    assert len(claims) == 20
    assert {claim.reading for claim in claims if not claim.ours} == {"as we know it"}
    assert {claim.reading for claim in claims if claim.ours} == {"ours"}
    assert {claim.id for claim in claims if claim.ours} == {
        "si-minimal-end",
        "si-avoids",
        "si-eight-symbols",
    }
    assert all(claim.sources and claim.how and claim.test for claim in claims)


def test_a_wrong_gradient_is_noticed(monkeypatch):
    (chosen,) = select(["si-silent"])
    right = theory.gradient
    assert chosen.examine().verdict is Verdict.EXACT
    monkeypatch.setattr(theory, "gradient", lambda *of, **_: right(*of, linear=True))
    assert chosen.examine().verdict is Verdict.FAILS


def test_chains_repeat_with_a_weight_on_the_diagonal():
    even, repeating = (minimal.sticky(3, weight, 0) for weight in (0.0, 2.0))
    np.testing.assert_allclose(even.mean(0), 1 / 3, atol=0.02)
    assert np.trace(repeating.mean(0)) / 3 == pytest.approx(3 / 5, abs=0.02)


def test_a_transition_by_hand():
    kl = [[0.28, 0.18, 0.17, 0.16, 0.10, 0.08, 0.08], [0.28, 0.16, 0.14, 0.12, 0.11, 0.09, 0.08]]
    found = xr.Dataset({"kl": (("seed", "step"), kl)}, {"step": np.arange(0, 210, 30)})
    leaves, takes = transformer.transition(found)
    assert leaves.tolist() == [90, 30]
    assert takes.tolist() == [60, 120]
