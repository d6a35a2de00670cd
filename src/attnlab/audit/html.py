"""One self-contained page about an audit: no script, nothing loaded from elsewhere."""

# ruff: noqa: E501  (the lines of the template are lines of HTML)

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, StrictUndefined

from attnlab.audit.catalogue import SECTIONS

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.v { display: inline-block; padding: 0 .5em; border-radius: .7em; color: #fff; white-space: nowrap; font-size: .85em; }
.exact { background: #14713d; } .holds { background: #2f7d8c; } .corrected { background: #a86b00; }
.fails { background: #b3261e; } .outside, .we { background: #6b6f76; } .premise { background: #7a4b9a; }
.changed { outline: 2px solid #b3261e; }
details { margin: .2rem 0; } summary { cursor: pointer; }
code { font-size: .9em; } small { opacity: .75; }
.claims { table-layout: fixed; min-width: 44rem; } /* the same columns in every section */
.claims > tbody > tr > th:nth-child(1) { width: 11rem; } .claims > tbody > tr > th:nth-child(4) { width: 13rem; }
.map td { text-align: right; width: 6rem; } .map th { width: 6rem; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p>The first verdict is about the algebra and the reduced dynamics that the paper analyses (Eq. 10);
the verdict in training is about the joint gradient flow of Y and Z (Lemma 1, T to infinity). Time
counts steps: batch-1 steps in the theory, expected-gradient steps in training, which agree in
expectation.</p>
{% macro badge(verdict) %}{% if verdict %}<span class="v {{ verdict.split()[0] }}">{{ verdict }}</span>{% endif %}{% endmacro %}
{% macro parts(items) %}
<div class="scroll"><table><tr><th>hypothesis</th><th>read as</th><th>value</th><th>needed</th><th></th></tr>
{% for part in items %}<tr><td>{{ part.asked_by }}: {{ part.says }}</td><td>{{ part.read_as }}</td><td class="n">{{ part.value | short }}</td><td class="n">{{ part.sign }} {{ part.needed | short }}</td><td>{{ "holds" if part.holds else "does not hold" }}</td></tr>
{% endfor %}</table></div>
{% endmacro %}
{% if trial %}
<h2>Assumptions</h2>
{{ parts(trial.assumptions) }}
<h2>Which assumption costs how much</h2>
<p>The largest error of each theory against training: in z relative to the largest |z| of training, in attention as it is.</p>
<div class="scroll"><table><tr><th>theory</th><th>leans on</th>{% for what in ("z", "attention") %}{% for at in trial.ladder.at %}<th>{{ what }}, {{ at }} ({{ trial.ladder.time[loop.index0] | short }})</th>{% endfor %}{% endfor %}</tr>
{% for rung in trial.ladder.rungs %}<tr><td>{{ rung.theory }}</td><td>{{ rung.leans_on }}</td>{% for error in rung.z_error + rung.attention_error %}<td class="n">{{ error | short }}</td>{% endfor %}</tr>
{% endfor %}</table></div>
<ul>{% for sentence in trial.ladder.costs %}<li>{{ sentence }}</li>{% endfor %}</ul>
{% for name, reason in trial.silent.items() %}<p>{{ name }} says nothing here: {{ reason }}</p>
{% endfor %}
<h2>Fates of tokens</h2>
<p>z at the end, by each theory and in training.</p>
<div class="scroll"><table><tr><th>query</th><th>token</th><th>role</th><th>theorem</th>{% for rung in trial.ladder.rungs %}<th>{{ rung.theory }}</th>{% endfor %}<th>training</th><th></th></tr>
{% for row in trial.fates %}<tr><td>{{ row.query }}</td><td>{{ row.token }}</td><td>{{ row.role }}</td><td>{{ row.claimed }}</td>{% for z in row.predicted.values() %}<td class="n">{{ z | short }}</td>{% endfor %}<td class="n">{{ row.simulated | short }}</td><td>{% if row.as_claimed is not none %}{{ "as claimed" if row.as_claimed else "not as claimed" }}{% endif %}</td></tr>
{% endfor %}</table></div>
<h2>Snap</h2>
<p>Predicted transition: from t_0' = {{ trial.t0_prime | short }} to t_0 = {{ trial.t0 | short }} steps.</p>
<div class="scroll"><table><tr><th>class (next token)</th>{% for rung in trial.ladder.rungs %}<th>{{ rung.theory }}</th>{% endfor %}<th>training</th></tr>
{% for row in trial.snap %}<tr><td>{{ row.sequence_class }} ({{ row.next }})</td>{% for time in row.predicted.values() %}<td class="n">{{ time | short }}</td>{% endfor %}<td class="n">{{ row.simulated | short }}</td></tr>
{% endfor %}</table></div>
{% endif %}
{% for section in sections %}
<h2>{{ section.title }}</h2>
<div class="scroll"><table class="claims"><tr><th>claim</th><th>statement</th><th>algebra, Eq. 10</th><th>in training</th></tr>
{% for c in section.claims %}
<tr id="{{ c.id }}"{% if not c.as_recorded %} class="changed"{% endif %}><td><b>{{ c.id }}</b><br><small>{% if c.ours %}our question; {% endif %}{{ c.source }}</small></td>
<td>{{ c.statement }}
<details><summary><small>how it was tested</small></summary>
<p>Read as: {{ c.relation }}.<br>Predicted: {{ c.predicts }}.<br>Measured: {{ c.measures }}.<br>Tolerance {{ c.tolerance | short }}: {{ c.because }}.<br>
Classes: {{ c.case.classes }}; eta_Y = {{ c.case.eta_y | short }}, eta_Z = {{ c.case.eta_z | short }}.</p>
{% if c.holds_from %}<p>In training it holds {{ c.holds_from }}.</p>{% endif %}
{% if c.counterexample %}<p>{{ c.counterexample }}</p>{% endif %}
{% if c.hypotheses %}{{ parts(c.hypotheses) }}{% endif %}
<div class="scroll"><table><tr><th>check</th><th>form</th><th>error</th><th>tolerance</th><th></th></tr>
{% for k in c.checks %}<tr><td>{{ k.about }} ({{ k.relation }}){% if k.training %}, training{% endif %}</td><td>{{ k.form }}</td><td class="n">{{ k.error | short }}</td><td class="n">{{ k.tolerance | short }}</td><td>{{ "holds" if k.holds else "does not hold" }}</td></tr>
{% endfor %}</table></div>
<p><small>{% for name in c.code %}<code>{{ name }}</code> {% endfor %}· {{ c.test }}{% if c.figure %} · {{ c.figure }}{% endif %}</small></p>
</details></td>
<td>{{ badge(c.verdict) }}<br>{{ c.number }}{% if not c.as_recorded %}<br><small>recorded: {{ c.recorded.verdict }}</small>{% endif %}</td>
<td>{{ badge(c.training) }}<br>{{ c.training_number }}{% if not c.as_recorded and c.recorded.training %}<br><small>recorded: {{ c.recorded.training }}</small>{% endif %}</td></tr>
{% endfor %}</table></div>
{% endfor %}
{% if maps %}
<h2>Where theory breaks</h2>
<p>One common token and three distinct tokens in each class, M = 1000; the common token's probability
falls from common_prob in the first class to half of it in the last.</p>
{% for map in maps %}<h3>{{ map.title }}</h3>
{% for kind in map.kinds %}<p>{{ kind.caption }}</p>
<div class="scroll"><table class="map"><tr><th>{{ map.knob }}</th>{% for c in map.columns %}<th>common_prob = {{ c | short }}</th>{% endfor %}</tr>
{% for row in kind.rows %}<tr><th>{{ row.label | short }}</th>{% for cell in row.cells %}<td style="background: rgb(179 38 30 / {{ cell.shade }}%)">{{ cell.value | short }}</td>{% endfor %}</tr>
{% endfor %}</table></div>{% endfor %}
{% endfor %}
{% endif %}
<p><small>Made by attnlab {{ version }}.</small></p>
</body>
</html>
"""


MAPS = {
    "ratio": "eta_Y / eta_Z: two classes, the joint flow at 10 t_0",
    "classes": "Number of classes K: expected-gradient steps to 10 t_0, eta_Y / eta_Z = 30",
    "length": "Length T: batches of 64 sequences to 10 t_0, K = 2, eta_Y / eta_Z = 30",
    "clock": "eta_Z t: two classes, the joint flow at eta_Z = 0.001",
}
KINDS = {
    "speed": "Logit of the dominant token, Eq. 10 over training (1 is right; negative: opposite)",
    "sgd_speed": "The same with the decoder that SGD trains (theory sgd) over training",
    "gain": "Relative error of Eq. 11",
    "fate": "Share of tokens that end on the wrong side of their fate (Theorem 2)",
    "turn": "eta_Y / eta_Z from which on a larger eta_Y is denser (Section 6 (c)); reversed below",
}


def page(document: Mapping[str, Any]) -> str:
    """The page for the document of an audit (`audit_document`); every text in it is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["short"] = short
    found = {claim["id"]: claim for claim in document.get("claims", ())}
    sections = [
        {"title": title, "claims": [found[claim.id] for claim in claims if claim.id in found]}
        for title, claims in SECTIONS.items()
    ]
    in_catalogue = {claim.id for claims in SECTIONS.values() for claim in claims}
    others = [claim for name, claim in found.items() if name not in in_catalogue]
    sections.append({"title": "Claims of yours", "claims": others})
    trial = document.get("trial")
    return environment.from_string(PAGE).render(
        title="Scan and Snap, audited" if trial is None else f"Audit of {trial['classes']}",
        trial=trial,
        sections=[section for section in sections if section["claims"]],
        maps=[_map(name, table) for name, table in document.get("breakdown", {}).items()],
        version=document["attnlab"],
    )


def _map(knob: str, table: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [
        {
            "caption": caption,
            "rows": [
                {
                    "label": label,
                    "cells": [{"value": value, "shade": _shade(kind, value)} for value in row],
                }
                for label, row in zip(table[knob], table[kind], strict=True)
            ],
        }
        for kind, caption in KINDS.items()
        if kind in table
    ]
    return {"title": MAPS[knob], "knob": knob, "columns": table["common_prob"], "kinds": kinds}


def _shade(kind: str, value: float) -> int:
    """How wrong, from 0 to 60 %: a factor of 30 in speeds or turn, half in the rest, is darkest."""
    if kind in ("speed", "sgd_speed", "turn"):
        wrong = abs(math.log(value)) / math.log(30) if value > 0 else 1.0
    else:
        wrong = value / 0.5
    return round(60 * min(wrong, 1.0))


def short(value: float | None) -> str:
    """A number in four digits, a dash for none."""
    return "–" if value is None else f"{value:.4g}"
