"""A second, slow implementation of the model: dense M x M matrices, explicit sequences, numpy.

Written from Eqs. 1-3 alone, to check the simulator against.
"""

import numpy as np


def forward(Y, Z, tokens, query, target):
    """Loss of one sequence and everything on the way; Y, Z are (M, M), tokens the context."""
    M = Y.shape[0]
    X = np.eye(M)[tokens]  # (T - 1, M)
    scores = Z[query][tokens]
    b = np.exp(scores - scores.max())
    b /= b.sum()
    mixed = X.T @ b
    f = mixed / np.linalg.norm(mixed)
    logits = Y.T @ f
    alpha = np.exp(logits - logits.max())
    alpha /= alpha.sum()
    return -np.log(alpha[target]), X, b, mixed, f, alpha


def loss(Y, Z, sequences):
    """Mean loss over (tokens, query, target) triples."""
    return np.mean([forward(Y, Z, *sequence)[0] for sequence in sequences])


def lemma_1(Y, Z, sequences):
    """Eq. 3 term by term: the ascent directions of Y and Z, averaged over sequences."""
    M = Y.shape[0]
    dY, dZ = np.zeros((M, M)), np.zeros((M, M))
    for tokens, query, target in sequences:
        _, X, b, mixed, f, alpha = forward(Y, Z, tokens, query, target)
        residual = np.eye(M)[target] - alpha
        norm = np.linalg.norm(mixed)
        projection = np.eye(M) - np.outer(mixed, mixed) / norm**2
        dY += np.outer(f, residual)
        dZ[query] += residual @ Y.T @ projection / norm @ (X.T @ np.diag(b) @ X)
    return dY / len(sequences), dZ / len(sequences)
