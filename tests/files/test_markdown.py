"""Markdown of results: texts are escaped, formulas are set, and cells name their columns."""

import pytest

from attnlab.files.markdown import html, page, table, table_of, template, words
from attnlab.files.mathematics import mathml, plain

HOSTILE = r"<b> & [a](b) *x* `c` a_b | \d $e$"


@pytest.fixture
def rendered(tmp_path, monkeypatch):
    (tmp_path / "own_pages").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    def render(text, terminal=False, **values):
        (tmp_path / "own_pages" / "page.md").write_text(text)
        return template("own_pages:page.md", terminal=terminal).render(values)

    return render


@pytest.mark.parametrize("place", ["{}", "| a |\n|---|\n| {} |\n", "- {}"])
def test_words_arrive_as_they_are(place):
    shown = html(place.format(words(HOSTILE)))
    assert "&lt;b&gt; &amp; [a](b) *x* `c` a_b | \\d $e$" in shown


def test_a_template_escapes_texts_and_sets_formulas(rendered):
    text = "{{ a }} {{ b | symbols }} {{ c | formulas }}\n\n| n |\n|---|\n| {{ a }} |\n"
    values = {"a": "<a>\x1b", "b": "<t_0>", "c": "<$x$>"}
    shown = html(rendered(text, **values))
    assert shown.count("&lt;") == 4
    assert r"\x1b" in shown
    assert mathml("t_0") in shown
    assert mathml("x") in shown
    assert "t_0" in html(rendered("{{ b | symbols }}", terminal=True, **values))


def test_a_cell_names_its_column_and_keeps_its_lines():
    shown = html(table([["n", "what"], ["1", "one\nline"]]))
    assert '<th scope="col">what</th>' in shown
    assert table([["a"], ["|x|\ny"]]) == "| a |\n| --- |\n| \\|x\\|<br>y |"
    assert '<td data-label="what">one<br>line</td>' in shown


def test_a_bar_in_a_formula_does_not_end_a_cell(rendered):
    cell = rendered("{{ a | formulas }}", a="the norm $|x|$")
    assert cell == "the norm $∣x∣$"
    assert f'<td data-label="n">the norm {mathml("|x|")}</td>' in html(
        f"| n |\n|---|\n| {cell} |\n"
    )
    assert plain(f"{cell}") == "the norm |x|"


def test_a_page_is_self_contained():
    shown = page("<t>", "# Title")
    assert "<title>&lt;t&gt;</title>" in shown
    assert "<h1>Title</h1>" in shown
    assert "http" not in shown


def test_a_table_of_values_escapes_texts_and_aligns_numbers():
    rows = [
        {"token": "a|b", "loss": 1.23456, "entropy": (2.5, float("nan")), "ok": True},
        {"token": "two\nlines", "loss": None, "entropy": (1.0, 0.5), "ok": False},
    ]
    columns = {"token": "token", "loss": "loss", "entropy": ("entropy", ".1f"), "absent": "absent"}
    assert table_of(rows, columns).splitlines() == [
        "| token | loss | entropy |",
        "| --- | ---: | ---: |",
        r"| a\|b | 1.235 | 2.5 → - |",
        r"| two\\nlines | - | 1.0 → 0.5 |",
    ]
    assert table_of(rows).splitlines()[2].endswith(" | yes |")
