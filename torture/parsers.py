"""Fuzzed files: every parser of what people write, by blind and by knowing changes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from attnlab.shelf import offered, recipe_file
from torture import mutate
from torture.campaign import RIGHT, Campaign, Case, Verdict, bad, judged
from torture.options import judge_options, option_case, prepare_options
from torture.verbs import RECIPES

KINDS = ("classes", "classes", "sweep", "recipe", "preset", "page", "text")  # as often as named
STRUCTURED = (".json", ".yaml", ".preset")
SWEEP = {
    "task": {
        "name": "sequences",
        "length": 8,
        "classes": "single-common:num_classes=2,distinct=2,vocab_size=20",
    },
    "grid": {"common_prob": [0.1, 0.2], "eta_z": [0.5, 1.0], "optimizer.beta_2": [0.9, 0.99]},
    "ratio": 2.0,
    "seeds": [0, 3],
    "dtype": "float64",
    "init": "uniform",
    "gradient": {"name": "batches", "size": 4},
    "motion": {
        "name": "steps",
        "steps": 10,
        "optimizer": {"name": "adam", "beta_1": 0.5, "epsilon": 1e-6},
    },
    "model": {
        "name": "extended",
        "residual": True,
        "heads": 2,
        "combine": "concatenate",
        "position": "alibi:0.5",
    },
    "record": {"what": ["attention", "loss"], "every": 5},
}
FLOW = {
    "task": "syn-small",
    "grid": {"eta_y": [1, 2]},
    "eta_z": 0.5,
    "seeds": 2,
    "motion": {"name": "flow", "time": 100.5, "rtol": 1e-4, "atol": 1e-6},
    "record": {"what": "loss", "at": [0, 1.5]},
    "model": {"name": "embedded", "dim": 30, "scale": 2},
}
PRESETS = (
    "syn-small",
    "syn-medium:num_last=3",
    "family:classes=2,queries=1,common=3",
    "zipf:vocab=100,classes=4",
    "random:vocab=20,classes=3,seed=1",
)


@dataclass(frozen=True)
class Parser:
    """Reads what a person may have written.

    seeds: what it accepts. read: a file as a value that can be compared, or an error. again: what
    comes back of a value that is written and read. may: see `mutate`.
    """

    seeds: tuple[bytes, ...]
    suffix: str
    read: Callable[[Path], Any]
    again: Callable[[Any], Any]
    may: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadRecipe:
    """A recipe, compared by its content."""

    recipe: Any = field(compare=False)
    content: Any


class Parsers(Campaign):
    name, share, memory = "parsers", 0.2, 2**31

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in offered("figures"):  # some recipes name others
            shutil.copy(recipe_file(name), folder)
        (folder / "loop.yaml").symlink_to("loop.yaml")
        prepare_options(folder)
        self.take({**_classes(), **_recipes(), **_others(folder)})
        self.choices += [["options"]] * 2

    def take(self, parsers: dict[str, Parser]) -> None:
        """Fuzz these."""
        self.parsers = parsers
        alike = [[name for name in parsers if name.startswith(kind)] for kind in KINDS]
        self.choices = [names for names in alike if names]
        self.plain: dict[tuple[str, int], Any] = {}
        self.values: dict[tuple[str, int], Any] = {}
        for name, parser in parsers.items():
            for i, seed in enumerate(parser.seeds):
                self.plain[name, i] = _document(seed, parser.suffix)
                self.values[name, i] = self._read(name, seed)

    def cases(self, draw: Random) -> Iterator[Case]:
        while True:
            name = draw.choice(draw.choice(self.choices))
            if name == "options":
                yield option_case(draw)
                continue
            parser = self.parsers[name]
            number = draw.randrange(len(parser.seeds))
            document = self.plain[name, number]
            if document is None or draw.random() < 0.4:
                change, must = "bytes", False
                data = mutate.mutate_bytes(parser.seeds[number], draw)
            else:
                made = mutate.mutate(document, draw, parser.may)
                change, must, data = made.words, made.must, _text(made.document, parser.suffix)
            yield Case(name, {"seed": number, "change": change, "must": must}, data)

    def judge(self, case: Case) -> Verdict:
        if case.target not in self.parsers:
            return judge_options(case)
        return judged(partial(self._judge, case))

    def _judge(self, case: Case) -> Verdict:
        parser, change = self.parsers[case.target], case.given["change"]
        value = self._read(case.target, case.data)
        if case.given["must"]:
            return bad(f"accepted, though changed: {change}")
        try:
            if parser.again(value) != value:
                return bad("another value when it is written and read again")
        except Exception as problem:
            return bad(f"accepted, but cannot be written and read again: {problem!r}")
        seed = case.target, case.given["seed"]
        may = any(fnmatchcase(change, pattern) for pattern in parser.may)
        if parser.suffix in STRUCTURED and value == self.values[seed] and not may:
            found, before = _document(case.data, parser.suffix), self.plain[seed]
            if not _less(_unquoted(found), _unquoted(before)):
                return bad(f"a change was ignored: {change}")
        return RIGHT

    def _read(self, name: str, data: bytes) -> Any:
        path = self.folder / f"fuzzed{self.parsers[name].suffix}"
        path.write_bytes(data)
        return self.parsers[name].read(path)


def _document(data: bytes, suffix: str) -> Any:
    """The plain values in a file; None where there are none to change one by one."""
    from attnlab.files.documents import parse_document

    try:
        text = data.decode("utf-8-sig")
        if suffix == ".preset":
            name, _, rest = text.partition(":")
            given = dict(pair.split("=") for pair in rest.split(",") if rest)
            return {"name": name.strip(), **{k.strip(): json.loads(v) for k, v in given.items()}}
        return parse_document(text, suffix=suffix, advice="") if suffix in STRUCTURED else None
    except (ValueError, KeyError):
        return None


def _unquoted(document: Any) -> Any:
    """The document with numbers for their digits: a token's id may stand in quotes."""
    if isinstance(document, dict):
        return {_unquoted(key): _unquoted(value) for key, value in document.items()}
    if isinstance(document, list):
        return list(map(_unquoted, document))
    digits = isinstance(document, str) and re.fullmatch("[0-9]{1,20}", document)
    return int(document) if digits else document


def _less(found: Any, before: Any) -> bool:
    """Whether a document is another one but for what may have been left out: what is taken where
    nothing is said."""
    if isinstance(found, dict) and isinstance(before, dict):
        return all(key in before and _less(found[key], before[key]) for key in found)
    return bool(found == before)


def _text(document: Any, suffix: str) -> bytes:
    """The reverse of `_document`."""
    if suffix == ".preset":
        given = dict(document) if isinstance(document, dict) else {"name": document}
        name = given.pop("name", "")
        text = f"{name}:{','.join(f'{key}={value}' for key, value in given.items())}"
        return text.encode(errors="backslashreplace")
    return mutate.as_text(document, suffix)


def _classes() -> dict[str, Parser]:
    from attnlab.tasks.classes import SequenceClasses, classes_from
    from attnlab.tasks.classes import class_files as files

    def value(made: SequenceClasses) -> Any:
        return made.digest, made.names, files.format_classes(made)

    examples = tuple(path.read_bytes() for path in sorted(RECIPES.glob("classes-*.yaml")))
    made = tuple(
        files.format_classes(classes_from(name)).encode() for name in ("syn-small", "local-common")
    )
    tokens = ("classes.*.query", "classes.*.next")  # which may be numbers, in quotes or not
    may = tuple(f"{token} {kind}" for token in tokens for kind in ("number", "text"))
    may += ("vocabulary.* number", "vocabulary.* text")

    def read(path: Path) -> Any:
        return value(files.read_classes(path))

    def again(found: Any) -> Any:
        return value(files.parse_classes(found[2]))

    return {
        "classes.yaml": Parser(examples, ".yaml", read, again, may),
        "classes.json": Parser(made, ".json", read, again, may),
    }


def _recipes() -> dict[str, Parser]:
    from attnlab.experiments import experiment
    from attnlab.files.recipe import Recipe, as_value, read_recipe
    from attnlab.sweeping import SweepRecipe, make_plan

    def content(value: Any) -> Any:
        """Return what a recipe says, and of a sweep all runs: defaults may be written or not."""
        if isinstance(value, tuple | list):
            return [content(item) for item in value]
        if isinstance(value, dict):
            return {key: content(item) for key, item in value.items()}
        if not is_dataclass(value):
            return value
        said = {
            line.name: content(getattr(value, line.name))
            for line in fields(value)
            if not (isinstance(value, SweepRecipe) and line.name == "given")
        }
        if isinstance(value, SweepRecipe):
            said["runs"] = [(run, of and of.digest) for run, of in value.settings()]
        return said

    def read_any(kind: Any, path: Path) -> ReadRecipe:
        recipe = read_recipe(path, kind)
        return ReadRecipe(recipe, content(recipe))

    def read_sweep(path: Path) -> ReadRecipe:
        found = read_any(SweepRecipe, path)
        make_plan(found.recipe)
        return found

    def document(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [document(item) for item in value]
        if isinstance(value, dict):
            return {key: document(item) for key, item in value.items()}
        if not is_dataclass(value):
            return value
        sweep = value.to_document() if isinstance(value, SweepRecipe) else {}
        beside = [line.name for line in fields(value) if line.name not in ("given", "grid")]
        return {name: document(getattr(value, name)) for name in beside} | sweep

    def again(found: ReadRecipe) -> ReadRecipe:
        written = json.loads(json.dumps(document(found.recipe)))
        recipe = as_value("", written, type(found.recipe))
        return ReadRecipe(recipe, content(recipe))

    note = [line.name for line in fields(Recipe) if line.default is None]
    optional = (
        "motion.*tol",
        "motion.clip",
        "motion.optimizer.*",
        "model.*",
        "record.*",
        "task.training_set",
        "task.validation_tokens",
        "task.corpus.*",
        "vocab_size",
    )
    # without a learning rate, parameters stay fixed
    may = tuple(f"{name} null" for name in (*note, *optional, "eta_y", "eta_z"))
    may += (
        "ours null",
        "regression_bounds renamed",
        "seeds list",
        "regression_bounds.*.* negative",
        "record.what list",
        "record.what.* list",
    )
    seeds = tuple(json.dumps(recipe).encode() for recipe in (SWEEP, FLOW))
    made = {"sweep recipe": Parser(seeds, ".yaml", read_sweep, again, may)}
    for name in offered("figures"):
        seed = recipe_file(name).read_bytes()
        read = partial(read_any, experiment(name).recipe)
        made[f"recipe {name}"] = Parser((seed,), ".yaml", read, again, may)
    return made


def _others(folder: Path) -> dict[str, Parser]:
    from attnlab.files.documents import read_document
    from attnlab.playground.opening import asked
    from attnlab.tasks.classes import SequenceClasses
    from attnlab.tasks.classes.presets import from_preset
    from attnlab.tasks.text import open_corpus

    def text_of(path: Path) -> str:
        return path.read_text(encoding="latin-1")

    def value(made: SequenceClasses) -> Any:
        return made.digest, made.names, made.origin

    def read_text(tokens: Any, path: Path) -> Any:
        return tokens, path, open_corpus(path, tokens=tokens, cache=folder).digest

    page = {"task": "syn-small", "eta_y": 2.0, "model": {"name": "extended", "heads": 2}}
    text = " ".join(f"word{i % 7} is, in {i}." for i in range(60)).encode()
    made = {
        "preset": Parser(
            tuple(map(str.encode, PRESETS)),
            ".preset",
            lambda path: value(from_preset(text_of(path))),
            lambda found: value(from_preset(found[2])),
            ("* text",),
        ),
        "page": Parser(
            (json.dumps(page).encode(),),
            ".json",
            lambda path: asked(read_document(path, noun="simulations", advice="ask for less")),
            lambda simulation: asked(simulation.to_document()),
            ("model.* null",),
        ),
    }
    for tokens in ("word", "bpe"):
        read = partial(read_text, tokens)
        # the second time from the cache
        made[f"text, {tokens}"] = Parser((text,), ".txt", read, lambda found: read_text(*found[:2]))
    return made
