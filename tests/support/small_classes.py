"""Classes that several tests share."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

Classes = NDArray[np.float64]


@pytest.fixture(scope="session")
def syn_small() -> Classes:
    """Two classes of 30 tokens: 10 shared, 10 distinct each with rising probability (Section 8)."""
    P = np.zeros((2, 30))
    P[:, :10] = 0.5 / 10
    rising = np.arange(1, 11) / 110
    P[0, 10:20] = P[1, 20:] = rising
    return P


@pytest.fixture(scope="session")
def one_common() -> Callable[..., Classes]:
    """K classes that share token 0 with probability `p` and have `distinct` tokens each."""

    def make(K: int, distinct: int, p: float, *, rising: bool = False) -> Classes:
        P = np.zeros((K, 1 + K * distinct))
        P[:, 0] = p
        w = np.arange(1.0, distinct + 1) if rising else np.ones(distinct)
        for n in range(K):
            P[n, 1 + n * distinct : 1 + (n + 1) * distinct] = (1 - p) * w / w.sum()
        return P

    return make


@pytest.fixture(scope="session")
def random_classes() -> Callable[..., Classes]:
    """Sparse random classes; each has its own distinct token, so that F has full rank."""

    def make(seed: int, *, K: int, shared: int = 6, overlap: float = 0.3) -> Classes:
        rng = np.random.default_rng(seed)
        common = rng.uniform(0.05, 1.0, (K, shared)) * (rng.random((K, shared)) < 0.7)
        P = np.hstack([overlap * common, np.diag(rng.uniform(0.5, 1.0, K))])
        return P / P.sum(1, keepdims=True)

    return make
