"""The gallery shows every figure as it is now."""

from pathlib import Path

from attnlab.figures import NAMES
from attnlab.report.gallery import gallery

DOCS = Path(__file__).parents[2] / "docs"


def test_the_gallery_is_up_to_date():
    text = (DOCS / "gallery.md").read_text()
    assert text == gallery(DOCS), "run: ./lab python -m attnlab.report.gallery out docs"
    for name in NAMES:
        assert f"./lab reproduce {name}`" in text


def test_its_pictures_are_there_and_modest():
    for name in NAMES:
        picture = (DOCS / "images" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 250_000
