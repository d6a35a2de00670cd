"""What theories say of a run, as the dataset that simulating it would give."""

from attnlab.prediction.case import Case
from attnlab.prediction.hypothesis import Hypothesis
from attnlab.prediction.predict import predict
from attnlab.prediction.theory import LADDER, Corrected, Printed, Sgd, Theory

__all__ = ["LADDER", "Case", "Corrected", "Hypothesis", "Printed", "Sgd", "Theory", "predict"]
