"""The catalogue: the claims of the papers on the shelf, in the order of each paper's sections.

Nothing is imported before it is asked for: `select` loads module by module until it has found what
it looks for, `claims_of` those of one paper.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from attnlab.audit.claim import Claim, OnRecord, claims_in
from attnlab.files.errors import InputError
from attnlab.shelf import Paper, paper, shelf

OURS = "our own questions about it"


def claims_of(name: str) -> tuple[Claim, ...]:
    """Return the claims of one paper.

    Parameters
    ----------
    name : str
        The name of the paper, as `attnlab papers` prints it.

    Returns
    -------
    tuple of Claim
        In the order of the paper's sections, each with its section, its origin, how we know it,
        and what is on record.

    Examples
    --------
    >>> from attnlab.audit import claims_of
    >>> claims_of("joma")[0].id
    'joma-linear'
    """
    return tuple(_claims(paper(name)))


def all_claims() -> tuple[Claim, ...]:
    """Return the claims of every paper on the shelf, paper by paper."""
    return tuple(claim for known in shelf().papers for claim in _claims(known))


def select(ids: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims with these ids, in the order of the catalogue.

    Parameters
    ----------
    ids : sequence of str
        The ids; papers that come after the last of them are not imported.

    Returns
    -------
    tuple of Claim
        The claims.

    Examples
    --------
    >>> from attnlab.audit import select
    >>> [claim.id for claim in select(["lemma-6"])]
    ['lemma-6']
    """
    found, known = [], []
    # papers that have one on record come first: the others need not be imported
    for of in sorted(shelf().papers, key=lambda of: not set(ids) & set(of.expected["claims"])):
        for claim in _claims(of):
            known.append(claim.id)
            if claim.id in ids:
                found.append(claim)
            if len(found) == len(set(ids)):
                return tuple(found)
    missing = next(wanted for wanted in ids if wanted not in known)
    near = difflib.get_close_matches(missing, known, n=3) or known[:3]
    raise InputError(f"claim: {missing!r} is not one; did you mean {', '.join(near)}?")


def _claims(of: Paper) -> Iterator[Claim]:
    for section, whose, module in of.claim_modules():
        yield from _in_module(of, section, whose, module)


@lru_cache(maxsize=512)
def _in_module(of: Paper, section: str, whose: str, module: str) -> tuple[Claim, ...]:
    """Return the claims of a module, with whose they are and what is on record."""
    return tuple(
        replace(
            claim,
            paper=of.name,
            section=section,
            origin=OURS if claim.ours else whose,
            reading=claim.reading or of.reading,
            recorded=OnRecord.read(of.expected["claims"].get(claim.id, {})),
        )
        for claim in claims_in(of.load(module))
    )
