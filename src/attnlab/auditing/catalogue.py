"""The claims of the papers on the shelf, by paper and section; imported when they are asked for."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from attnlab.auditing.claim import Claim, OnRecord, claims_in
from attnlab.files.errors import InputError
from attnlab.shelf import Paper, shelf
from attnlab.shelf import paper as shelved


def audited_papers() -> tuple[Paper, ...]:
    """Return the papers that have claims, in the order of the shelf."""
    return tuple(known for known in shelf().papers if known.claims)


def claims_of(name: str) -> tuple[Claim, ...]:
    """Return the claims of one paper.

    Parameters
    ----------
    name : str
        The paper's name, as `attnlab papers` lists it.

    Returns
    -------
    tuple of Claim
        In the order of the paper's sections, each with its section, whose statement it is, how we
        know it, and what is on record.

    Examples
    --------
    >>> from attnlab.auditing import claims_of
    >>> claims_of("joma")[0].id
    'joma-linear'
    """
    of = shelved(name)
    return tuple(claim for place in of.claim_modules() for claim in _in_module(of, *place))


def all_claims() -> tuple[Claim, ...]:
    """Return the claims of all papers on the shelf; one that cannot be imported has none."""
    found: list[Claim] = []
    for known in audited_papers():
        with suppress(InputError):
            found += claims_of(known.name)
    return tuple(found)


def select(ids: Sequence[str], *, paper: str | None = None) -> tuple[Claim, ...]:
    """Return the claims with these ids, in the order of the catalogue.

    Parameters
    ----------
    ids : sequence of str
        The ids. Modules are imported until all of them are found, first those whose text has one.
    paper : str, optional
        The paper in which to look; by default all on the shelf.

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
    wanted = set(ids)
    papers = audited_papers() if paper is None else (shelved(paper),)
    places = [(of, *place) for of in papers for place in of.claim_modules()]
    found: dict[str, tuple[int, Claim]] = {}
    known, faults = [], []
    for at, place in sorted(enumerate(places), key=lambda item: not _mentions(item[1], wanted)):
        if len(found) == len(wanted):
            break
        try:
            for claim in _in_module(*place):
                known.append(claim.id)
                if claim.id in wanted:
                    found.setdefault(claim.id, (at, claim))
        except InputError as fault:  # one paper takes no other down
            faults.append(str(fault))
    if len(found) == len(wanted):
        return tuple(claim for _, claim in sorted(found.values(), key=lambda item: item[0]))
    missing = next((name for name in ids if name not in found), "")
    near = difflib.get_close_matches(missing, known, n=3) or known[:3]
    raise InputError(
        "; ".join([f"claim: {missing!r} is not one; did you mean {', '.join(near)}?", *faults])
    )


def forget() -> None:
    """Let claims be read again, with what is on record by then."""
    _in_module.cache_clear()


def _mentions(place: tuple[Paper, str, str, str], ids: set[str]) -> bool:
    """Say whether the text of a module has one of these ids in it."""
    of, _, _, module = place
    path = of.folder.joinpath(*module.split(".")).with_suffix(".py")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return any(f'"{name}"' in text for name in ids)


@lru_cache(maxsize=512)
def _in_module(of: Paper, section: str, whose: str, module: str) -> tuple[Claim, ...]:
    """Return the claims of a module, with whose they are and what is on record."""
    return tuple(
        replace(
            claim,
            paper=of.name,
            section=section,
            origin=_origin(of, whose, claim),
            reading=claim.reading or of.reading,
            recorded=OnRecord.read(of.expected["claims"].get(claim.id, {})),
        )
        for claim in claims_in(of.load(module))
    )


def _origin(of: Paper, whose: str, claim: Claim) -> str:
    """Return whose statement a claim is.

    Verdicts are counted for each origin apart: what a poster, a summary or we ourselves say is not
    the paper's, and what we read in print is not what we know otherwise.
    """
    if claim.ours:
        return f"our own questions about {of.short}"
    reading = claim.reading or of.reading
    origin = of.short if whose == "the paper" else whose
    return f"{origin}, {reading}" if reading == "as we know it" else origin
