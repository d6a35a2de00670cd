"""The pages of the studies say what a run found."""

import math
import re
from pathlib import Path

import pytest
import xarray as xr

from attnlab.experiments import Part, figures, share
from attnlab.report.gallery import AT_PAPER_SIZE
from attnlab.report.study_pages import BEGIN, END, between_marks, found

DOCS = Path(__file__).parents[2] / "docs"


def test_only_what_is_between_the_marks_changes():
    page = f"# By hand\n\n{BEGIN}\nold\n{END}\n\nalso by hand\n"
    once = between_marks(page, "new")
    assert once == f"# By hand\n\n{BEGIN}\nnew\n{END}\n\nalso by hand\n"
    assert between_marks(once, "new") == once
    with pytest.raises(ValueError, match="page: expected the marks"):
        between_marks(page.replace(END, ""), "new")


def test_a_part_about_wikitext_has_marks_of_its_own():
    page = f"{BEGIN}\nold\n{END}\n{AT_PAPER_SIZE[0]}\nold\n{AT_PAPER_SIZE[1]}\n"
    once = between_marks(page, "new", AT_PAPER_SIZE)
    assert once == f"{BEGIN}\nold\n{END}\n{AT_PAPER_SIZE[0]}\nnew\n{AT_PAPER_SIZE[1]}\n"


@pytest.mark.parametrize("name", ["dip", "freeze"])
def test_studies_on_text_say_what_was_found_at_paper_size(name):
    page = (DOCS / "studies" / f"{name}.md").read_text()
    part = page.partition(AT_PAPER_SIZE[0])[2].partition(AT_PAPER_SIZE[1])[0]
    assert "trained on its test split" in part
    assert f"(../images/studies/{name}-wikitext.png)" in part
    assert (DOCS / "images" / "studies" / f"{name}-wikitext.png").is_file()
    assert f"./lab reproduce studies/{name} --recipes wikitext" in page


def test_no_interval_of_dip_leaves_the_range_of_what_it_is_about():
    """Entropies, steps and ranks are positive, and entropy is below ln of the context's length."""
    page = (DOCS / "studies" / "dip.md").read_text()
    for value, half in re.findall(r"(\d[\d.,]*) ± (\d[\d.,]*)", page):
        assert float(half.replace(",", "")) < float(value.replace(",", "")), f"{value} ± {half}"
    summary = page.partition(BEGIN)[2].partition("![")[0]
    turns = re.findall(r"(?:minimum|return) [\d.]+ \(([\d.]+) to ([\d.]+)\)", summary)
    assert len(turns) >= 12
    assert all(0 <= float(low) <= float(high) < math.log(35) for low, high in turns)


def made_with(numbers, halves, bounds):
    return Part(
        name="studies/length",
        key="",
        title="",
        about="",
        outcome="as the paper says",
        headline="",
        summary="It falls.",
        alt="A line.",
        numbers=numbers,
        regression_bounds=bounds,
        settings={},
        files={},
        seconds=1.0,
        made_at="",
        versions={},
        halves=halves,
    )


def test_numbers_come_with_their_errors_their_halves_and_their_bounds():
    numbers = {"slope": -0.956, "slope_error": 0.0104}
    halves = [{"slope": -0.95}, {"slope": -0.96}]
    text = found(made_with(numbers, halves, {"slope": (-1.02, -0.88)}))
    assert text.startswith("**As the paper says.** It falls.")
    assert "![A line.](../images/studies/length.png)" in text
    assert "| `slope` | -0.956 ± 0.01 | -0.95 and -0.96 | -1.02 to -0.88 |" in text


def test_medians_come_with_their_intervals():
    numbers = {"first": 2.46, "first_low": 2.44, "first_high": 2.48}
    text = found(made_with(numbers, [{"first": 2.4}, {"first": 2.5}], {"first": (2, 3)}))
    assert "| `first` | 2.46 (2.44 to 2.48) | 2.4 and 2.5 | 2 to 3 |" in text


def test_shares_come_with_their_counts_and_never_with_an_error_of_nothing():
    seeds = ("seed", "token")
    for hits, told in (
        (xr.DataArray([[1.0, 1.0], [1.0, 1.0]], dims=seeds), "1 (4 of 4)"),
        (xr.DataArray([[1.0, 1.0], [1.0, 0.0]], dims=seeds), "0.75 ± 0.25 (3 of 4)"),
    ):
        numbers = share(hits).numbers("kept")
        text = found(made_with(numbers, [numbers, numbers], {"kept": (0, 1)}))
        assert f"| `kept` | {told} |" in text


def test_the_list_has_every_study():
    text = (DOCS / "studies" / "README.md").read_text()
    table = text.partition(BEGIN)[2].partition(END)[0]
    for name in figures(ours=True):
        short = name.rpartition("/")[2]
        assert f"[{short}]({short}.md)" in table
        assert (DOCS / f"{name}.md").is_file()
    assert table.count("±") >= 5
