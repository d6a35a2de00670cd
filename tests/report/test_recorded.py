"""Studies as the documentation has them, for reports."""

from dataclasses import replace
from pathlib import Path

import pytest

from attnlab.experiments import Part, figures
from attnlab.experiments.running import the_record, write_record
from attnlab.report import make
from attnlab.report.study_pages import read_recorded, write_recorded

DOCS = Path(__file__).parents[2] / "docs"
MADE = Part(
    name="studies/dip",
    key="",
    title="Dip",
    about="",
    outcome="as JoMA says",
    headline="It falls.",
    summary="It falls.",
    alt="A line.",
    numbers={"a": 1.0},
    regression_bounds={"a": [0.0, 2.0]},
    settings={},
    files={"dip.nc": "0"},
    seconds=1.0,
    made_at="2026-01-01",
    versions={},
)


@pytest.fixture
def docs(tmp_path):
    for folder in ("studies", "images/studies"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "images" / "studies" / "dip.png").write_bytes(b"a picture")
    return tmp_path


def test_what_is_kept_is_read_again_unless_it_was_changed(docs):
    assert read_recorded("studies/dip", docs) is None
    write_recorded(docs, MADE)
    shown = read_recorded("studies/dip", docs)
    assert shown.recorded and shown.picture == b"a picture"
    assert replace(shown.made, files=MADE.files, table=(), halves=()) == MADE
    (docs / "images" / "studies" / "dip.png").write_bytes(b"another")
    assert read_recorded("studies/dip", docs) is None
    write_recorded(docs, MADE)
    record = docs / "studies" / "dip.json"
    record.write_text(record.read_text().replace("It falls", "It rises"))
    assert read_recorded("studies/dip", docs) is None


def test_what_is_recorded_is_what_its_page_says():
    recorded = [name for name in figures(ours=True) if (DOCS / f"{name}.json").is_file()]
    assert {"studies/dip", "studies/freeze"} <= set(recorded)
    for name in recorded:
        shown = read_recorded(name, DOCS)
        assert shown is not None, name
        page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
        assert shown.made.summary in page, name


def test_a_report_shows_what_was_made_here_before_what_was_recorded(docs, tmp_path, monkeypatch):
    write_recorded(docs, MADE)
    monkeypatch.setattr(make, "read_recorded", lambda name: read_recorded(name, docs))
    out = tmp_path / "out"

    def shown(parts, *, whole):
        return [
            (of.made.headline, of.picture, of.recorded)
            for of in make._studies(out, parts, None, whole=whole)
        ]

    assert shown({}, whole=True) == [("It falls.", b"a picture", True)]
    assert shown({}, whole=False) == []
    folder = out / "studies" / "dip"
    folder.mkdir(parents=True)
    (folder / "dip.png").write_bytes(b"made here")
    here = replace(MADE, files={}, headline="Part here.")
    write_record(folder, here)
    monkeypatch.setattr(make, "find", lambda study, _, out: the_record(out / study.full_name))
    assert shown({}, whole=True) == [("Part here.", b"made here", False)]
    assert shown({"studies/dip": here}, whole=False) == [("Part here.", b"made here", False)]
