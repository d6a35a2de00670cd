"""The report: one self-contained page with every figure, verdict and version."""

from __future__ import annotations

import base64
import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

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
from attnlab.shelf.papers import ATTNLAB_BIBTEX, standing

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
        if not (name and len(known) > 1):
            return section
        reading = f", {KNOWN}" if known[name]["reading"] == KNOWN else ""
        return f"{known[name]['short']}{reading}: {section}"

    filters: dict[str, Any] = {"capitalised": capitalised, "short": short, "title": figure_title}
    filters |= {"paper": paper_of, "module": module_of, "grouped": grouped, "heading": heading}
    whose = " and ".join(of.short for of in about) if len(about) < 3 else f"{len(about)} papers"
    title = f"{whose}, put to the test" if about else "Studies of what papers leave open"
    wrong = errata(documents)
    chosen = digest_pictures([*([opening] if opening else []), *figures])
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
        sizes={name: Image.open(BytesIO(png)).size for name, png in all_pictures.items()},
        studies=studies,
        no_studies=sorted(set(known_figures(ours=True)) - {study.made.name for study in studies}),
        audit=audit,
        claims=documents,
        errata=wrong,
        known=KNOWN,
        claims_papers=claims["papers"] if claims else {},
        counts=counts(documents, figures),
        verdicts={
            name: counted(standings(members)) for name, members in grouped(documents, "paper")
        },
        outcomes={
            of.name: counted(made.outcome for made in members) for of, members in shown.items()
        },
        digest_pictures=chosen,
        thumbnails={made.name: thumbnail(all_pictures[made.name]) for made in chosen},
        served=serves,
        tested={of.name: [id for id in serves if serves[id] == of.name] for of in figures},
        opening=opening,
        playground=playground,
        parts=parts,
        provenance={**machine(), **versions(), "attnlab": __version__},
        bibtex=[*(of.citation for of in about if of.reading != "ours"), ATTNLAB_BIBTEX],
    )
    style = (resources.files("attnlab.report") / "report.css").read_text()
    return page_of(f"{title}: attnlab {__version__}", text, style=style)


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


def counted(words: Iterable[str]) -> list[str]:
    """Count equal words, as in "reproduced: 3", from the most frequent on."""
    return [f"{word}: {count}" for word, count in Counter(words).most_common()]


def standings(claims: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return how claims stand; one whose code raised an exception was not examined."""
    return [standing(claim) or "not examined" for claim in claims]


def counts(claims: Sequence[Mapping[str, Any]], figures: Sequence[Part]) -> list[str]:
    """Return how many claims and figures were examined, and how they stand."""
    found = []
    if claims:
        stand = ", ".join(counted(standings(claims)))
        found.append(f"{len(claims)} claim{'s' * (len(claims) != 1)} ({stand})")
    if figures:
        stand = ", ".join(counted(of.outcome for of in figures))
        found.append(f"{len(figures)} experiment{'s' * (len(figures) != 1)} ({stand})")
    return found


def digest_pictures(parts: Sequence[Part]) -> list[Part]:
    """Choose four: the first, then one for each standing, then one for each paper."""
    chosen = list(parts[:1])
    for key in (lambda part: part.standing, lambda part: part.name.partition("/")[0]):
        for part in parts[1:]:
            if part not in chosen and key(part) not in {key(of) for of in chosen[1:]}:
                chosen.append(part)
    return chosen[:4]


def thumbnail(png: bytes) -> tuple[str, int, int]:
    """Return a picture at the size of the digest, as base64, and its width and height."""
    with Image.open(BytesIO(png)) as picture:
        small = picture.convert("RGB")
        small.thumbnail((720, 480))
        out = BytesIO()
        small.quantize(64).save(out, "PNG", optimize=True)
        return base64.b64encode(out.getvalue()).decode(), *small.size


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


def machine() -> dict[str, str]:
    """Processor, cores, memory and system, as far as they can be found out."""
    about = Path("/proc/cpuinfo")  # of Linux
    text = about.read_text() if about.exists() else ""
    named = re.search(r"^model name\s*:\s*(.+?)\s*$", text, re.MULTILINE)
    return {
        "processor": named[1] if named else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count() or "unknown"),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "memory": f"{machine_memory() / 2**30:.0f} GiB",
    }
