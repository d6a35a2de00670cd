"""attnlab text classes and attnlab text agreement, as a person would use them."""

import json

import pytest
from made_papers import make_paper
from small_text import FILLERS, write_text

from attnlab.shelf import VARIABLE
from attnlab.tasks.classes import read_classes

ASKED = ("--queries", "2", "--next", "2", "--context", "11", "--min-count", "5")


@pytest.fixture
def text(tmp_path, monkeypatch, call):
    """attnlab text, in a folder with a text; gives (exit code, out, err)."""
    write_text(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    return lambda *arguments: call("text", *arguments, cwd=tmp_path)


def test_classes_are_written_and_printed(text, tmp_path):
    code, out, err = text("classes", "text.txt", "--out", "classes.yaml", *ASKED)
    assert code == 0, err
    assert "wrote classes.yaml" in out
    assert "ship" in out
    classes = read_classes(tmp_path / "classes.yaml")
    assert len(classes) == 4
    assert set(classes.names) >= {"the", "a", "cat", "dog", "ship", "train", "11"}
    code, out, _ = text("classes", "text.txt", "--out", "classes.json", "--json", *ASKED)
    document = json.loads(out)
    assert code == 0
    assert document["corpus"]["name"] == "text.txt"
    told = {(row["query"], row["next"]): row["telling"] for row in document["classes"]}
    assert told["the", "cat"][0] == "11"  # the sign that stands before it most
    assert set(told["the", "cat"]) <= {"11", "12", "13", *FILLERS}  # and none that never does
    assert read_classes(tmp_path / "classes.json") == classes


def test_words_are_printed_as_they_are_and_no_number_is_cut(text, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    words = (tmp_path / "text.txt").read_text()
    (tmp_path / "[i].txt").write_text(words.replace("11", "[/]").replace("cat", "[b]"))
    code, out, err = text("classes", "[i].txt", "--out", "[draft].yaml", *ASKED)
    assert code == 0, err
    assert "Corpus('[i].txt'" in out
    assert out.endswith("wrote [draft].yaml; go on with: attnlab simulate '[draft].yaml'\n")
    classes = read_classes(tmp_path / "[draft].yaml")
    rows = [line.split() for line in out.splitlines() if line.startswith(("the ", "a "))]
    assert [row[2] for row in rows] == [f"{prior:.3f}" for prior in classes.prior]
    assert ["the", "[b]", "[/]"] in [[row[0], row[1], row[5]] for row in rows]


def test_a_vocabulary_can_be_cut(text):
    asked = ("--out", "classes.yaml", "--vocab-size", "20", "--json", *ASKED)
    code, out, err = text("classes", "text.txt", *asked)
    assert code == 0, err
    assert json.loads(out)["corpus"]["vocabulary"] == 20


@pytest.mark.slow
def test_agreement_prints_one_document_and_draws(text, tmp_path):
    arguments = ("agreement", "text.txt", *ASKED, "--steps", "30", "--seeds", "2", "--top", "3")
    code, out, err = text(*arguments, "--json", "--plot", "agreement.png")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert len(document["agreement"]) == 3 * 2 * 2 * 6
    assert {row["training"] for row in document["agreement"]} == {"limit", "sampled", "windows"}
    assert len(document["winners"]) == 4
    assert "an inverse document frequency" in document["in_words"]
    assert (tmp_path / "agreement.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = text(*arguments)
    assert code == 0
    assert "Eq. 10" in out
    assert "t-interval over 2 queries" in out
    assert "the 10 % most frequent tokens of each class:" in out
    assert "attended most" in out


@pytest.mark.slow
def test_a_paper_is_named_where_several_offer_scores(text, tmp_path, monkeypatch):
    code = "from attnlab.papers.scan_and_snap.agreement import AGREEMENT"
    folder = make_paper(tmp_path, code={"own": code}, agreement="own:AGREEMENT")
    monkeypatch.setenv(VARIABLE, str(folder))
    code, _, err = text("agreement", "text.txt", *ASKED)
    assert code == 2 and "known: scan_and_snap, made_paper" in err
    asked = (*ASKED, "--steps", "2", "--seeds", "1", "--json", "--paper", "made_paper")
    code, out, err = text("agreement", "text.txt", *asked)
    assert code == 0, err
    assert json.loads(out)["agreement"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["classes", "nowhere.txt", "--out", "x.yaml"], "nowhere.txt: no such corpus"),
        (["classes", "empty.txt", "--out", "x.yaml"], "empty.txt"),
        (["classes", "text.txt", "--out", "x.txt"], "out: the name should end in .yaml"),
        (["classes", "text.txt", "--out", "x.yaml", "--tokens", "char"], "tokens: expected one of"),
        (["classes", "text.txt", "--out", "x.yaml", "--queries", "9"], "ask for fewer"),
        (["classes", "text.txt", "--out", "x.yaml", "--next", "1"], "next: expected at least 2"),
        (["agreement", "text.txt", "--next", "1"], "next: expected at least 2"),
        (["agreement", "text.txt", "--vocab-size", "1"], "vocab_size: expected at least 2"),
        (["agreement", "text.txt", "--plot", "x.doc"], "plot: the name should end in .png"),
        (["agreement", "text.txt", *ASKED, "--seeds", "0"], "seeds: expected at least 1"),
        (["agreement", "text.txt", "--paper", "joma"], "paper: 'joma' offers no scores; known:"),
    ],
)
def test_bad_input_is_one_message_and_nothing_written(text, tmp_path, arguments, message):
    code, out, err = text(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("x.*"))
