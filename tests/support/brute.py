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


def extended_outputs(Y, Z, bias, tokens, query, *, residual, normalization, combine, attend_self):
    """The decoder's logits of one sequence, over the whole vocabulary, with every variant.

    Y is (blocks, M, M) and Z (heads, M, M); bias is (heads, T - 1), by distance from 1 on. Written
    in jax.numpy so that it can be differentiated.
    """
    import jax.numpy as jnp

    M = Y.shape[-1]

    def normalized(x):
        if normalization == "l2":
            return x / jnp.linalg.norm(x)
        if normalization == "rms":
            return x / jnp.sqrt(jnp.mean(x**2))
        if normalization == "layer":
            return (x - jnp.mean(x)) / jnp.std(x)
        return x

    attended = jnp.append(tokens, query) if attend_self else tokens
    X = jnp.eye(M)[attended]
    mixed = []
    for z, p in zip(Z, bias, strict=True):
        by_position = jnp.concatenate([p[::-1], jnp.zeros(int(attend_self))])
        b = jnp.exp(z[query, attended] + by_position)
        mixed.append(X.T @ (b / b.sum()))
    if combine == "average":
        mixed = [sum(mixed) / len(mixed)]
    outputs = jnp.zeros(M)
    for block, x in zip(Y, mixed, strict=True):
        f = normalized(x)
        if residual:
            f = normalized(f + normalized(jnp.eye(M)[query]))
        outputs = outputs + block.T @ f
    return outputs


def extended_loss(Y, Z, bias, sequences, weights=None, **variant):
    """Mean loss over sequences, as a plain log-softmax: arrays of tokens, queries and targets."""
    import jax
    import jax.numpy as jnp

    def loss(tokens, query, target):
        outputs = extended_outputs(Y, Z, bias, tokens, query, **variant)
        return -jax.nn.log_softmax(outputs)[target]

    return jnp.average(jax.vmap(loss)(*sequences), weights=weights)


def joint_loss(
    W, Z, V, U, sequences, weights=None, *, activation, attention, temperature, residual, stationary
):
    """Mean loss over sequences of an MLP over attention, in the space of the embeddings.

    W is (hidden, d), Z (M, M), V (hidden, labels); U is (d, 2 M), orthonormal: of tokens in a
    context, then of tokens as queries. Attention is position by position; sequences are arrays of
    tokens, queries and labels.
    """
    import jax
    import jax.numpy as jnp
    from jax.scipy.stats import norm

    M = Z.shape[0]

    def loss(tokens, query, label):
        scores = Z[query, tokens] / temperature
        if attention == "softmax":
            b = jnp.exp(scores) / jnp.exp(scores).sum()
        else:
            b = (jnp.exp(scores) if attention == "exp" else scores) / tokens.size
        f = U[:, tokens] @ b
        if residual:
            f = f + U[:, M + query]
        pre = W @ f
        h = {"linear": pre, "relu": jnp.maximum(pre, 0), "gelu": pre * norm.cdf(pre)}[activation]
        outputs = V.T @ h
        if stationary:
            return outputs.mean() - outputs[label]
        return -jax.nn.log_softmax(outputs)[label]

    return jnp.average(jax.vmap(loss)(*sequences), weights=weights)
