"""The report: self-contained, complete, escaped and accessible."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO

import pytest
from PIL import Image

from attnlab.auditing import all_claims, claims_of
from attnlab.auditing.catalogue import audited_papers
from attnlab.auditing.document import paper_document
from attnlab.experiments import Part, figures
from attnlab.files.mathematics import mathml
from attnlab.papers.scan_and_snap.figures import fig6
from attnlab.report.page import figure_title, page
from attnlab.report.study_pages import ShownStudy

NAMES, CLAIMS = figures(ours=False), all_claims()
STORY = "scan_and_snap/story"


def png():
    """Return a picture of 700 by 300 pixels."""
    out = BytesIO()
    Image.new("RGB", (700, 300), "white").save(out, "PNG")
    return out.getvalue()


PNG = png()


def part(name, **changes):
    given = {
        "name": name,
        "key": "k",
        "title": f"Title of {name}",
        "about": f"The claim of {name}.",
        "outcome": "reproduced",
        "headline": f"Headline of {name}.",
        "summary": "eta_Y <b>beats</b> eta_Z & more.",
        "alt": f'Alt of {name} with 42 and "quotes".',
        "numbers": {"rms": 1.2},
        "regression_bounds": {"rms": [1.0, 2.0]},
        "settings": {"steps": "100"},
        "files": {f"{name.rpartition('/')[2]}.png": "0"},
        "standing": "holds",
        "seconds": 1.5,
        "made_at": "2026-01-01",
        "versions": {},
    }
    return Part(**{**given, **changes})


def claims():
    """A document of an audit in which nothing was measured."""
    return {
        "papers": {of.name: paper_document(of) for of in audited_papers()},
        "claims": [
            {
                "id": claim.id,
                "paper": claim.paper,
                "section": claim.section,
                "origin": claim.origin,
                "reading": claim.reading,
                "statement": claim.plain,
                "latex": claim.statement,
                "source": "; ".join(claim.sources),
                "ours": claim.ours,
                "verdict": claim.recorded.verdict,
                "number": "1.5 < 2",
                "training": None,
                "training_number": "",
                "counterexample": "",
                "as_recorded": True,
                "figure": claim.figure,
            }
            for claim in CLAIMS
        ],
    }


def fig6_table():
    """Return the table of one published cell beside one of ours."""
    theirs = fig6.published_cells().sel(num_last=[1], eta_z=[0.5], ratio=[2])
    cells = fig6.compared((theirs["entropy_mean"] + 0.003).expand_dims(seed=10, axis=-1))
    cells["entropy_std"][:], cells["deviation"][:] = 0.03, 0.25
    return fig6.table(cells)


@pytest.fixture(scope="module")
def whole():
    table = fig6_table()
    of_fig6 = {"table": table.shown(), "caption": table.caption}
    shown = [part(name, **(of_fig6 if name.endswith("/fig6") else {})) for name in NAMES]
    return page(
        figures=shown,
        missing=[],
        pictures=dict.fromkeys([*NAMES, STORY], PNG),
        audit=part("audit", outcome="as recorded"),
        claims=claims(),
        seconds=12.0,
        opening=part(STORY),
        playground=True,
    )


class Reader(HTMLParser):
    """Collects what a browser would load, and what a screen reader would read."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.images, self.headings, self.ids, self.links = [], [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.loads += [values[key] for key in ("src", "srcset", "data") if key in values]
        if tag in ("link", "script"):
            self.loads.append(tag)
        if tag == "img":
            self.images.append(values)
        if tag == "a":
            self.links.append(values["href"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if "id" in values:
            assert values["id"] not in self.ids
            self.ids.add(values["id"])


def test_every_figure_is_there_with_claim_verdict_command_and_settings(whole):
    for name in NAMES:
        assert f"{figure_title(name)}. Title of {name}" in whole
        for text in (f"The claim of {name}.", f"attnlab reproduce {name}", f"Headline of {name}."):
            assert text in whole
    for claim in CLAIMS:
        assert claim.id in whole
    for word in (
        "Figure by figure",
        "Claim by claim",
        "Audit",
        "Errata",
        "Provenance",
        "@inproceedings{tian2023scan",
    ):
        assert word in whole


def test_nothing_is_loaded_from_elsewhere(whole):
    reader = Reader(whole)
    beside = [load for load in reader.loads if not load.startswith("data:image/png;base64,")]
    assert beside == ["playground.html"]  # which is opened by whoever wants to
    assert "url(" not in whole
    assert "@import" not in whole
    assert not re.search(r"https?://", whole)


def test_links_lead_somewhere_and_headings_nest(whole):
    reader = Reader(whole)
    inside = {link.removeprefix("#") for link in reader.links if link.startswith("#")}
    assert inside <= reader.ids
    assert {f"claim-{claim.id}" for claim in CLAIMS} <= inside
    files = {f"{name}/{name.rpartition('/')[2]}.png" for name in (*NAMES, STORY)}
    assert {link for link in reader.links if not link.startswith("#")} == {
        *files,
        "playground.html",
    }
    assert reader.headings[0] == 1
    assert reader.headings.count(1) == 1
    steps = zip(reader.headings, reader.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in steps)


def test_pictures_have_texts_with_numbers_and_sizes(whole):
    reader = Reader(whole)
    whole_pictures = [image["alt"] for image in reader.images if "Alt" in image["alt"]]
    assert whole_pictures == [f'Alt of {name} with 42 and "quotes".' for name in (STORY, *NAMES)]
    assert {image["width"] for image in reader.images} == {"700"}
    assert len(reader.images) == len(NAMES) + 1 + 4  # those of the digest


def test_texts_are_escaped_and_letters_are_set(whole):
    assert "<b>beats</b>" not in whole
    assert "&lt;b&gt;beats" in whole
    assert mathml(r"\eta_Y") in whole
    for claim in CLAIMS:
        for formula in claim.statement.split("$")[1::2]:
            assert mathml(formula) in whole


def test_texts_of_a_part_are_escaped():
    hostile = '<img src=x> "> `*_[a](b)'
    texts = ("title", "about", "outcome", "headline", "summary", "alt", "source", "caption")
    shown = part(NAMES[0], **dict.fromkeys(texts, hostile), table=[["n"], [hostile]])
    shown = replace(shown, settings={hostile: hostile}, numbers={hostile: 1.0})
    text = page(
        figures=[shown],
        missing=[hostile],
        pictures={NAMES[0]: PNG, STORY: PNG},
        audit=None,
        claims=None,
        seconds=1.0,
        opening=replace(shown, name=STORY),
        studies=[ShownStudy(replace(shown, name="studies/dip"), PNG, False)],
    )
    assert "<img src=x" not in text
    assert text.count("&lt;img src=x&gt;") > 20
    assert len(Reader(text).images) == 5  # two of them in the digest


def test_it_opens_with_the_story_and_a_table_claim_by_claim(whole):
    places = [whole.index(f'id="{name}"') for name in ("opening", "claims", "summary", NAMES[0])]
    assert places == sorted(places)
    brief = whole[places[1] : places[2]]
    for claim in CLAIMS:
        assert f'<a href="#claim-{claim.id}">{claim.id}</a>' in brief
    assert brief.count("1.5 &lt; 2") == len(CLAIMS)


def test_it_begins_with_what_holds_and_what_does_not(whole):
    """All papers by name, each with its reading and its counts, before anything else."""
    digest = whole.partition('id="digest"')[2].partition("<h2")[0]
    for of in audited_papers():
        row = next(row for row in digest.split("<tr>") if f">{of.short}" in row)
        assert ("as we know it" in row) == (of.reading == "as we know it")
        recorded = [claim.recorded.verdict for claim in claims_of(of.name)]
        for verdict in {*recorded} - {None}:
            assert f"{verdict}: {recorded.count(verdict)}" in row
        of_paper = [name for name in NAMES if name.startswith(f"{of.name}/")]
        assert f"reproduced: {len(of_paper)}" in row
    assert digest.count('<a href="#claim-') == 8
    lead = whole.partition('<p class="lead">')[2].partition("</p>")[0]
    assert f"{len(CLAIMS)} claims (" in lead
    assert f"{len(NAMES)} experiments (reproduced: {len(NAMES)})" in lead
    assert "Figures: JoMA, as we know it" in whole
    of_one = {"scan_and_snap": claims()["papers"]["scan_and_snap"]}
    some = {"papers": of_one, "claims": claims()["claims"][:3]}
    text = page(figures=[], missing=[], pictures={}, audit=part("audit"), claims=some, seconds=1.0)
    assert "3 claims (" in text
    assert text.count('class="claims brief"') == 1  # the section that they are of


def test_a_figure_names_its_code_and_the_claims_that_it_shows(whole):
    article = whole.partition('<article id="scan_and_snap/fig4"')[2].partition("</article>")[0]
    assert "attnlab.papers.scan_and_snap.figures.fig4" in article
    for claim in CLAIMS:
        assert (f'href="#claim-{claim.id}"' in article) == (claim.figure == "fig4")


def test_published_cells_are_drawn_with_ours(whole):
    for text in ("2.010 ± 0.030", "published 2.007 ± 0.032", "+0.2 s.e."):
        assert text in whole


def test_missing_parts_and_numbers_out_of_bounds_are_named():
    text = page(
        figures=[part(NAMES[0], numbers={"rms": 9.0}, outcome="not reproduced", standing="fails")],
        missing=[NAMES[1]],
        pictures={NAMES[0]: PNG},
        audit=None,
        claims=None,
        seconds=1.0,
    )
    assert "Not made yet: scan_and_snap/fig3" in text
    assert "scan_and_snap/fig2: rms = 9" in text
    assert "<h3>Not reproduced</h3>" in text
    for absent in ("audit", "claims", "opening"):
        assert f'id="{absent}"' not in text
    assert "iframe" not in text.partition("</style>")[2]
    assert "1 experiment (not reproduced: 1)" in text


def test_studies_are_shown_and_recorded_ones_are_marked():
    dip, freeze = names = ("studies/dip", "studies/freeze")
    kept = part(dip, outcome="as JoMA says", made_at="2026-02-03T00:00", files={"dip.png": "0"})
    here = part(freeze, outcome="not as the paper says", files={"freeze.nc": "0"})
    text = page(
        figures=[part(NAMES[0])],
        missing=[],
        pictures={NAMES[0]: PNG},
        audit=None,
        claims=None,
        seconds=1.0,
        studies=[ShownStudy(kept, PNG, True), ShownStudy(here, PNG, False)],
    )
    reader = Reader(text)
    assert {"studies", *names} <= reader.ids
    assert "#studies" in reader.links
    shown = [image["alt"].split()[2] for image in reader.images if "Alt" in image["alt"]]
    assert shown == [NAMES[0], *names]
    studies, _, provenance = text.partition('id="studies"')[2].partition('id="provenance"')
    for name in names:
        assert f"attnlab reproduce {name}" in studies
        assert f"Headline of {name}." in studies
    assert "yet: studies/frequency, studies/heads," in studies
    lead = " ".join(text.partition('<p class="lead">')[2].partition("</p>")[0].split())
    assert "2 studies of what papers leave open." in lead
    assert "recorded 2026-02-03" in studies
    assert "freeze/freeze.nc" in studies
    # what was not made by this call has no line among what was
    assert ">studies/freeze</td>" in provenance
    assert ">studies/dip</td>" not in provenance


def test_a_report_without_studies_has_no_section_of_them(whole):
    assert 'id="studies"' not in whole
