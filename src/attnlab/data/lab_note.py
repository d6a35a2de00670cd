"""What a recipe says about itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnlab.data.documents import within


@dataclass(frozen=True, kw_only=True)
class LabNote:
    """A lab note: what is made, what it should show, and what it costs. All of it may be left out.

    figure: the name of the figure that the recipe makes. about: the claim, in one sentence.
    hardware, minutes: what it was timed on, and its time there from a cold start.
    regression_bounds: for each number that comes out, the lowest and the highest value, set around
    what a first run found; a number outside means that something is different here.
    """

    figure: str | None = None
    about: str | None = None
    hardware: str | None = None
    minutes: float | None = None
    regression_bounds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.minutes is not None and self.minutes <= 0:
            raise ValueError(f"minutes: expected a positive number, got {self.minutes}")
        for name, (low, high) in self.regression_bounds.items():
            if low > high:
                where = within("regression_bounds", name)
                raise ValueError(f"{where}: expected [lowest, highest], got [{low}, {high}]")
