"""The report: one self-contained page with every figure, verdict and version."""

from __future__ import annotations

import base64
import os
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from attnlab import __version__
from attnlab.auditing.document import KNOWN, sections
from attnlab.auditing.html import said
from attnlab.experiments import Made, names_of
from attnlab.experiments.base import WORDS
from attnlab.experiments.catalogue import by_paper, module_of
from attnlab.files.citation import ATTNLAB_BIBTEX, PAPER_BIBTEX
from attnlab.files.pages import environment
from attnlab.files.provenance import versions
from attnlab.report.recorded import ShownStudy
from attnlab.shelf import paper


def page(
    *,
    figures: Sequence[Made],
    missing: Sequence[str],
    pictures: Mapping[str, bytes],
    audit: Made | None,
    claims: Mapping[str, Any] | None,
    seconds: float,
    story: Made | None = None,
    playground: bool = False,
    studies: Sequence[ShownStudy] = (),
) -> str:
    """The page as HTML. Every text is escaped, and nothing is loaded from elsewhere.

    Parameters
    ----------
    figures, audit, studies
        What to show.
    missing : sequence
        Figures that were not made.
    pictures : mapping
        PNGs by the name of the figure.
    claims : mapping, optional
        The audit's document.
    seconds : float
        How long this call took.
    story
        What the page opens with.
    playground
        Whether playground.html stands beside it.

    Returns
    -------
    str
        The page.
    """
    pages = environment()
    pages.filters |= {
        "capitalised": capitalised, "number": number, "said": said, "title": figure_title,
        "module": module_of,
    }  # fmt: skip
    template = resources.files("attnlab.report").joinpath("page.html").read_text(encoding="utf-8")
    groups = [
        {
            "title": capitalised(outcome),
            "outcome": outcome,
            "parts": [made for made in figures if made.outcome == outcome],
        }
        for outcome in WORDS["figure"].values()
    ]
    parts = [*([story] if story else []), *figures, *([audit] if audit else [])]
    parts += [study.made for study in studies if not study.recorded]
    all_pictures = {**pictures, **{study.made.name: study.picture for study in studies}}
    by_name = {made.name: made for made in figures}
    shown = {
        folder: [by_name[name] for name in names] for folder, names in by_paper(by_name).items()
    }
    known = by_paper(names_of("figure"))
    about = [paper(folder) for folder in shown or known]
    return pages.from_string(template).render(
        version=__version__,
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=seconds,
        figures=figures,
        groups=[group for group in groups if group["parts"]],
        papers=about,
        by_paper=[(paper(folder), members) for folder, members in shown.items()],
        total=sum(len(known[folder]) for folder in shown or known),
        missing=missing,
        out_of_bounds={p.name: p.out_of_bounds() for p in parts if p.out_of_bounds()},
        images={name: base64.b64encode(png).decode() for name, png in all_pictures.items()},
        sizes={name: png_size(png) for name, png in all_pictures.items()},
        studies=studies,
        no_studies=[n for n in names_of("study") if n not in {of.made.name for of in studies}],
        audit=audit,
        sections=sections(claims) if claims else [],
        errata=errata(claims) if claims else {},
        claims=len(claims["claims"]) if claims else 0,
        audited=audited(claims) if claims else [],
        tested={name: claims_of_figure(claims, name) for name in by_name},
        shown_figures=set(by_name),
        story=story,
        playground=playground,
        parts=parts,
        versions=versions(),
        machine=machine(),
        bibtex=[PAPER_BIBTEX, ATTNLAB_BIBTEX],
    )


def audited(claims: Mapping[str, Any]) -> list[str]:
    """Count the claims examined of each paper; one that we did not read in print says so."""
    counts = Counter(claim["paper"] for claim in claims["claims"])
    told = []
    for name, of in claims["papers"].items():
        reading = f" {KNOWN}" if of["reading"] == KNOWN else ""
        told.append(f"{counts[name]} claim{'s' * (counts[name] != 1)} of {of['short']}{reading}")
    return told


def claims_of_figure(claims: Mapping[str, Any] | None, name: str) -> list[str]:
    """The claims that a figure shows."""
    return [claim["id"] for claim in claims["claims"] if claim["figure"] == name] if claims else []


def errata(claims: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the claims that do not hold as stated, on paper or in training, by their origin."""
    wrong = ("corrected", "fails")
    found: dict[str, list[dict[str, Any]]] = {}
    for claim in claims["claims"]:
        if not claim["ours"] and (claim["verdict"] in wrong or claim["training"] in wrong):
            found.setdefault(capitalised(claim["origin"]), []).append(claim)
    return found


def number(value: float | None) -> str:
    """A number in four digits, a dash for none."""
    return "–" if value is None else f"{value:.4g}"


def capitalised(text: str) -> str:
    """As a sentence begins."""
    return f"{text[0].upper()}{text[1:]}"


def figure_title(name: str) -> str:
    """fig6 becomes Figure 6, joma_erf becomes JoMA: erf; other names stay as they are."""
    return re.sub(r"^joma_", "JoMA: ", re.sub(r"^fig(?=\d+$)", "Figure ", name))


def png_size(png: bytes) -> tuple[int, int]:
    """Width and height, so that the page does not jump while it opens."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def machine() -> dict[str, str]:
    """Processor, cores, memory and system, as far as they can be found out."""
    found = {
        "processor": _processor(),
        "cores": str(os.cpu_count() or "unknown"),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        bytes_of_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found["memory"] = f"{bytes_of_memory / 2**30:.0f} GiB"
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
