"""The catalogue: every claim by its source, in the order of the paper, then what others say of it.

`SOURCES` are what `attnlab audit --source` examines, each with its sections; `SECTIONS` and
`CLAIMS` are all of them; `ORIGINS` says whose statement each is.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from enum import StrEnum

from attnlab.audit.claim import Claim
from attnlab.audit.claims import studies
from attnlab.audit.claims.joma import disagreement, invariant, law, salient, tree
from attnlab.audit.claims.scan_and_snap import (
    attention,
    bias,
    concentration,
    correlation,
    decoder,
    experiment,
    extension,
    gradient,
    growth,
    limit,
    model,
    poster,
    rate,
    setup,
    snapping,
    speed,
    summary,
)
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError

Sections = dict[str, tuple[Claim, ...]]

POSTER, SUMMARY = "Poster and slides", "A summary of the paper"

SCAN_AND_SNAP: Sections = {
    "The model (Section 3, Appendices C, H)": (*model.CLAIMS, *setup.CLAIMS),
    "The decoder's growth (Appendices D.2, D.3)": growth.CLAIMS,
    "The speed gamma (Appendix D.3)": speed.CLAIMS,
    "Uneven visits (Appendix D.4)": concentration.CLAIMS,
    "Correlations between classes (Section 4, Appendix D.5)": correlation.CLAIMS,
    "What the decoder learns (Section 4, Appendix D)": decoder.CLAIMS,
    "What it sends back (Section 4, Appendix D.5)": gradient.CLAIMS,
    "Attention (Section 5, Appendix E)": attention.CLAIMS,
    "The phase transition (Section 6, Appendix F)": (
        *snapping.CLAIMS,
        *limit.CLAIMS,
    ),
    "In words: what attention favours (Sections 1, 5, 6)": bias.CLAIMS,
    "In words: the learning rates (Section 6)": rate.CLAIMS,
    "Extensions (Sections 5, 7)": extension.CLAIMS,
    "Experiments (Section 8, Appendix G)": experiment.CLAIMS,
    "Optimisers and data (Sections 8, 9)": studies.CLAIMS,
    POSTER: poster.CLAIMS,
    SUMMARY: summary.CLAIMS,
}
JOMA: Sections = {
    "JoMA: the invariants (claim 1)": invariant.CLAIMS,
    "JoMA: stationary gradients (claim 2)": law.CLAIMS,
    "JoMA: sparse, then dense (claims 3 and 4)": salient.CLAIMS,
    "JoMA: latents on a tree (claim 5)": tree.CLAIMS,
    "Where the two papers disagree": disagreement.CLAIMS,
}
SOURCES: dict[str, Sections] = {"scan-and-snap": SCAN_AND_SNAP, "joma": JOMA}
SECTIONS: Sections = {title: part for source in SOURCES.values() for title, part in source.items()}
CLAIMS: tuple[Claim, ...] = tuple(claim for section in SECTIONS.values() for claim in section)


class Origin(StrEnum):
    """Whose statement a claim is.

    Verdicts are counted for each origin apart: what a poster, a summary or we ourselves say is not
    the paper's.
    """

    PAPER = "the paper"
    POSTER = "its poster and slides"
    SUMMARY = "a summary of it, not by the authors"
    OURS = "our own questions about it"
    JOMA = "JoMA, as we read it"
    OURS_JOMA = "our own questions about JoMA"


def _origin(source: str, title: str, claim: Claim) -> Origin:
    if source == "joma":
        return Origin.OURS_JOMA if claim.ours else Origin.JOMA
    if claim.ours:
        return Origin.OURS
    return {POSTER: Origin.POSTER, SUMMARY: Origin.SUMMARY}.get(title, Origin.PAPER)


# The origin of each claim, by its id.
ORIGINS: dict[str, Origin] = {
    claim.id: _origin(source, title, claim)
    for source, sections in SOURCES.items()
    for title, claims in sections.items()
    for claim in claims
}

# Every numbered statement of the paper, which the catalogue must have.
NUMBERED = (
    *(f"lemma-{i}" for i in range(1, 19)),
    *(f"theorem-{i}" for i in range(1, 6)),
    *(f"corollary-{i}" for i in range(1, 3)),
    *(f"remark-{i}" for i in range(1, 5)),
    *(f"assumption-{i}" for i in range(1, 3)),
)


def claims_of(source: str) -> tuple[Claim, ...]:
    """The claims of one source.

    Parameters
    ----------
    source : str
        As `SOURCES` has it.

    Returns
    -------
    tuple of Claim
        In the order of the source.

    Examples
    --------
    >>> from attnlab.audit import claims_of
    >>> claims_of("joma")[0].id
    'joma-linear'
    """
    if source not in SOURCES:
        raise InputError(f"source: {source!r} is not one; {did_you_mean(source, SOURCES)}")
    return tuple(claim for section in SOURCES[source].values() for claim in section)


def select(ids: Sequence[str]) -> tuple[Claim, ...]:
    """The claims with these ids, in the order of the catalogue.

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
    >>> from attnlab.audit import select
    >>> [claim.id for claim in select(["lemma-6"])]
    ['lemma-6']
    """
    known = [claim.id for claim in CLAIMS]
    for wanted in ids:
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, n=3) or known[:3]
            raise InputError(f"claim: {wanted!r} is not one; did you mean {', '.join(near)}?")
    return tuple(claim for claim in CLAIMS if not ids or claim.id in ids)
