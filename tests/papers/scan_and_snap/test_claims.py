"""Every statement of "Scan and Snap" is a claim; what others say of it is kept apart."""

from attnlab.auditing import claims_of

CLAIMS = claims_of("scan_and_snap")
NUMBERED = (
    *(f"lemma-{i}" for i in range(1, 19)),
    *(f"theorem-{i}" for i in range(1, 6)),
    *(f"corollary-{i}" for i in range(1, 3)),
    *(f"remark-{i}" for i in range(1, 5)),
    *(f"assumption-{i}" for i in range(1, 3)),
)
WORDS = (  # the informal claims of Sections 3 to 9, and equations with errors
    "frequency-bias",
    "discriminative-bias",
    "no-winner-takes-all",
    "scan-and-snap",
    "snap-time",
    "both-rates-sparser",
    "eta-y-denser",
    "fig6-threshold",
    "residual-beta",
    "residual-local-roles",
    "position-bias",
    "heads-as-starts",
    "theorem-1a",
    "theorem-1b",
    "theorem-1-plain",
    "e-prime",
    "eq-12",
    "eq-13",
    "eq-52",
    "eq-58",
    "eq-62",
    "eq-88",
    "eq-124",
    "eq-128",
    "eq-132",
    "eq-93",
    "finite-length",
    "row-sums",
    "embedding-norm",
    "layer-norm",
    "y-star",
    "small-modification",
    "after-eq-30",
    "lemma-7-proof",
    "assumption-2-floor",
    "distinct-attention",
    "several-common-tokens",
    "two-fates",
    "b-at-t0",
    "eq-132-condition",
    "eq-133",
    "fig7-freezes",
    "fig10-rate",
    "fig11-recall",
    "fig12-recall",
    "recall-sparsity",
    "residual-exact",
    "multilayer-remark",
    "poster-faster",
    "poster-slightly",
    "fig4-eta-y",
    "fig6-eta-z",
    "eq-86",
    "eq-87",
    "eq-89",
    "eq-90",
    "full-rank",
    "corollary-1-sigma",
    "theorem-4-chi",
    "fig10-wikitext-103",
)


def test_every_numbered_statement_is_a_claim():
    ids = [claim.id for claim in CLAIMS]
    assert len(NUMBERED) == 18 + 5 + 2 + 4 + 2
    assert set(NUMBERED) <= set(ids)
    assert set(WORDS) <= set(ids)
    for source in ("poster", "slides", "summary"):
        assert any(source in text for claim in CLAIMS for text in claim.sources), source


def test_it_was_read_in_print():
    assert {claim.reading for claim in CLAIMS} == {"printed text"}
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
