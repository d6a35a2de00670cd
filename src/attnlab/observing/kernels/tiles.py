"""Tile sizes of the Triton programs.

`tiles.csv` has those that `./lab bench observe kernels` found fastest, by the device's compute
capability, the width of a head and the dtype. Triton's own search (`triton.autotune`) would measure
in each process anew, and does not work in its interpreter.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

FIELDS = ("program", "capability", "width", "dtype", "rows", "keys", "warps", "stages")


class Tile(NamedTuple):
    """Rows and keys of a tile, warps of a program, and tiles that are loaded ahead."""

    rows: int
    keys: int
    warps: int
    stages: int


@cache
def table() -> dict[tuple[str, int, int, str], Tile]:
    """Return the measured tile sizes, by program, capability, padded width and dtype."""
    text = resources.files(__package__).joinpath("tiles.csv").read_text("utf-8")
    lines = csv.DictReader(text.splitlines())
    return {
        (one["program"], int(one["capability"]), int(one["width"]), one["dtype"]): Tile(
            *(int(one[name]) for name in Tile._fields)
        )
        for one in lines
    }


def tile(program: str, capability: int, width: int, dtype: str) -> Tile:
    """Return the tile sizes for a device; those of an older device, or small ones, where there are
    no measured ones. width: padded to a power of two. dtype: its name."""
    older = [at for at in table() if at[0] == program and at[2:] == (width, dtype)]
    fitting = [at for at in older if at[1] <= capability]
    if fitting:
        return table()[max(fitting, key=lambda at: at[1])]
    wide = width * (2 if dtype == "float32" else 1) > 128
    return Tile(64, 32 if wide else 64, 4, 2)  # needs few registers and little shared memory
