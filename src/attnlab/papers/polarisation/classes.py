"""Sequence classes on which freezing and polarisation are held against each other."""

from attnlab.tasks.classes import SequenceClasses


def polarisation_pair() -> SequenceClasses:
    """Two classes of one query: tokens 0, 1 are common; 2, 3 and 4, 5 are distinct."""
    rows = [{0: 0.2, 1: 0.2, first: 0.4, first + 1: 0.2} for first in (2, 4)]
    return SequenceClasses(
        rows, query=[0, 0], next_token=[4, 5], vocab_size=6, origin="polarisation-pair"
    )
