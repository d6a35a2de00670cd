"""How figures look: colours that survive any eye and any printer, sizes legible on paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with any colour vision
COMMON, DISTINCT = "#E69F00", "#0072B2"
ACCENT, GREEN = "#D55E00", "#009E73"
OUTLINE = "0.35"
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (4, 1, 1, 1)),
    (0, (8, 1.5, 1, 1.5, 1, 1.5)),
    (0, (2, 1)),
)
PAGE_WIDTH = 7.0  # inches; printed at this width, the smallest text is 7 point
CONTRAST = 0.8  # the light end of the colour map does not show on white paper


def ordered(count: int) -> list[Any]:
    """Colours for the values of a quantity, dark to light, in order in grey print too."""
    from matplotlib import colormaps

    last = max(count - 1, 1)
    return [colormaps["viridis"](CONTRAST * i / last) for i in range(count)]


def style() -> AbstractContextManager[None]:
    """Within it, figures are made and saved with attnlab's settings; the caller's stay as is."""
    import matplotlib

    return matplotlib.rc_context(
        {
            "font.size": 8,
            "axes.titlesize": 8.5,
            "axes.labelsize": 8,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "legend.fontsize": 7.5,
            "legend.frameon": False,
            "legend.title_fontsize": 7.5,
            "legend.handlelength": 3,  # of dashes, whole ones
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.7,
            "lines.linewidth": 1.4,
            "lines.markersize": 4,
            "pdf.fonttype": 42,  # text stays text
            "figure.dpi": 100,
            "savefig.dpi": 200,
        }
    )


@contextmanager
def page(height: float) -> Iterator[Figure]:
    """A figure of a page's width, with attnlab's settings for as long as it is drawn."""
    from matplotlib.figure import Figure

    with style():
        yield Figure(figsize=(PAGE_WIDTH, height), layout="constrained")


def legend_above(
    figure: Figure, ax: Any, *, ncols: int | None = None, title: str | None = None
) -> None:
    """The legend of one of the axes above them all; in one row, unless said otherwise."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=ncols or len(labels), title=title
    )


def panel_titles(axes: Sequence[Any], titles: Sequence[str]) -> None:
    """Letter the panels: (a) ..., (b) ..."""
    for letter, ax, title in zip("abcdefgh", axes, titles, strict=False):
        ax.set_title(f"({letter}) {title}", loc="left")


def outline(ax: Any, positions: Any, heights: Any) -> None:
    """The outline of bars of width 1 at whole positions: where they started."""
    edges = [*(position - 0.5 for position in positions), positions[-1] + 0.5]
    ax.stairs(heights, edges, color=OUTLINE, linewidth=0.8)
