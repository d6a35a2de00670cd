"""The level after "Scan and Snap": the decoder that SGD trains, in place of Theorem 1's."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.papers.scan_and_snap import hypotheses
from attnlab.papers.scan_and_snap.predict import Level
from attnlab.theory.facts import Case
from attnlab.theory.theory import Labelled


class Sgd(Level):
    """Ours: the decoder that SGD trains (Eq. 7) with attention held at its start, then Lemma 1.

    It drops the modified update, weak correlations, uniform classes, one class to a next token, a
    large vocabulary and the conditions on eta_Y and t. It keeps Assumption 1 and Y(0) = 0, and adds
    that the decoder is trained at the starting attention (papers/studies/page.md).
    """

    name = "sgd"
    leans_on = "a decoder trained at the starting attention (eta_Y >> eta_Z), long sequences"
    asked = (*hypotheses.ASSUMPTION_1, hypotheses.zero_decoder)

    def predict(self, case: Case, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        # momentum is part of the decoder's motion here, so that its own steps count
        steps = formulas.momentum_steps(t, momentum=case.momentum)
        flow = formulas.sgd_flow(case, steps, z0=case.z0, momentum=case.momentum)
        return {
            "attention_logits": (("time", "query", "token"), flow.logits),
            "decoder_error": (("time", "sequence_class"), flow.error),
        }
