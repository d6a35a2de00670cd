"""What a recipe may say: every field with its kind, its default and its meaning, from the types.

```{recipe-fields}
```
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnlab.experiments import experiment
from attnlab.experiments.base import ExperimentRecipe, SimulationRecipe
from attnlab.files.recipe import SCALARS, Named, Numbers, Recipe
from attnlab.shelf import offered, shelf
from attnlab.simulation.simulation import FIELD_KINDS, Simulation
from attnlab.tasks import Task
from extension.docstrings import explained
from extension.tables import paragraph, section, table

IN_PAPERS = "attnlab.papers."
HEADING = ("field", "kind", "default", "meaning")


class RecipeFields(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        found = [
            section("Any recipe", _of(Recipe)),
            section("Any experiment", _of(ExperimentRecipe, Recipe)),
        ]
        parts: list[type] = []
        kinds = {**FIELD_KINDS, "task": Task | str}
        rows = [_row(Simulation, name, of, parts) for name, of in kinds.items()]
        found.append(section("A simulation", table(HEADING, rows)))
        shown: set[type] = set()
        while left := [part for part in parts if part not in shown]:
            shown.update(left)
            for part in left:
                found += _part(part, parts)
        return [*found, _experiments(parts)]


def _part(part: type, parts: list[type]) -> list[nodes.section]:
    """A value inside a recipe: one table, or one for each name that it can have."""
    if not issubclass(part, Named):
        return [section(f"{part.__name__}", _of(part, parts=parts))]
    kinds = {name: kind for name, kind in part.kinds().items() if _is_listed(name, kind)}
    inside = [
        section(f"name: {name}", *_origin(kind), *_fields_of(kind, parts), code=True)
        for name, kind in kinds.items()
    ]
    about = paragraph(f"One of {', '.join(f'`{name}`' for name in kinds)}.")
    return [section(part.__name__, about, *inside)]


def _is_listed(name: str, kind: type) -> bool:
    """Check that the core has this kind or a paper offers it, whatever else is imported by now."""
    if kind.__module__.startswith(IN_PAPERS):
        return name in {**offered("tasks"), **offered("models")}
    return kind.__module__.startswith("attnlab.")


def _origin(kind: type) -> list[nodes.Node]:
    """Name the paper that brings a kind."""
    if not kind.__module__.startswith(IN_PAPERS):
        return []
    folder = kind.__module__.removeprefix(IN_PAPERS).partition(".")[0]
    (paper,) = [of for of in shelf().papers if of.name == folder]
    return [paragraph(f"Of the paper {paper.short} ({paper.authors}, {paper.year}).")]


def _fields_of(kind: type, parts: list[type]) -> list[nodes.Node]:
    if not fields(kind):
        return [paragraph("It has no fields.")]
    return [_of(kind, parts=parts)]


def _of(kind: type, *above: type, parts: list[type] | None = None) -> nodes.table:
    """The fields of a dataclass, without those of the ones above it."""
    known = {item.name for one in above for item in fields(one)}
    hints = typing.get_type_hints(kind)
    wanted = [item.name for item in fields(kind) if item.init and item.name not in known]
    return table(HEADING, [_row(kind, name, hints[name], parts) for name in wanted])


def _experiments(parts: list[type]) -> nodes.section:
    """What the recipes of figures and studies have beside what stands above."""
    rows = []
    usual = {item.name for item in fields(SimulationRecipe)}
    for name in offered("figures"):
        recipe = experiment(name).recipe
        own = [item.name for item in fields(recipe) if item.name not in usual]
        grid = "a simulation and its grid; " if issubclass(recipe, SimulationRecipe) else ""
        rows.append((f"`{name}`", grid + ", ".join(f"`{field}`" for field in own)))
    about = paragraph(
        "Beside what any experiment may say. The files in a paper's recipes/ explain them."
    )
    return section("Figures and studies", about, table(("recipe", "fields"), rows))


def _row(value: type, name: str, kind: Any, parts: list[type] | None) -> tuple[str, ...]:
    if parts is not None:
        parts += [part for part in _inside(kind) if part not in parts]
    return f"`{name}`", _in_words(kind), _default(value, name), explained(value).get(name, "")


def _default(value: type, name: str) -> str:
    found = [item for item in fields(value) if item.name == name]
    if not found or (found[0].default is MISSING and found[0].default_factory is MISSING):
        return "" if not found else "needed"
    (item,) = found
    usual = item.default if item.default is not MISSING else item.default_factory()
    return "" if usual in (None, {}, ()) else f"`{usual!r}`"


def _inside(kind: Any) -> list[type]:
    """The dataclasses and named bases that a kind is made of."""
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Named)):
        return [kind]
    return [part for of in get_args(kind) if not isinstance(of, str) for part in _inside(of)]


def _in_words(kind: Any) -> str:
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        wanted = [of for of in inside if of is not types.NoneType]
        return " or ".join(dict.fromkeys(_in_words(of) for of in wanted))
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in inside)
    if origin in (tuple, list, Sequence):
        if inside[-1] is not Ellipsis and origin is tuple:
            return f"a list of {len(inside)}: {', '.join(map(_in_words, inside))}"
        return f"a list of {_in_words(inside[0])}"
    if origin in (dict, Mapping):
        return f"a mapping to {_in_words(inside[1])}"
    if kind in SCALARS:
        return SCALARS[kind]
    if kind is Numbers:
        return "nested lists of numbers"
    return kind.__name__ if isinstance(kind, type) else "anything"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("recipe-fields", RecipeFields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
