"""One hand made the pages: they share a stylesheet, which none of them says again."""

import re
from pathlib import Path

import attnlab
from attnlab.files.markdown import raw_template, stylesheet

SOURCE = Path(attnlab.__file__).parent


def rules(css):
    """The selectors of a stylesheet outside of what is for phones and for print."""
    plain = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    plain = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", plain)
    return {selector.strip() for selector in re.findall(r"([^{}]+)\{[^{}]*\}", plain)}


def test_the_report_of_an_observer_says_nothing_of_the_stylesheet_again():
    shared = rules(stylesheet())
    assert {"body", "table", ".badge", ".badge.premise"} <= shared
    text = (SOURCE / "observing/report.html").read_text(encoding="utf-8")
    own = re.search(r"<style>\n\{\{ stylesheet \}\}\n(.*?)</style>", text, re.DOTALL)
    assert own
    assert not rules(own[1]) & {"body", "h1", "h2", "table", "th, td", "code", ".badge"}
    assert not re.search(r"\.badge\.\w+ *\{", own[1])


def test_nothing_is_loaded_by_the_stylesheet():
    assert not re.search(r"url\(|@import|https?:", stylesheet())


def test_a_template_of_html_escapes_and_sets(tmp_path, monkeypatch):
    (tmp_path / "own_pages").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    for name, escaped in (("page.html", 3), ("page.md.jinja", 2)):
        (tmp_path / "own_pages" / name).write_text("{{ a }} {{ b | symbols }} {{ c | typeset }}")
        shown = raw_template("own_pages", name).render(a="<a>", b="<t_0>", c="<$x$>")
        assert shown.count("&lt;") == escaped
