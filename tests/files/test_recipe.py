"""Recipes: what is read, and how what is wrong is named."""

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Literal

import pytest

from attnlab.files.errors import InputError
from attnlab.files.recipe import Named, as_value, read_recipe


@dataclass(frozen=True)
class Engine:
    name: Literal["sampled", "flow"]
    length: int = 128

    def __post_init__(self) -> None:
        if self.length < 2:
            raise ValueError(f"length: expected at least 2, got {self.length}")


@dataclass(frozen=True)
class Recipe:
    about: str
    rate: float
    engine: Engine
    grid: dict[str, tuple[float, ...]] = field(default_factory=dict)
    span: tuple[int, int] | None = None
    what: str | Sequence[str] = "all"
    quick: bool = False


GOOD = """
about: a run   # with a comment
rate: 1
engine: {name: sampled}
grid: {eta: [1, 2.5]}
span: [0, 10]
what: [loss, logits]
"""


def write(folder: Path, text: str, name: str = "recipe.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_values_become_what_the_annotations_say(tmp_path):
    recipe = read_recipe(write(tmp_path, GOOD), Recipe)
    assert recipe == Recipe(
        about="a run",
        rate=1.0,
        engine=Engine("sampled"),
        grid={"eta": (1.0, 2.5)},
        span=(0, 10),
        what=("loss", "logits"),
    )
    assert isinstance(recipe.rate, float)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rate: 1", "rte: 1"), "rte: unknown key; did you mean 'rate'?"),
        (("rate: 1\n", ""), "rate: missing"),
        (("rate: 1", "rate: fast"), "rate: expected a number, got 'fast'"),
        (("rate: 1", "rate: true"), "rate: expected a number, got True"),
        (("rate: 1", "rate: .inf"), "rate: expected a finite number"),
        (("rate: 1", "rate:"), "rate: expected a number, got nothing"),
        (("about: a run", "about: 3"), "about: expected text, got 3"),
        (("name: sampled", "name: smapled"), "engine.name: 'smapled' is not among the choices"),
        (("name: sampled", "name: sampled, lenght: 3"), "engine.lenght: unknown key; did you mean"),
        (("name: sampled", "name: sampled, length: 1"), "engine.length: expected at least 2"),
        (("name: sampled", "name: sampled, length: 2.5"), "engine.length: expected a whole number"),
        (("[1, 2.5]", "[1, x]"), "grid.eta[1]: expected a number, got 'x'"),
        (("[1, 2.5]", "3"), "grid.eta: expected a list, got 3"),
        (("{eta: [1, 2.5]}", "[1]"), "grid: expected a mapping, got a list"),
        (("span: [0, 10]", "span: [0, 1, 2]"), "span: expected 2 values, got 3"),
        (("{name: sampled}", "[1]"), "engine: expected a mapping with name, got a list"),
        (("rate: 1", "rate: 1\nrate: 2"), "key 'rate' is given twice"),
        (("rate: 1", "quick: yes\nrate: 1"), "quick: expected true or false, got 'yes'"),
    ],
    ids=range(18),
)
def test_what_is_wrong_is_named_by_its_path(change, message, tmp_path):
    path = write(tmp_path, GOOD.replace(*change))
    with pytest.raises(ValueError) as caught:
        read_recipe(path, Recipe)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_part_may_be_a_file_of_its_own(tmp_path):
    (tmp_path / "engines").mkdir()
    write(tmp_path, "name: flow\nlength: 7", "engines/mine.yaml")
    path = write(tmp_path, GOOD.replace("{name: sampled}", "engines/mine.yaml"))
    assert read_recipe(path, Recipe).engine == Engine("flow", 7)
    write(tmp_path, "nme: flow", "engines/mine.yaml")
    with pytest.raises(ValueError, match=r"mine.yaml: nme: unknown key; did you mean 'name'"):
        read_recipe(path, Recipe)


def test_a_recipe_cannot_contain_itself(tmp_path):
    path = write(tmp_path, GOOD.replace("{name: sampled}", "recipe.yaml"))
    with pytest.raises(ValueError, match="part of itself"):
        read_recipe(path, Recipe)


def test_empty_and_absent_files(tmp_path):
    with pytest.raises(ValueError, match=r"recipe.yaml: expected a mapping with about, rate"):
        read_recipe(write(tmp_path, ""), Recipe)
    with pytest.raises(ValueError, match="no such file"):
        read_recipe(tmp_path / "none.yaml", Recipe)


@pytest.mark.parametrize("home", ["engine", "grid"])
def test_a_key_cannot_take_hold_of_the_terminal(home):
    document = {"about": "a run", "rate": 1, "engine": {"name": "sampled"}, "grid": {}}
    document[home]["\x1b[2J\0\u202e"] = 1
    with pytest.raises(ValueError) as caught:
        as_value("", document, Recipe)
    assert str(caught.value).startswith(rf"{home}.\x1b[2J\x00\u202e: ")
    assert str(caught.value).isprintable()


def test_a_long_key_is_cut_in_the_message(tmp_path):
    path = write(tmp_path, GOOD + f"{'k' * 500}: 1\n")
    with pytest.raises(ValueError) as caught:
        read_recipe(path, Recipe)
    assert f"{'k' * 60}...: unknown key" in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"what": 1}, "what: expected text or a list, got 1"),
        ({"about": "a\0b"}, "about: 'a\\x00b' has a character that no file keeps"),
        (
            {"engine": {"name": "flow", "length": 2**63}},
            "engine.length: expected a whole number of 64 bits, got 9223372036854775808",
        ),
    ],
)
def test_values_that_nothing_could_hold(changes, message):
    with pytest.raises(ValueError) as caught:
        as_value("", {"about": "x", "rate": 2, "engine": {"name": "flow"}, **changes}, Recipe)
    assert message in str(caught.value)


def test_values_need_not_come_from_a_file():
    document = {"about": "x", "rate": 2, "engine": {"name": "flow"}}
    assert as_value("", document, Recipe).rate == 2.0


class Vehicle(Named):
    """A base for `test_a_name_of_two_classes_is_refused`."""


def test_a_name_of_two_classes_is_refused():
    def made(name, module, width):
        fields = [("width", int, field(default=width))]
        return make_dataclass(name, fields, bases=(Vehicle,), namespace={"__module__": module})

    kinds = made("Cart", "one", 1), made("Cart", "two", 2), made("Boat", "two", 3)
    with pytest.raises(InputError, match=r"'cart' is both one.Cart and two.Cart; rename"):
        as_value("vehicle", {"name": "cart"}, Vehicle)
    assert as_value("vehicle", {"name": "boat"}, Vehicle) == kinds[-1]()
    again = made("Boat", "two", 4)  # as a notebook defines its class again
    assert as_value("vehicle", {"name": "boat"}, Vehicle) == again()
