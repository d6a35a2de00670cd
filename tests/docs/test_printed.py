"""What the guides print is what their commands print."""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

GUIDES = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e[+-]?\d+)?")
# Words are the same everywhere. Numbers of float32 trainings differ between machines, by less than
# this of their size, or by so much where that is more (a count of steps by one record).
RELATIVE, ABSOLUTE = 0.05, 0.03


def printed_blocks(page):
    """(language, text, output) of a page: of a console each command, of Python what follows it."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    for i, (language, text) in enumerate(found):
        if language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield language, command, output
        elif language == "python" and i + 1 < len(found) and not found[i + 1][0]:
            yield language, text, found[i + 1][1]


PAPERS = Path(__file__).parents[2] / "src" / "attnlab" / "papers"
PAGES = [
    page
    for page in (*sorted(GUIDES.glob("**/*.md")), *sorted(PAPERS.glob("*/page.md")))
    if any(printed_blocks(page)) and page.parent != GUIDES / "papers"
]


def alike(expected, found):
    """Whether two words are the same, or two numbers nearly."""
    if not (NUMBER.fullmatch(expected) and NUMBER.fullmatch(found)):
        return expected == found
    a, b = (float(text.replace(",", "")) for text in (expected, found))
    return abs(a - b) <= max(ABSOLUTE, RELATIVE * abs(a))


def missing(expected, found):
    """The first piece of `expected` that is not printed, in its place; "..." stands between pieces.

    How lines are broken does not matter: it is the terminal's.
    """
    words = found.split()
    for piece in re.split(r"^\.\.\.$", expected, flags=re.MULTILINE):
        wanted = piece.split()
        for place in range(len(words) - len(wanted) + 1):
            if all(map(alike, wanted, words[place:])):
                words = words[place + len(wanted) :]
                break
        else:
            return piece
    return None


def test_pages_that_print_are_found_and_differences_are_seen():
    named = [page.stem if page.stem != "page" else page.parent.name for page in PAGES]
    guides = ["audit", "own_measure", "own_paper", "own_task", "text", "start"]
    theory = ["common-tokens", "gamma", "snap"]
    papers = [
        "active_dormant",
        "causal_structure",
        "joma",
        "linear_icl",
        "max_margin",
        "polarisation",
        "scan_and_snap",
        "statistical_induction",
        "studies",
    ]
    assert named == [*guides, *theory, *papers]
    shown = "class a 0.50 → 1,000\n...\nend\n"
    assert missing(shown, "class  a\n0.51 → 1,001 b 2 end") is None
    for other in ("class a 0.60 → 1,000 end", "class b 0.50 → 1,000 end", "class a 0.50 → 1,000"):
        assert missing(shown, other) is not None


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the built-in text is Python's own")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_what_the_page_says(page, call, script, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for language, text, expected in printed_blocks(page):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, page.name, "exec"), {})
            found = out.getvalue()
        else:
            lab, verb, *arguments = shlex.split(text)
            assert lab == "./lab"
            if verb == "python":
                found = script(GUIDES.parent / arguments[0], *arguments[1:], cwd=tmp_path)
            else:
                code, found, err = call(verb, *arguments, cwd=tmp_path)
                assert code == 0, err
        assert missing(expected, found) is None, (text, found)
