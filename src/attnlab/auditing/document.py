"""An audit as plain data, which --json prints, and as one self-contained page made from it."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import xarray as xr

from attnlab import __version__
from attnlab.auditing.claims import Finding
from attnlab.auditing.runs import TRAINED_RATIOS
from attnlab.files.provenance import versions
from attnlab.shelf import Paper, paper
from attnlab.theory import Case, Check, Hypothesis

KNOWN = "as we know it"  # the reading of what we did not find in print


def audit_document(
    findings: Sequence[Finding],
    maps: Mapping[str, xr.Dataset] | None = None,
    run: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Claims, maps and the run of a simulation, each where there is one."""
    document: dict[str, Any] = {"attnlab": __version__, "versions": versions()}
    if run is not None:
        document["run"] = dict(run)
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


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding as plain data, for JSON and for the page."""
    claim, measurement, recorded = finding.claim, finding.measurement, finding.claim.recorded
    return {
        **_named(claim, "id", "paper", "section", "origin", "reading", "how", "ours", "figure"),
        "statement": claim.plain,
        "latex": claim.statement,
        "source": "; ".join(claim.sources),
        "relation": str(claim.relation),
        "case": finding.case and case_document(finding.case),
        "runs": {name: run.spec for name, run in finding.runs.items()},
        "tolerance": claim.tolerance,
        **_named(finding, "verdict", "number", "training", "training_number", "as_recorded"),
        "failure": finding.failure,
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
    from attnlab.files.markdown import page as page_of

    if "run" in document:
        title = f"Audit of {document['run']['classes']}"
    else:  # of claims: their papers
        whose = [known["short"] for known in document["papers"].values()]
        title = f"{' and '.join(whose) or 'Claims'}, audited"
    shown = {"picture": picture and base64.b64encode(picture).decode(), "caption": caption}
    text = in_markdown(document, page=True, title=title, **shown)
    return page_of(title, text, style=":root { --width: 72rem; }")


def in_markdown(document: Mapping[str, Any], *, page: bool = False, **shown: Any) -> str:
    """Return the document of an audit as Markdown, for a page or else for a terminal.

    A terminal gets few tokens and classes of a run, and how a claim was tested of few claims.
    """
    from attnlab.files.markdown import template  # here, so that an audit needs no jinja2

    filters = {"grouped": grouped, "rates": rates, "setting": setting, "transition": transition}
    filters |= {"short": short, "shade": shade, "was": was}
    return template("attnlab.auditing:audit.md.jinja", terminal=not page, **filters).render(
        page=page,
        run=document.get("run"),
        papers=document.get("papers", {}),
        claims=document.get("claims", []),
        maps=document.get("breakdown", {}),
        version=document.get("attnlab"),
        **shown,
    )


def grouped(claims: Iterable[Any], *keys: str) -> list[tuple[Any, list[Any]]]:
    """Group claims, or their documents, by an entry, or by several, in their order."""
    found: dict[Any, list[Any]] = {}
    for claim in claims:
        entries = claim if isinstance(claim, Mapping) else vars(claim)
        group = tuple(entries[key] for key in keys)
        found.setdefault(group if len(keys) > 1 else group[0], []).append(claim)
    return list(found.items())


def rates(of: Mapping[str, Any]) -> str:
    """The rates of a case or a run of the document, in plain text."""
    return f"eta_Y = {short(of['eta_y'])}, eta_Z = {short(of['eta_z'])}"


def setting(run: Mapping[str, Any]) -> str:
    """Return the settings of the training, in plain text."""
    clock = "time" if "time" in run else "step"
    return f"{rates(run)}; training up to {clock} {short(run[clock])}"


def transition(run: Mapping[str, Any]) -> str:
    """Return the predicted transition of a run of the document, in plain text."""
    if run["transition"] is None:
        return "no known time"
    first, last = run["transition"]
    return f"{short(first)} <= t <= {short(last)}"


def was(recorded: Mapping[str, Any]) -> str:
    """Return in words the verdicts on record."""
    said = [recorded["verdict"], recorded["training"] and f"in training {recorded['training']}"]
    return f"was {', '.join(filter(None, said))}" if any(said) else "not recorded"


def shade(value: float, wrong_by: str) -> int:
    """Return how wrong, from 0 to 60 %: a factor of 30, or a difference of a half, is darkest."""
    if wrong_by == "factor":
        wrong = abs(math.log(value)) / math.log(30) if value > 0 else 1.0
    else:
        wrong = value / 0.5
    return round(60 * min(wrong, 1.0))


def short(value: float | None) -> str:
    """A number in four digits, a dash for none."""
    return "–" if value is None else f"{value:.4g}"
