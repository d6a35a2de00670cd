"""The gallery shows every figure as it is now."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from attnlab.experiments import experiment, figures, recipe_for
from attnlab.experiments.base import WORDS
from attnlab.experiments.running import seal_record, unseal_record
from attnlab.papers.scan_and_snap.figures.fig6 import published_cells
from attnlab.report.gallery import gallery, paper_size_command, study_verdicts, verdict
from attnlab.report.page import figure_title
from attnlab.report.study_pages import write_lists
from attnlab.shelf import figure

DOCS = Path(__file__).parents[2] / "docs"
MEASURED = ("entropy_mean", "entropy_std")


def test_the_gallery_has_the_claim_of_every_figure_and_what_was_found():
    text = (DOCS / "gallery.md").read_text()
    for name in figures(ours=False):
        title = f"{figure_title(name)}. {experiment(name).title}"
        entry = text.partition(f"### {title}\n")[2]
        entry = entry.partition("\n##")[0]
        source, short = experiment(name).source, experiment(name).name
        said = f"{source[0].upper()}{source[1:]}: {recipe_for(name).about}\n"
        assert said in entry, name
        found = [f"**{of[0].upper()}{of[1:]}.** " for of in WORDS["figure"].values()]
        of_this_size = entry.partition("![")[0]
        assert sum(words in of_this_size for words in found) == 1, name
        assert f"./lab reproduce {name}`" in entry
        assert "\n\nWhat it shows: " in entry
        assert f"`out/{name}/{short}.nc`" in entry
        code = figure(name)[2].target.partition(":")[0].replace(".", "/")
        assert f"/{code}.py)" in entry
        assert f"/recipes/{short}.yaml)" in entry


def test_it_has_the_studies_and_what_they_found():
    text = (DOCS / "gallery.md").read_text()
    found = study_verdicts(DOCS)
    assert list(found) == list(figures(ours=True))
    for name, (outcome, headline) in found.items():
        title = f"{figure_title(name)}. {experiment(name).title}"
        entry = text.partition(f"\n### {title}\n")[2]
        entry = entry.partition("\n##")[0]
        assert f"**{outcome[0].upper()}{outcome[1:]}.** {headline}\n" in entry, name
        assert f"(images/{name}.png)" in entry
        assert f"`./lab reproduce {name}`" in entry


@pytest.mark.parametrize(
    "name", ["scan_and_snap/fig7", "scan_and_snap/fig10", "studies/dip", "studies/freeze"]
)
def test_the_verdict_is_that_at_paper_size_where_there_is_one(name):
    """The gallery and the list of studies say both, that at paper size first."""
    kind = experiment(name).kind
    page = (DOCS / "wikitext" if kind == "figure" else DOCS) / f"{name}.md"
    larger = page.read_text().partition("At paper size, on WikiText-2 (")[2]
    assert larger.startswith(f"`{paper_size_command(name)}`), trained on its test split")
    outcomes = [of.format(source=experiment(name).source) for of in WORDS[kind].values()]
    (there,) = [of for of in outcomes if f"\n\n**{of[0].upper()}{of[1:]}.** " in larger]
    shown = (DOCS / "gallery.md").read_text()
    entry = shown.partition(f"{experiment(name).title}\n")[2].partition("\n##")[0]
    assert f"**{there[0].upper()}{there[1:]}.** At paper size: " in entry
    at_laptop_size = re.search(r" At laptop size \((.+?)\): ", entry.partition("![")[0])
    assert at_laptop_size[1] in outcomes
    if kind == "study":
        outcome, headline = study_verdicts(DOCS)[name]
        assert (outcome, headline[:14]) == (there, "At paper size:")


def test_a_verdict_names_both_sizes():
    assert verdict("reproduced", "It falls.", "") == ("reproduced", "It falls.")
    larger = "At paper size.\n\n**Reproduced in part.** It hardly falls.\n\nMore.\n"
    assert verdict("reproduced", "It falls.", larger) == (
        "reproduced in part",
        "At paper size: It hardly falls. At laptop size (reproduced): It falls.",
    )


def test_studies_in_list_and_gallery_follow_their_records(tmp_path):
    shutil.copytree(DOCS / "studies", tmp_path / "studies")
    shutil.copy(DOCS / "gallery.md", tmp_path)
    pages = [Path("gallery.md"), Path("studies/README.md")]
    write_lists(tmp_path)
    for page in pages:
        assert (tmp_path / page).read_text() == (DOCS / page).read_text(), page

    record = tmp_path / "studies" / "length.json"
    length = unseal_record(record)
    seal_record(record, replace(length, headline="It is |long|."), inside=tmp_path)
    write_lists(tmp_path)
    for page, shown in zip(pages, ("It is |long|.", r"It is \|long\|."), strict=True):
        before = (
            length.headline if page.name == "gallery.md" else length.headline.replace("|", r"\|")
        )
        assert (tmp_path / page).read_text() == (DOCS / page).read_text().replace(before, shown)


def test_papers_of_which_nothing_was_made_keep_their_part():
    assert gallery([], DOCS) == (DOCS / "gallery.md").read_text()


def test_published_values_are_shown_with_ours():
    text = (DOCS / "gallery.md").read_text()
    entry = text.partition("\n### Figure 6.")[2].partition("\n##")[0]
    for mean, std in zip(
        *(published_cells()[name].values.ravel() for name in MEASURED), strict=True
    ):
        assert f"<br>published {mean:.3f} ± {std:.3f}<br>" in entry
    assert entry.count("published ") >= 64


def test_its_pictures_are_there_and_modest():
    for name in figures(ours=False):
        picture = (DOCS / "images" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 250_000
