"""The playground: watch attention train, in a browser or in a notebook.

The page (page/) computes in the browser; `attnlab play` serves it with an API for what it does not
compute itself. In a notebook it needs the extra `play` (anywidget), which is imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab.simulation import Simulation
    from attnlab.tasks.classes import SequenceClasses

__all__ = ["play", "require_extra"]


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
    require_extra()
    from attnlab.playground.notebook import Playground

    return Playground(given)


def require_extra() -> None:
    """Raise an ImportError that names the extra, unless anywidget is there."""
    try:
        import anywidget  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "the playground in a notebook needs anywidget: pip install 'attnlab[play]'; in a "
            "browser it needs nothing: attnlab play"
        ) from error
