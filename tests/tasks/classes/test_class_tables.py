"""Sequence classes as a table of weights. What is refused, and how, tests/playground compares with
the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlab.files.errors import InputError
from attnlab.tasks.classes import SequenceClasses, classes_from
from attnlab.tasks.classes.class_files import parse_table


@pytest.mark.parametrize(
    "text",
    [
        "word,was → won,was → cold\nthe,1,1\ngoal,3,\nrain,,3\n",
        "word;was -> won;was->cold\r\n\r\nthe;1;1\r\ngoal;3\r\nrain;;3.0\r\n",
        'was\t"won"\t cold \nthe\t2e-1\t.2\ngoal\t.6\t0\nrain\t\t0.6',
    ],
)
def test_a_table_is_its_classes(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8", newline="")
    names = ["the", "goal", "rain", "was", "won", "cold"]
    wanted = SequenceClasses(
        [{0: 0.25, 1: 0.75}, {0: 0.25, 2: 0.75}],
        query=[3, 3],
        next_token=[4, 5],
        vocab_size=6,
        names=names,
    )
    found = classes_from(str(path))
    assert found.names == tuple(names) and found.origin == str(path)
    assert found.probs == pytest.approx(wanted.probs)
    assert found.next_token.tolist() == [4, 5] and found.query.tolist() == [3, 3]


def test_signs_of_a_table_can_be_words() -> None:
    found = parse_table('word,"a,b"\n",",1\n";",2\n"say ""hi""",3\n"two\nlines",4\n')
    assert found["classes"] == [
        {"query": "is", "next": "a,b", "probs": {",": 1, ";": 2, 'say "hi"': 3, "two\nlines": 4}}
    ]


def test_the_line_of_a_fault_is_the_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('word,a\n\n"two\nlines",1\nx,many\n')
    with pytest.raises(InputError) as refused:
        classes_from(str(path))
    wanted = "table: line 5: expected a number of at least 0 for 'x', got 'many'"
    assert str(refused.value) == f"{path}: {wanted}"
