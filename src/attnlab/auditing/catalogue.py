"""The claims of the papers on the shelf, by paper and section; imported when they are asked for."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache

from attnlab.auditing.claim import Claim
from attnlab.files.errors import InputError
from attnlab.shelf import Paper, paper, shelf

Sections = dict[str, tuple[Claim, ...]]


def audited_papers() -> tuple[Paper, ...]:
    """Return the papers that have claims, in the order of the shelf."""
    return tuple(known for known in shelf().papers if known.claims)


@cache
def sections_of(name: str) -> Sections:
    """Return the claims of a paper by section, in the order of its paper.yaml."""
    found: dict[str, tuple[Claim, ...]] = {}
    of = paper(name)
    for section, _, module in of.claim_modules():
        found[section] = (*found.get(section, ()), *of.load(module).CLAIMS)
    return found


def sections() -> Sections:
    """Return the claims of all papers by section."""
    return {
        title: claims
        for known in audited_papers()
        for title, claims in sections_of(known.name).items()
    }


def claims_of(name: str) -> tuple[Claim, ...]:
    """Return the claims of one paper.

    Parameters
    ----------
    name : str
        The paper's name, as `attnlab papers` lists it.

    Returns
    -------
    tuple of Claim
        In the order of the paper.

    Examples
    --------
    >>> from attnlab.auditing import claims_of
    >>> claims_of("joma")[0].id
    'joma-linear'
    """
    return tuple(claim for section in sections_of(name).values() for claim in section)


def all_claims() -> tuple[Claim, ...]:
    """Return the claims of all papers on the shelf."""
    return tuple(claim for known in audited_papers() for claim in claims_of(known.name))


@cache
def origins() -> dict[str, str]:
    """Return whose statement each claim is, by its id.

    Verdicts are counted for each origin apart: what a poster, a summary or we ourselves say is not
    the paper's.
    """
    found = {}
    for known in audited_papers():
        whose = {part.section: part.of for part in known.claims}
        for title, claims in sections_of(known.name).items():
            for claim in claims:
                found[claim.id] = _origin(known, whose[title], claim)
    return found


def _origin(known: Paper, of: str, claim: Claim) -> str:
    if claim.ours:
        return f"our own questions about {known.short}"
    if of != "the paper":
        return of
    return known.short if known.reading == "printed text" else f"{known.short}, {known.reading}"


def select(ids: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims with these ids, in the order of the catalogue.

    Parameters
    ----------
    ids : sequence of str
        Which; all claims for none.

    Returns
    -------
    tuple of Claim
        The claims.

    Examples
    --------
    >>> from attnlab.auditing import select
    >>> [claim.id for claim in select(["lemma-6"])]
    ['lemma-6']
    """
    claims = all_claims()
    known = [claim.id for claim in claims]
    for wanted in ids:
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, n=3) or known[:3]
            raise InputError(f"claim: {wanted!r} is not one; did you mean {', '.join(near)}?")
    return tuple(claim for claim in claims if not ids or claim.id in ids)
