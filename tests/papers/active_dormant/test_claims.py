"""Claims: whose they are, and formulas that could be wrong."""

import numpy as np
import xarray as xr

from attnlab.auditing import Verdict, claims_of, select
from attnlab.experiments import Evidence
from attnlab.papers.active_dormant import theory


def test_every_row_of_the_notes_is_a_claim_that_says_how_we_know_it():
    claims = claims_of("active_dormant")
    assert len(claims) == 22
    assert {claim.reading for claim in claims if not claim.ours} == {"as we know it"}
    assert {claim.reading for claim in claims if claim.ours} == {"ours"}
    assert {claim.id for claim in claims if claim.ours} == {
        "ad-gradient",
        "ad-constant",
        "ad-end",
        "ad-late",
        "ad-spread",
        "ad-bare",
        "ad-three-sink",
    }
    assert all(claim.sources and claim.how and claim.test for claim in claims)


def test_a_wrong_formula_is_noticed(monkeypatch):
    (chosen,) = select(["ad-stationary"])
    right = theory.concentrated_value
    assert chosen.examine().verdict is Verdict.HOLDS
    monkeypatch.setattr(theory, "concentrated_value", lambda *of, **by: 1.01 * right(*of, **by))
    assert chosen.examine().verdict is Verdict.FAILS


def examined(monkeypatch, id, found):
    """Return the finding of a claim where these numbers are on file, whatever the run."""
    monkeypatch.setattr(Evidence, "read", lambda self, name: found)
    return select([id])[0].examine()


def by_layer(*values):
    """Return values of three layers at one step, for three seeds."""
    noise = 1e-3 * np.arange(3)[:, None, None]
    return (("seed", "step", "layer"), np.tile(np.array(values)[None, None], (3, 1, 1)) + noise)


def test_three_layers_by_hand(monkeypatch):
    found = xr.Dataset(
        {
            "sink_at_others": by_layer(0.05, 0.9, 0.05),
            "sink_at_triggers": by_layer(0.5, 0.01, 0.5),
            "previous_at_triggers": by_layer(0.1, 0.9, 0.1),
            "drain": by_layer(2.0, 0.3, 2.0),
            "peak": by_layer(3.0, 3.0, 1.0),
            "peak_without_first": by_layer(1.0, 1.0, 1.0),
            "sink_logit": by_layer(0.0, 8.0, 0.0),
            "sink_logit_without_first": by_layer(0.0, 1.0, 0.0),
            "first_value": by_layer(2.0, 1.0, 2.0),
            "first_value_without_first": by_layer(2.0, 5.0, 2.0),
        },
        {"step": [2000], "layer": [0, 1, 2]},
    )
    expected = {
        "ad-three-sink": Verdict.HOLDS,
        "ad-first-block": Verdict.HOLDS,
        "ad-peak": Verdict.PART,  # SGD as well
        "ad-relu-peak": Verdict.FAILS,
    }
    for name, verdict in expected.items():
        assert examined(monkeypatch, name, found).training is verdict
    idle = found.assign(sink_logit_without_first=found["sink_logit"])
    assert examined(monkeypatch, "ad-first-block", idle).training is Verdict.PART
