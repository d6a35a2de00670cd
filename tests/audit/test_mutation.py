"""Every verdict could come out otherwise: with a wrong theory, claims notice.

Each mutation breaks one function of attnlab.theory; the claims named must change their verdict.
Only the claims about the residual connection train; the rest are algebra.
"""

import numpy as np
import pytest

from attnlab import theory
from attnlab.audit import Verdict, select


def scaled(name, factor):
    original = getattr(theory, name)
    return name, lambda *args, **kwargs: original(*args, **kwargs) * factor


def fixed_form(name):
    """The printed form whatever is asked for."""
    original = getattr(theory, name)
    return name, lambda *args, **kwargs: original(*args, **{**kwargs, "form": "printed"})


def tuple_scaled(name, factor):
    original = getattr(theory, name)

    def wrong(*args, **kwargs):
        value = original(*args, **kwargs)
        return type(value)(*(part * factor for part in value))

    return name, wrong


MUTATIONS = [
    ("lemma-6", *scaled("h", 1 + 1e-6), Verdict.FAILS),
    ("lemma-7", *scaled("h", 1.05), Verdict.FAILS),
    ("lemma-8", *scaled("omega_1", 1.1), Verdict.FAILS),
    ("lemma-9", *scaled("gamma", 2.0), Verdict.FAILS),
    ("lemma-10", *scaled("visits_radius", 0.3), Verdict.FAILS),
    ("lemma-11", *tuple_scaled("decoder_deviations", 0.5), Verdict.FAILS),
    ("lemma-13", *tuple_scaled("spectrum_bounds", 0.9), Verdict.FAILS),
    ("lemma-14", *fixed_form("e_prime"), Verdict.FAILS),
    ("lemma-15", *tuple_scaled("spectrum_bounds", 0.9), Verdict.FAILS),
    ("lemma-16", *fixed_form("e_prime"), Verdict.FAILS),
    ("lemma-17", *fixed_form("e_prime"), Verdict.FAILS),
    ("lemma-18", *tuple_scaled("frequency_interval", 0.9), Verdict.FAILS),
    ("lemma-3", *fixed_form("e_prime"), Verdict.FAILS),
    ("theorem-5", *scaled("decoder_weights", 1.001), Verdict.FAILS),
    ("e-prime", *fixed_form("e_prime"), Verdict.FAILS),
    ("eq-88", *fixed_form("back_gradient"), Verdict.FAILS),
    ("theorem-1a", *scaled("xi", -1.0), Verdict.FAILS),
    ("theorem-1b", *scaled("gamma", 1.5), Verdict.FAILS),
    ("eq-124", *fixed_form("growth_bound"), Verdict.FAILS),
    ("eq-128", *scaled("reduced_time", 1 + 1e-8), Verdict.FAILS),
    ("poster-start", *fixed_form("growth_bound"), Verdict.FAILS),
    ("poster-common", *scaled("attention_velocity", -1.0), Verdict.FAILS),
    ("residual-beta", *fixed_form("residual_velocity"), Verdict.FAILS),
    ("residual-local-roles", *scaled("residual_velocity", -1.0), Verdict.FAILS),
    ("remark-2", *scaled("h_lead", 0.0), Verdict.HOLDS),
    ("eq-62", *scaled("h", 0.5), Verdict.HOLDS),
]


@pytest.mark.parametrize(
    ("claim", "name", "wrong", "verdict"),
    MUTATIONS,
    ids=[f"{claim} without {name}" for claim, name, *_ in MUTATIONS],
)
def test_a_wrong_theory_changes_the_verdict(monkeypatch, claim, name, wrong, verdict):
    (claim,) = select([claim])
    monkeypatch.setattr(theory, name, wrong)
    assert claim.examine().verdict is verdict


def test_other_classes_can_bring_a_claim_within_its_assumptions():
    """Assumption 2 is outside in Fig. 3's setting because of that setting, not by decree."""
    from attnlab.audit.settings import WEAK

    (claim,) = select(["assumption-2"])
    assert claim.examine().verdict is Verdict.OUTSIDE
    assert claim.examine(WEAK).verdict is not Verdict.OUTSIDE
    assert np.all([part.holds for part in claim.examine(WEAK).hypotheses])
