"""Words of a text as labels: in characters that a font has, with visible spaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
