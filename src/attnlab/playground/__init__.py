"""The playground: watch attention train, in a browser or in a notebook.

The page (page/) computes in the browser; `attnlab play` serves it with an API for what it does not
compute itself. In a notebook it needs the extra `play` (anywidget), which is imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab.simulation import Simulation
    from attnlab.tasks.classes import SequenceClasses

__all__ = ["play"]


def play(given: Simulation | SequenceClasses | str | None = None) -> Any:
    """Return the playground as a widget, which a notebook shows.

    Parameters
    ----------
    given : Simulation or SequenceClasses or str, optional
        A `Simulation`, classes, a preset ("syn-medium:num_last=3") or the path of a file; without
        it, the page opens on sentences about sport and the weather. The command line has the same
        page in a browser: `attnlab play [CLASSES]`.

    Returns
    -------
    Playground
        The widget; its `.simulation` is the run that it shows.
    """
    try:
        from attnlab.playground.notebook import Playground
    except ModuleNotFoundError as problem:
        if problem.name != "anywidget":
            raise
        from attnlab.files.errors import not_installed

        browser = "; in a browser it needs nothing: attnlab play"
        raise not_installed("play", "anywidget", extra="play", or_else=browser) from None

    return Playground(given)
