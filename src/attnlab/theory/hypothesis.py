"""A hypothesis: what a source asks for, how it is read, and what a case has of it."""

from __future__ import annotations

from dataclasses import dataclass

from attnlab.theory.comparison import Check
from attnlab.theory.relation import Relation


@dataclass(frozen=True)
class Hypothesis:
    """`value` `relation` `bound`, where `source` asks for it in the words of `says`.

    Parameters
    ----------
    source : str
        Who asks for it.
    says : str
        In which words.
    value : float
        What the case has.
    relation : Relation
        How they compare.
    bound : float
        With what.
    """

    source: str
    says: str
    value: float
    relation: Relation
    bound: float

    @property
    def needed(self) -> float:
        """Bound of the value: the given bound times the factor of the relation."""
        return self.relation.factor * self.bound

    @property
    def holds(self) -> bool:
        """True if the case fulfils it."""
        return Check(self.says, self.bound, self.value, self.relation, relative=False).holds

    def __str__(self) -> str:
        """Return one line: the requirement, how it is read, and the value."""
        met = "holds" if self.holds else "does not hold"
        return (
            f"{self.says} ({self.source}), read as {self.relation}: {self.value:.4g}, "
            f"needs {self.relation.sign} {self.needed:.4g}: {met}"
        )
