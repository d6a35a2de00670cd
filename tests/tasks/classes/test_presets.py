"""Presets: text to classes, and clear refusals."""

from __future__ import annotations

import inspect
import re
from fractions import Fraction
from pathlib import Path

import pytest

from attnlab.papers.scan_and_snap.classes import syn_medium, syn_small
from attnlab.shelf import offered
from attnlab.tasks.classes import constructions
from attnlab.tasks.classes.class_files import write_classes
from attnlab.tasks.classes.presets import CONSTRUCTIONS, classes_from, from_preset, presets


def test_every_construction_has_a_preset_of_its_name() -> None:
    public = {
        name.replace("_", "-"): function
        for name, function in inspect.getmembers(constructions, inspect.isfunction)
        if hasattr(function, "__wrapped__")
    }
    assert dict(CONSTRUCTIONS) == public


def test_the_page_has_every_preset_with_its_parameters_and_defaults() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sequence-classes.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*?)\|", page, re.MULTILINE)
    known = {**{name: of.load() for name, of in offered("presets").items()}, **CONSTRUCTIONS}
    assert {name for name, _ in rows if name in known} == {*known} == {*presets()}
    in_words = {"no more than used": None, "none": None, "": inspect.Parameter.empty}
    for name, parameters in rows:
        if name in known:
            told = {
                key: in_words[default] if default in in_words else float(Fraction(default))
                for key, default in re.findall(r"`(\w+)`(?: \(([^)]*)\))?", parameters)
            }
            given = inspect.signature(known[name]).parameters
            assert told == {key: of.default for key, of in given.items()}, name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("syn-small", syn_small()),
        ("syn-medium", syn_medium()),
        ("syn-medium:num_last=3", syn_medium(num_last=3)),
        (" syn-medium : num_last = 5 , next_per_last=1 ", syn_medium(num_last=5, next_per_last=1)),
        ("single-common:common_prob=2e-1", constructions.single_common(common_prob=0.2)),
        ("single-common:vocab_size=1_000", constructions.single_common(vocab_size=1000)),
        ("zipf:vocab=500,classes=3,exponent=1", constructions.zipf(500, 3)),
        ("zipf:vocab=500,classes=3,bands=9", constructions.zipf(500, 3, bands=9)),
        ("random:vocab=50,classes=3,overlap=0.2", constructions.random(50, 3, overlap=0.2)),
    ],
)
def test_from_preset(text: str, expected: object) -> None:
    assert from_preset(text) == expected
    assert classes_from(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("syn-medum", "'syn-medum' is not a preset; did you mean 'syn-medium'"),
        ("syn_small", "did you mean 'syn-small'"),
        ("", "'' is not a preset; known: syn-small, syn-medium"),
        ("syn-medium:num_lst=3", "'num_lst' is not a parameter; did you mean 'num_last'"),
        ("syn-medium:num_last=3.5", "num_last: expected a whole number, got '3.5'"),
        ("syn-medium:num_last=", "num_last: expected a whole number, got ''"),
        ("syn-medium:num_last=3,num_last=4", "num_last is given twice"),
        ("syn-medium:num_last", "expected key=value, got 'num_last'"),
        ("syn-medium:", "expected key=value, got ''"),
        ("syn-medium:num_last=3,", "expected key=value, got ''"),
        ("syn-medium:num_last=0", "syn-medium: num_last: expected a whole number of at least 1"),
        ("syn-small:num_last=3", "syn-small: takes no parameters, got 'num_last'"),
        ("single-common:common_prob=x", "common_prob: expected a number, got 'x'"),
        ("single-common:common_prob=nan", "common_prob: expected a finite number"),
        ("zipf", "zipf: vocab and classes must be given, as zipf:vocab=...,classes=..."),
        ("zipf:vocab=100", "zipf: classes must be given, as zipf:classes=..."),
    ],
)
def test_bad_presets_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        from_preset(text)
    assert message in str(caught.value)
    with pytest.raises(ValueError):
        classes_from(text)


@pytest.mark.parametrize("name", ["mine.yaml", "mine.yml", "mine.json", "Mine.YAML"])
def test_resolve_reads_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = syn_small()
    write_classes(classes, tmp_path / name)
    assert classes_from(tmp_path / name) == classes
    monkeypatch.chdir(tmp_path)
    read = classes_from(name)
    assert read == classes
    assert read.origin == name
    assert classes_from(read.origin) == read


def test_resolve_says_what_a_file_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"missing.yaml: no such file"):
        classes_from("missing.yaml")
    with pytest.raises(ValueError, match=r"end in .yaml, .yml, .json"):
        classes_from("folder/missing.txt")
    Path("classes.txt").write_text("vocabulary: 3\n")
    with pytest.raises(ValueError, match=r"classes.txt: files of sequence classes end in .yaml"):
        classes_from("classes.txt")
    with pytest.raises(ValueError, match=r"not a preset; .*a file must end in .yaml, .yml, .json"):
        classes_from("missing.txt")
