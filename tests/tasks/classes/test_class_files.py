"""Files of sequence classes: exact round trips, and refusals that say where."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnlab.files import documents
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.tasks.classes import constructions
from attnlab.tasks.classes.class_files import (
    format_classes,
    parse_classes,
    read_classes,
    write_classes,
)
from attnlab.tasks.classes.classes import SequenceClasses

ROOT = Path(__file__).parents[3]

TWO = """\
vocabulary: [the, of, 1987, votes, was, born, elected]
classes:
  - {query: was, next: born, probs: {the: 0.5, 1987: 0.5}}
  - {query: was, next: elected, probs: {the: 0.25, of: 0.25, votes: 0.5}}
"""


def read(text: str, folder: Path, name: str = "classes.yaml") -> SequenceClasses:
    (folder / name).write_text(text, encoding="utf-8")
    return read_classes(folder / name)


def one(probs: str, vocabulary: str = "[the, of, was, born]", rest: str = "") -> str:
    """A file of one class with these probs."""
    return (
        f"vocabulary: {vocabulary}\n{rest}"
        f"classes:\n  - {{query: was, next: born, probs: {{{probs}}}}}\n"
    )


@pytest.fixture(params=["c", "python"])
def yaml_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both of PyYAML's parsers: the C one is not part of every installation."""
    yaml = pytest.importorskip("yaml")
    documents._yaml_loader.cache_clear()
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
        monkeypatch.delattr(yaml, "CSafeDumper", raising=False)
    yield
    documents._yaml_loader.cache_clear()


# -- reading ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("yaml_parser")
def test_reads_names(tmp_path: Path) -> None:
    classes = read(TWO, tmp_path)
    expected = SequenceClasses(
        [[0.5, 0, 0.5, 0, 0, 0, 0], [0.25, 0.25, 0, 0.5, 0, 0, 0]], query=[4, 4], next_token=[5, 6]
    )
    assert classes == expected
    assert classes.names == ("the", "of", "1987", "votes", "was", "born", "elected")
    assert classes.origin == str(tmp_path / "classes.yaml")


def test_reads_json_like_yaml(tmp_path: Path) -> None:
    document = {
        "vocabulary": ["the", "of", "1987", "votes", "was", "born", "elected"],
        "classes": [
            {"query": "was", "next": "born", "probs": {"the": 0.5, "1987": 0.5}},
            {"query": "was", "next": "elected", "probs": {"the": 0.25, "of": 0.25, "votes": 0.5}},
        ],
    }
    text = json.dumps(document)
    assert read(text, tmp_path, "classes.json") == read(TWO, tmp_path)
    assert read(text, tmp_path) == read(TWO, tmp_path)


def test_reads_ids(tmp_path: Path) -> None:
    text = "vocabulary: 4\nclasses: [{query: 2, next: 3, probs: {0: 0.5, 1: 0.5}}]"
    classes = read(text, tmp_path)
    assert classes.names is None
    assert classes.vocab_size == 4
    quoted = (
        '{"vocabulary": 4, "classes": [{"query": 2, "next": "3", "probs": {"0": 0.5, "1": 0.5}}]}'
    )
    assert read(quoted, tmp_path, "classes.json") == classes


def test_a_byte_order_mark_is_no_harm(tmp_path: Path) -> None:
    assert read("\ufeff" + TWO, tmp_path) == read(TWO, tmp_path)


def test_reads_a_prior(tmp_path: Path) -> None:
    text = TWO.replace("born,", "born, prior: 0.75,").replace("elected,", "elected, prior: 0.25,")
    text = text.replace("born, prior: 0.75, elected", "born, elected")
    np.testing.assert_array_equal(read(text, tmp_path).prior, [0.75, 0.25])


def test_normalize_must_be_asked_for(tmp_path: Path) -> None:
    weights = one("the: 3, of: 1")
    with pytest.raises(ValueError, match=r"classes\[0\].probs: sums to 4; .*`normalize: true`"):
        read(weights, tmp_path)
    classes = read(one("the: 3, of: 1", rest="normalize: true\n"), tmp_path)
    np.testing.assert_array_equal(classes.probs, [[0.75, 0.25, 0, 0]])


def test_normalize_covers_the_prior(tmp_path: Path) -> None:
    text = (
        "vocabulary: 4\nnormalize: true\nclasses:\n"
        "- {query: 2, next: 3, prior: 9, probs: {0: 1}}\n"
        "- {query: 2, next: 2, prior: 1, probs: {1: 1}}\n"
    )
    np.testing.assert_array_equal(read(text, tmp_path).prior, [0.9, 0.1])
    with pytest.raises(ValueError, match=r"classes\[\*\].prior: the priors sum to 10; .*normalize"):
        read(text.replace("normalize: true\n", ""), tmp_path)


# -- names and ids ------------------------------------------------------------------------------


def test_a_number_is_an_id_where_names_are_words(tmp_path: Path) -> None:
    assert read(one('0: 0.5, "1": 0.5'), tmp_path) == read(one("the: 0.5, of: 0.5"), tmp_path)


def test_a_number_that_is_a_name_is_a_name(tmp_path: Path) -> None:
    classes = read(one("2: 0.5, '7': 0.5", "[7, '2', was, born]"), tmp_path)
    assert classes.names == ("7", "2", "was", "born")
    np.testing.assert_array_equal(classes.support(0), [0, 1])


def test_ids_are_refused_where_some_names_are_numbers(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"probs.0: no token is named '0', and ids are refused .*'7'"
    ):
        read(one("0: 1.0", "[the, 7, was, born]"), tmp_path)


@pytest.mark.usefixtures("yaml_parser")
def test_words_that_older_yaml_would_change_stay_words(tmp_path: Path) -> None:
    words = [
        "no",
        "on",
        "yes",
        "off",
        "y",
        "12:30",
        "007",
        "0x1f",
        "1_000",
        "2020-01-01",
        "=",
        "<<",
    ]
    text = (
        f"vocabulary: [{', '.join(words)}]\n"
        "classes: [{query: no, next: on, probs: {=: 0.5, <<: 0.25, 007: 0.125, 12:30: 1.25e-1}}]"
    )
    classes = read(text, tmp_path)
    assert classes.names == tuple(words)
    assert (classes.query, classes.next_token) == (0, 1)
    np.testing.assert_array_equal(classes.support(0), [5, 6, 10, 11])


@pytest.mark.parametrize("name", ["true", "null", "3.14", "1e5", ".nan", "~"])
def test_names_that_yaml_reads_as_something_else_need_quotes(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"vocabulary\[0\]: expected a token name, .*in quotes"):
        read(one("was: 1.0", f"[{name}, was, born]"), tmp_path)
    with pytest.raises(ValueError, match=r"expected a token name or id, .*in quotes"):
        read(one(f"{name}: 1.0"), tmp_path)
    classes = read(one(f"'{name}': 1.0", f"['{name}', was, born]"), tmp_path)
    assert classes.names == (name, "was", "born")


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("[1, 2]", "expected a mapping with vocabulary, classes, got a list"),
        ("just words", "expected a mapping with vocabulary, classes, got 'just words'"),
        ("vocabulary: 3", "classes: missing"),
        ("classes: []", "vocabulary: missing"),
        (TWO + "normalise: true", "normalise: unknown key; did you mean 'normalize'?"),
        (TWO + "1: true", "1: unknown key; known: vocabulary, normalize, classes"),
        (TWO + "normalize: 1", "normalize: expected true or false, got 1"),
        (TWO.replace("next: elected", "nxt: elected"), "classes[1].nxt: unknown key; did you mean"),
        (TWO.replace("next: elected, ", ""), "classes[1].next: missing"),
        (
            TWO.replace("votes: 0.5", "votes: x"),
            "classes[1].probs.votes: expected a number, got 'x'",
        ),
        (TWO.replace("votes: 0.5", "votes: true"), "probs.votes: expected a number, got True"),
        (TWO.replace("votes: 0.5", "votes: "), "probs.votes: expected a number, got nothing"),
        (TWO.replace("votes: 0.5", "votes: [1]"), "probs.votes: expected a number, got a list"),
        (TWO.replace("votes: 0.5", "votes: .nan"), "probs.votes: expected a finite number"),
        (TWO.replace("votes: 0.5", "votes: .inf"), "probs.votes: expected a finite number"),
        (
            TWO.replace("votes: 0.5", "votes: -1"),
            "probs.votes: expected a finite number of at least",
        ),
        (
            TWO.replace("votes: 0.5", f"votes: 1{'0' * 400}"),
            "probs.votes: expected a finite number",
        ),
        (TWO.replace("votes: 0.5", "vote: 0.5"), "named 'vote'; did you mean 'votes'?"),
        (TWO.replace("votes: 0.5", "zzzzz: 0.5"), "named 'zzzzz'; add it to the vocabulary"),
        (TWO.replace("votes: 0.5", r'"\e[2J": 0.5'), r"probs.\x1b[2J: no token is named"),
        (TWO + r'"\0": 1', r"\x00: unknown key; known: vocabulary"),
        (
            TWO.replace("query: was, next: born", "query: [a], next: born"),
            "query: expected a token",
        ),
        (one("the: 0.5, 0: 0.5"), "probs.0: token 0 is listed twice"),
        (one("9: 1.0"), "probs.9: token id 9 is outside 0..3"),
        (one("-1: 1.0"), "probs.-1: token id -1 is outside 0..3"),
        (one(""), "probs: expected a mapping of at least one token"),
        (one("the: 0.6"), "classes[0].probs: sums to 0.6; it must sum to 1"),
        (one("the: 0, of: 0", rest="normalize: true\n"), "the weights sum to 0.0"),
        (one("the: 1e308, of: 1e308", rest="normalize: true\n"), "cannot be normalised"),
        (one("the: 1", "[the, was, the, born]"), "vocabulary[2]: 'the' is listed twice"),
        (one("the: 1", "[]"), "vocabulary: empty"),
        (one("the: 1", "0"), "vocabulary: expected a list of token names or a size"),
        (one("the: 1", "true"), "vocabulary: expected a list of token names or a size"),
        (one("the: 1", "10000000000"), "size from 1 to 2147483647"),
        (one("the: 1", "{a: b}"), "vocabulary: expected a list of token names"),
        (one("the: 1", "4"), "'was' is not a token id; list the names under vocabulary"),
        ("vocabulary: 3\nclasses: []", "classes: expected a list of at least one class"),
        ("vocabulary: 3\nclasses: {a: b}", "classes: expected a list of at least one class"),
        ("vocabulary: 3\nclasses: [x]", "classes[0]: expected a mapping with query, next, probs"),
        (TWO.replace("born, probs", "born, prior: 1, probs"), "classes[1].prior: missing; give"),
        (TWO.replace("next: elected", "next: born"), "the pair (4, 5) is repeated"),
    ],
)
def test_bad_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        read(text, tmp_path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "classes.yaml"))


@pytest.mark.usefixtures("yaml_parser")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO + "vocabulary: 3\n", "invalid YAML: line 5: key 'vocabulary' is given twice"),
        (one("the: 0.5, the: 0.5"), "line 3: key 'the' is given twice"),
        ("vocabulary: 3\nclasses: ]\n", "invalid YAML: line 2: while parsing a block node"),
        ("vocabulary: 3\n? [a]\n: 1\n", "found unhashable key"),
        ("--- {}\n--- {}\n", "invalid YAML: line 2: expected a single document"),
        ("vocabulary: !!python/object:os.system x\n", "line 1: could not determine a constructor"),
        ("vocabulary: !!timestamp x\n", "tag 'tag:yaml.org,2002:timestamp'"),
        ("vocabulary: !!int x\n", "invalid YAML: line 1: 'x' is not of type int"),
        ("vocabulary: \x07\n", "invalid YAML: line 1: the character U+0007 is not allowed"),
        ('vocabulary: "\\UFFFFFFFF"\n', "invalid YAML: line 1: "),
        (f"vocabulary: 1{'0' * 5000}\n", "line 1: a whole number of 5001 digits"),
        ("vocabulary: *nowhere\n", "invalid YAML: line 1: found undefined alias"),
        ("[" * 100_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
        ("vocabulary: 3\n\tclasses: 1\n", "check the indentation"),
        ("vocabulary: [a,\nclasses: 3\n", "line 3: while parsing a flow sequence (line 1)"),
        ("vocabulary: 3\nclasses: 'x\n", "line 3: while scanning a quoted scalar (line 2)"),
        ("vocabulary: 'don't'\n", "line 1: while parsing a block mapping"),
        ("vocabulary: [@x]\n", "line 1: while scanning for the next token"),
        ("a: !!seq x\n", "line 1: expected a sequence node, but found scalar"),
        ("a: 1\nclasses\nb: 2\n", "line 3: while scanning a simple key (line 2), could not find"),
        ("a: 1\n  b: 2\n", "line 2: mapping values are not allowed"),
        ("a: |\n  [ text\n - b\n", "line 3: while parsing a block mapping (line 1)"),
    ],
    ids=range(23),
)
def test_bad_yaml_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        read(text, tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ('{"vocabulary": 3,\n "classes"}', "invalid JSON: Expecting ':' delimiter: line 2"),
        ('{"vocabulary": 3, "vocabulary": 4}', "key 'vocabulary' is given twice"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, "classes.json: "),
        ('{"vocabulary": 3, "classes": [{"query": 1, "next": 2, "probs": {"0": NaN}}]}', "finite"),
    ],
    ids=range(6),
)
def test_bad_json_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        read(text, tmp_path, "classes.json")
    assert message in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"missing.yaml: no such file"):
        read_classes(tmp_path / "missing.yaml")
    with pytest.raises(ValueError, match=r"classes.txt: files of sequence classes end in .yaml"):
        read_classes(tmp_path / "classes.txt")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ValueError, match=r"folder.yaml: not a file"):
        read_classes(tmp_path / "folder.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ValueError, match=r"pipe.yaml: not a file"):
        read_classes(tmp_path / "pipe.yaml")
    (tmp_path / "latin.yaml").write_bytes("vocabulary: [caf\xe9]".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin.yaml: not UTF-8 text \(byte 16\)"):
        read_classes(tmp_path / "latin.yaml")
    monkeypatch.setattr(documents, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="larger than"):
        read(TWO, tmp_path)


def test_an_alias_stands_for_its_value(tmp_path: Path) -> None:
    text = (
        "vocabulary: 4\nclasses:\n"
        "- {query: 2, next: 3, probs: &same {0: 0.5, 1: 0.5}}\n"
        "- {query: 2, next: 2, probs: *same}\n"
    )
    probs = read(text, tmp_path).probs
    np.testing.assert_array_equal(probs[0], probs[1])


@pytest.mark.usefixtures("yaml_parser")
def test_aliases_cannot_blow_up(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 15)]
    with pytest.raises(ValueError, match="aliases stand for more than 1,000,000 values"):
        read("\n".join(lines), tmp_path)
    probs = "&p {" + ", ".join(f"{i}: 1" for i in range(1000)) + "}"
    items = [f"{{query: 1, next: {i}, probs: {'*p' if i else probs}}}" for i in range(600)]
    with pytest.raises(ValueError, match="aliases stand for more than 1,000,000 values"):
        read(f"vocabulary: 1000\nclasses: [{', '.join(items)}]", tmp_path)
    with pytest.raises(ValueError, match=r"vocabulary\[0\]: expected a token name, got a list"):
        read("vocabulary: &a [*a]\nclasses: []", tmp_path)


# -- round trips --------------------------------------------------------------------------------

AWKWARD = r"""no null true ~ = << <unk> - # ' " & &a *a !x { 0 12 -0 1987 1. 1e3 12:30 é"""
NAME = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
) | st.sampled_from(
    [*AWKWARD.split(), "", " ", ": ", "a: b", "\n", "\x85", "\u2028", "\ufeff", "\U0001f600"]
)


@st.composite
def any_classes(draw: st.DrawFn) -> SequenceClasses:
    size = draw(st.integers(1, 6))
    ids = st.integers(0, size - 1)
    pairs = draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=4, unique=True))
    weight = st.floats(1e-300, 1e300) | st.floats(0.1, 1.0)
    probs = []
    for _ in pairs:
        tokens = draw(st.lists(ids, min_size=1, unique=True))
        weights = np.array([draw(weight) for _ in tokens])
        row = weights / weights.max()
        probs.append(dict(zip(tokens, (row / row.sum()).tolist(), strict=True)))
    prior = draw(st.none() | st.lists(weight, min_size=len(pairs), max_size=len(pairs)))
    if prior is not None:
        scaled = np.array(prior) / max(prior)
        prior = (scaled / scaled.sum()).tolist()
    names = draw(st.none() | st.lists(NAME, min_size=size, max_size=size, unique=True))
    query, next_token = zip(*pairs, strict=True)
    return SequenceClasses(probs, query, next_token, prior, vocab_size=size, names=names)


@pytest.mark.slow
@pytest.mark.usefixtures("yaml_parser")
def test_round_trip_is_exact() -> None:
    @settings(max_examples=100)
    @given(any_classes())
    @example(SequenceClasses([[1.0, 0.0]], [0], [1], names=["1e-3", "no"]))
    @example(SequenceClasses([{0: 1 - 1e-5, 1: 1e-5}], [0], [1], vocab_size=2))
    def check(classes: SequenceClasses) -> None:
        for suffix in (".yaml", ".json"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"classes{suffix}"
                write_classes(classes, path)
                again = read_classes(path)
            assert again == classes
            assert again.names == classes.names

    check()


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_constructions_survive_a_file(suffix: str, tmp_path: Path) -> None:
    for classes in (
        syn_small(),
        constructions.zipf(3000, 4, queries=2),
        constructions.random(40, 3, concentration=0.001),
    ):
        write_classes(classes, tmp_path / f"classes{suffix}")
        assert read_classes(tmp_path / f"classes{suffix}") == classes


def test_other_yaml_readers_see_the_same_names(tmp_path: Path) -> None:
    import yaml

    names = ["no", "12:30", "1e-3", "1987", "null", "2020-01-01"]
    classes = SequenceClasses([[0.5, 0.5, 0, 0, 0, 0]], [4], [5], names=names)
    write_classes(classes, tmp_path / "classes.yaml")
    document: dict[str, Any] = yaml.safe_load((tmp_path / "classes.yaml").read_text())
    assert document["vocabulary"] == names
    assert document["classes"] == [
        {"query": "null", "next": "2020-01-01", "probs": {"no": 0.5, "12:30": 0.5}}
    ]


# -- writing ------------------------------------------------------------------------------------


def test_writing_replaces_a_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text("old")
    write_classes(syn_small(), path)
    assert read_classes(path) == syn_small()
    assert os.listdir(tmp_path) == ["classes.yaml"]
    (tmp_path / "other").touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    assert mode == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"classes.yaml: cannot be written: No space left"):
        write_classes(syn_small(), path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["classes.yaml"]


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = syn_small()
    with pytest.raises(ValueError, match=r"end in .yaml, .yml, .json"):
        write_classes(classes, tmp_path / "classes.txt")
    with pytest.raises(ValueError, match="nowhere is not there; make it first"):
        write_classes(classes, tmp_path / "nowhere" / "classes.yaml")
    monkeypatch.setattr(documents, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="make such classes in Python"):
        write_classes(classes, tmp_path / "classes.yaml")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", [r"\ud800", r"a\u0000", r"\u0000"])
def test_a_name_that_no_result_could_hold(name: str) -> None:
    text = '{"vocabulary": ["a", "%s"], "classes": [{"query": 0, "next": 1, "probs": {"0": 1}}]}'
    with pytest.raises(ValueError, match=r"^vocabulary\[1\]: .* no file keeps .* another name"):
        parse_classes(text % name)


# -- the examples -------------------------------------------------------------------------------


def test_example_files_are_what_they_say() -> None:
    two, shared, prior = (
        read_classes(ROOT / "recipes" / f"classes-{name}.yaml")
        for name in ("two-words", "shared-next", "prior")
    )
    assert two.has_psi
    assert two.queries.size == 1
    assert [two.token_name(t) for t in two.common_tokens()] == ["the", "in", "of"]
    assert [two.token_name(t) for t in two.distinct_tokens(0)] == ["hospital", "mother", "1987"]
    assert not shared.has_psi
    assert shared.queries.size == 2
    np.testing.assert_array_equal(prior.prior, [0.9, 0.1])


def test_the_page_about_files_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "sequence-classes.md").read_text()
    python, yaml = (page.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "yaml"))
    names: dict[str, Any] = {}
    exec(python, names)
    assert read_classes("mine.yaml") == names["mine"]
    assert read(yaml, tmp_path).token_name(3) == "1987"


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_text_round_trip(suffix: str) -> None:
    classes = parse_classes(TWO, suffix=".yaml", origin="here")
    assert classes.origin == "here"
    assert parse_classes(format_classes(classes, suffix=suffix), suffix=suffix) == classes
    with pytest.raises(ValueError, match="invalid JSON"):
        parse_classes(TWO, suffix=".json")
