"""The site: built once, with its notebooks; every link leads somewhere, and nowhere outside."""

import json
import re
import subprocess
import sys
import threading
from dataclasses import fields
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit
from urllib.request import urlopen

import pytest
import typer

from attnlab.cli import exit_codes
from attnlab.cli.app import app
from attnlab.models import Model
from attnlab.shelf import offered
from attnlab.simulation import Gradient, Motion, Simulation
from attnlab.tasks import Task

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MAKE = ROOT / "docs" / "make.py"
SURFACE = (ROOT / "tests" / "surface.txt").read_text().split()
LOADED = {"script", "link", "img", "iframe", "source", "video", "audio", "embed", "object"}
CODE = {"code", "pre", "script"}
PATIENCE = 120_000  # ms
AXE = ROOT / "tests" / "support" / "axe" / "axe.min.js"
# axe does not see that a formula is text
FAULTS = """
async () => (await axe.run({ resultTypes: ["violations"], iframes: false, preload: false }))
  .violations.filter(({ nodes }) => nodes.some(({ html }) => !html.includes("<math")))
  .map(({ id }) => id)
"""


class Page(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded, self.said = set(), [], [], []
        self.formulas, self.prose = 0, ""
        self._within, self._code = [], 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        for name in {"src", "href", "srcset", "data"} & set(given):
            (self.loaded if tag in LOADED else self.links).append(given[name])
        if tag == "a":
            self._within.append("")
        self.formulas += tag == "math"
        self._code += tag in CODE

    def handle_data(self, data):
        if self._within:
            self._within[-1] += data
        if not self._code:
            self.prose += data

    def handle_endtag(self, tag):
        if tag == "a" and self._within:
            self.said.append(self._within.pop())
        self._code -= tag in CODE


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the site. A warning is an error; other tests run the notebooks."""
    out = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, MAKE, "--no-notebooks", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="session")
def pages(site):
    """The pages of the theme; those of single source files are plain, and have line numbers."""
    found = [path for path in site.rglob("*.html") if "source" not in path.relative_to(site).parts]
    return {path: Page(path) for path in found}


@pytest.fixture(scope="module")
def address(site):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def outside(address):
    return bool(urlsplit(address).netloc) or address.startswith("//")


@cache
def file_at(folder, path):
    """The file to which a path leads from a folder, if there is one."""
    target = (folder / unquote(path)).resolve()
    return target if target.is_file() else None


def is_there(site, path, page, link, pages):
    """Whether a link leads to a file of the site, and to a place in it."""
    parts = urlsplit(link)
    if parts.scheme:
        return parts.scheme in ("http", "https", "mailto", "data")
    target = file_at(path.parent, parts.path) if parts.path else path
    if target is None or not target.is_relative_to(site):
        return False
    if not parts.fragment or parts.fragment.startswith(("s=", "x=")):  # state, experiment: played
        return True
    if target in pages:
        return unquote(parts.fragment) in pages[target].ids
    return f'id="{parts.fragment}"' in target.read_text(encoding="utf-8")


def test_every_link_picture_and_anchor_is_there(site, pages):
    assert len(pages) > 50
    dead = [
        (str(path.relative_to(site)), link)
        for path, page in pages.items()
        for link in {*page.links, *page.loaded}
        if not is_there(site, path, page, link, pages)
    ]
    assert dead == []


def test_nothing_is_asked_of_another_host(site, pages):
    for path, page in pages.items():
        assert [link for link in page.loaded if outside(link)] == [], path
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        used = re.findall(r"""(?:url\(\s*|@import\s+)['"]?([^'")\s;]+)""", text)
        for link in used:
            assert not outside(link), (style, link)
            assert link.startswith(("data:", "#")) or (style.parent / urlsplit(link).path).is_file()


def test_it_can_be_searched_and_hosted(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    assert {"theory/snap", "reference/commands", "faq"} <= set(found["docnames"])
    # stems of what people look for: pandas, csv, learning rate, residual, Markov
    assert {"panda", "csv", "learn", "rate", "residu", "markov"} <= set(found["terms"])
    assert (site / "index.html").is_file() and (site / "playground" / "index.html").is_file()


def test_every_public_name_is_explained_or_leads_to_where_it_is(site, pages):
    ids = set().union(*(page.ids for page in pages.values()))
    for name in SURFACE:
        folder, _, last = name.rpartition(".")
        page = "python" if folder == "attnlab" else f"names/{folder.removeprefix('attnlab.')}"
        shown = pages[site / "reference" / f"{page}.html"]
        assert last in shown.said, name
        assert name in ids or any(of.endswith(f".{last}") for of in ids) or last in ids, name


def walk(command, name):
    yield name, command
    for word, part in getattr(command, "commands", {}).items():
        yield from walk(part, f"{name} {word}")


def test_every_command_and_option_is_explained(site):
    text = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name, command in walk(typer.main.get_command(app), "attnlab"):
        assert f'id="{name.replace(" ", "-")}"' in text, name
        for option in command.params:
            if option.param_type_name == "option":
                assert option.opts[0] in text, (name, option.opts)


def test_fields_codes_and_schema_are_those_of_the_code(site):
    def text(page):
        return (site / "reference" / f"{page}.html").read_text(encoding="utf-8")

    offers = {**offered("tasks"), **offered("models")}
    listed = {name: offer.load() for name, offer in offers.items()}
    for base in (Task, Model, Motion, Gradient):
        for name, kind in base.kinds().items():
            if kind.__module__.startswith("attnlab.") and ".papers." not in kind.__module__:
                listed[name] = kind
    for name, kind in {"": Simulation, **listed}.items():
        for line in fields(kind):
            assert f'">{line.name}</span>' in text("recipes"), (name, line.name)
    named = set(re.findall(r'id="name-(\w+)"', text("recipes")))
    assert named >= {*listed}
    assert not named & {"twooutputs", "scoreattention"}  # of a study, which offers neither
    codes = [str(code) for name, code in vars(exit_codes).items() if name.isupper()]
    assert all(f'">{code}</span>' in text("commands") for code in codes)
    assert all(f'">{name}</span>' in text("schema") for name in ("attention", "spec", "gamma"))


def test_docstrings_are_typeset_and_lead_to_their_source(site, pages):
    of = {path.stem: page for path, page in pages.items() if path.parent.name == "api"}
    theory = [page for name, page in of.items() if "papers.scan_and_snap.theory." in name]
    assert sum(page.formulas for page in theory) > 50
    found = [link for page in theory for link in page.links if "scan_and_snap/theory" in link]
    assert any("growth.py.html#line-" in link for link in found)
    assert "attnlab.theory.predict" in of["attnlab.theory.predict"].ids


def test_formulas_are_typeset(pages):
    """As MathML, whose making refuses an unknown command; LaTeX is left in no text."""
    assert sum(page.formulas for page in pages.values()) > 500
    for path, page in pages.items():
        assert not re.search(r"\\(?:frac|eta|sum|begin)\b", page.prose), path


def test_a_page_of_theory_is_typeset_and_plays(address, browser):
    context = browser.new_context(reduced_motion="reduce", viewport={"width": 1280, "height": 1600})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}theory/common-tokens.html")
    assert page.locator(".formula math").count() == page.locator(".formula").count() > 0
    frame = page.frame_locator(".playground iframe")
    frame.locator("#live[data-drawn]").wait_for(state="attached")
    page.evaluate(AXE.read_text())
    assert page.evaluate(FAULTS) == []
    assert frame.locator("[aria-current=true]").first.get_attribute("data-name") == "shared"
    assert errors == []
    assert all(url.startswith((address, "data:", "blob:", "about:")) for url in asked)
    context.close()


SEARCHED = {
    "pandas": "results",
    "csv": "results",
    "learning rate": "guides/own_task",
    "residual": "guides/variants",
    "Markov": "papers/statistical_induction",
}


def test_a_search_leads_to_the_page_that_answers_it(address, browser):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    for words, answer in SEARCHED.items():
        page.goto(f"{address}search.html?q={quote(words)}")
        page.get_by_text("Search finished").wait_for()
        first = page.locator("ul.search > li a").first
        assert first.get_attribute("href").split(".html")[0] == answer, words
    page.close()


def test_serving_is_on_this_machine_alone(tmp_path):
    (tmp_path / "index.html").write_text("here")
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import make\n"
        "make.serve(make.server_of(Path(sys.argv[2]), 0))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, MAKE.parent, tmp_path],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
    ) as process:
        link = process.stdout.readline().split()[0]
        assert link.startswith("http://127.0.0.1:")
        with urlopen(link) as answer:
            assert answer.read() == b"here"
        process.terminate()
