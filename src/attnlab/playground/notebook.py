"""The playground in a notebook: the same page, computed in the notebook's own process."""

from __future__ import annotations

from typing import Any

import panel as pn

from attnlab.data import SequenceClasses, classes_from
from attnlab.dynamics import Simulation
from attnlab.playground.page import Page
from attnlab.playground.presets import DEFAULT, beginning, opening


def notebook(given: Simulation | SequenceClasses | str | None) -> Any:
    """A Panel object on a simulation or on classes, or on those of Fig. 2."""
    pn.extension(inline=True)  # the assets of the packages, so that it works offline
    if given is None:
        return Page(DEFAULT.state).layout
    if isinstance(given, Simulation):
        return Page(opening(given)).layout
    known = classes_from(given) if isinstance(given, str) else given
    return Page(beginning(known)).layout
