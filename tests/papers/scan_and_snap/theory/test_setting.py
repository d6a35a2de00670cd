"""The formulas take settings, SequenceClasses and cases, and refuse what they would misread."""

import numpy as np
import pytest

from attnlab import formulas
from attnlab.files.errors import InputError
from attnlab.formulas import Setting
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.theory import Case

CLASSES = syn_small().with_prior([0.3, 0.7])
P, PSI, M = CLASSES.probs[:, CLASSES.in_play], CLASSES.query_index, CLASSES.vocab_size
Z = np.random.default_rng(0).normal(size=(2, P.shape[1]))
RATES = {"eta_y": 1.0, "eta_z": 0.1}
T = np.array([0.0, 3.0, 30.0])
ARRAYS = Setting(P, psi=PSI, M=M, prior=CLASSES.prior, **RATES)
CASE = Case(CLASSES, **RATES, steps=30.0)


@pytest.mark.parametrize(
    ("of_classes", "of_arrays"),
    [
        (
            lambda: formulas.attention_weights(CLASSES, Z),
            lambda: formulas.attention_weights(ARRAYS, Z),
        ),
        (lambda: theory.correlation(CLASSES), lambda: theory.correlation(ARRAYS)),
        (lambda: formulas.token_roles(CLASSES).common, lambda: formulas.token_roles(P).common),
        (lambda: theory.token_fates(CLASSES), lambda: theory.token_fates(ARRAYS)),
        (lambda: theory.local_roles(CLASSES).common, lambda: theory.local_roles(ARRAYS).common),
        (
            lambda: theory.attention_velocity(CLASSES, Z),
            lambda: theory.attention_velocity(ARRAYS, Z),
        ),
        (lambda: theory.residual_velocity(CLASSES, Z), lambda: theory.residual_velocity(ARRAYS, Z)),
        (lambda: theory.centred_velocity(CLASSES, Z), lambda: theory.centred_velocity(ARRAYS, Z)),
        (
            lambda: theory.attention_flow(Setting(CLASSES, **RATES), T).logits,
            lambda: theory.attention_flow(ARRAYS, T).logits,
        ),
        (
            lambda: formulas.sgd_flow(Setting(CLASSES, **RATES), T).logits,
            lambda: formulas.sgd_flow(ARRAYS, T).logits,
        ),
    ],
)
def test_classes_stand_for_their_arrays(of_classes, of_arrays):
    np.testing.assert_array_equal(of_classes(), of_arrays())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theory.token_fates(Setting(P, psi=CLASSES.query)), "token ids"),
        (lambda: theory.token_fates(Setting(P, psi=[0, 5])), "without gaps"),
        (lambda: theory.correlation(Setting(P, psi=CLASSES.query), Z), "row for each query"),
        (lambda: formulas.attention_weights(P, Z), "psi: z has 2 rows"),
        (lambda: theory.attention_flow(ARRAYS, T, z0=Z[:1]), "z0 must have"),
        (lambda: formulas.sgd_flow(ARRAYS, T, z0=Z[:, :5]), "z0 must have"),
        (lambda: theory.attention_flow(Setting(P, psi=PSI, **RATES), T), "M: give"),
        (lambda: theory.attention_flow(CLASSES, T), "eta_y, eta_z: give"),
        (lambda: Setting(CLASSES, M=99), "not of 99"),
        (lambda: Setting(CLASSES, psi=PSI), "psi: leave it out"),
        (lambda: Setting(P, psi=[0]), "one query row"),
        (lambda: Setting(P, prior=[0.1, 0.2, 0.7]), "prior must be one number or one per class"),
    ],
)
def test_what_would_be_misread_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_a_case_stands_for_its_setting():
    flow = theory.attention_flow(CASE, T).logits
    np.testing.assert_array_equal(flow, theory.attention_flow(ARRAYS, T).logits)
    np.testing.assert_array_equal(formulas.token_roles(CASE).common, formulas.token_roles(P).common)


def test_other_rates_keep_the_rest():
    other = Setting.of(CASE, eta_z=0.5)
    assert (other.eta_y, other.eta_z, other.M) == (1.0, 0.5, M)
    np.testing.assert_array_equal(other.share, CLASSES.prior)
    assert Setting.of(ARRAYS) is ARRAYS


def test_classes_bring_their_targets():
    setting = Setting(CLASSES)
    np.testing.assert_array_equal(setting.wanted, np.eye(2))
    np.testing.assert_array_equal(Setting(P, target=[0, 0]).wanted, [[1.0], [1.0]])
    np.testing.assert_allclose(setting.owner, np.diag([0.3, 0.7]))
