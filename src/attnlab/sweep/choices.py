"""Engines and models by name, as a recipe has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from attnlab.dynamics import Embedded, Engine, Extended, Flow, Limit, Model, Pairwise, Sampled
from attnlab.files.errors import InputError


class _Named:
    """One of several dataclasses by name, with the union of their fields; None is their default."""

    NOUN: ClassVar[str]
    KINDS: ClassVar[Mapping[str, Any]]
    name: str

    def make(self) -> Any:
        """What this stands for."""
        return self.KINDS[self.name](**self._given())

    def _given(self) -> dict[str, Any]:
        values = asdict(self)  # type: ignore[call-overload]
        return {key: value for key, value in values.items() if key != "name" and value is not None}

    def __post_init__(self) -> None:
        homes = {kind: [item.name for item in fields(of)] for kind, of in self.KINDS.items()}
        for key in self._given():
            if key not in homes[self.name]:
                right = [kind for kind, known in homes.items() if key in known]
                raise InputError(
                    f"{key}: belongs to the {self.NOUN} {' or '.join(map(repr, right))}, "
                    f"not to {self.name!r}"
                )
        for item in fields(self.KINDS[self.name]):
            if item.default is MISSING and item.name not in self._given():
                raise InputError(f"{item.name}: missing; the {self.NOUN} {self.name!r} needs it")
        self.make()  # whose own checks apply


@dataclass(frozen=True)
class EngineRecipe(_Named):
    """An engine by name; the rest as in `Sampled`, `Limit` and `Flow`."""

    NOUN: ClassVar[str] = "engine"
    KINDS: ClassVar[Mapping[str, Any]] = {"sampled": Sampled, "limit": Limit, "flow": Flow}

    name: Literal["sampled", "limit", "flow"]
    length: int | None = None
    batch_size: int | None = None
    sequences: int | None = None
    rtol: float | None = None
    atol: float | None = None
    most_steps: int | None = None

    def engine(self) -> Engine:
        """The engine that this stands for."""
        engine: Engine = self.make()
        return engine


@dataclass(frozen=True)
class ModelRecipe(_Named):
    """A model by name; the rest as in `Embedded` and `Extended`, a position as its text."""

    NOUN: ClassVar[str] = "model"
    KINDS: ClassVar[Mapping[str, Any]] = {
        "pairwise": Pairwise, "embedded": Embedded, "extended": Extended,
    }  # fmt: skip

    name: Literal["pairwise", "embedded", "extended"] = "pairwise"
    dim: int | None = None
    scale: float | None = None
    residual: bool | None = None
    normalization: str | None = None
    heads: int | None = None
    combine: str | None = None
    position: str | None = None
    attend_self: bool | None = None

    def model(self) -> Model:
        """The model that this stands for."""
        model: Model = self.make()
        return model
