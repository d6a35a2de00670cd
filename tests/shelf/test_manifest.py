"""Fields of `paper.yaml`, and the errors of a wrong one."""

import dataclasses
import pickle
import re
import traceback
from pathlib import Path

import pytest
import yaml
from made_papers import FIELDS, make_paper

from attnlab.files.errors import InputError
from attnlab.shelf import VARIABLE
from attnlab.shelf.papers import MAX_MANIFEST, Paper, Reference, read_paper


def read(folder):
    return read_paper(folder, package=folder.name)


def test_all_fields_are_read(tmp_path):
    folder = make_paper(
        tmp_path,
        venue="NeurIPS",
        doi="10.1/x",
        theories={"printed": "predict:Printed", "corrected": "predict:Corrected"},
        figures={"fig2": "figures.fig2:EXPERIMENT"},
        claims=[
            {"section": "Setup", "modules": ["claims.model", "claims.setup"]},
            {"section": "Talk", "modules": ["claims.talk"], "of": "the talk"},
        ],
        page="page.md",
        agreement="agreement:compare",
    )
    paper = read(folder)
    assert isinstance(paper, Paper) and paper.folder == folder and paper.package == "made_paper"
    assert (paper.venue, paper.doi, paper.arxiv, paper.page) == (
        "NeurIPS",
        "10.1/x",
        None,
        "page.md",
    )
    assert list(paper.theories) == ["printed", "corrected"]
    assert paper.agreement == "agreement:compare" and paper.commentary is None
    assert list(paper.claim_modules()) == [
        ("Setup", "the paper", "claims.model"),
        ("Setup", "the paper", "claims.setup"),
        ("Talk", "the talk", "claims.talk"),
    ]
    assert pickle.loads(pickle.dumps(paper)) == paper and hash(paper) == hash(read(folder))
    with pytest.raises(dataclasses.FrozenInstanceError):
        paper.name = "another"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"titel": "x"}, "titel: unknown key; did you mean 'title'?"),
        ({"year": "2023"}, "year: expected a whole number, got '2023'"),
        ({"year": 0}, "year: expected a year, got 0"),
        ({"title": " "}, "title: expected text"),
        ({"arxiv": 2305.1}, "arxiv: expected"),
        ({"reading": "guessed"}, "reading: 'guessed' is not among the choices"),
        ({"attnlab": "about 1"}, "attnlab: expected versions such as"),
        ({"theories": ["a:b"]}, "theories: expected a mapping"),
        ({"theories": {"printed": "predict"}}, "theories.printed: expected a reference such as"),
        ({"theories": {"printed": "pre-dict:X"}}, "theories.printed: expected a reference"),
        ({"theories": {"printed": 3}}, "theories.printed: expected text, got 3"),
        ({"presets": {"a:b": "classes:a"}}, "presets.a:b: expected a name"),
        ({"figures": {"a/b": "classes:a"}}, "figures.a/b: expected a name"),
        ({"agreement": "x"}, "agreement: expected a reference"),
        ({"claims": [{"section": "x"}]}, "claims[0].modules: missing"),
        (
            {"claims": [{"section": "x", "modules": ["a b"]}]},
            "claims[0].modules[0]: expected a mod",
        ),
        ({"claims": ["section.yaml"]}, "claims[0]: expected a mapping"),
        ({"claims": {"section": "x"}}, "claims: expected a list"),
        ({"page": "../page.md"}, "page: expected a file inside the folder"),
        ({"page": "/page.md"}, "page: expected a file inside the folder"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_field(tmp_path, fields, words):
    folder = make_paper(tmp_path, **fields)
    with pytest.raises(InputError) as refused:
        read(folder)
    assert str(refused.value).startswith(f"{folder}/paper.yaml: {words}")


@pytest.mark.parametrize("key", ["name", *FIELDS])
def test_a_missing_field_is_named(tmp_path, key):
    with pytest.raises(InputError, match=rf"paper\.yaml: {key}: missing"):
        read(make_paper(tmp_path, leave_out=[key]))


def test_the_name_is_the_folders(tmp_path):
    folder = make_paper(tmp_path, "one").rename(tmp_path / "two")
    with pytest.raises(
        InputError, match="name: expected 'two', as the folder is called, got 'one'"
    ):
        read(folder)
    with pytest.raises(InputError, match="name: expected lower-case letters"):
        read(make_paper(tmp_path, "Three-4"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a mapping"),
        ("other.yaml", "expected a mapping"),
        ("name: x\ntitle: [a", "invalid YAML: line 3: while parsing a flow sequence (line 2)"),
        ("name: x\nname: y", "line 2: key 'name' is given twice"),
        ("a: " * 40, "invalid YAML"),
        ("[" * 40, "nested too deeply; see the papers"),
        ("a: !!python/object/apply:os.system ['true']", "constructor for the tag"),
    ],
)
def test_text_that_is_not_a_manifest(tmp_path, text, words):
    folder = make_paper(tmp_path)
    (folder / "paper.yaml").write_text(text)
    with pytest.raises(InputError, match=re.escape(words)):
        read(folder)


def test_files_that_are_missing_or_too_large(tmp_path):
    folder = make_paper(tmp_path)
    (folder / "__init__.py").unlink()
    with pytest.raises(InputError, match="no __init__.py; add an empty one"):
        read(folder)
    (folder / "paper.yaml").write_text("#" * (MAX_MANIFEST + 1))
    with pytest.raises(InputError, match="larger than 1 MB"):
        read(folder)
    (folder / "paper.yaml").unlink()
    with pytest.raises(InputError, match="no such file"):
        read(folder)


def test_expected_results_are_read_when_they_are_asked_for(tmp_path):
    bare = read(make_paper(tmp_path, "bare"))
    assert bare.expected == {"claims": {}, "figures": {}}
    expected = {
        "claims": {"theorem-1": {"verdict": "holds", "deviation": 0.25}},
        "figures": {"fig2": {"standing": "holds"}},
    }
    whole = read(make_paper(tmp_path, expected=expected, figures={"fig2": "fig2:EXPERIMENT"}))
    assert whole.expected == expected


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ([], "expected a mapping"),
        ({"claim": {}}, "claim: unknown key; did you mean 'claims'?"),
        ({"claims": []}, "claims: expected a mapping"),
        ({"claims": {"a": "holds"}}, "claims.a: expected a mapping"),
        ({"figures": {"fig2": {}}}, "figures.fig2.standing: missing"),
        ({"figures": {"fig2": {"standing": 1}}}, "figures.fig2.standing: expected text, got 1"),
        ({"figures": {"fig3": {"standing": "holds"}}}, "figures.fig3: unknown key; did you mean"),
    ],
)
def test_expected_results_are_checked(tmp_path, expected, words):
    paper = read(make_paper(tmp_path, expected=expected, figures={"fig2": "fig2:EXPERIMENT"}))
    with pytest.raises(InputError) as refused:
        _ = paper.expected
    assert str(refused.value).startswith(f"{paper.folder}/expected.json: {words}")


def test_yaml_is_read_as_version_1_2(tmp_path):
    folder = make_paper(tmp_path)
    text = yaml.safe_dump({"name": "made_paper", **FIELDS}).replace("Somebody", "No")
    (folder / "paper.yaml").write_text(text)
    assert read(folder).authors == "No"


def test_a_reference_that_fails_names_paper_target_and_reason(tmp_path, monkeypatch):
    code = {
        "fine": "value = 3",
        "absent": "import no_such_library",
        "broken": "x = 1\n1 / 0",
        "above": "from made_failing import broken",
        "wrong": "def f(:",
        "leaves": "raise SystemExit(3)",
    }
    paper = read(make_paper(tmp_path, "made_failing", code=code))
    monkeypatch.setenv(VARIABLE, str(paper.folder))
    assert Reference(paper, "fine:value").load() == 3
    for target, words in {
        "absent:x": "absent cannot be imported: absent.py:1: ModuleNotFoundError: No module named",
        "broken:x": "broken cannot be imported: broken.py:2: ZeroDivisionError: division by zero",
        "above:x": "above cannot be imported: above.py:1: broken.py:2: ZeroDivisionError: div",
        "wrong:x": "wrong cannot be imported: wrong.py:1: SyntaxError: invalid syntax; mend",
        "leaves:x": "leaves cannot be imported: leaves.py:1: SystemExit: 3",
        "nowhere:x": "nowhere cannot be imported: ModuleNotFoundError",
        "fine:valeu": "fine:valeu: fine has no 'valeu'; correct it in",
    }.items():
        with pytest.raises(InputError, match=re.escape(f"paper made_failing: {words}")) as refused:
            Reference(paper, target).load()
        cause = refused.value.__cause__
        assert cause is not None
        frames = [of.filename for of in traceback.extract_tb(cause.__traceback__)]
        if frames and target != "fine:valeu":  # what imports the paper is left out
            assert Path(frames[0]).parent == paper.folder, target
