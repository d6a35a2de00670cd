"""What every recipe of a figure says about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FigureRecipe:
    """A lab note: what is made, what it should show, and what it costs.

    about: the claim, in one sentence. hardware, minutes: what it was timed on, and its time there
    from a cold start. expect: for each number that the figure reports, the lowest and the highest
    value to expect; numbers outside it mean that something is different here.
    """

    figure: str
    about: str
    hardware: str
    minutes: float
    expect: dict[str, tuple[float, float]]

    def __post_init__(self) -> None:
        if self.minutes <= 0:
            raise ValueError(f"minutes: expected a positive number, got {self.minutes}")
        for name, (low, high) in self.expect.items():
            if low > high:
                raise ValueError(f"expect.{name}: expected [lowest, highest], got [{low}, {high}]")
