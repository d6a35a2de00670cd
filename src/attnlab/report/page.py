"""The report: one self-contained page with every figure, verdict and version."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from attnlab import __version__
from attnlab.audit import SECTIONS
from attnlab.figures import NAMES, Outcome
from attnlab.files.provenance import versions
from attnlab.report.citation import ATTNLAB_BIBTEX, PAPER_BIBTEX
from attnlab.report.machine import machine
from attnlab.report.part import Part

HEADINGS = {
    Outcome.REPRODUCED: "Reproduced",
    Outcome.CORRECTED: "Reproduced with a correction",
    Outcome.PARTLY: "Reproduced in part",
    Outcome.DIFFERS: "Not reproduced",
    Outcome.OPEN: "We cannot tell",
}
# how the letters of the paper are written in our texts, and how they look on the page
LETTERS = (
    (r"\beta_([YZ])\b", r"<i>η</i><sub>\1</sub>"),
    (r"\bt_0(?!\w)", r"<i>t</i><sub>0</sub>"),
    (r"\b([BcfhqYZ])_n(?=\W|$)", r"<i>\1</i><sub>n</sub>"),
    (r"\bchi_l\b", r"<i>χ</i><sub>l</sub>"),
    (r"(?<=\d) %", "\N{NO-BREAK SPACE}%"),
)


def page(
    *,
    figures: Sequence[Part],
    missing: Sequence[str],
    pictures: Mapping[str, bytes],
    audit: Part | None,
    claims: Mapping[str, Any] | None,
    seconds: float,
) -> str:
    """The page as HTML.

    figures, audit: the parts to show. missing: figures that were not made. pictures: PNGs by the
    name of the figure. claims: the audit's document. seconds: how long this call took. Every text
    is escaped, and nothing is loaded from elsewhere.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"letters": letters, "number": number, "title": figure_title}
    template = resources.files("attnlab.report").joinpath("page.html").read_text(encoding="utf-8")
    groups = [
        {
            "title": heading,
            "outcome": outcome,
            "parts": [p for p in figures if p.outcome == outcome],
        }
        for outcome, heading in HEADINGS.items()
    ]
    parts = [*figures, *([audit] if audit else [])]
    return environment.from_string(template).render(
        version=__version__,
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=seconds,
        figures=figures,
        groups=[group for group in groups if group["parts"]],
        total=len(NAMES),
        missing=missing,
        out_of_bounds={p.name: p.out_of_bounds() for p in parts if p.out_of_bounds()},
        images={name: base64.b64encode(png).decode() for name, png in pictures.items()},
        sizes={name: png_size(png) for name, png in pictures.items()},
        cells=published_cells(figures),
        audit=audit,
        sections=sections(claims) if claims else [],
        errata=errata(claims) if claims else [],
        parts=parts,
        versions=versions(),
        machine=machine(),
        bibtex=[PAPER_BIBTEX, ATTNLAB_BIBTEX],
    )


def sections(claims: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The claims as found, in the sections of the catalogue."""
    found = {claim["id"]: claim for claim in claims["claims"]}
    return [
        {"title": title, "claims": [found[claim.id] for claim in members if claim.id in found]}
        for title, members in SECTIONS.items()
    ]


def errata(claims: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The claims of the sources that do not hold as printed, on paper or in training."""
    wrong = ("corrected", "fails")
    return [
        claim
        for claim in claims["claims"]
        if not claim["ours"] and (claim["verdict"] in wrong or claim["training"] in wrong)
    ]


def published_cells(figures: Sequence[Part]) -> list[dict[str, Any]]:
    """Fig. 6's published cells as rows by (num_last, eta_z), with one cell for each ratio."""
    rows: dict[tuple[Any, Any], dict[str, Any]] = {}
    for part in figures:
        for cell in part.table:
            key = cell["num_last"], cell["eta_z"]
            row = rows.setdefault(key, {"num_last": key[0], "eta_z": key[1], "cells": []})
            row["cells"].append(cell)
    return list(rows.values())


def letters(text: str) -> Markup:
    """Text with the paper's letters set as letters: eta_Y becomes an eta with an index."""
    shown = str(escape(text))
    for pattern, replacement in LETTERS:
        shown = re.sub(pattern, replacement, shown)
    return Markup(shown)  # escaped above


def number(value: float | None) -> str:
    """A number in four digits, a dash for none."""
    return "–" if value is None else f"{value:.4g}"


def figure_title(name: str) -> str:
    """fig6 becomes Figure 6."""
    return name.replace("fig", "Figure ")


def png_size(png: bytes) -> tuple[int, int]:
    """Width and height, so that the page does not jump while it opens."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
