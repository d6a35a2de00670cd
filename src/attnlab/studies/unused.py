"""Outputs that are never used: the same classes in a larger vocabulary."""

from __future__ import annotations

from attnlab.data import SequenceClasses


def with_unused(classes: SequenceClasses, count: int) -> SequenceClasses:
    """The classes with M larger by `count`: tokens that never occur and are never next.

    P(l|m,n) stays as it is; what changes is how many outputs the decoder chooses from.
    """
    return SequenceClasses.from_entries(
        classes.class_of_entry,
        classes.tokens,
        classes.values,
        query=classes.query,
        next_token=classes.next_token,
        prior=classes.prior,
        vocab_size=classes.vocab_size + count,
        origin=f"{classes.origin} and {count} unused outputs",
    )
