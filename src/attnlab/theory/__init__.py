"""Theories of a run, and what they predict, as the dataset that simulating it would give."""

from attnlab.theory.facts import Case, Facts
from attnlab.theory.prediction import predict
from attnlab.theory.relation import Check, Hypothesis, Reading, Relation, Trained, shortfall
from attnlab.theory.theory import ClassTheory, Theory, as_theory, theories_about, usual_theory

__all__ = [
    "Case",
    "Check",
    "ClassTheory",
    "Facts",
    "Hypothesis",
    "Reading",
    "Relation",
    "Theory",
    "Trained",
    "as_theory",
    "predict",
    "shortfall",
    "theories_about",
    "usual_theory",
]
