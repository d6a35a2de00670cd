"""An audit as plain data, which --json prints, and as one self-contained page made from it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from attnlab import __version__
from attnlab.auditing.claims import Finding
from attnlab.auditing.runs import TRAINED_RATIOS
from attnlab.files.provenance import versions
from attnlab.shelf import Paper, paper
from attnlab.theory import Case, Check, Hypothesis

KNOWN = "as we know it"  # the reading of what we did not find in print
SIGNS = {"==": "=", "<=": "≤", "<": "<", ">=": "≥", ">": ">"}


def audit_document(
    findings: Sequence[Finding],
    maps: Mapping[str, xr.Dataset] | None = None,
    trial: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Claims, maps and the trial of a simulation, each where there is one."""
    document: dict[str, Any] = {"attnlab": __version__, "versions": versions()}
    if trial is not None:
        document["trial"] = dict(trial)
    if findings:
        names = dict.fromkeys(finding.claim.paper for finding in findings if finding.claim.paper)
        document["papers"] = {name: paper_document(paper(name)) for name in names}
        document["claims"] = [finding_document(finding) for finding in findings]
    if maps is not None:
        document["breakdown"] = {name: map_document(table) for name, table in maps.items()}
    return document


def paper_document(of: Paper) -> dict[str, Any]:
    """Return how a paper is called, and how we know it, as plain data."""
    return _named(of, "short", "year", "reading")


def sections(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the claims of a document by paper and section, in their order."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for claim in document.get("claims", ()):
        found.setdefault((claim["paper"], claim["section"]), []).append(claim)
    several = len(document.get("papers", ())) > 1
    sections = []
    for (name, title), claims in found.items():
        whose = f"{document['papers'][name]['short']}: " if name and several else ""
        title = f"{whose}{title}" if name else "Claims of yours"
        sections.append({"title": title, "paper": name, "claims": claims})
    return sections


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding as plain data, for JSON and for the page."""
    claim, measurement, recorded = finding.claim, finding.measurement, finding.claim.recorded
    return {
        **_named(claim, "id", "paper", "section", "origin", "reading", "how", "ours", "figure"),
        "tolerance": claim.tolerance,
        "statement": claim.plain,
        "latex": claim.statement,
        "source": "; ".join(claim.sources),
        "ours": claim.ours,
        "relation": str(claim.relation),
        "case": finding.case and case_document(finding.case),
        "runs": {name: run.spec for name, run in finding.runs.items()},
        **_named(claim, "how", "tolerance"),
        **_named(finding, "verdict", "number", "training", "training_number", "as_recorded"),
        "value": number(measurement.number),
        "training_value": number(measurement.training_number),
        "holds_from": ratio_document(measurement.holds_from),
        "counterexample": measurement.note,
        "recorded": {
            **_named(recorded, "verdict", "training"),
            "value": recorded.number,
            "training_value": recorded.training_number,
        },
        "hypotheses": [hypothesis_document(hypothesis) for hypothesis in finding.hypotheses],
        "checks": [check_document(check) for check in measurement.checks],
        "code": list(claim.code),
        "test": claim.test_file,
    }


def case_document(case: Case) -> dict[str, Any]:
    """Return the classes, learning rates and time of a case as plain data."""
    rates = _named(case, "eta_y", "eta_z")
    return {"classes": case.classes.origin, **rates, "time": case.steps}


def check_document(check: Check) -> dict[str, Any]:
    """One check as plain data."""
    return {
        **_named(check, "about", "form", "training", "tolerance", "holds"),
        "relation": str(check.relation),
        "error": number(check.error),
    }


def hypothesis_document(hypothesis: Hypothesis) -> dict[str, Any]:
    """One hypothesis as plain data."""
    return {
        "asked_by": hypothesis.source,
        "says": hypothesis.says,
        "read_as": str(hypothesis.relation),
        "value": number(hypothesis.value),
        "sign": hypothesis.relation.sign,
        "needed": number(hypothesis.needed),
        "holds": hypothesis.holds,
    }


def ratio_document(ratio: float | None) -> str:
    """Return in words the eta_Y/eta_Z from which on a claim holds in training; empty if unknown."""
    if ratio is None:
        return ""
    if math.isinf(ratio):
        return f"at no eta_Y/eta_Z up to {max(TRAINED_RATIOS):g}"
    return f"from eta_Y/eta_Z = {float(f'{ratio:.2g}'):g} on"


def map_document(table: xr.Dataset) -> dict[str, Any]:
    """One map of `breakdown` as plain data."""
    rows, column = map(str, table.dims)
    return {
        "title": table.attrs["title"],
        "rows": table[rows].values.tolist(),
        "column": column,
        "columns": table[column].values.tolist(),
        "kinds": [
            {
                "name": str(kind),
                "caption": table[kind].attrs["caption"],
                "wrong": table[kind].attrs["wrong"],  # by a "factor", or a "difference"
                "values": table[kind].values.tolist(),
            }
            for kind in table
        ],
    }


def _named(of: Any, *names: str) -> dict[str, Any]:
    """Return the attributes of an object under these names."""
    return {name: getattr(of, name) for name in names}


def number(value: float | None) -> float | None:
    """A finite float, or None: JSON has no other numbers."""
    return None if value is None or not math.isfinite(value) else float(value)


def page(document: Mapping[str, Any], *, picture: bytes | None = None, caption: str = "") -> str:
    """The page for the document of an audit (`audit_document`); every text in it is escaped.

    picture, caption: prediction against training as a PNG (`attnlab.plots.compare`), and what it
    shows; for the audit of a simulation.
    """
    from attnlab.files.pages import template  # here, so that an audit needs no jinja2

    filters = {"moment": moment, "short": short, "sign": SIGNS.get}
    trial = document.get("trial")
    return template("attnlab.auditing", "page.html", **filters).render(
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
    """Return a time, with ≥ where it had not come by the end of the run."""
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
