"""The playground: see attention scan and snap, in a browser or in a notebook.

Needs the extra `play` (Panel and Bokeh), which is imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab.data import SequenceClasses
    from attnlab.dynamics import Simulation

__all__ = ["play", "require_extra"]


def play(given: Simulation | SequenceClasses | str | None = None) -> Any:
    """The playground as a Panel object, which a notebook shows.

    given: a `Simulation`, or what is learnt from: classes, a preset ("syn-medium:num_last=3") or
    the path of a file; without it, the page starts with Fig. 2. The command line has the same
    page: `attnlab play [CLASSES]`.
    """
    require_extra()
    from attnlab.playground.notebook import notebook

    return notebook(given)


def require_extra() -> None:
    """Raise an ImportError that names the extra, unless Panel and Bokeh are there."""
    try:
        import panel  # noqa: F401  # which needs Bokeh itself
    except ImportError as error:
        raise ImportError(
            "the playground needs Panel and Bokeh: pip install 'attnlab[play]'"
        ) from error
