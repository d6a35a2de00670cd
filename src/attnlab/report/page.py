"""The report: one self-contained page with every figure, verdict and version."""

from __future__ import annotations

import base64
import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab import __version__
from attnlab.auditing.document import KNOWN, grouped, short
from attnlab.experiments import Part, Standing
from attnlab.experiments import figures as known_figures
from attnlab.experiments.base import module_of
from attnlab.files.markdown import page as page_of
from attnlab.files.markdown import template
from attnlab.files.memory import machine_memory
from attnlab.files.provenance import versions
from attnlab.shelf import Paper, paper
from attnlab.shelf.papers import ATTNLAB_BIBTEX

if TYPE_CHECKING:
    from attnlab.report.study_pages import ShownStudy


def page(
    *,
    figures: Sequence[Part],
    missing: Sequence[str],
    pictures: Mapping[str, bytes],
    audit: Part | None,
    claims: Mapping[str, Any] | None,
    seconds: float,
    opening: Part | None = None,
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
        True if playground.html is written next to it.

    Returns
    -------
    str
        The page.
    """
    parts = [*([opening] if opening else []), *figures, *([audit] if audit else [])]
    parts += [study.made for study in studies if not study.recorded]
    all_pictures = {**pictures, **{study.made.name: study.picture for study in studies}}
    shown = by_paper(figures)
    documents = claims["claims"] if claims else []
    serves = served(documents)
    known = known_figures(ours=False)
    about = list(shown) or [paper(name) for name in (claims["papers"] if claims else ())]

    def heading(paper_and_section: Sequence[str]) -> str:
        """Return the heading of a section, with its paper's name if there are several."""
        name, section = paper_and_section
        known = claims["papers"] if claims else {}
        return f"{known[name]['short']}: {section}" if name and len(known) > 1 else section

    filters: dict[str, Any] = {"capitalised": capitalised, "short": short, "title": figure_title}
    filters |= {"paper": paper_of, "module": module_of, "grouped": grouped, "heading": heading}
    whose = " and ".join(of.short for of in about)
    title = f"{whose}, put to the test" if about else "Studies of what papers leave open"
    text = template("attnlab.report:report.md.jinja", **filters).render(
        title=title,
        version=__version__,
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=seconds,
        figures=figures,
        groups=by_outcome(figures),
        papers=about,
        by_paper=shown,
        total=len([name for name in known if not shown or paper_of(name) in shown]),
        missing=missing,
        out_of_bounds={p.name: p.out_of_bounds() for p in parts if p.out_of_bounds()},
        images={name: base64.b64encode(png).decode() for name, png in all_pictures.items()},
        sizes={name: png_size(png) for name, png in all_pictures.items()},
        studies=studies,
        no_studies=sorted(set(known_figures(ours=True)) - {study.made.name for study in studies}),
        audit=audit,
        claims=documents,
        errata=errata(documents),
        audited=audited(claims) if claims else [],
        served=serves,
        tested={of.name: [id for id in serves if serves[id] == of.name] for of in figures},
        opening=opening,
        playground=playground,
        parts=parts,
        provenance={**machine(), **versions(), "attnlab": __version__},
        bibtex=[*(of.citation for of in about if of.reading != "ours"), ATTNLAB_BIBTEX],
    )
    return page_of(f"{title}: attnlab {__version__}", text)


def by_paper(figures: Sequence[Part]) -> dict[Paper, list[Part]]:
    """Return figures by the paper that they belong to."""
    found: dict[Paper, list[Part]] = {}
    for made in figures:
        found.setdefault(paper_of(made.name), []).append(made)
    return found


def by_outcome(figures: Sequence[Part]) -> dict[str, list[Part]]:
    """Return figures by what was found, in the order of the standings."""
    order = [standing.value for standing in Standing]
    found: dict[str, list[Part]] = {}
    for made in sorted(figures, key=lambda made: order.index(made.standing)):
        found.setdefault(made.outcome, []).append(made)
    return found


def audited(claims: Mapping[str, Any]) -> list[str]:
    """Count the claims examined of each paper; one that we did not read in print says so."""
    counted = []
    for name, members in grouped(claims["claims"], "paper"):
        of = claims["papers"][name]
        reading = f" {KNOWN}" if of["reading"] == KNOWN else ""
        count = len(members)
        counted.append(f"{count} claim{'s' * (count != 1)} of {of['short']}{reading}")
    return counted


def served(claims: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the figure, "paper/figure", that each claim serves, by its id."""
    return {of["id"]: f"{of['paper']}/{of['figure']}" for of in claims if of["figure"]}


def errata(claims: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the claims that do not hold as stated, on paper or in training."""
    wrong = {"corrected", "fails"}
    return [of for of in claims if not of["ours"] and wrong & {of["verdict"], of["training"]}]


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
