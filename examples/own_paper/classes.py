"""Sequence classes of the paper: two classes of one query that share a token."""

from attnlab.tasks.classes import SequenceClasses


def pair(shared: float = 0.5) -> SequenceClasses:
    """Two classes: token 0 is common, with probability `shared`; 1, 2 and 3, 4 are distinct."""
    first, second = 0.7 * (1 - shared), 0.3 * (1 - shared)
    rows = [{0: shared, 1: first, 2: second}, {0: shared, 3: first, 4: second}]
    origin = f"own-paper-pair:shared={shared}"
    return SequenceClasses(rows, query=[5, 5], next_token=[6, 7], vocab_size=8, origin=origin)
