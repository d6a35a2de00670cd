"""The gallery shows every figure as it is now."""

from pathlib import Path

from attnlab.figures import NAMES, Outcome, figure, recipe_for

DOCS = Path(__file__).parents[2] / "docs"


def test_the_gallery_has_the_claim_of_every_figure_and_what_was_found():
    text = (DOCS / "gallery.md").read_text()
    for name in NAMES:
        entry = text.partition(f"## {name.replace('fig', 'Figure ')}. {figure(name).TITLE}\n")[2]
        entry = entry.partition("\n## ")[0]
        assert f"The paper: {recipe_for(name).about}\n" in entry, name
        found = [f"**{of.value[0].upper()}{of.value[1:]}.** " for of in Outcome]
        of_this_size = entry.partition("![")[0]
        assert sum(words in of_this_size for words in found) == 1, name
        assert f"./lab reproduce {name}`" in entry


def test_its_pictures_are_there_and_modest():
    for name in NAMES:
        picture = (DOCS / "images" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 250_000
