"""An audit as plain data: what --json prints, and what the page is made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from attnlab import __version__
from attnlab.auditing.claim import Finding
from attnlab.auditing.runs import TRAINED_RATIOS
from attnlab.files.provenance import versions
from attnlab.shelf import Paper, paper
from attnlab.theory import Check, Hypothesis

KNOWN = "as we know it"  # the reading of what we did not find in print


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
    return [
        {
            "title": _section_title(document, name, title, with_paper=several),
            "paper": name,
            "claims": claims,
        }
        for (name, title), claims in found.items()
    ]


def _section_title(document: Mapping[str, Any], name: str, title: str, *, with_paper: bool) -> str:
    if not name:
        return "Claims of yours"
    return f"{document['papers'][name]['short']}: {title}" if with_paper else title


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding as plain data, for JSON and for the page."""
    claim, measurement, recorded = finding.claim, finding.measurement, finding.claim.recorded
    return {
        **_named(claim, "id", "paper", "section", "origin", "reading"),
        "statement": claim.plain,
        "latex": claim.statement,
        "source": "; ".join(claim.source),
        "ours": claim.ours,
        "relation": str(claim.relation),
        "case": {
            "classes": finding.case.classes.origin,
            **_named(finding.case, "eta_y", "eta_z"),
            "time": finding.case.steps,
        },
        **_named(claim, "how", "tolerance"),
        "verdict": finding.verdict and finding.verdict.value,
        "number": finding.number,
        "value": number(measurement.number),
        "training": finding.training and finding.training.value,
        "training_number": finding.training_number,
        "training_value": number(measurement.training_number),
        "holds_from": ratio_document(measurement.holds_from),
        "counterexample": measurement.note,
        "recorded": {
            "verdict": recorded.verdict and recorded.verdict.value,
            "value": recorded.number,
            "training": recorded.training and recorded.training.value,
            "training_value": recorded.training_number,
        },
        "as_recorded": finding.as_recorded,
        "hypotheses": [hypothesis_document(hypothesis) for hypothesis in finding.hypotheses],
        "checks": [check_document(check) for check in measurement.checks],
        "code": list(claim.code),
        "test": claim.test_file,
        "figure": claim.figure,
    }


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
    """From which eta_Y/eta_Z on a claim holds in training, in words; empty where not known."""
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
