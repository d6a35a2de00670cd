"""Style of figures: colours for any eye and any printer, sizes legible on paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attnlab.files.atomic import atomic_path

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

Values = TypeVar("Values", "xr.DataArray", "xr.Dataset")
# Okabe and Ito's palette, told apart with any colour vision
COMMON, DISTINCT = "#E69F00", "#0072B2"
ROLES = {COMMON: "common token", DISTINCT: "distinct token"}
ACCENT, GREEN = "#D55E00", "#009E73"
OUTLINE = "0.35"
SHADES = {True: ("#8A5A00", "#F7C65C"), False: ("#003A5C", "#66B8EA")}  # of common, of distinct
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (4, 1, 1, 1)),
    (0, (8, 1.5, 1, 1.5, 1, 1.5)),
    (0, (2, 1)),
)
PAGE_WIDTH = 7.0  # inches; printed at this width, the smallest text is 7 point
PANEL_HEIGHT, PANELS_IN_A_ROW = 2.1, 3
DPI = 200
SETTINGS = Path(__file__).with_name("attnlab.mplstyle")
CONTRAST = 0.8  # the light end of the colour map does not show on white paper
FAR_APART = 8.0  # values whose largest is above this multiple of the smallest are drawn in ratio
MOST_TICKS = 8  # of values that were swept
# Labels of settings and measures; others are their names.
LABELS = {
    "eta_y": r"$\eta_Y$",
    "eta_z": r"$\eta_Z$",
    "ratio": r"$\eta_Y/\eta_Z$",
    "entropy": "entropy (nats)",
    "distinct_entropy": "entropy of distinct tokens (nats)",
    "relative_entropy": "entropy / largest",
    "mean_distance": "mean distance (keys)",
    "loss": "loss (nats)",
    "validation_loss": "validation loss (nats)",
}


def label(name: str) -> str:
    """Return a setting or a measure as a picture names it: its symbol, or its name and unit."""
    return LABELS.get(name, name.replace("_", " "))


def ordered(count: int) -> list[Any]:
    """Colours for the values of a quantity, dark to light, in order in grey print too."""
    from matplotlib import colormaps

    last = max(count - 1, 1)
    return [colormaps["viridis"](CONTRAST * i / last) for i in range(count)]


def colour_scale(values: Any) -> Any:
    """Return a colour for each of many values, and the scale of a colour bar, in ratio if wide."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    kind = LogNorm if far_apart(values) else Normalize
    return ScalarMappable(kind(values.min(), values.max()), ListedColormap(ordered(256)))


def far_apart(values: Any) -> bool:
    """Check whether values are drawn evenly in ratio."""
    return bool(values.min() > 0 and values.max() > FAR_APART * values.min())


def entries(values: Values, dim: str) -> Iterator[tuple[Values, dict[str, Any]]]:
    """Yield each entry along a dim, with colour and marker of its curve, in order."""
    for i, colour in enumerate(ordered(values.sizes[dim])):
        yield values.isel({dim: i}), {"color": colour, "marker": MARKERS[i % len(MARKERS)]}


def style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib has attnlab's settings."""
    import matplotlib

    return matplotlib.rc_context(fname=SETTINGS)


@contextmanager
def page(height: float) -> Iterator[Figure]:
    """A figure of a page's width, with attnlab's settings for as long as it is drawn."""
    from matplotlib.figure import Figure

    with style():
        yield Figure(figsize=(PAGE_WIDTH, height), layout="constrained")


def panels(
    count: int, *, columns: int = PANELS_IN_A_ROW, sharex: bool = False
) -> tuple[Figure, Any]:
    """Return `count` axes with one scale, in rows of a page's width."""
    from matplotlib.figure import Figure

    across = min(count, columns)
    down = -(-count // across)
    width = PAGE_WIDTH if across > 1 else 0.7 * PAGE_WIDTH
    figure = Figure(figsize=(width, PANEL_HEIGHT * down + 0.7), layout="constrained")
    axes: Any = figure.subplots(down, across, sharex=sharex, sharey=True, squeeze=False)
    for ax in axes.ravel()[count:]:
        ax.remove()
    return figure, axes.ravel()[:count]


def save(figure: Figure, path: Path) -> None:
    """Write a picture, whole or not at all; its ending says in which format."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=DPI)


def legend_above(
    figure: Figure, ax: Any, *, ncols: int | None = None, title: str | None = None
) -> None:
    """The legend of one of the axes above them all; in one row, unless said otherwise."""
    handles, labels = ax.get_legend_handles_labels()
    ncols = ncols or len(labels)
    figure.legend(handles, labels, loc="outside upper center", ncols=ncols, title=title)


def heading_above(figure: Figure, handles: Sequence[Any], *, title: str) -> None:
    """Put a title above a picture, and a legend under the title."""
    figure.legend(
        handles=list(handles),
        loc="outside upper center",
        ncols=len(handles),
        title=title,
        title_fontsize=8.5,
    )


def by_role(common: Any) -> Any:
    """The colour of each token: common or distinct."""
    import numpy as np

    return np.where(common, COMMON, DISTINCT)


def shades_by_role(common: Sequence[bool]) -> list[Any]:
    """A colour of its own for each token: shades of the role's colour, dark to light."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = {role: LinearSegmentedColormap.from_list("", ends) for role, ends in SHADES.items()}
    counts = {role: list(common).count(role) for role in SHADES}
    seen = dict.fromkeys(SHADES, 0)
    colours = []
    for role in map(bool, common):
        colours.append(shades[role](seen[role] / max(counts[role] - 1, 1)))
        seen[role] += 1
    return colours


def bar_patches(bars: Mapping[str, str], outlined: str) -> list[Any]:
    """Return handles of a legend: what bars of each colour are, and what the outline is."""
    from matplotlib.patches import Patch

    patches = [Patch(color=colour, label=label) for colour, label in bars.items()]
    return [*patches, Patch(facecolor="none", edgecolor=OUTLINE, label=outlined)]


def legend_of_roles(figure: Figure, *, title: str) -> None:
    """The heading of a picture of bars, and what their colours mean."""
    heading_above(figure, bar_patches(ROLES, "P(l|m,n), where it starts"), title=title)


def panel_titles(axes: Sequence[Any], titles: Sequence[str]) -> None:
    """Letter the panels: (a) ..., (b) ..."""
    for letter, ax, title in zip("abcdefgh", axes, titles, strict=False):
        ax.set_title(f"({letter}) {title}", loc="left")


def letter_at(ax: Any, x: float, letter: str, *, shift: int = 2, colour: str = "black") -> None:
    """Write a letter at the top of the axes, next to `x`."""
    ax.annotate(
        letter,
        (x, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(shift, -2),
        textcoords="offset points",
        va="top",
        fontsize=8,
        fontweight="bold",
        color=colour,
    )


def log_ticks(ax: Any, values: Any) -> None:
    """Make the x axis logarithmic, with ticks at these values only."""
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.minorticks_off()


def y_labels(axes: Sequence[Any], labels: Sequence[str]) -> None:
    """Label the y axis of each panel."""
    for ax, label in zip(axes, labels, strict=True):
        ax.set_ylabel(label)


def outline(ax: Any, positions: Any, heights: Any) -> None:
    """The outline of bars of width 1 at whole positions: where they started."""
    edges = [*(position - 0.5 for position in positions), positions[-1] + 0.5]
    ax.stairs(heights, edges, color=OUTLINE, linewidth=0.8)


# matplotlib's own font, then what systems have for other scripts
FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
)
UNSEEN = {" ": "␣", "\n": "↵", "\r": "↵", "\t": "⇥"}
MISSING = "\N{REPLACEMENT CHARACTER}"


def fonts() -> list[str]:
    """Return the fonts of FONTS that are installed."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [name for name in FONTS if name in installed]


def visible(words: Iterable[str], families: list[str]) -> list[str]:
    """Return words that these fonts can draw; other characters become a question mark."""
    from matplotlib.font_manager import findfont, get_font

    faces: list[Any] = [get_font(findfont(name)) for name in families]

    def seen(letter: str) -> str:
        shown = UNSEEN.get(letter, letter)
        return shown if any(face.get_char_index(ord(shown)) for face in faces) else MISSING

    return ["".join(map(seen, word)) for word in words]
