"""The gallery shows every figure as it is now."""

from pathlib import Path

from attnlab.experiments import experiment, names_of, recipe_for
from attnlab.experiments.base import WORDS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_gallery_has_the_claim_of_every_figure_and_what_was_found():
    text = (DOCS / "gallery.md").read_text()
    for name in names_of("figure"):
        title = f"{name.replace('fig', 'Figure ')}. {experiment(name).title}"
        entry = text.partition(f"## {title}\n")[2]
        entry = entry.partition("\n## ")[0]
        assert f"The paper: {recipe_for(name).about}\n" in entry, name
        found = [f"**{of[0].upper()}{of[1:]}.** " for of in WORDS["figure"].values()]
        of_this_size = entry.partition("![")[0]
        assert sum(words in of_this_size for words in found) == 1, name
        assert f"./lab reproduce {name}`" in entry


def test_its_pictures_are_there_and_modest():
    for name in names_of("figure"):
        picture = (DOCS / "images" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 250_000
