"""Scores: what could tell in advance which tokens attention will favour.

Eq. 5 says that attention is frequency times a weight, c proportional to P(l|m,n) exp(z_ml), and
training moves the weight alone. So a score has two parts: a weight, to be held against z, and an
attention, to be held against c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnlab import formulas
from attnlab.formulas import Setting
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.tasks.classes import SequenceClasses
from attnlab.tasks.text.windows import Windows

from . import theory


class Score(NamedTuple):
    """A weight and an attention for each token in each class, (K, M)."""

    weight: FloatArray
    attention: FloatArray


# Scores rank tokens; nobody compares their digits.
_TOLERANCES: Any = {"rtol": 1e-4, "atol": 1e-6}


def printed(classes: SequenceClasses, *, eta_y: float, eta_z: float, steps: float) -> Score:
    """Score by the theory as printed: z after `steps` by Eq. 10 with class weight 1 and Eq. 88."""
    setting = Setting(classes, eta_y=eta_y, eta_z=eta_z)
    flow = theory.attention_flow(setting, steps, weight=1.0, form="printed", **_TOLERANCES)
    return _by_logits(classes, flow.logits)


def eq10(classes: SequenceClasses, *, eta_y: float, eta_z: float, steps: float) -> Score:
    """Score by the theory corrected: z by Eq. 10, each class with its own clock, and Eq. 5.

    Eq. 10 speaks of every token. Theorems 2 and 3, its corollaries for distinct tokens, are silent
    about common ones, and in a text nearly all tokens are common.
    """
    setting = Setting(classes, eta_y=eta_y, eta_z=eta_z)
    flow = theory.attention_flow(setting, steps, **_TOLERANCES)
    return _by_logits(classes, flow.logits)


def sgd(classes: SequenceClasses, *, eta_y: float, eta_z: float, steps: float) -> Score:
    """Score by the level "sgd" (ours): the decoder that SGD trains in place of Theorem 1's."""
    setting = Setting(classes, eta_y=eta_y, eta_z=eta_z)
    flow = formulas.sgd_flow(setting, steps, **_TOLERANCES)
    return _by_logits(classes, flow.logits)


def _by_logits(classes: SequenceClasses, z: FloatArray) -> Score:
    """z of contextual tokens, (query, token), and the attention that they make, over all tokens."""
    weight, attention = np.zeros((2, len(classes), classes.vocab_size))
    weight[:, classes.in_play] = z[classes.query_index]
    attention[:, classes.in_play] = formulas.attention_weights(classes, z)
    return Score(weight, attention)


def frequency(classes: SequenceClasses) -> Score:
    """P(l|m,n): where attention is before training."""
    return Score(classes.probs, classes.probs)


def tf_idf_of_classes(classes: SequenceClasses) -> Score:
    """TF-IDF with the classes as documents: idf = ln(K / number of classes that have the token)."""
    P = classes.probs
    return _tf_idf(P, (P > 0).sum(axis=0), documents=len(classes))


def tf_idf_of_windows(classes: SequenceClasses, windows: Windows) -> Score:
    """TF-IDF with the windows as documents: idf = ln(N / number of windows with the token)."""
    return _tf_idf(classes.probs, (windows.counts() > 0).sum(axis=0), documents=len(windows))


def _tf_idf(P: FloatArray, having: IntArray, documents: int) -> Score:
    idf = np.log(documents / np.maximum(having, 1))  # a token that none has is in no support
    return Score(np.broadcast_to(idf, P.shape), P * idf)
