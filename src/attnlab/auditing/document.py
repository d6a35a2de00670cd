"""An audit as plain data: what --json prints, and what the page is made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from attnlab import __version__
from attnlab.auditing.catalogue import origins
from attnlab.auditing.claim import Finding
from attnlab.auditing.runs import TRAINED_RATIOS
from attnlab.files.provenance import versions
from attnlab.theory.hypothesis import Hypothesis


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
        document["claims"] = [finding_document(finding) for finding in findings]
    if maps is not None:
        document["breakdown"] = {name: map_document(table) for name, table in maps.items()}
    return document


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding as plain data, for JSON and for the page."""
    claim, measurement = finding.claim, finding.measurement
    return {
        "id": claim.id,
        "statement": claim.statement,
        "latex": claim.latex,
        "source": claim.source,
        "ours": claim.ours,
        "origin": origins().get(claim.id, "yours"),
        "as_read": claim.as_read,
        "relation": str(claim.relation),
        "case": {
            "classes": finding.case.classes.origin,
            "eta_y": finding.case.eta_y,
            "eta_z": finding.case.eta_z,
            "time": finding.case.steps,
        },
        "predicts": claim.predicts,
        "measures": claim.measures,
        "tolerance": claim.tolerance,
        "because": claim.because,
        "verdict": finding.verdict and finding.verdict.value,
        "number": finding.number,
        "value": number(measurement.number),
        "training": finding.training and finding.training.value,
        "training_number": finding.training_number,
        "training_value": number(measurement.training_number),
        "holds_from": ratio_document(measurement.holds_from),
        "counterexample": measurement.note,
        "recorded": {
            "verdict": claim.recorded.verdict and claim.recorded.verdict.value,
            "value": claim.recorded.number,
            "training": claim.recorded.training and claim.recorded.training.value,
            "training_value": claim.recorded.training_number,
        },
        "as_recorded": finding.as_recorded,
        "hypotheses": [hypothesis_document(hypothesis) for hypothesis in finding.hypotheses],
        "checks": [
            {
                "about": check.about,
                "form": check.form,
                "training": check.training,
                "relation": str(check.relation),
                "error": number(check.error),
                "tolerance": check.tolerance,
                "holds": check.holds,
            }
            for check in measurement.checks
        ],
        "code": [f"attnlab.theory.{name}" for name in claim.code],
        "test": claim.test,
        "figure": claim.figure,
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


def number(value: float | None) -> float | None:
    """A finite float, or None: JSON has no other numbers."""
    return None if value is None or not math.isfinite(value) else float(value)
