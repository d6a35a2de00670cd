"""The commands of docs/guides/text.md print what it says that they print."""

import re
from pathlib import Path

import pytest

from attnlab.text import open_corpus

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "text.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
TOLERANCE = 0.05  # as the guide says; of numbers above 1, of their size


def blocks(language):
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    return [text for of, text in fenced if of == language]


def session(block):
    """The commands of a block, each with the lines that it is said to print."""
    commands = []
    for line in block.splitlines():
        if line.startswith("$ ./lab "):
            commands.append((line.removeprefix("$ ./lab ").split(), []))
        else:
            commands[-1][1].append(line)
    return commands


def is_as_printed(told, line):
    """The same words, and numbers to the tolerance."""
    if NUMBER.sub("#", told).split() != NUMBER.sub("#", line).split():
        return False
    pairs = zip(NUMBER.findall(told), NUMBER.findall(line), strict=True)
    values = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
    return all(abs(a - b) <= TOLERANCE * max(1.0, abs(a)) for a, b in values)


def assert_printed(told, printed):
    """Line by line, where `...` stands for any number of lines."""
    lines = iter(printed.splitlines())
    anywhere = False
    for line in told:
        if line == "...":
            anywhere = True
            continue
        for candidate in lines:
            if is_as_printed(line, candidate):
                break
            assert anywhere, f"the guide has\n{line}\nand the command prints\n{candidate}"
        else:
            raise AssertionError(f"not printed: {line}")
        anywhere = False


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for all commands; they read what every Python carries, and one that differs is
    another text."""
    folder = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNLAB_CACHE", str(folder / "cache"))
        if repr(open_corpus("builtin")) not in GUIDE:
            pytest.skip("this Python carries another documentation than that of the guide")
    return folder


@pytest.mark.parametrize(
    "block", blocks("console"), ids=["train", "classes", "simulate", "agreement"]
)
def test_commands_print_what_the_guide_has(block, place, call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("ATTNLAB_CACHE", str(place / "cache"))
    for command, told in session(block):
        code, out, err = call(*command, cwd=place)
        assert code == 0, err
        assert_printed(told, out)


def test_the_words_that_are_looked_at(place, capsys, call):
    """Of the transformer that was trained above, or is now; which of two words is first may
    differ."""
    (train, _), *_ = session(blocks("console")[0])
    call(*train, cwd=place)
    (code,) = blocks("python")
    (told,) = blocks("")
    exec(compile(code, "text.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    same = [is_as_printed(a, b) for a, b in zip(told.splitlines(), printed, strict=True)]
    assert sum(same) >= 9
