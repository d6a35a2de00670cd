"""The catalogue: every claim, in the order of the paper, then what others say of it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from attnlab.audit import (
    attention_claims,
    bias_claims,
    concentration_claims,
    correlation_claims,
    decoder_claims,
    experiment_claims,
    extension_claims,
    gradient_claims,
    growth_claims,
    limit_claims,
    model_claims,
    poster_claims,
    rate_claims,
    setup_claims,
    snapping_claims,
    speed_claims,
    study_claims,
    summary_claims,
)
from attnlab.audit.claim import Claim

SECTIONS: dict[str, tuple[Claim, ...]] = {
    "The model (Section 3, Appendices C, H)": (*model_claims.CLAIMS, *setup_claims.CLAIMS),
    "The decoder's growth (Appendices D.2, D.3)": growth_claims.CLAIMS,
    "The speed gamma (Appendix D.3)": speed_claims.CLAIMS,
    "Uneven visits (Appendix D.4)": concentration_claims.CLAIMS,
    "Correlations between classes (Section 4, Appendix D.5)": correlation_claims.CLAIMS,
    "What the decoder learns (Section 4, Appendix D)": decoder_claims.CLAIMS,
    "What it sends back (Section 4, Appendix D.5)": gradient_claims.CLAIMS,
    "Attention (Section 5, Appendix E)": attention_claims.CLAIMS,
    "The phase transition (Section 6, Appendix F)": (
        *snapping_claims.CLAIMS,
        *limit_claims.CLAIMS,
    ),
    "In words: what attention favours (Sections 1, 5, 6)": bias_claims.CLAIMS,
    "In words: the learning rates (Section 6)": rate_claims.CLAIMS,
    "Extensions (Sections 5, 7)": extension_claims.CLAIMS,
    "Experiments (Section 8, Appendix G)": experiment_claims.CLAIMS,
    "Optimisers and data (Sections 8, 9)": study_claims.CLAIMS,
    "Poster and slides": poster_claims.CLAIMS,
    "A summary of the paper": summary_claims.CLAIMS,
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
            raise ValueError(f"claim: {wanted!r} is not one; did you mean {', '.join(near)}?")
    return tuple(claim for claim in CLAIMS if not ids or claim.id in ids)
