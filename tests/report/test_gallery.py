"""The gallery shows every figure as it is now."""

from pathlib import Path

from attnlab.experiments import experiment, names_of, recipe_for
from attnlab.experiments.base import WORDS
from attnlab.report.page import figure_title

DOCS = Path(__file__).parents[2] / "docs"


def test_the_gallery_has_the_claim_of_every_figure_and_what_was_found():
    text = (DOCS / "gallery.md").read_text()
    for name in names_of("figure"):
        title = f"{figure_title(name)}. {experiment(name).title}"
        entry = text.partition(f"### {title}\n")[2]
        entry = entry.partition("\n##")[0]
        source = experiment(name).source
        said = f"{source[0].upper()}{source[1:]}: {recipe_for(name).about}\n"
        assert said in entry, name
        found = [f"**{of[0].upper()}{of[1:]}.** " for of in WORDS["figure"].values()]
        of_this_size = entry.partition("![")[0]
        assert sum(words in of_this_size for words in found) == 1, name
        assert f"./lab reproduce {name}`" in entry


def test_its_pictures_are_there_and_modest():
    for name in names_of("figure"):
        picture = (DOCS / "images" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 250_000
