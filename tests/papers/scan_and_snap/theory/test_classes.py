"""The formulas take SequenceClasses, and refuse what they would misread."""

import numpy as np
import pytest

from attnlab import formulas
from attnlab.files.errors import InputError
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.classes import syn_small

CLASSES = syn_small().with_prior([0.3, 0.7])
P, PSI, M = CLASSES.probs[:, CLASSES.in_play], CLASSES.query_index, CLASSES.vocab_size
Z = np.random.default_rng(0).normal(size=(2, P.shape[1]))
RATES = {"eta_y": 1.0, "eta_z": 0.1}
T = np.array([0.0, 3.0, 30.0])


@pytest.mark.parametrize(
    ("of_classes", "of_arrays"),
    [
        (lambda: formulas.attention_weights(CLASSES, Z),
         lambda: formulas.attention_weights(P, Z, psi=PSI)),
        (lambda: theory.correlation(CLASSES), lambda: theory.correlation(P, psi=PSI)),
        (lambda: formulas.token_roles(CLASSES).common, lambda: formulas.token_roles(P).common),
        (lambda: theory.token_fates(CLASSES), lambda: theory.token_fates(P, psi=PSI)),
        (lambda: theory.local_roles(CLASSES).common, lambda: theory.local_roles(P, psi=PSI).common),
        (lambda: theory.attention_velocity(CLASSES, Z),
         lambda: theory.attention_velocity(P, Z, psi=PSI, M=M, weight=CLASSES.prior)),
        (lambda: theory.residual_velocity(CLASSES, Z),
         lambda: theory.residual_velocity(P, Z, psi=PSI, M=M, weight=CLASSES.prior)),
        (lambda: theory.centred_velocity(CLASSES, Z),
         lambda: theory.centred_velocity(P, Z, psi=PSI, M=M, weight=CLASSES.prior)),
        (lambda: theory.attention_flow(CLASSES, T, **RATES).logits,
         lambda: theory.attention_flow(P, T, psi=PSI, M=M, prior=CLASSES.prior, **RATES).logits),
        (lambda: formulas.sgd_flow(CLASSES, T, **RATES).logits,
         lambda: formulas.sgd_flow(P, T, psi=PSI, M=M, weight=CLASSES.prior, **RATES).logits),
    ],
)  # fmt: skip
def test_classes_stand_for_their_arrays(of_classes, of_arrays):
    np.testing.assert_array_equal(of_classes(), of_arrays())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theory.attention_flow(P, T, psi=CLASSES.query, M=M, **RATES), "token ids"),
        (lambda: theory.token_fates(P, psi=[0, 5]), "without gaps"),
        (lambda: formulas.attention_weights(P, Z, psi=CLASSES.query), "row for each query"),
        (lambda: formulas.attention_weights(P, Z), "psi: z has 2 rows"),
        (lambda: theory.attention_flow(P, T, psi=PSI, M=M, z0=Z[:1], **RATES), "z0 must have"),
        (lambda: formulas.sgd_flow(P, T, psi=PSI, M=M, z0=Z[:, :5], **RATES), "z0 must have"),
        (lambda: theory.attention_flow(P, T, psi=PSI, **RATES), "M: give"),
        (lambda: theory.attention_flow(CLASSES, T, M=99, **RATES), "not of 99"),
        (lambda: theory.token_fates(CLASSES, psi=PSI), "psi: leave it out"),
    ],
)  # fmt: skip
def test_what_would_be_misread_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()
