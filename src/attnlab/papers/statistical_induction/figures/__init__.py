"""The figures: those of the paper worth making again, and what is ours beside them."""

from importlib import resources

import pandas as pd  # type: ignore[import-untyped]


def published(name: str) -> pd.DataFrame:
    """Return a table of released numbers."""
    path = resources.files("attnlab.papers.statistical_induction") / "published" / f"{name}.csv"
    with path.open(encoding="utf-8") as file:
        return pd.read_csv(file, comment="#")
