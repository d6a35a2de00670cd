"""Controls: what a person can turn, with the values on offer and how they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnlab.playground.setting import Setting

RATES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
STEPS = (20, 50, 100, 200, 500, 1000, 2000, 5000)
TIMES = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8)


@dataclass(frozen=True)
class Control:
    """A field of `Setting`: its name on the page, its group, the values on offer, in words."""

    name: str
    label: str
    group: str
    values: tuple[Any, ...]
    words: tuple[tuple[Any, str], ...] = ()

    @property
    def is_scale(self) -> bool:
        """Whether the values have an order, so that a slider suits them."""
        return not isinstance(self.values[0], (bool, str))

    def offered(self, setting: Setting) -> list[Any]:
        """The values on offer, with the one of the setting among them and in its place."""
        values = TIMES if self.name == "steps" and setting.flow else self.values
        own = getattr(setting, self.name)
        if own in values:
            return list(values)
        if not self.is_scale or own is None:
            return [*values, own]
        last = [value for value in values if value is None]
        return sorted([*(value for value in values if value is not None), own]) + last

    def shown(self, value: Any) -> str:
        """A value in words."""
        for known, word in self.words:
            if type(known) is type(value) and known == value:
                return word
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    def applies(self, setting: Setting) -> bool:
        """Whether turning it does anything: Adam has no momentum here."""
        return self.name != "momentum" or setting.optimizer == "sgd"


NO_YES = ((False, "no"), (True, "yes"))

CONTROLS = (
    Control("eta_y", "decoder rate η_Y", "Main", RATES),
    Control("eta_z", "attention rate η_Z", "Main", RATES),
    Control("overlap", "overlap (mass on common tokens)", "Main",
            (0.0, 0.02, 0.1, 0.2, 0.3, 0.5, 20 / 31, 0.8, 0.9)),
    Control("ramp", "ramp (rarest / likeliest distinct)", "Main", (0.02, 0.1, 0.3, 0.5, 0.8, 1.0)),
    Control("steps", "steps", "Main", STEPS),
    Control("seed", "seed", "Main", tuple(range(10))),
    Control("classes", "classes K", "Data", (2, 3, 4, 6, 8, 10, 15, 20)),
    Control("queries", "queries", "Data", (1, 2, 3, 4, 5, 10)),
    Control("common", "common tokens", "Data", (1, 2, 3, 5, 10, 20, 40)),
    Control("distinct", "distinct tokens per class", "Data", (1, 2, 3, 5, 10, 20, 40)),
    Control("vocab_size", "vocabulary M", "Data", (100, 300, 1000, 2000, None),
            ((None, "as needed"),)),
    Control("length", "sequence length T", "Training",
            (8, 16, 32, 64, 128, 256, 512, 1024, 4096, None), ((None, "∞"),)),
    Control("batch_size", "batch", "Training", (1, 8, 32, 128, 512, None),
            ((None, "all (expected gradient)"),)),
    Control("optimizer", "optimiser", "Training", ("sgd", "adam"),
            (("sgd", "SGD"), ("adam", "Adam"))),
    Control("momentum", "momentum", "Training", (0.0, 0.5, 0.9, 0.95, 0.99)),
    Control("flow", "continuous time", "Training", (False, True), NO_YES),
    Control("init", "start", "Training", ("zero", "uniform"),
            (("zero", "Y = Z = 0"), ("uniform", "random, ±1/√M"))),
    Control("residual", "residual connection", "Model", (False, True), NO_YES),
    Control("heads", "heads", "Model", (1, 2, 4, 8)),
)  # fmt: skip
BY_NAME = {control.name: control for control in CONTROLS}
