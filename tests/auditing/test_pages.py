"""Documents made from an audit: the theorem map, the page, the errata."""

import contextlib
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from attnlab.auditing import Verdict, all_claims, examine_all, select
from attnlab.auditing.claim_map import claim_map
from attnlab.auditing.document import audit_document, page
from attnlab.files.mathematics import mathml
from attnlab.papers.scan_and_snap.breakdown import KINDS

DOCS = Path(__file__).parents[2] / "docs"
CLAIMS = all_claims()
ERRATA = (DOCS / "errata.md").read_text(encoding="utf-8")


def test_the_theorem_map_is_up_to_date():
    kept = (DOCS / "theorem-map.md").read_text(encoding="utf-8")
    assert kept == claim_map(), (
        "docs/theorem-map.md is stale; make it again with\n"
        "  ./lab python -m attnlab.auditing.claim_map docs/theorem-map.md"
    )


def test_the_theorem_map_has_a_row_for_every_claim():
    rows = [line for line in claim_map().splitlines() if line.startswith("| **")]
    assert len(rows) == len(CLAIMS)
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 9, row


def test_the_tally_counts_each_origin_apart():
    rows = [line.split(" | ") for line in claim_map().splitlines() if "| formulas |" in line]
    origins = list(dict.fromkeys(claim.origin for claim in CLAIMS))
    shown = [row[0].removeprefix("| ").partition(" (")[0] for row in rows]
    assert [of.partition(", in the folder of ")[0] for of in shown] == origins
    assert "Focus and dilution, as we know it, in the folder of Polarisation" in shown
    assert {"Scan and Snap", "its poster and slides", "JoMA, as we know it"} <= set(origins)
    for row, origin in zip(rows, origins, strict=True):
        of_origin = [claim for claim in CLAIMS if claim.origin == origin]
        fails = sum(claim.recorded.verdict is Verdict.FAILS for claim in of_origin)
        assert row[0].endswith(f"({len(of_origin)} claims)")
        assert row[2 + list(Verdict).index(Verdict.FAILS)] == str(fails)
    wrong = {claim.id for claim in CLAIMS if claim.recorded.verdict is Verdict.FAILS}
    assert int(rows[0][5]) < len(wrong)  # the paper is not charged with what others say of it


def fake_map(knob):
    table = {
        kind: ((knob, "common_prob"), np.array([[1.5, -2.0]]), {"caption": kind, "wrong": "factor"})
        for kind in KINDS
    }
    return xr.Dataset(table, {knob: [4.0], "common_prob": [0.1, 0.2]}, {"title": "A map"})


@pytest.fixture(scope="module")
def shown():
    findings = examine_all(select(["eq-88", "eq-128", "lemma-6", "remark-2"]))
    return page(audit_document(findings, {"ratio": fake_map("ratio")}))


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.loaded, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "data")]


def test_the_page_loads_nothing(shown):
    links = Links()
    links.feed(shown)
    assert links.loaded == []
    assert not {"script", "link", "iframe", "img"} & set(links.tags)
    assert "http:" not in shown
    assert "https:" not in shown
    assert "@import" not in shown
    assert "url(" not in shown


def test_the_page_has_the_findings(shown):
    for word in ("eq-88", "corrected", "remark-2", "fails", "Where theory breaks"):
        assert word in shown
    assert "lemma-13" not in shown  # other sections are left out
    assert "Lemma 6, Eqs. 44, 45" in shown


def test_the_page_says_whose_claims_it_is_about(shown):
    assert "<title>Scan and Snap, audited</title>" in shown
    other = audit_document(examine_all(select(["joma-tree"])))
    assert "<title>JoMA, audited</title>" in page(other)


def test_the_page_is_typeset(shown):
    """The claim's formula, and the letters of plain sentences."""
    (claim,) = select(["lemma-6"])
    for formula in claim.statement.split("$")[1::2]:
        assert mathml(formula) in shown
    assert claim.plain not in shown
    assert mathml(r"\gamma") in shown
    assert "eta_Y" not in shown


def test_the_page_escapes_what_it_is_given():
    finding = examine_all(select(["lemma-6"]))
    document = audit_document(finding)
    for field in ("statement", "latex", "number", "source", "id", "how", "counterexample"):
        document["claims"][0][field] = f"<script>alert('{field}')</script>"
        assert "<script>" not in page(document)
    assert "&lt;script&gt;alert('latex')" in page(document)


def test_the_errata_cover_every_departure_from_print():
    for claim in CLAIMS:
        told = {Verdict.CORRECTED, Verdict.FAILS, Verdict.OUTSIDE, Verdict.PREMISE}
        if told & {claim.recorded.verdict, claim.recorded.training}:
            assert f"`{claim.id}`" in ERRATA, claim.id


def test_the_page_of_two_papers_has_the_verdicts_on_record():
    page = (DOCS / "theory" / "two-papers.md").read_text(encoding="utf-8")
    table = page.partition("## What they predict")[2].partition("\n## ")[0]
    told = re.findall(r"`([a-z0-9-]+)`: ([a-z0-9, -]*[a-z])", table)
    assert len(told) > 12
    for name, verdicts in told:
        (claim,) = select([name])
        trained = claim.recorded.training
        words = trained if trained is Verdict.PREMISE else trained and f"in training {trained}"
        assert verdicts == ", ".join(filter(None, (claim.recorded.verdict, words))), name


BLOCKS = re.findall(r"```python\n(.*?)```", ERRATA, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[-1][:50])
def test_the_errata_reproduce_their_numbers(block):
    """Each `print(...)  # numbers` prints these numbers, to the digits shown."""
    assert len(block.splitlines()) <= 12
    expected = re.findall(r"print\(.*\)  # (.*)", block)
    assert expected, "a block of the errata should print its number"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, "errata.md", "exec"), {})
    printed = out.getvalue().split()
    wanted = " ".join(expected).split()
    assert len(printed) == len(wanted)
    for got, kept in zip(printed, wanted, strict=True):
        digits = len(re.sub(r"e.*|[-+.]", "", kept).lstrip("0")) or 1
        assert float(got) == pytest.approx(float(kept), rel=0.51 * 10 ** (1 - digits))
