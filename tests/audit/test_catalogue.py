"""The catalogue is complete, and what it points at is there."""

import ast
import re
import string
from pathlib import Path

import pytest

from attnlab import theory
from attnlab.auditing import CLAIMS, NUMBERED, SECTIONS, Verdict, claims_of, select
from attnlab.auditing.catalogue import ORIGINS, Origin
from attnlab.files.mathematics import dollars, typeset

ROOT = Path(__file__).parents[2]
WORDS = (  # the informal claims of Sections 3 to 9, and equations with errors
    "frequency-bias", "discriminative-bias", "no-winner-takes-all", "scan-and-snap", "snap-time",
    "both-rates-sparser", "eta-y-denser", "fig6-threshold", "residual-beta",
    "residual-local-roles", "position-bias", "heads-as-starts", "theorem-1a", "theorem-1b",
    "theorem-1-plain", "e-prime", "eq-12", "eq-13", "eq-52", "eq-58", "eq-62", "eq-88", "eq-124",
    "eq-128", "eq-132", "eq-93", "finite-length", "row-sums", "embedding-norm", "layer-norm",
    "y-star", "small-modification", "after-eq-30", "lemma-7-proof", "assumption-2-floor",
    "distinct-attention", "several-common-tokens", "two-fates", "b-at-t0", "eq-132-condition",
    "eq-133", "fig7-freezes", "fig10-rate", "fig11-recall", "fig12-recall", "recall-sparsity",
    "residual-exact", "multilayer-remark", "poster-faster", "poster-slightly", "fig4-eta-y",
    "fig6-eta-z", "eq-86", "eq-87", "eq-89", "eq-90", "full-rank", "corollary-1-sigma",
    "theorem-4-chi", "fig10-wikitext-103",
)  # fmt: skip


def test_every_numbered_statement_is_a_claim():
    ids = [claim.id for claim in CLAIMS]
    assert len(NUMBERED) == 18 + 5 + 2 + 4 + 2
    assert set(NUMBERED) <= set(ids)
    assert set(WORDS) <= set(ids)
    for source in ("poster", "slides", "summary"):
        assert any(source in claim.source for claim in CLAIMS), source
    assert len(ids) == len(set(ids))
    assert sum(len(section) for section in SECTIONS.values()) == len(CLAIMS)


def test_what_others_say_is_never_counted_as_the_papers():
    assert set(ORIGINS) == {claim.id for claim in CLAIMS}
    elsewhere = ("poster", "slides", "summary", "JoMA", "Scan and Snap")
    for claim in CLAIMS:
        by_the_paper = not claim.ours and not claim.source.startswith(elsewhere)
        assert (ORIGINS[claim.id] is Origin.PAPER) == by_the_paper, claim.id
    assert {ORIGINS[claim.id] for claim in claims_of("joma")} == {Origin.JOMA, Origin.OURS_JOMA}
    assert set(ORIGINS.values()) == set(Origin)


WITHOUT_FORMULA = (
    "adam-subsets", "discriminative-bias", "distinct-attention", "fig10-rate",
    "fig10-wikitext-103", "fig7-freezes", "frequency-bias", "joma-siblings", "layer-norm",
    "multilayer-remark", "no-winner-takes-all",
    "recall-sparsity", "slides-suppressed", "slides-tf-idf", "spurious-tokens",
    "summary-frequency",
)  # fmt: skip


def test_a_claim_is_typeset_or_has_no_formula():
    assert {claim.id for claim in CLAIMS if not claim.latex} == set(WITHOUT_FORMULA)
    for claim in CLAIMS:
        if claim.latex:
            assert "<math>" in typeset(claim.latex), claim.id
            assert "|" not in claim.latex, "a bar would end the cell of a table"
            words = "".join(claim.latex.split("$")[::2])
            assert not re.search(r"[_^\\<>=]|eta|gamma", words), f"{claim.id}: {words}"
        else:  # what has signs has a formula
            assert "$" not in dollars(claim.statement), claim.id


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_what_a_claim_points_at_exists(claim):
    assert claim.code
    for name in claim.code:
        assert callable(getattr(theory, name)), name
        assert name in theory.__all__
    file, _, test = claim.test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert claim.figure is None or claim.figure in {f"fig{i}" for i in range(1, 13)}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_complete(claim):
    for text in (claim.statement, claim.source, claim.predicts, claim.measures, claim.because):
        assert text.strip()
    assert len(claim.statement) <= 100
    assert claim.tolerance >= 0
    recorded = claim.recorded
    for number, sentence in (
        (recorded.number, claim.number),
        (recorded.training_number, claim.training_number),
    ):
        fields = [field for _, field, _, _ in string.Formatter().parse(sentence) if field == ""]
        assert (number is None) == (not fields)
        assert len(sentence) <= 100
    if recorded.training_number is not None:
        assert recorded.training is not None
    if recorded.verdict is Verdict.EXACT:
        assert claim.quote(recorded.number)


def test_select_keeps_order_and_names_the_nearest():
    assert [claim.id for claim in select(["theorem-2", "lemma-1"])] == ["lemma-1", "theorem-2"]
    assert select([]) == CLAIMS
    with pytest.raises(ValueError, match="did you mean theorem-3"):
        select(["theorm-3"])
