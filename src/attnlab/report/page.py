"""The report: one self-contained page with every figure, verdict and version."""

from __future__ import annotations

import base64
import os
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab import __version__
from attnlab.auditing.document import KNOWN, sections, short
from attnlab.experiments import Made, Standing
from attnlab.experiments import figures as known_figures
from attnlab.experiments.base import module_of
from attnlab.files.memory import machine_memory
from attnlab.files.pages import template
from attnlab.files.provenance import versions
from attnlab.shelf import Paper, paper
from attnlab.shelf.papers import ATTNLAB_BIBTEX

if TYPE_CHECKING:
    from attnlab.report.study_pages import ShownStudy


def page(
    *,
    figures: Sequence[Made],
    missing: Sequence[str],
    pictures: Mapping[str, bytes],
    audit: Made | None,
    claims: Mapping[str, Any] | None,
    seconds: float,
    opening: Made | None = None,
    playground: bool = False,
    studies: Sequence[ShownStudy] = (),
) -> str:
    """Return the page as HTML. Every text is escaped, and nothing is loaded from elsewhere.

    Parameters
    ----------
    figures, audit, studies
        What to show.
    missing : sequence
        Figures that were not made, as "paper/figure".
    pictures : mapping
        PNGs by the name of the part.
    claims : mapping, optional
        The audit's document.
    seconds : float
        How long this call took.
    opening
        What the page opens with.
    playground
        Whether playground.html stands beside it.

    Returns
    -------
    str
        The page.
    """
    filters = {"capitalised": capitalised, "short": short, "title": figure_title}
    filters |= {"paper": paper_of, "module": module_of}
    parts = [*([opening] if opening else []), *figures, *([audit] if audit else [])]
    parts += [study.made for study in studies if not study.recorded]
    all_pictures = {**pictures, **{study.made.name: study.picture for study in studies}}
    shown = by_paper(figures)
    serves = served(claims) if claims else {}
    known = known_figures(ours=False)
    about = list(shown) or [paper(name) for name in (claims["papers"] if claims else ())]
    total = [name for name in known if not shown or paper_of(name) in shown]
    return template("attnlab.report", "page.html", **filters).render(
        version=__version__,
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=seconds,
        figures=figures,
        groups=by_outcome(figures),
        papers=about,
        by_paper=shown,
        total=len(total),
        missing=missing,
        out_of_bounds={p.name: p.out_of_bounds() for p in parts if p.out_of_bounds()},
        images={name: base64.b64encode(png).decode() for name, png in all_pictures.items()},
        sizes={name: png_size(png) for name, png in all_pictures.items()},
        studies=studies,
        no_studies=sorted(set(known_figures(ours=True)) - {study.made.name for study in studies}),
        audit=audit,
        sections=sections(claims) if claims else [],
        errata=errata(claims) if claims else {},
        claims=len(claims["claims"]) if claims else 0,
        audited=audited(claims) if claims else [],
        served=serves,
        tested={of.name: [id for id in serves if serves[id] == of.name] for of in figures},
        opening=opening,
        playground=playground,
        parts=parts,
        versions=versions(),
        machine=machine(),
        bibtex=[*(of.citation for of in about if of.reading != "ours"), ATTNLAB_BIBTEX],
    )


def by_paper(figures: Sequence[Made]) -> dict[Paper, list[Made]]:
    """Return figures by the paper that they belong to."""
    found: dict[Paper, list[Made]] = {}
    for made in figures:
        found.setdefault(paper_of(made.name), []).append(made)
    return found


def by_outcome(figures: Sequence[Made]) -> dict[str, list[Made]]:
    """Return figures by what was found, in the order of the standings."""
    order = [standing.value for standing in Standing]
    found: dict[str, list[Made]] = {}
    for made in sorted(figures, key=lambda made: order.index(made.standing)):
        found.setdefault(made.outcome, []).append(made)
    return found


def audited(claims: Mapping[str, Any]) -> list[str]:
    """Count the claims examined of each paper; one that we did not read in print says so."""
    counts = Counter(claim["paper"] for claim in claims["claims"])
    told = []
    for name, of in claims["papers"].items():
        reading = f" {KNOWN}" if of["reading"] == KNOWN else ""
        told.append(f"{counts[name]} claim{'s' * (counts[name] != 1)} of {of['short']}{reading}")
    return told


def served(claims: Mapping[str, Any]) -> dict[str, str]:
    """Return the figure, "paper/figure", that each claim serves, by its id."""
    found = [claim for claim in claims["claims"] if claim["figure"]]
    return {claim["id"]: f"{claim['paper']}/{claim['figure']}" for claim in found}


def errata(claims: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the claims that do not hold as stated, on paper or in training, by their origin."""
    wrong = ("corrected", "fails")
    found: dict[str, list[dict[str, Any]]] = {}
    for claim in claims["claims"]:
        if not claim["ours"] and (claim["verdict"] in wrong or claim["training"] in wrong):
            found.setdefault(capitalised(claim["origin"]), []).append(claim)
    return found


def capitalised(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return f"{text[0].upper()}{text[1:]}"


def figure_title(name: str) -> str:
    """Return how a figure is called under its paper: fig6 becomes Figure 6, length Length."""
    return capitalised(re.sub(r"^fig(?=\d+$)", "Figure ", name.rpartition("/")[2]))


def paper_of(name: str) -> Paper:
    """Return the paper of "paper/figure"."""
    return paper(name.partition("/")[0])


def png_size(png: bytes) -> tuple[int, int]:
    """Width and height, so that the page does not jump while it opens."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def machine() -> dict[str, str]:
    """Processor, cores, memory and system, as far as they can be found out."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count() or "unknown"),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "memory": f"{machine_memory() / 2**30:.0f} GiB",
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
