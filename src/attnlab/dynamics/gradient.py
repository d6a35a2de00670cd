"""Lemma 1: the loss of the 1-layer transformer in Y and Z, and its gradient in closed form.

The model (Eqs. 1-2, Section 3.1): a query m attends to the contextual tokens with weights
proportional to exp(z_{ml}); the attended mixture is normalised to unit length, f = LN(X^T b);
the decoder gives logits Y^T f over all M outputs; the loss is the cross entropy with the next
token. A row is anything attended from: a sequence (its mass is the token counts) or a whole
class (T to infinity: its mass is P(l|m,n), Lemma 2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnlab.dynamics.layout import Layout

# Full float32 products everywhere: accelerators would round the factors otherwise.
PRECISION = jax.lax.Precision.HIGHEST
# Up to here, picking and summing rows by query is cheaper as a small product than as a gather.
MATMUL_QUERIES = 32


class Block(NamedTuple):
    """One matrix in the layout's two parts: shared token groups and own ones."""

    shared: Any
    own: Any


class Parameters(NamedTuple):
    """Y and Z as blocks: Y is (J, A) and (R, J, S), outputs before tokens; Z is (Q, A) and
    (R, S). Also what a model trains in their place: what learns at eta_y, and at eta_z."""

    Y: Any
    Z: Any


class Rows(NamedTuple):
    """What is attended from: N rows with the log of their token mass (counts or P).

    Where position matters and its bias is trained, the mass changes from step to step: then a
    row has its tokens in order instead.
    """

    shared_log_mass: Any  # (N, A)
    own_log_mass: Any  # (R, S); has entries only when rows are classes
    query: Any  # (N,) row of Z
    target: Any  # (N,) output column
    weight: Any  # (N,) weights of the mean over rows
    places: Any = None  # (N, T - 1) place among the shared groups of each contextual token


def class_rows(layout: Layout, weight: jax.Array) -> Rows:
    """The rows of the limit T to infinity: one per class."""
    return Rows(layout.shared_log_prob, layout.own_log_prob, layout.query, layout.target, weight)


def attended_mass(layout: Layout, rows: Rows, Z: Block) -> Block:
    """c~ = mass * exp(z) of Eq. 5 up to a factor per row, the largest entry being 1."""
    shared = rows.shared_log_mass + row_of_query(layout, Z.shared, rows.query)
    own = rows.own_log_mass + Z.own
    highest = jnp.max(shared, axis=1, initial=-jnp.inf)
    if own.size:
        per_tile = jnp.max(own, axis=1, initial=-jnp.inf)
        if not layout.one_tile_per_class:
            per_tile = jax.ops.segment_max(per_tile, layout.tile_class, highest.shape[0])
        highest = jnp.maximum(highest, per_tile)
    return Block(
        jnp.exp(shared - highest[:, None]),
        jnp.exp(own - layout.to_tiles(highest)[:, None]) if own.size else own,
    )


def attention(layout: Layout, Z: Block) -> Block:
    """c_{l|m,n} of Eq. 5 for each class, per single token of a group."""
    mass = attended_mass(layout, class_rows(layout, layout.prior), Z)
    total = row_sum(layout, mass)
    return Block(mass.shared / total[:, None], mass.own / layout.to_tiles(total)[:, None])


def row_sum(layout: Layout, values: Block) -> jax.Array:
    """Sum over all tokens of a row, each group counted with its multiplicity."""
    total = jnp.sum(layout.count_shared(values.shared), axis=1)
    if values.own.size:
        total = total + layout.sum_tiles(jnp.sum(layout.count_own(values.own), axis=1))
    return total


def loss_and_gradient(
    layout: Layout, rows: Rows, parameters: Parameters
) -> tuple[jax.Array, Parameters]:
    """Mean cross entropy over rows and its gradient (Eqs. 3 and 4 are minus this gradient)."""
    Y, Z = parameters
    f = _features(layout, rows, Z)
    logits, cross_entropy, d = prediction(layout, rows, _logits(layout, f, Y))
    # Y (alpha - x_{T+1}) =: g counts a column with its multiplicity
    dm = layout.count_outputs(d)
    # f . g, which the projection takes away, is the same sum over outputs first
    radial = jnp.sum(dm * logits, axis=1)[:, None]

    grad_y_shared = jnp.einsum("nj,na->ja", d, f.shared, precision=PRECISION)
    grad_z_shared = _logit_gradient(layout, rows, f.shared, Y.shared, dm, grad_y_shared, radial)
    if f.own.size:
        grad_y_own = layout.to_tiles(d)[:, :, None] * f.own[:, None, :]
        g_own = jnp.einsum("rj,rjs->rs", layout.to_tiles(dm), Y.own, precision=PRECISION)
        grad_z_own = f.own * (g_own - f.own * layout.to_tiles(radial))
    else:
        grad_y_own, grad_z_own = jnp.zeros_like(Y.own), jnp.zeros_like(Z.own)
    return jnp.sum(rows.weight * cross_entropy), Parameters(
        Y=Block(grad_y_shared, grad_y_own), Z=Block(grad_z_shared, grad_z_own)
    )


def _logit_gradient(
    layout: Layout,
    rows: Rows,
    f: jax.Array,
    Y: jax.Array,
    dm: jax.Array,
    grad_y: jax.Array,
    radial: jax.Array,
) -> jax.Array:
    """Eq. 4 for the shared groups: the sum over a query's rows of diag(f) (I - f f^T) g, (Q, A).

    (X^T diag(b) X = diag(X^T b), and X^T b = |X^T b| f.) The sum of f_l g_l over rows is also
    the sum over outputs of Y_l times the gradient of Y_l, which is there already; only groups
    that several queries share need g itself, to tell the queries apart.
    """
    some = layout.spread
    g = jnp.matmul(dm, Y[:, :some], precision=PRECISION)
    told_apart = _sum_by_query(layout, f[:, :some] * g, rows.query)
    at_once = jnp.sum(layout.count_outputs(Y[:, some:].T * grad_y[:, some:].T), axis=1)
    of_query = jnp.arange(layout.num_queries)[:, None] == layout.shared_query
    pulled = jnp.concatenate([told_apart, jnp.where(of_query, at_once, 0)], axis=1)
    return pulled - _sum_by_query(layout, f * f * radial, rows.query)


def loss(layout: Layout, rows: Rows, parameters: Parameters) -> jax.Array:
    """The mean cross entropy over rows alone, for recording and for autodiff."""
    f = _features(layout, rows, parameters.Z)
    _, cross_entropy, _ = prediction(layout, rows, _logits(layout, f, parameters.Y))
    return jnp.sum(rows.weight * cross_entropy)


def _features(layout: Layout, rows: Rows, Z: Block) -> Block:
    """f = LN(X^T b), one row per row, with LN(x) = x / |x|_2."""
    mass = attended_mass(layout, rows, Z)
    squares = row_sum(layout, Block(mass.shared**2, mass.own**2))
    scale = jax.lax.rsqrt(squares)
    own = mass.own * layout.to_tiles(scale)[:, None] if mass.own.size else mass.own
    return Block(mass.shared * scale[:, None], own)


def _logits(layout: Layout, f: Block, Y: Block) -> jax.Array:
    """Y^T f, (N, J)."""
    logits = jnp.einsum("na,ja->nj", layout.count_shared(f.shared), Y.shared, precision=PRECISION)
    if f.own.size:
        logits = logits + layout.sum_tiles(
            jnp.einsum("rs,rjs->rj", layout.count_own(f.own), Y.own, precision=PRECISION)
        )
    return logits


def prediction(
    layout: Layout, rows: Rows, logits: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Logits (N, J) up to a shift, cross entropy (N,), and the error alpha - x_{T+1} times the
    row's weight (N, J).

    alpha = softmax(logits) over all M outputs. The target's error is minus the sum of the
    others, not alpha - 1: late in training that difference would cancel, and with it the pull
    that remains.
    """
    logits = logits - jnp.max(logits, axis=1, keepdims=True)
    own_logit = jnp.take_along_axis(logits, rows.target[:, None], axis=1)[:, 0]
    own_odds = jnp.exp(own_logit)
    odds = jnp.exp(logits)
    is_target = rows.target[:, None] == jnp.arange(logits.shape[1])
    others = jnp.sum(layout.count_outputs(jnp.where(is_target, 0, odds)), axis=1)
    cross_entropy = jnp.log1p(others + (own_odds - 1)) - own_logit
    scale = rows.weight / (others + own_odds)
    error = jnp.where(is_target, -others[:, None], odds) * scale[:, None]
    return logits, cross_entropy, error


def row_of_query(layout: Layout, per_query: jax.Array, query: jax.Array) -> jax.Array:
    """(Q, A) -> (N, A), the row of each row's query."""
    if layout.num_queries == 1:
        return per_query
    if layout.num_queries > MATMUL_QUERIES:
        return per_query[query]
    of_query = jax.nn.one_hot(query, layout.num_queries, dtype=per_query.dtype)
    return jnp.matmul(of_query, per_query, precision=PRECISION)


def _sum_by_query(layout: Layout, per_row: jax.Array, query: jax.Array) -> jax.Array:
    """(N, A) -> (Q, A), summed over the rows of each query."""
    if layout.num_queries == 1:
        return jnp.sum(per_row, axis=0, keepdims=True)
    if layout.num_queries > MATMUL_QUERIES:
        return jax.ops.segment_sum(per_row, query, num_segments=layout.num_queries)
    of_query = jax.nn.one_hot(query, layout.num_queries, dtype=per_row.dtype)
    return jnp.einsum("nq,na->qa", of_query, per_row, precision=PRECISION)
