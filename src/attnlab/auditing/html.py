"""One self-contained page about an audit: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from markupsafe import Markup

from attnlab.auditing.document import sections
from attnlab.files.mathematics import typeset
from attnlab.files.pages import environment

SIGNS = {"==": "=", "<=": "≤", "<": "<", ">=": "≥", ">": ">"}


def page(document: Mapping[str, Any], *, picture: bytes | None = None, caption: str = "") -> str:
    """The page for the document of an audit (`audit_document`); every text in it is escaped.

    picture, caption: prediction against training as a PNG (`attnlab.plots.compare`), and what it
    shows; for the audit of a simulation.
    """
    pages = environment()
    pages.filters |= {"moment": moment, "said": said, "short": short, "sign": SIGNS.get}
    template = resources.files("attnlab.auditing").joinpath("page.html").read_text(encoding="utf-8")
    trial = document.get("trial")
    return pages.from_string(template).render(
        title=_title(document) if trial is None else f"Audit of {trial['classes']}",
        trial=trial,
        setting="" if trial is None else setting(trial),
        transition="" if trial is None else transition(trial),
        picture=picture and base64.b64encode(picture).decode(),
        caption=caption,
        rates=rates,
        sections=sections(document),
        maps=[_map(name, table) for name, table in document.get("breakdown", {}).items()],
        version=document["attnlab"],
    )


def said(claim: Mapping[str, Any]) -> Markup:
    """Return the statement of a claim of the document, typeset."""
    return typeset(claim["latex"])


def rates(of: Mapping[str, Any]) -> str:
    """The rates of a case or a trial of the document, in plain text."""
    return f"eta_Y = {short(of['eta_y'])}, eta_Z = {short(of['eta_z'])}"


def setting(trial: Mapping[str, Any]) -> str:
    """Return the settings of the training, in plain text."""
    clock = "time" if "time" in trial else "step"
    return f"{rates(trial)}; training up to {clock} {short(trial[clock])}"


def transition(trial: Mapping[str, Any]) -> str:
    """Return the predicted transition of a trial of the document, in plain text."""
    if trial["transition"] is None:
        return "no known time"
    first, last = trial["transition"]
    return f"{short(first)} <= t <= {short(last)}"


def moment(time: float | None, at_least: float | None = None) -> str:
    """When, with ≥ where it is the end of the run, by which it had not come."""
    return short(time) if at_least is None else f"≥ {short(at_least)}"


def _title(document: Mapping[str, Any]) -> str:
    """Whose claims they are."""
    whose = [known["short"] for known in document["papers"].values()]
    return f"{' and '.join(whose) or 'Claims'}, audited"


def _map(knob: str, table: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [
        {
            "caption": kind["caption"],
            "rows": [
                {
                    "label": label,
                    "cells": [{"value": v, "shade": _shade(kind["wrong"], v)} for v in row],
                }
                for label, row in zip(table["rows"], kind["values"], strict=True)
            ],
        }
        for kind in table["kinds"]
    ]
    columns = [f"{table['column']} = {short(value)}" for value in table["columns"]]
    return {"title": table["title"], "knob": knob, "columns": columns, "kinds": kinds}


def _shade(wrong_by: str, value: float) -> int:
    """Return how wrong, from 0 to 60 %: a factor of 30, or a difference of a half, is darkest."""
    if wrong_by == "factor":
        wrong = abs(math.log(value)) / math.log(30) if value > 0 else 1.0
    else:
        wrong = value / 0.5
    return round(60 * min(wrong, 1.0))


def short(value: float | None) -> str:
    """A number in four digits, a dash for none."""
    return "–" if value is None else f"{value:.4g}"
