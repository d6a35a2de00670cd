"""The catalogue: every claim, in the order of the paper, then what others say of it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from attnlab.audit.claim import Claim
from attnlab.audit.claims import studies
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
from attnlab.files.errors import InputError

SECTIONS: dict[str, tuple[Claim, ...]] = {
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
    "Poster and slides": poster.CLAIMS,
    "A summary of the paper": summary.CLAIMS,
}
CLAIMS: tuple[Claim, ...] = tuple(claim for section in SECTIONS.values() for claim in section)

# Every numbered statement of the paper, which the catalogue must have.
NUMBERED = (
    *(f"lemma-{i}" for i in range(1, 19)),
    *(f"theorem-{i}" for i in range(1, 6)),
    *(f"corollary-{i}" for i in range(1, 3)),
    *(f"remark-{i}" for i in range(1, 5)),
    *(f"assumption-{i}" for i in range(1, 3)),
)


def select(ids: Sequence[str]) -> tuple[Claim, ...]:
    """The claims with these ids, in the order of the catalogue; all of them for no ids."""
    known = [claim.id for claim in CLAIMS]
    for wanted in ids:
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, n=3) or known[:3]
            raise InputError(f"claim: {wanted!r} is not one; did you mean {', '.join(near)}?")
    return tuple(claim for claim in CLAIMS if not ids or claim.id in ids)
