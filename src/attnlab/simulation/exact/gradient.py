"""Lemma 1: the loss of the 1-layer transformer in Y and Z, and its gradient in closed form.

The model (Eqs. 1-2, Section 3.1): a query m attends to the contextual tokens with weights
proportional to exp(z_{ml}); the attended mixture is normalised to unit length, f = LN(X^T b);
the decoder gives logits Y^T f over all M outputs; the loss is the cross entropy with the next
token. A row is anything attended from: a sequence (its mass is the token counts) or a whole
class (T to infinity: its mass is P(l|m,n), Lemma 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from attnlab.simulation.exact.layout import Layout

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# Full float32 products everywhere: accelerators would round the factors otherwise.
PRECISION = jax.lax.Precision.HIGHEST
# Up to here, a sum over the slots of a row is written out.
WRITTEN_OUT = 32
# Up to here, picking and summing by group is cheaper as a small product than as a gather.
MATMUL_GROUPS = 32


class Block(NamedTuple):
    """One matrix in the layout's two parts: shared token groups and exclusive ones."""

    shared: Any
    exclusive: Any


class Parameters(NamedTuple):
    """Y and Z as blocks: Y is (A, J) and (R, J, S), Z is (Q, A) and (R, S). Also what a model
    trains in their place: what learns at eta_y, and at eta_z."""

    Y: Any
    Z: Any


class Rows(NamedTuple):
    """N rows that are attended from, with the log of their token mass (counts or P).

    Where the layout has exclusive tokens class by class, a sequence has only the C + S slots of its
    class. Where position matters and its bias is trained, the mass changes from step to step: then
    a row has its tokens in order instead.
    """

    shared_log_mass: Float[Any, "N A"] | Float[Any, "N slots"]  # None where there are places
    exclusive_log_mass: Float[Any, "R S"]  # has entries only when rows are classes
    query: Int[Any, " N"]  # row of Z
    target: Int[Any, " N"]  # output column
    weight: Float[Any, " N"]  # weights of the mean over rows
    places: Int[Any, "N distances"] | None = None  # of each token, among the shared groups
    first_exclusive: Int[Any, " N"] | None = None  # place of the first of a row's class


def dense_block(layout: Layout, per_token: jax.Array) -> Block:
    """Return a matrix (..., A) over a dense layout's tokens as a block without exclusive ones.

    Parameters
    ----------
    layout : Layout
        A dense layout.
    per_token : jax.Array
        The matrix, (..., A).

    Returns
    -------
    Block
        The same in parts.
    """
    exclusive = jnp.zeros(
        (*per_token.shape[:-2], *layout.exclusive_log_prob.shape), per_token.dtype
    )
    return Block(per_token, exclusive)


def dense_parameters(layout: Layout, Y: jax.Array, Z: jax.Array) -> Parameters:
    """Return Y (A, J) and Z (Q, A) of a dense layout as blocks.

    Parameters
    ----------
    layout : Layout
        A dense layout.
    Y : jax.Array
        The decoder, (A, J).
    Z : jax.Array
        Attention logits, (Q, A).

    Returns
    -------
    Parameters
        The same in blocks.
    """
    tiles, width = layout.exclusive_log_prob.shape
    exclusive = jnp.zeros((tiles, Y.shape[1], width), Y.dtype)
    return Parameters(Block(Y, exclusive), dense_block(layout, Z))


def class_rows(layout: Layout, weight: jax.Array) -> Rows:
    """Return the rows of the limit T to infinity: one per class.

    Parameters
    ----------
    layout : Layout
        Of the classes.
    weight : jax.Array
        Of each class in the loss, (K,).

    Returns
    -------
    Rows
        The rows.
    """
    return Rows(
        layout.shared_log_prob, layout.exclusive_log_prob, layout.query, layout.target, weight
    )


def attended_mass(layout: Layout, rows: Rows, Z: Block) -> Block:
    """Return c~ = mass * exp(z) of Eq. 5 up to a factor per row, the largest entry being 1.

    Rows come last in what is shared, (A, N) or (C + S, N): there are many of them or few tokens.
    """
    shared = rows.shared_log_mass.T + _to_rows(layout, rows, Z.shared)
    exclusive = rows.exclusive_log_mass + Z.exclusive
    highest = jnp.max(shared, axis=0, initial=-jnp.inf)
    if exclusive.size:
        per_tile = jnp.max(exclusive, axis=1, initial=-jnp.inf)
        if not layout.one_tile_per_class:
            per_tile = jax.ops.segment_max(per_tile, layout.tile_class, highest.shape[0])
        highest = jnp.maximum(highest, per_tile)
    return Block(
        jnp.exp(shared - highest),
        jnp.exp(exclusive - layout.to_tiles(highest)[:, None]) if exclusive.size else exclusive,
    )


def attention(layout: Layout, Z: Block) -> Block:
    """Return c_{l|m,n} of Eq. 5 for each class, per single token of a group: (K, A) and (R, S)."""
    mass = attended_mass(layout, class_rows(layout, layout.prior), Z)
    shared = mass.shared.T
    total = row_sum(layout, Block(shared, mass.exclusive))
    return Block(shared / total[:, None], mass.exclusive / layout.to_tiles(total)[:, None])


def row_sum(layout: Layout, values: Block) -> jax.Array:
    """Sum over all tokens of a row, each group counted with its multiplicity."""
    total = jnp.sum(layout.count_shared(values.shared), axis=1)
    if values.exclusive.size:
        total = total + layout.sum_tiles(jnp.sum(layout.count_exclusive(values.exclusive), axis=1))
    return total


def loss_and_gradient(
    layout: Layout, rows: Rows, parameters: Parameters
) -> tuple[jax.Array, Parameters]:
    """Return the mean cross entropy over rows and its gradient (minus Eqs. 3 and 4)."""
    Y, Z = parameters
    f = _features(layout, rows, Z)
    logits, cross_entropy, d = prediction(layout, rows, _outputs(layout, rows, f, Y))
    # Y (alpha - x_{T+1}) =: g counts a column with its multiplicity
    dm = layout.count_outputs(d)
    # f . g, which the projection takes away, is the same sum over outputs first
    radial = jnp.sum(dm * logits, axis=1)

    f_everywhere = _to_tokens(layout, rows, f.shared)
    grad_y_shared = jnp.einsum("an,nj->aj", f_everywhere, d, precision=PRECISION)
    grad_z_shared = _logit_gradient(layout, rows, f.shared, Y.shared, dm, grad_y_shared, radial)
    if f.exclusive.size:
        grad_y_exclusive = layout.to_tiles(d)[:, :, None] * f.exclusive[:, None, :]
        g_exclusive = jnp.einsum(
            "rj,rjs->rs", layout.to_tiles(dm), Y.exclusive, precision=PRECISION
        )
        grad_z_exclusive = f.exclusive * (
            g_exclusive - f.exclusive * layout.to_tiles(radial)[:, None]
        )
    else:
        grad_y_exclusive, grad_z_exclusive = (
            jnp.zeros_like(Y.exclusive),
            jnp.zeros_like(Z.exclusive),
        )
    return jnp.sum(rows.weight * cross_entropy), Parameters(
        Y=Block(grad_y_shared, grad_y_exclusive), Z=Block(grad_z_shared, grad_z_exclusive)
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
    """Sum diag(f) (I - f f^T) g of Eq. 4 over each query's rows, for the shared groups, (Q, A).

    (X^T diag(b) X = diag(X^T b), and X^T b = |X^T b| f.) The sum of f_l g_l over rows is also
    the sum over outputs of Y_l times the gradient of Y_l, which is there already; only groups
    that several queries share need g itself, to tell the queries apart.
    """
    some = layout.multi_query
    g = jnp.einsum("aj,nj->an", Y[:some], dm, precision=PRECISION)
    of_rows = f[:some] * (g - f[:some] * radial)
    by_rows = jnp.concatenate([of_rows, -f[some:] * f[some:] * radial])
    # an accelerator would take this sum while it moves Y, in the order that suits the sum
    Y, grad_y = jax.lax.optimization_barrier((Y, grad_y))
    at_once = jnp.sum(layout.count_outputs(Y * grad_y), axis=1)[some:]
    of_query = jnp.arange(layout.num_queries)[:, None] == layout.shared_query
    by_outputs = jnp.pad(jnp.where(of_query, at_once, 0), ((0, 0), (some, 0)))
    return _from_rows(layout, rows, by_rows) + by_outputs


def decode(layout: Layout, rows: Rows, parameters: Parameters) -> jax.Array:
    """Return the decoder's logits Y^T f of each row, (N, J).

    Parameters
    ----------
    layout : Layout
        Of the classes.
    rows : Rows
        The rows.
    parameters : Parameters
        Y and Z in blocks.

    Returns
    -------
    array
        Logits, (N, J).
    """
    return _outputs(layout, rows, _features(layout, rows, parameters.Z), parameters.Y)


def loss(layout: Layout, rows: Rows, parameters: Parameters) -> jax.Array:
    """Return the mean cross entropy over rows, for recording and for autodiff."""
    logits = decode(layout, rows, parameters)
    return jnp.sum(rows.weight * prediction(layout, rows, logits)[1])


def _features(layout: Layout, rows: Rows, Z: Block) -> Block:
    """Return f = LN(X^T b) of each row, with LN(x) = x / |x|_2."""
    mass = attended_mass(layout, rows, Z)
    squares = row_sum(layout, Block((mass.shared**2).T, mass.exclusive**2))
    scale = jax.lax.rsqrt(squares)
    exclusive = (
        mass.exclusive * layout.to_tiles(scale)[:, None] if mass.exclusive.size else mass.exclusive
    )
    return Block(mass.shared * scale, exclusive)


def _outputs(layout: Layout, rows: Rows, f: Block, Y: Block) -> jax.Array:
    """Y^T f, (N, J)."""
    if rows.first_exclusive is not None and _write_out(f.shared.shape[0], Y.shared.shape[0]):
        return _sum_over_slots(layout, rows, f.shared, Y.shared)
    counted = layout.count_shared(_to_tokens(layout, rows, f.shared).T)
    logits = jnp.einsum("na,aj->nj", counted, Y.shared, precision=PRECISION)
    if f.exclusive.size:
        logits = logits + layout.sum_tiles(
            jnp.einsum(
                "rs,rjs->rj", layout.count_exclusive(f.exclusive), Y.exclusive, precision=PRECISION
            )
        )
    return logits


def _write_out(slots: int, tokens: int) -> bool:
    """Return True where the sum over a row's slots is written out.

    That is on a processor, where it is short and a product over all tokens is not.
    """
    return jax.default_backend() == "cpu" and slots <= min(WRITTEN_OUT, tokens // 2)


def _sum_over_slots(layout: Layout, rows: Rows, f: jax.Array, Y: jax.Array) -> jax.Array:
    """Y^T f for sequences, C + S terms each: on a processor a fraction of the product's time."""
    C, slots = layout.before_exclusive, f.shape[0]

    def one_row(of: tuple[jax.Array, jax.Array]) -> jax.Array:
        f, first_exclusive = of
        tokens = [s if s < C else first_exclusive + (s - C) for s in range(slots)]
        return sum(f[s] * Y[token] for s, token in enumerate(tokens))  # type: ignore[return-value]

    # In a loop of two rounds: XLA would repeat a loopless sum wherever the logits are used.
    return jax.lax.map(one_row, (f.T, rows.first_exclusive), batch_size=-(-f.shape[1] // 2))


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
    target_logit = jnp.take_along_axis(logits, rows.target[:, None], axis=1)[:, 0]
    target_odds = jnp.exp(target_logit)
    odds = jnp.exp(logits)
    is_target = rows.target[:, None] == jnp.arange(logits.shape[1])
    others = jnp.sum(layout.count_outputs(jnp.where(is_target, 0, odds)), axis=1)
    cross_entropy = jnp.log1p(others + (target_odds - 1)) - target_logit
    scale = rows.weight / (others + target_odds)
    error = jnp.where(is_target, -others[:, None], odds) * scale[:, None]
    return logits, cross_entropy, error


def pick(per_group: jax.Array, group: jax.Array) -> jax.Array:
    """Return the values of each row's group, (G, X) -> (X, N)."""
    groups = per_group.shape[0]
    if groups == 1:
        return jnp.broadcast_to(per_group.T, (per_group.shape[1], group.shape[0]))
    if groups > MATMUL_GROUPS:
        return per_group[group].T
    return jnp.einsum("gx,gn->xn", per_group, _is_of(group, groups, per_group), precision=PRECISION)


def _sum_by(groups: int, per_row: jax.Array, group: jax.Array) -> jax.Array:
    """(X, N) -> (G, X), summed over the rows of each group."""
    if groups == 1:
        return jnp.sum(per_row, axis=1)[None]
    if groups > MATMUL_GROUPS:
        return jax.ops.segment_sum(per_row.T, group, num_segments=groups)
    return jnp.einsum("gn,xn->gx", _is_of(group, groups, per_row), per_row, precision=PRECISION)


def _is_of(group: jax.Array, groups: int, like: jax.Array) -> jax.Array:
    """(G, N): 1 where a row is of a group, else 0."""
    return (jnp.arange(groups)[:, None] == group).astype(like.dtype)


def _to_rows(layout: Layout, rows: Rows, per_query: jax.Array) -> jax.Array:
    """Copy each query's values to the slots of its rows: (Q, A) -> (A, N) or (C + S, N)."""
    if rows.first_exclusive is None:
        return pick(per_query, rows.query)
    slot, C = jnp.arange(layout.before_exclusive + layout.exclusive_each), layout.before_exclusive
    place = jnp.where(slot < C, slot, layout.first_exclusive[:, None] + slot - C)
    slots = per_query[layout.query[:, None], place]  # (K, C + S)
    of_class = _is_class(layout, rows).astype(per_query.dtype)
    return jnp.einsum("kx,kn->xn", slots, of_class, precision=PRECISION)


def _from_rows(layout: Layout, rows: Rows, per_row: jax.Array) -> jax.Array:
    """(A, N) or (C + S, N) -> (Q, A), summed over the rows of each query: the transpose."""
    if rows.first_exclusive is None:
        return _sum_by(layout.num_queries, per_row, rows.query)
    Q, K, S, C = layout.num_queries, layout.classes, layout.exclusive_each, layout.before_exclusive
    of_class = _is_class(layout, rows).astype(per_row.dtype)
    slots = jnp.einsum("xn,kn->xk", per_row, of_class, precision=PRECISION)
    exclusive = jnp.where(_is_query(layout), slots[C:].T, 0).reshape(Q, K * S)
    return jnp.concatenate([_sum_by(Q, slots[:C], layout.query), exclusive], axis=1)


def _is_query(layout: Layout) -> jax.Array:
    """Return whether each class has the query, (Q, K, 1)."""
    return (jnp.arange(layout.num_queries)[:, None] == layout.query)[:, :, None]


def _is_class(layout: Layout, rows: Rows) -> jax.Array:
    """Return whether each row is of a class, (K, N)."""
    return layout.first_exclusive[:, None] == rows.first_exclusive


def _to_tokens(layout: Layout, rows: Rows, per_slot: jax.Array) -> jax.Array:
    """(A, N) or (C + S, N) -> (A, N), with 0 at the exclusive tokens of other classes."""
    if rows.first_exclusive is None:
        return per_slot
    K, S, C = layout.classes, layout.exclusive_each, layout.before_exclusive
    exclusive = jnp.where(_is_class(layout, rows)[:, None, :], per_slot[C:], 0)
    return jnp.concatenate([per_slot[:C], exclusive.reshape(K * S, -1)])
