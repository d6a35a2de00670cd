"""The claims of the papers, by paper and section, and the audit of them.

Modules of claims are imported when they are asked for. Claims are examined one after another, in
the caller's process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import xarray as xr

from attnlab.auditing.claims import Claim, Finding, OnRecord, claims_in
from attnlab.files.errors import InputError
from attnlab.files.progress import side_by_side
from attnlab.shelf import Paper, shelf, single
from attnlab.shelf import paper as shelved
from attnlab.shelf.papers import naming, recorded_number, unknown_claim
from attnlab.theory.facts import Case


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
    """Return the claims of all papers; one that cannot be imported has none."""
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
        The ids.
    paper : str, optional
        The paper in which to look; by default all.

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
    claims, faults = find(ids, paper=paper)
    if faults:
        raise InputError("; ".join(faults))
    return claims


def find(ids: Sequence[str], *, paper: str | None = None) -> tuple[tuple[Claim, ...], list[str]]:
    """Return the claims with these ids, and why others are missing, whose papers are broken.

    Modules are imported until all claims are found, first those whose text has one of the ids. An
    id that no paper has, even in its `expected.json`, is an InputError.
    """
    wanted = set(ids)
    papers = audited_papers() if paper is None else (shelved(paper),)
    places = [(of, *place) for of in papers for place in of.claim_modules()]
    found: dict[str, tuple[int, Claim]] = {}
    known: list[str] = []
    faults: dict[str, str] = {}  # by the name of the paper
    for at, place in sorted(
        enumerate(places), key=lambda item: not item[1][0].mentions(item[1][3], wanted)
    ):
        if len(found) == len(wanted):
            break
        try:
            for claim in _in_module(*place):
                known.append(claim.id)
                if claim.id in wanted:
                    found.setdefault(claim.id, (at, claim))
        except InputError as fault:  # one paper takes no other down
            faults[place[0].name] = str(fault)
    claims = tuple(claim for _, claim in sorted(found.values(), key=lambda item: item[0]))
    broken = {id: of for of in papers if of.name in faults for id in of.expected["claims"]}
    lost = [name for name in ids if name not in found]
    missing = next((name for name in lost if name not in broken), None)
    if missing is None:
        return claims, [f"claim: {name}: {faults[broken[name].name]}" for name in lost]
    raise InputError("; ".join([str(unknown_claim(missing, known, paper)), *faults.values()]))


@lru_cache(maxsize=512)
def _in_module(of: Paper, section: str, whose: str, module: str) -> tuple[Claim, ...]:
    """Return the claims of a module, with their origin and their recorded verdicts."""
    return tuple(
        replace(
            claim,
            paper=of.name,
            section=section,
            origin=_origin(of, whose, claim),
            reading=claim.reading or ("ours" if claim.ours else of.reading),
            recorded=OnRecord.read(of.expected["claims"].get(claim.id, {})),
        )
        for claim in claims_in(of.load(module))
    )


def _origin(of: Paper, whose: str, claim: Claim) -> str:
    """Return the origin of a claim: who states it.

    Verdicts are counted for each origin apart: what a poster, a summary or we ourselves say is not
    the paper's, and what we read in print is not what we know otherwise.
    """
    if claim.ours or claim.reading == "ours":
        return f"our own questions about {of.short}"
    reading = claim.reading or of.reading
    origin = of.short if whose == "the paper" else whose
    return f"{origin}, {reading}" if reading == "as we know it" else origin


def whole_audit(
    papers: Sequence[str] = (), *, tell: Callable[[str], None] = lambda name: None
) -> tuple[list[Finding], dict[str, xr.Dataset]]:
    """Examine every claim of papers, and draw up their maps of where theory breaks.

    Both compile much and share little of it, so that they are done at the same time.

    Parameters
    ----------
    papers : sequence of str, optional
        Names of papers; by default all that can be imported (`readable`).
    tell : callable, optional
        Called with the name of each piece of work before its turn.

    Returns
    -------
    list of Finding, dict of xarray.Dataset
        The findings, and the maps by name.
    """
    chosen, _ = readable(papers)
    claims = [claim for known in chosen for claim in claims_of(known.name)]
    makers = _makers(chosen)

    def draw_maps() -> dict[str, xr.Dataset]:
        made = {}
        for name in reversed(makers):  # the last share programs with claims that come late
            tell(f"map of {name}")
            made[name] = makers[name]()
        return {name: made[name] for name in makers}

    return side_by_side(lambda: examine_all(claims, tell=tell), draw_maps)


def amount(papers: Sequence[str] = ()) -> int:
    """Return how many pieces of work `whole_audit` names."""
    chosen, _ = readable(papers)
    return sum(len(claims_of(known.name)) for known in chosen) + len(_makers(chosen))


def readable(papers: Sequence[str] = ()) -> tuple[list[Paper], list[str]]:
    """Return the papers that can be audited, and why others cannot.

    A paper that is asked for by its name and cannot be imported is an InputError.
    """
    found, faults = [], []
    for known in [shelved(name) for name in papers] or audited_papers():
        try:
            claims_of(known.name)
            _makers([known])
            found.append(known)
        except InputError as fault:
            if papers:
                raise
            faults.append(str(fault))
    return found, faults


def _makers(papers: Sequence[Paper]) -> dict[str, Callable[[], xr.Dataset]]:
    offers = [offer.load() for known, offer in single("maps") if known in papers]
    return {name: maker for makers in offers for name, maker in makers.items()}


def examine_all(
    claims: Sequence[Claim],
    *,
    case: Case | None = None,
    tell: Callable[[str], None] = lambda name: None,
) -> list[Finding]:
    """Examine claims one after another.

    Of several claims, one whose code raises an exception does not end the others: its finding has
    the exception as `failure`.

    Parameters
    ----------
    claims : sequence of Claim
        Which.
    case : Case, optional
        One case for all, on which a claim must be a general one; by default the built-in cases.
    tell : callable, optional
        Called with each id before its turn.

    Returns
    -------
    list of Finding
        One for each claim.
    """
    if case is not None:
        require_general(claims)
    findings = []
    for claim in claims:
        tell(claim.id)
        paper = shelved(claim.paper) if claim.paper else None
        try:
            with naming(paper):
                findings.append(claim.examine(case))
        except Exception as error:
            if len(claims) == 1:
                raise
            words = f"{type(error).__name__}: {error}" if paper is None else error.__notes__[-1]
            findings.append(Finding(claim, case, failure=words))
    return findings


def require_general(claims: Sequence[Claim]) -> None:
    """Refuse claims that can be measured on their own case or runs alone."""
    for claim in claims:
        if claim.runs is not None or not (claim.general or claim.case is None):
            own = "classes" if claim.runs is None else "runs"
            raise InputError(
                f"claim: {claim.id} is tested on built-in {own} only; leave CLASSES out"
            )


def record(findings: Sequence[Finding]) -> list[Path]:
    """Write verdicts and numbers into `expected.json` of each paper, to be reviewed as a diff.

    Claims that were not examined keep their entries; entries of claims that are gone go.

    Parameters
    ----------
    findings : sequence of Finding
        Of `examine_all`.

    Returns
    -------
    list of Path
        The files written.
    """
    written = []
    for name in dict.fromkeys(finding.claim.paper for finding in findings):
        if not name:
            raise InputError("record: a claim of no paper has no expected.json to be recorded in")
        entries = expected_entries(name, [of for of in findings if of.claim.paper == name])
        written.append(shelved(name).record("claims", entries))
    _in_module.cache_clear()  # claims are read again, with what is on record now
    return written


def expected_entries(name: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the claims in `expected.json` of a paper with these findings in it."""
    found = {of.claim.id: _as_found(of) for of in findings if not of.failure}
    return {claim.id: found.get(claim.id, claim.recorded).entry() for claim in claims_of(name)}


def _as_found(finding: Finding) -> OnRecord:
    before, found = finding.claim.recorded, finding.measurement
    numbers = ((found.number, before.number), (found.training_number, before.training_number))
    number, training = (None if now is None else recorded_number(now, was) for now, was in numbers)
    return OnRecord(finding.verdict, number, finding.training, training)
