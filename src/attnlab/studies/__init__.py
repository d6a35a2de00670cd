"""Studies: what the paper leaves open, one file per question, data() then draw(), and judge().

    from attnlab.studies import recipe_for, study

    length = study("length")
    runs = length.data(recipe_for("length"))   # a labelled dataset, seeds kept apart
    length.draw(runs).savefig("length.png")    # a matplotlib figure
    print(length.judge(runs).summary)          # what was found, and how sure it is

Each file has a TITLE, a Recipe (a frozen dataclass, read from recipes/study-*.yaml), and these
functions, like the files of `attnlab.figures`.
"""

from attnlab.studies.answer import Answer
from attnlab.studies.catalogue import NAMES, recipe_for, study
from attnlab.studies.estimate import Estimate, Share, jackknife, share
from attnlab.studies.halves import apart, on_halves, unsettled

__all__ = [
    "NAMES",
    "Answer",
    "Estimate",
    "Share",
    "apart",
    "jackknife",
    "on_halves",
    "recipe_for",
    "share",
    "study",
    "unsettled",
]
