"""Papers are found in three kinds of places, and one that is bad takes no other down."""

import importlib.metadata
import multiprocessing
import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from made_papers import make_paper

from attnlab.files.errors import InputError
from attnlab.shelf import (
    VARIABLE,
    add_folder,
    figure,
    offered,
    paper,
    papers,
    reference,
    shelf,
    single,
)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    """Each test finds its own papers, and leaves no others behind."""
    monkeypatch.setenv(VARIABLE, "")  # which is put back
    papers._find.cache_clear()
    yield
    papers._find.cache_clear()


@pytest.fixture
def empty(monkeypatch, tmp_path):
    """A shelf without the papers that come with attnlab or are installed."""
    monkeypatch.setattr(papers, "BUILT_IN", tmp_path / "built_in")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    return tmp_path


def install(monkeypatch, **points):
    found = [EntryPoint(name, value, papers.GROUP) for name, value in points.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: found)


def names():
    return [found.name for found in shelf().papers]


def faults():
    return {fault.name: fault.reason for fault in shelf().faults}


def test_papers_that_come_with_attnlab_have_no_faults():
    assert shelf().faults == ()
    assert shelf() is shelf()


def test_three_sources_in_the_order_of_years(empty, monkeypatch):
    make_paper(papers.BUILT_IN, "made_b", year=2024)
    make_paper(papers.BUILT_IN, "made_a", year=2024)
    (papers.BUILT_IN / "made_none").mkdir()
    make_paper(empty / "site", "made_c", year=2023)
    monkeypatch.syspath_prepend(empty / "site")
    install(monkeypatch, c="made_c")
    added = add_folder(make_paper(empty, "made_d", year=2022))
    assert names() == ["made_d", "made_c", "made_a", "made_b"] and not shelf().faults
    assert [found.package for found in shelf().papers][1:3] == ["made_c", "attnlab.papers.made_a"]
    assert paper("made_d") == added and added.package == "made_d"
    assert os.environ[VARIABLE] == str(added.folder)
    assert add_folder(paper("made_c").folder) == paper("made_c")  # the same folder, not a double
    assert os.environ[VARIABLE] == str(added.folder)


def test_a_bad_paper_does_not_affect_others(empty, monkeypatch):
    make_paper(papers.BUILT_IN, "made_good")
    make_paper(papers.BUILT_IN, "made_bad", year="long ago")
    make_paper(papers.BUILT_IN, "made_new", attnlab=">=99")
    site = empty / "site"
    make_paper(site, "made_bare").joinpath("paper.yaml").unlink()
    (site / "made_module.py").write_text("")
    make_paper(site, "made_good")
    monkeypatch.syspath_prepend(site)
    install(
        monkeypatch,
        dotted="made_bare.inner",
        colon="made_bare:x",
        gone="made_gone",
        made_bare="made_bare",
        module="made_module",
        made_good="made_good",
    )
    folders = [make_paper(empty / "plain", name) for name in ("json", "made_good")]
    monkeypatch.setenv(VARIABLE, os.pathsep.join(map(str, [*folders, empty / "nowhere"])))
    assert names() == ["made_good"] and paper("made_good").package == "attnlab.papers.made_good"
    found = faults()
    for name, words in {
        "made_bad": "paper.yaml: year: expected a whole number, got 'long ago'",
        "made_new": "attnlab: needs >=99, this is",
        "dotted": "expected a top-level package, such as own_paper",
        "colon": "expected a top-level package",
        "gone": "there is no package made_gone; install it again",
        "made_bare": "paper.yaml: no such file",
        "made_module.py": "paper.yaml: cannot be read: Not a directory",
        "made_good": "a Python module has this name too",
        "json": "a Python module has this name too",
        "nowhere": "paper.yaml: no such file",
    }.items():
        assert words in found[name], name
    doubled = [fault.reason for fault in shelf().faults if fault.name == "made_good"]
    assert "has this name too; rename one of them" in doubled[0] and len(doubled) == 2
    with pytest.raises(InputError, match="paper: 'made_new' cannot be used: .*needs >=99"):
        paper("made_new")
    with pytest.raises(InputError, match="did you mean 'made_good'"):
        paper("made_goot")


def test_damaged_metadata_is_a_fault(empty, monkeypatch):
    make_paper(papers.BUILT_IN)

    def damaged(**_):
        raise TypeError("half a line")

    monkeypatch.setattr(importlib.metadata, "entry_points", damaged)
    assert names() == ["made_paper"]
    assert faults() == {"installed packages": "entry points: cannot be read: half a line"}


def test_a_folder_that_cannot_be_added_is_refused_and_forgotten(empty, monkeypatch):
    good, bad = make_paper(empty, "made_good"), make_paper(empty, "made_bad", titel="x")
    add_folder(good)
    for folder, words in {
        bad: "titel: unknown key",
        empty / "a:b": "cannot have ':' in it",
    }.items():
        with pytest.raises(InputError, match=words):
            add_folder(folder)
    with pytest.raises(InputError, match="has this name too"):
        add_folder(make_paper(empty / "again", "made_good"))
    assert os.environ[VARIABLE] == str(good) and not shelf().faults
    monkeypatch.chdir(empty)
    assert add_folder("made_good").folder == good


def test_what_papers_offer(empty):
    add_folder(make_paper(empty, "made_late", year=2025, presets={"two": "classes:two"}))
    early = make_paper(
        empty,
        "made_early",
        year=2020,
        presets={"one": "classes:one", "two": "classes:two"},
        theories={"printed": "predict:Printed"},
        agreement="agree:compare",
    )
    add_folder(early)
    assert [(name, found.paper.name) for name, found in offered("presets").items()] == [
        ("one", "made_early"),  # of two, the source or the year that comes first keeps its name
        ("two", "made_early"),
    ]
    assert "presets.two: made_early offers a preset of this name" in faults()["two"]
    assert reference("theories", "printed").target == "predict:Printed"
    with pytest.raises(
        InputError, match=r"theory: 'prinetd' is not known.* mean 'printed'\?.*says why"
    ):
        reference("theories", "prinetd")
    assert [(of.name, found.target) for of, found in single("agreement")] == [
        ("made_early", "agree:compare")
    ]
    assert single("commentary") == []


def test_attnlab_keeps_its_names(empty):
    make_paper(papers.BUILT_IN, "made_own", year=2024, presets={"one": "classes:one"})
    add_folder(make_paper(empty, "made_early", year=2020, presets={"one": "classes:one"}))
    assert reference("presets", "one").paper.name == "made_own"


def test_figures_may_repeat_across_papers(empty):
    figures = {"fig1": "fig1:EXPERIMENT", "fig2": "fig2:EXPERIMENT"}
    add_folder(make_paper(empty, "made_one", figures=figures))
    add_folder(make_paper(empty, "made_two", figures={"fig2": "drawn:FIG2"}))
    assert list(offered("figures")) == ["made_one/fig1", "made_one/fig2", "made_two/fig2"]
    whose, name, found = figure("fig1")
    assert (whose.name, name, found.target) == ("made_one", "fig1", "fig1:EXPERIMENT")
    assert figure("made_two/fig2")[2].target == "drawn:FIG2" and not shelf().faults
    for wrong, words in {
        "fig2": "several papers have 'fig2'; say made_one/fig2 or made_two/fig2",
        "fig9": "figure: 'fig9' is not known; did you mean",
        "made_two/fig1": "figure: 'made_two/fig1' is not of made_two; did you mean 'made_two/fig2'",
        "made_tow/fig2": "paper: 'made_tow' is not known; did you mean 'made_two'",
    }.items():
        with pytest.raises(InputError, match=words):
            figure(wrong)


def _load(name):
    """In a child process: the paper is found again, through the environment."""
    return reference("presets", name).load()()


def _call(function):
    """In a child process: what is sent there is a value of the paper's own."""
    return function()


def test_a_plain_folder_is_imported_here_and_in_child_processes(empty):
    code = {
        "classes": "from made_plain.inner import SIZE\ndef grid(): return SIZE",
        "inner": "SIZE = 7",
    }
    folder = make_paper(empty, "made_plain", code=code, presets={"grid": "classes:grid"})
    add_folder(folder)
    path = list(sys.path)
    assert "made_plain" not in sys.modules
    assert reference("presets", "grid").load()() == 7
    assert sys.path == path and sys.modules["made_plain.inner"].SIZE == 7
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_load, ("grid",)) == 7
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_call, (reference("presets", "grid").load(),)) == 7


def test_another_folder_of_a_name_that_is_imported_is_refused(empty, monkeypatch):
    for place in ("one", "two"):
        make_paper(
            empty / place, "made_moved", code={"a": f"PLACE = {place!r}"}, models={"m": "a:PLACE"}
        )
    monkeypatch.setenv(VARIABLE, str(empty / "one" / "made_moved"))
    assert reference("models", "m").load() == "one"
    monkeypatch.setenv(VARIABLE, str(empty / "two" / "made_moved"))
    assert "a Python module has this name too" in faults()["made_moved"]


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_finding_imports_no_paper_and_nothing_heavy(tmp_path):
    loud = {"__init__": "raise RuntimeError('imported')", "classes": ""}
    plain = make_paper(tmp_path, "made_plain", code=loud, presets={"loud": "classes:grid"})
    site = tmp_path / "site"
    make_paper(site, "made_installed", code=loud, year=2001)
    record = site / "made_installed-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: made-installed\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(f"[{papers.GROUP}]\nmade = made_installed\n")
    out = run(
        "import sys\nfrom attnlab.shelf import figure, offered, paper, shelf\n"
        "print(shelf().papers[0].package, paper('made_plain').year, *offered('presets'))\n"
        "heavy = {'jax', 'numpy', 'made_plain', 'made_installed', 'attnlab.papers'}\n"
        "print('heavy:', *heavy & set(sys.modules), *shelf().faults)\n"
        "try: paper('made_installed').load('classes')\n"
        "except ValueError as error: print(error)",
        PYTHONPATH=os.pathsep.join([str(site), *sys.path]),
        **{VARIABLE: str(plain)},
    )
    assert out[:2] == ["made_installed", "2025"] and "loud" in out
    after = out[out.index("heavy:") + 1 :]
    assert " ".join(after).startswith("paper made_installed: classes cannot be imported: __init__")
