"""Models on sequence classes: Pairwise, Embedded and Extended, which have an exact path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError, refuse_if, require_choice, require_whole
from attnlab.models.base import Model, Params
from attnlab.models.positions import Position, position_from
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.sequences import Mixture

if TYPE_CHECKING:
    import jax

    from attnlab.tasks.base import Task

EXACT_NAMES = ("attention", "logits", "loss", "statistics")  # recorded on the exact path
Normalization = Literal["l2", "rms", "layer", "none"]
Combine = Literal["average", "concatenate"]
Init = Literal["zero", "uniform"] | ArrayLike | xr.DataArray


class SequenceModel(Model):
    """A model whose groups are `decoder` (learning rate eta_y) and `attention` (eta_z).

    Attributes
    ----------
    exact
        "module:name" of the class that computes with the layout of sequence classes, loaded when a
        run begins. Models without one take the general path.
    heads
        Number of heads; with several, attention and its logits have a leading axis for them.
    cancels
        True if the gradient of a logit is a difference of two terms of the size of Y.
    words
        Names of the groups in messages.
    """

    symbols: ClassVar[Mapping[str, str]] = {"decoder": "eta_y", "attention": "eta_z"}
    words: ClassVar[Mapping[str, str]] = {
        "decoder": "the decoder Y",
        "attention": "the attention logits Z",
    }
    exact: ClassVar[str] = ""
    heads: int = 1
    cancels: ClassVar[bool] = False

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of attention weights and logits on the general path."""
        head = ("head",) if self.heads > 1 else ()
        return {
            "attention": ("sequence", *head, "token"),
            "attention_logits": (*head, "query", "token"),
        }

    @property
    def neutral_logit(self) -> float:
        """The logit at which attention leaves a token's frequency as it is: the zero start."""
        return 0.0

    @property
    def distance_bias(self) -> Position | None:
        """Bias by distance to the query; None where only the counts of tokens matter."""
        return None

    def extra_dims(self) -> Mapping[str, tuple[str, ...]]:
        """Return the dims of what is recorded in addition to the logits."""
        return {}

    def extra_numbers(self, classes: SequenceClasses) -> int:
        """Return how many numbers are recorded in addition to the logits, where they are many."""
        return 0

    def record_numbers(self, run: Any) -> int | None:
        """Return the numbers of one record of one run on the exact path, of all its sets."""
        if not run.is_exact:
            return None
        what = run.record.what or EXACT_NAMES
        return len(run.sets) * self.numbers_recorded(run.sets[0], what)

    def numbers_recorded(self, classes: SequenceClasses, what: Collection[str]) -> int:
        """Return the numbers of one record on these classes."""
        M, K, Q = classes.vocab_size, len(classes), classes.queries.size
        per_head = {"attention": K * M, "logits": Q * M, "statistics": 4 * K}
        numbers = self.heads * sum(of for name, of in per_head.items() if name in what)
        return numbers + ("logits" in what) * self.extra_numbers(classes) + ("loss" in what)

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return the parameters at the start, on the general path."""
        raise InputError(f"exact: {type(self).__name__} has only the exact path; leave it on")

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the outputs and what can be recorded, on the general path."""
        raise InputError(f"exact: {type(self).__name__} has only the exact path; leave it on")

    def check(self, run: Any) -> None:
        """Refuse given logits: there may be no parameters that make them."""
        if run.is_exact and not isinstance(run.init, str):
            raise InputError(
                f"init: {type(self).__name__} starts from 'zero' or 'uniform', not from given "
                "logits"
            )


@dataclass(frozen=True)
class Pairwise(SequenceModel):
    """The reparameterisation of "Scan and Snap": Y and Z are trained as they are (Section 3.1)."""

    cancels: ClassVar[bool] = True
    exact: ClassVar[str] = "attnlab.simulation.exact.model:ExactPairwise"

    def check(self, run: Any) -> None:
        """Accept any task, gradient and start."""

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return Y = 0, (token, output), and Z = 0, (query, token)."""
        import jax.numpy as jnp

        M = task.vocab_size
        return {"decoder": jnp.zeros((M, M)), "attention": jnp.zeros((M, M))}

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the decoder's logits (B, M), attention to tokens (B, M), and Z."""
        return _apply_pairwise(params["decoder"], params["attention"], inputs)


def _apply_pairwise(Y: jax.Array, Z: jax.Array, inputs: Any) -> tuple[Any, dict[str, jax.Array]]:
    """Return outputs, attention to tokens, and Z; `Extended()` is the same model."""
    params = {"decoder": Y[None], "attention": {"z": Z[None], "bias": Z[:1, :0]}}
    return Extended().apply(params, inputs)


@dataclass(frozen=True)
class Embedded(SequenceModel):
    """The original parameterisation: an embedding U and trained W_Q, W_K, W_V, single head.

    Y = U W_V^T U^T and Z = U W_Q W_K^T U^T / sqrt(d), with d = `dim`. U is kept as it starts:
    orthonormal rows when d is at least the vocabulary, random unit rows otherwise. With
    ``init="zero"``, W_V = 0 and W_Q, W_K are `scale` times isometries onto orthogonal halves of
    a head of width 2 d, so that Y(0) = Z(0) = 0 while both factors can move Z. With
    ``init="uniform"`` all entries are uniform in +-scale/sqrt(d).

    W_Q and W_K learn at eta_z d / (2 scale^2): Z then starts to move exactly as in `Pairwise`.
    For orthonormal U the whole trajectory approaches that of `Pairwise` as `scale` grows, with
    an error of order 1/scale^4: to first order the factors turn without changing their product.

    Parameters
    ----------
    dim : int, optional
        d, width of the embedding.
    scale : float, optional
        Factor of W_Q and W_K at the start.
    """

    exact: ClassVar[str] = "attnlab.simulation.exact.model:ExactEmbedded"
    fixed: ClassVar[tuple[str, ...]] = ("embedding",)

    dim: int = 64
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_whole("dim", self.dim, 1)
        refuse_if(not self.scale > 0, "scale", "a positive number", self.scale)

    def rate_factor(self, group: str) -> float:
        """Return the factor of a group's learning rate."""
        return self.dim / (2 * self.scale**2) if group == "attention" else 1.0

    def start(
        self, key: jax.Array, vocab_size: int, random: bool, dtype: Any
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Return U, which stays as it is, and W_V, W_Q, W_K at the start."""
        import jax
        import jax.numpy as jnp

        d = self.dim
        of_embedding, of_weights = jax.random.split(key)
        U = jax.random.normal(of_embedding, (vocab_size, d), dtype)
        if d >= vocab_size:
            U = jnp.linalg.qr(U.T)[0].T
        else:
            U = U / jnp.linalg.norm(U, axis=1, keepdims=True)
        if random:
            bound = self.scale / d**0.5
            shapes = ((d, d), (d, 2 * d), (d, 2 * d))
            W_V, W_Q, W_K = (
                jax.random.uniform(k, shape, dtype, -bound, bound)
                for k, shape in zip(jax.random.split(of_weights, 3), shapes, strict=True)
            )
            return U, W_V, W_Q, W_K
        turn = jnp.linalg.qr(jax.random.normal(of_weights, (2 * d, 2 * d), dtype))[0]
        return U, jnp.zeros((d, d), dtype), self.scale * turn[:d], self.scale * turn[d:]

    def matrices(
        self,
        embedding: tuple[jax.Array, jax.Array, jax.Array],
        W_V: jax.Array,
        W_Q: jax.Array,
        W_K: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """Return Y (token, output) and Z (query, token).

        embedding: the rows of U of outputs, of tokens and of queries.
        """
        import jax.numpy as jnp

        outputs, tokens, queries = embedding
        product = partial(jnp.matmul, precision="highest")
        Y = product(tokens, product(outputs, W_V).T)
        return Y, product(product(queries, W_Q), product(tokens, W_K).T) / self.dim**0.5

    # -- the general path -------------------------------------------------------------------------

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return U, which is fixed, and W_V, W_Q, W_K."""
        import jax.numpy as jnp

        U, W_V, W_Q, W_K = self.start(key, task.vocab_size, False, jnp.result_type(float))
        return {"embedding": U, "decoder": W_V, "attention": {"W_Q": W_Q, "W_K": W_K}}

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the decoder's logits (B, M), attention to tokens (B, M), and Z."""
        U, W_V, attention = params["embedding"], params["decoder"], params["attention"]
        Y, Z = self.matrices((U, U, U), W_V, attention["W_Q"], attention["W_K"])
        return _apply_pairwise(Y, Z, inputs)


@dataclass(frozen=True)
class Extended(SequenceModel):
    """The 1-layer transformer with what Section 7 leaves for later; `Extended()` is `Pairwise()`.

    Y and z are trained as in `Pairwise`, a learned bias at the learning rate of z.

    A row's query m attends with head h to the tokens of mass w_l (counts, or P for T to infinity):

        (X^T b_h)_l = w_l exp(z_{h,ml}) / sum over l' of w_l' exp(z_{h,ml'})

    N is the normalisation over all M coordinates. The decoder sees

        f = N(X^T b)                     without the residual,
        f = N(N(X^T b) + N(x_T))         with it (for l2, N(x_T) is x_T itself),

    where X^T b is the mean over heads ("average"), or each head has its own f and its own block of
    the decoder ("concatenate"). The outputs are alpha = softmax(sum over blocks of Y^T f).

    A position bias p makes w_l the sum of exp(p) over the positions of token l. Where the query
    attends to itself, w_m has 1 added, for its own position.

    Parameters
    ----------
    residual : bool, optional
        Add the query's embedding to what it attends to (Section 7).
    normalization : str, optional
        "l2", x / |x|_2 (as in "Scan and Snap"); "rms", x over its root mean square; "layer", the
        same after taking the mean away; "none". Over all M coordinates, without an epsilon: X^T b
        has the sum 1, so that only LayerNorm of exactly uniform attention over the whole vocabulary
        is undefined.
    heads : int, optional
        Number of heads, each with its own z. From the zero start they stay identical; they differ
        by init="uniform" or by logits given as (head, query, token).
    combine : str, optional
        "average" takes the mean over heads of X^T b, with one decoder; "concatenate" gives each
        head its normalisation and its block of the decoder, and adds the outputs.
    position : Position or str, optional
        Bias by distance, "learned", "alibi:0.1" or "fixed:0,-1,-2"; needs sequences of finite
        length. The same as values: `LearnedPosition()`, `AlibiPosition(slope)`,
        `FixedPosition(bias)`.
    attend_self : bool, optional
        Attend to the query's own token too; needs sequences of finite length.
    """

    exact: ClassVar[str] = "attnlab.simulation.exact.model:ExactExtended"

    residual: bool = False
    normalization: Normalization = "l2"
    heads: int = 1
    combine: Combine = "average"
    position: Position | str | None = None
    attend_self: bool = False

    def __post_init__(self) -> None:
        for name, known in (("normalization", Normalization), ("combine", Combine)):
            require_choice(name, getattr(self, name), get_args(known))
        for name in ("residual", "attend_self"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name}: expected true or false, got {getattr(self, name)!r}")
        require_whole("heads", self.heads, 1)
        if isinstance(self.position, str):
            object.__setattr__(self, "position", position_from(self.position))
        if not isinstance(self.position, Position | None):
            raise InputError(
                "position: expected LearnedPosition, AlibiPosition or FixedPosition, "
                f"got {self.position!r}"
            )

    def check(self, run: Any) -> None:
        """Refuse what has no meaning for T to infinity, and biases that do not fit the length."""
        distances = getattr(run.task, "distances", 0)
        if distances:
            if self.distance_bias is not None:
                self.distance_bias.check(distances)
        elif self.position is not None:
            raise InputError(
                "position: for T to infinity the model trains on mean attention, in which a bias "
                "by distance cancels because tokens have one distribution at all distances; give a "
                "length"
            )
        elif self.attend_self:
            raise InputError(
                "attend_self: for T to infinity the query's own token is one of infinitely many "
                "and has no weight; give a length"
            )

    @property
    def blocks(self) -> int:
        """Blocks of the decoder Y."""
        return self.heads if self.combine == "concatenate" else 1

    @property
    def distance_bias(self) -> Position | None:
        """Bias by distance to the query."""
        assert not isinstance(self.position, str)  # a text has become a Position when it was made
        return self.position

    @property
    def learns_bias(self) -> bool:
        """True if the bias by distance is trained."""
        return self.distance_bias is not None and self.distance_bias.learned

    def start_bias(self, distances: int) -> NDArray[np.float64]:
        """Return the bias by distance at the start; zero where there is none."""
        position = self.distance_bias
        return np.zeros(distances) if position is None else position.biases(distances)

    def extra_dims(self) -> dict[str, tuple[str, ...]]:
        """Return the dims of the learned bias."""
        dims = ("head", "distance")[self.heads == 1 :]
        return {"position_bias": dims} if self.learns_bias else {}

    # -- the general path -------------------------------------------------------------------------

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return Y = 0, (block, token, output), z = 0, (head, query, token), and the bias."""
        import jax.numpy as jnp

        M = task.vocab_size
        bias = jnp.asarray(self.start_bias(getattr(task, "distances", 0)), jnp.result_type(float))
        z = jnp.zeros((self.heads, M, M))
        attention = {"z": z, "bias": jnp.tile(bias, (self.heads, 1))}
        return {"decoder": jnp.zeros((self.blocks, M, M)), "attention": attention}

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the decoder's logits (B, M), attention to tokens, and z."""
        import jax
        import jax.numpy as jnp

        Y, z = params["decoder"], params["attention"]["z"]
        M = z.shape[-1]
        mass, query = token_mass(inputs, M)
        mass = jnp.broadcast_to(mass, (self.heads, *mass.shape))  # H B M
        if not isinstance(inputs, Mixture) and self.position is not None:
            bias = params["attention"]["bias"]
            if not self.learns_bias:
                bias = jax.lax.stop_gradient(bias)
            near_last = jnp.exp(bias)[:, None, ::-1, None]  # the first token is the farthest
            mass = jnp.sum(near_last * jax.nn.one_hot(inputs[:, :-1], M), axis=2)
        own = jax.nn.one_hot(query, M)
        if self.attend_self:
            mass = mass + own
        # the inner choice keeps the derivative of log 0 out of what is not there
        log_mass = jnp.where(mass > 0, jnp.log(jnp.where(mass > 0, mass, 1.0)), -jnp.inf)
        weights = jax.nn.softmax(log_mass + z[:, query], axis=-1)  # H B M
        outputs = self.decode(weights, own, Y.swapaxes(1, 2), M)
        several = self.heads > 1
        seen = jnp.swapaxes(weights, 0, 1) if several else weights[0]
        return outputs, {"attention": seen, "attention_logits": z if several else z[0]}

    def decode(
        self,
        attended: jax.Array,
        own: jax.Array,
        Y: jax.Array,
        M: Any,
        count: Callable[[jax.Array], jax.Array] = lambda x: x,
    ) -> jax.Array:
        """Return the outputs (B, outputs) of what heads attend to, X^T b (head, B, entry).

        own: the query's own token, (B, entry). Y: (block, output, entry). count: multiplies each
        entry by the number of tokens that it stands for, M in all.
        """
        import jax
        import jax.numpy as jnp

        def total(x: jax.Array) -> jax.Array:
            return jnp.sum(count(x), axis=-1, keepdims=True)

        def normalized(x: jax.Array) -> jax.Array:
            if self.normalization == "none":
                return x
            if self.normalization == "l2":
                return x * jax.lax.rsqrt(total(x**2))
            if self.normalization == "layer":
                x = x - total(x) / M
            return x * jax.lax.rsqrt(total(x**2) / M)

        x = jnp.mean(attended, axis=0, keepdims=True) if self.combine == "average" else attended
        f = normalized(x)
        if self.residual:
            f = normalized(f + normalized(own))
        return jnp.einsum("hna,hja->nj", count(f), Y, precision="highest")


def token_mass(inputs: Any, vocab_size: int) -> tuple[jax.Array, jax.Array]:
    """Return the counts or probabilities (B, M) of contextual tokens, and the queries (B,)."""
    import jax
    import jax.numpy as jnp

    if isinstance(inputs, Mixture):
        return inputs.probs, inputs.query
    context, query = inputs[:, :-1], inputs[:, -1]
    return jnp.sum(jax.nn.one_hot(context, vocab_size), axis=1), query


# -- starts: zero, random, or given attention logits -----------------------------------------------


def is_random(init: Init) -> bool:
    """Return True if the start is drawn."""
    return isinstance(init, str) and init == "uniform"


def checked_init(classes: SequenceClasses, init: Init, *, heads: int = 1) -> Init:
    """Return a start that fits the classes: its name, or finite logits as a read-only array.

    Logits are (token,), (query, token) or, with several heads, (head, query, token).
    """
    if isinstance(init, str):
        refuse_if(init not in ("zero", "uniform"), "init", "'zero', 'uniform' or logits", init)
        return init
    names = ("head", "query", "token")[heads == 1 :]
    shape = (heads, classes.queries.size, classes.vocab_size)[heads == 1 :]
    if isinstance(init, xr.DataArray):
        if set(init.dims) != set(names[-init.ndim :]):
            raise InputError(f"init: logits have dims {names} or the last of them, not {init.dims}")
        labels = (np.arange(heads), classes.queries, np.arange(classes.vocab_size))[heads == 1 :]
        coords = dict(zip(names, labels, strict=True))
        init = init.reindex({d: coords[str(d)] for d in init.dims if d in init.coords})
        init = init.transpose(*names[-init.ndim :])
    try:
        logits = np.array(init, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"init: expected 'zero', 'uniform' or an array of logits, got {type(init).__name__}"
        ) from None
    fits = logits.ndim and logits.shape == shape[-logits.ndim :]
    if not fits or not np.all(np.isfinite(logits)):
        raise InputError(
            f"init: logits must be finite, of shape {shape} for {names} or the last of them, "
            f"got shape {logits.shape}"
        )
    logits.setflags(write=False)
    return logits


def initial_logits(
    classes: SequenceClasses, init: Init, *, heads: int = 1, neutral: float = 0.0
) -> NDArray[np.float64]:
    """Return z(0) as (query, token), or (head, query, token) with several heads.

    Logits that were not given are `neutral`; the model draws the random start.
    """
    shape = (heads, classes.queries.size, classes.vocab_size)[heads == 1 :]
    given: Any = checked_init(classes, init, heads=heads)
    return np.broadcast_to(neutral if isinstance(given, str) else given, shape).copy()
