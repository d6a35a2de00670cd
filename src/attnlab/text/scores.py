"""Scores: what could tell in advance which tokens attention will favour.

Eq. 5 says that attention is frequency times a weight, c proportional to P(l|m,n) exp(z_ml), and
training moves the weight alone. So a score has two parts: a weight, to be held against z, and an
attention, to be held against c.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab import theory
from attnlab.data import SequenceClasses
from attnlab.text.windows import Windows


class Score(NamedTuple):
    """A weight and an attention for each token in each class, (K, M)."""

    weight: NDArray[np.float64]
    attention: NDArray[np.float64]


def eq10(classes: SequenceClasses, *, eta_y: float, eta_z: float, steps: float) -> Score:
    """The theory: z after `steps` by Eq. 10 with the classes' own prior, and Eq. 5 with it.

    Eq. 10 speaks of every token. Theorems 2 and 3, its corollaries for distinct tokens, are silent
    about common ones, and in a text nearly all tokens are common.
    """
    seen, psi, M = classes.in_play, classes.query_index, classes.vocab_size
    P = classes.probs[:, seen]
    tau = theory.reduced_time(steps, K=len(classes), M=M, eta_y=eta_y, eta_z=eta_z)
    # to rank tokens, not to compare digits
    path = theory.attention_path(
        P, tau, psi=psi, M=M, weight=classes.prior, rtol=1e-4, atol=1e-6
    ).logits
    weight, attention = np.zeros((2, len(classes), M))
    weight[:, seen] = path[psi]
    attention[:, seen] = theory.attention_weights(P, path, psi=psi)
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


def _tf_idf(P: NDArray[np.float64], having: NDArray[np.int64], documents: int) -> Score:
    idf = np.log(documents / np.maximum(having, 1))  # a token that none has is in no support
    return Score(np.broadcast_to(idf, P.shape), P * idf)
