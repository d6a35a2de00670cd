"""What theories say of a run, as the dataset that simulating it would give."""

from attnlab.prediction.case import Case
from attnlab.prediction.hypothesis import Hypothesis
from attnlab.prediction.joint_invariants import joint_invariants
from attnlab.prediction.joma import JOMA_LADDER, Joma, JomaMoving, JomaStationary
from attnlab.prediction.predict import predict
from attnlab.prediction.theory import LADDER, Corrected, Printed, Sgd, Theory

__all__ = [
    "JOMA_LADDER",
    "LADDER",
    "Case",
    "Corrected",
    "Hypothesis",
    "Joma",
    "JomaMoving",
    "JomaStationary",
    "Printed",
    "Sgd",
    "Theory",
    "joint_invariants",
    "predict",
]
