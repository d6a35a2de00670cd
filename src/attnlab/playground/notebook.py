"""The playground in a notebook: the same page, computed in the notebook's own process."""

from __future__ import annotations

from typing import Any

import panel as pn

from attnlab.data import SequenceClasses, classes_from
from attnlab.playground.page import Page
from attnlab.playground.presets import DEFAULT, beginning


def notebook(classes: SequenceClasses | str | None) -> Any:
    """A Panel object on given classes, or on those of Fig. 2."""
    pn.extension(inline=True)  # the assets of the packages, so that it works offline
    if classes is None:
        return Page(DEFAULT.state).layout
    known = classes_from(classes) if isinstance(classes, str) else classes
    return Page(beginning(known)).layout
