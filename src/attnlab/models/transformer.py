"""Transformer: embedding, attention with or without an MLP, decoder; one option for each variant.

The settings are here and import without JAX; `transformer_math` computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from attnlab.files.errors import InputError, refuse_if, require_choice, require_whole
from attnlab.models.base import Model, Params, Precision

if TYPE_CHECKING:
    import jax

    from attnlab.models.losses import OutputLoss
    from attnlab.tasks import Batch, Task

Activation = Literal["relu", "gelu", "linear"]
Norm = Literal["none", "pre", "post"]
Positions = Literal["none", "learned", "sinusoidal", "alibi", "relative", "rotary"]
Attention = Literal["softmax", "linear", "relu", "sigmoid"]
Embedding = Literal["trained", "orthonormal", "one-hot"]
Scheme = Literal["normal", "lecun", "uniform", "torch", "zeros"]
Readout = Literal["every", "last"]
WEIGHT_DIMS = ("layer", "sequence", "head", "query", "key")
CAPTURED = {
    "attention": WEIGHT_DIMS,
    "attention_logits": WEIGHT_DIMS,
    "value_norm": ("layer", "sequence", "position"),
    "residual_norm": ("layer", "sequence", "position"),
}
CHOICES = {
    "activation": Activation,
    "norm": Norm,
    "positions": Positions,
    "attention": Attention,
    "embedding": Embedding,
    "scheme": Scheme,
    "readout": Readout,
}


@dataclass(frozen=True)
class Transformer(Model):
    """A transformer. Inputs are tokens (B, T), or vectors (B, T, V) in place of one-hot tokens.

    Parameters
    ----------
    layers : int, optional
        Number of layers.
    heads : int, optional
        Heads of each layer.
    dim : int, optional
        Width d of the residual stream.
    mlp : int, optional
        Hidden units; 0 leaves the MLP out.
    activation : str, optional
        Activation of the hidden units.
    norm : str, optional
        "pre" normalises before each block and at the end, "post" after each residual sum.
    positions : str, optional
        "learned" and "sinusoidal" vectors are added to the embedding; "alibi" lowers logits with
        distance, "relative" adds q_i . r_{i-j} with a learned vector r for each distance and layer,
        "rotary" turns queries and keys.
    attention : str, optional
        Map from logits to weights: "softmax"; "linear" and "relu" over the number of visible
        keys n; "sigmoid" of the logit minus ln n.
    embedding : str, optional
        "trained", or fixed: "orthonormal" rows, or "one-hot" (then dim is vocab_size).
    scale_embedding : bool, optional
        Multiply embedded tokens by sqrt(dim), before positions are added.
    merged : bool, optional
        Use one d x d matrix for each head in place of query and key: q = x A, k = x.
    tied : bool, optional
        Use the embedding as the decoder.
    biases : bool, optional
        Add biases to all linear maps and norms; they start at 0, but see `scheme`.
    logit_scale : float, optional
        Factor of q . k; by default 1 / sqrt of their width.
    scheme : str, optional
        Start of the matrices: "normal" with standard deviation `scale`; "lecun", normal with
        scale / sqrt(inputs); "uniform" within scale / sqrt(inputs); "zeros"; "torch", the start of
        PyTorch's encoder layers: as "uniform", with the biases of the MLP, but q, k, v within
        scale sqrt(6 / (d + 3d)) (Glorot, the three as one map), and embedding, decoder and
        positions within 0.1 scale.
    scale : float, optional
        Factor of the start.
    dropout : float, optional
        Share of entries dropped of the embedding, attention weights, hidden units and the output
        of each block.
    causal : bool, optional
        Let a query see only keys up to its own position.
    readout : str, optional
        Predict at "every" position, (B, T, outputs), or at the "last", (B, outputs).
    """

    layers: int = 2
    heads: int = 1
    dim: int = 16
    mlp: int = 0
    activation: Activation = "relu"
    norm: Norm = "pre"
    positions: Positions = "relative"
    attention: Attention = "softmax"
    embedding: Embedding = "trained"
    scale_embedding: bool = False
    merged: bool = False
    tied: bool = False
    biases: bool = False
    logit_scale: float | None = None
    scheme: Scheme = "lecun"
    scale: float = 1.0
    dropout: float = 0.0
    causal: bool = True
    readout: Readout = "every"

    def __post_init__(self) -> None:
        for name, least in (("layers", 1), ("heads", 1), ("dim", 1), ("mlp", 0)):
            require_whole(name, getattr(self, name), least)
        for name, kind in CHOICES.items():
            require_choice(name, getattr(self, name), get_args(kind))
        if self.dim % self.heads:
            raise InputError(
                f"heads: {self.heads} heads do not divide dim {self.dim}; choose a divisor of it"
            )
        if self.positions == "sinusoidal" and self.dim % 2:
            raise InputError(f"dim: sinusoidal positions need an even number, got {self.dim}")
        if self.positions == "rotary" and self.key_dim % 2:
            raise InputError(f"dim: rotary positions need heads of even width, got {self.key_dim}")
        refuse_if(not 0 <= self.dropout < 1, "dropout", "a number in [0, 1)", self.dropout)

    @property
    def key_dim(self) -> int:
        """Width of a query and of a key."""
        return self.dim if self.merged else self.dim // self.heads

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of attention weights and logits, and of norms of values and residual stream."""
        return dict(CAPTURED)

    @property
    def fixed(self) -> tuple[str, ...]:
        """The embedding, where it is not trained."""
        return ("embedding",) if self.embedding == "orthonormal" else ()

    def check(self, run: Any) -> None:
        """Refuse tasks without positions, dropout in a flow, and other tasks that do not fit."""
        length = getattr(run.task, "length", 0)
        if length == math.inf:
            raise InputError("length: a Transformer reads tokens, T of them; give a finite length")
        if self.dropout and run.clock == "time":
            raise InputError("dropout: a flow has no steps to draw it at; take dropout=0")
        bounded = self.positions in ("learned", "relative")
        for name, other in run.record.evaluate.items():
            if other.vocab_size != run.task.vocab_size or other.outputs != run.task.outputs:
                raise InputError(
                    f"evaluate: {name} has {other.vocab_size} tokens and {other.outputs} outputs, "
                    f"the model {run.task.vocab_size} and {run.task.outputs}; take as many"
                )
            if bounded and other.length > length:
                raise InputError(
                    f"evaluate: {name} has {other.length} positions, the model learns {length}; "
                    "take fewer, or positions='rotary'"
                )

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return the parameters at the start; those of layers have a leading axis (L, ...)."""
        from attnlab.models import transformer_math

        self._require_fit(task.vocab_size, task.outputs)
        return transformer_math.init(self, key, task.vocab_size, task.length, task.outputs)

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return predictions (B, T, outputs) or (B, outputs), and attention, logits and norms."""
        from attnlab.models.transformer_math import decode, encode

        # not `self.dims`, which a subclass extends by what it captures itself
        x, captured = encode(self, params, inputs, key, what=tuple(CAPTURED))
        return decode(self, params, x), captured

    def loss(
        self,
        params: Params,
        batch: Batch,
        loss: OutputLoss,
        *,
        key: jax.Array | None = None,
        precision: Precision = "default",
    ) -> jax.Array:
        """Return the mean loss.

        The cross entropy of labels of equal weight is computed with few passes over the
        logits where there are 128 outputs or more; with `precision` "bfloat16" they, their
        probabilities and the decoder's products have that type.
        """
        from attnlab.models import transformer_math

        if transformer_math.is_fused(self, params, batch, loss):
            return transformer_math.cross_entropy(self, params, batch, key, precision)
        return super().loss(params, batch, loss, key=key, precision=precision)

    def gather_rows(self, params: Params, batch: Batch) -> tuple[Params, Batch]:
        """Replace a large embedding by the rows of the batch's tokens."""
        from attnlab.models import transformer_math

        return transformer_math.gather_rows(self, params, batch)

    def scatter_rows(self, params: Params, gathered: Params, batch: Batch) -> Params:
        """Write the rows of the batch's tokens into the embedding."""
        from attnlab.models import transformer_math

        return transformer_math.scatter_rows(self, params, gathered, batch)

    def _require_fit(self, vocab_size: int, outputs: int) -> None:
        if self.embedding == "one-hot" and self.dim != vocab_size:
            raise InputError(f"dim: one-hot embeddings need dim = {vocab_size}, got {self.dim}")
        if self.embedding == "orthonormal" and self.dim < vocab_size:
            raise InputError(
                f"dim: {vocab_size} orthonormal embeddings need as many dimensions, got {self.dim}"
            )
        if self.tied and outputs != vocab_size:
            raise InputError(
                f"tied: expected as many outputs as tokens ({vocab_size}), got {outputs}; untie"
            )


def text_transformer(**settings: Any) -> Transformer:
    """Return a transformer for text: one layer as in PyTorch's encoder, unless settings say else.

    Parameters
    ----------
    **settings
        Fields of `Transformer`.

    Returns
    -------
    Transformer
        By default one layer and one head of width 200, an MLP of 200 units, norms after the
        residual sums, sinusoidal positions, and dropout of 0.2.

    Examples
    --------
    >>> from attnlab.models import text_transformer
    >>> text_transformer(layers=3).norm
    'post'
    """
    default: dict[str, Any] = {
        "layers": 1,
        "dim": 200,
        "mlp": 200,
        "norm": "post",
        "positions": "sinusoidal",
        "scale_embedding": True,
        "biases": True,
        "scheme": "torch",
        "dropout": 0.2,
    }
    return Transformer(**{**default, **settings})
