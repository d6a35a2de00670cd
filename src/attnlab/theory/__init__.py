"""Theories of a run, and what they predict, as the dataset that simulating it would give."""

from attnlab.theory.case import Case
from attnlab.theory.comparison import Check, Trained, shortfall
from attnlab.theory.facts import Facts
from attnlab.theory.hypothesis import Hypothesis
from attnlab.theory.named import as_theory, theories_about, usual_theory
from attnlab.theory.prediction import predict
from attnlab.theory.relation import Reading, Relation
from attnlab.theory.theory import ClassTheory, Theory

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
