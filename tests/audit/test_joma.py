"""JoMA's claims: a source of their own, and formulas that could be wrong."""

import pytest

from attnlab import theory
from attnlab.audit import CLAIMS, SOURCES, Verdict, claims_of, select
from attnlab.audit.built_in import PAPER


def test_every_claim_has_one_source():
    assert sum((claims_of(source) for source in SOURCES), ()) == CLAIMS
    assert not {c.id for c in claims_of("joma")} & {c.id for c in claims_of(PAPER)}
    with pytest.raises(ValueError, match="source: 'jama' is not one; did you mean 'joma'"):
        claims_of("jama")


def test_what_is_known_from_memory_says_so():
    for claim in claims_of("joma"):
        assert "memory" in claim.source or claim.ours, claim.id


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
