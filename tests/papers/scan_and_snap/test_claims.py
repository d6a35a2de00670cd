"""Every statement of "Scan and Snap" is a claim; what others say of it is kept apart."""

import pytest
import yaml

from attnlab.auditing import claims_of
from attnlab.auditing.claims import claims_in
from attnlab.shelf import paper

CLAIMS = claims_of("scan_and_snap")
NUMBERED = (
    *(f"lemma-{i}" for i in range(1, 19)),
    *(f"theorem-{i}" for i in range(1, 6)),
    *(f"corollary-{i}" for i in range(1, 3)),
    *(f"remark-{i}" for i in range(1, 5)),
    *(f"assumption-{i}" for i in range(1, 3)),
)


def test_every_numbered_statement_is_a_claim():
    ids = [claim.id for claim in CLAIMS]
    assert len(NUMBERED) == 18 + 5 + 2 + 4 + 2
    assert set(NUMBERED) <= set(ids)
    for source in ("poster", "slides", "summary"):
        assert any(source in text for claim in CLAIMS for text in claim.sources), source


def test_claims_and_records_have_the_same_ids():
    """Informal claims and equations with errors among them: none is lost on one side."""
    ids = [claim.id for claim in CLAIMS]
    assert ids == list(paper("scan_and_snap").expected["claims"])


@pytest.mark.parametrize("name", ["scan_and_snap", "joma"])
def test_texts_belong_to_the_claims_of_their_module(name):
    for file in (paper(name).folder / "claims").glob("*.yaml"):
        module = paper(name).load(f"claims.{file.stem}")
        texts = yaml.safe_load(file.read_text())
        assert set(texts) <= {claim.id for claim in claims_in(module)}, file.name


def test_it_was_read_in_print():
    readings = {(claim.ours, claim.reading) for claim in CLAIMS}
    assert readings == {(False, "printed text"), (True, "ours")}
    assert {claim.origin for claim in CLAIMS} == {
        "Scan and Snap",
        "our own questions about Scan and Snap",
        "its poster and slides",
        "a summary of it, not by the authors",
    }


def test_what_the_poster_repeats_is_one_claim_with_two_sources():
    (claim,) = (claim for claim in CLAIMS if claim.id == "corollary-2")
    assert claim.sources == ("Corollary 2", "poster and slides, (a)")
    assert claim.origin == "Scan and Snap"
