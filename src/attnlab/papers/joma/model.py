"""Joint: an MLP over attention with the query's residual, the model of JoMA.

"JoMA: Demystifying Multilayer Transformers via Joint Dynamics of MLP and Attention" (Tian, Wang,
Zhang, Chen and Du, ICLR 2024). A context with token frequencies x is attended from its query m:

    b = sigma(z_m / T) * x / A      (elementwise), where
        softmax:  sigma = exp, A = sum over l of exp(z_ml / T) x_l
        exp:      sigma = exp, A = 1
        linear:   sigma(z) = z, A = 1
    f = U_C b + u_m,    h_k = phi(w_k . f)

The embeddings U_C of contextual tokens and u_m of queries are orthonormal, so that w_k is known by
its coordinates v_k = U_C^T w_k and r_km = w_k . u_m, which are trained as they are:

    h_k = phi(v_k . b + r_km)

The loss is the cross entropy with the next token, among the labels: the next tokens that some class
has. With `hidden` units there is an upper layer, V^T h; without, the hidden units are the labels'
logits themselves, as in the paper's test of its invariants.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from attnlab.files.errors import InputError, refuse_if, require_choice, require_whole
from attnlab.models.sequence import SequenceModel
from attnlab.tasks.classes.classes import SequenceClasses

Activation = Literal["linear", "relu", "gelu"]
Attention = Literal["softmax", "exp", "linear"]


@dataclass(frozen=True)
class Joint(SequenceModel):
    """An MLP over attention with the query's residual (JoMA), on sequence classes.

    Rates: W = (v, r) and V learn at eta_y, z at eta_z. With the flow, linear attention then keeps
    z_ml^2/eta_z - sum_k v_kl^2/eta_y constant, and exp attention keeps
    T z_ml/eta_z - sum_k v_kl^2/(2 eta_y), for one query.

    Start: v and r are `scale` times standard normal numbers, V those over sqrt(hidden). z is such
    that sigma(z/T) = 1 (0, or T for linear attention), or the logits that are given; with
    init="uniform", `scale` times standard normal numbers are added.

    There is one layer. Without positions a second could be defined (each token attends to the
    counts of its whole context), but nothing in sequence classes says what such a token, which is
    no query, should attend to, and what JoMA says of upper layers is about their own activations.

    Attention is recorded as shares, b over its sum, that an entropy can be taken of (|b| for linear
    attention, which may have either sign); b itself is P sigma(z/T) for exp and linear.

    Parameters
    ----------
    hidden : int, optional
        Units of the MLP, with an upper layer V above them; None for one unit for each label, which
        are the outputs themselves: then W and z are all there is.
    activation : str, optional
        "linear", "relu" or "gelu" (the exact one). The flow of a ReLU can come to slide along the
        place where a unit turns off, where `Flow` gives up; small steps go on.
    attention : str, optional
        "softmax", "exp" or "linear"; see the formulas of the module.
    temperature : float, optional
        T, by which logits are divided.
    residual : bool, optional
        Let hidden units see the query. Its embedding is orthogonal to those of all contextual
        tokens, also where a class draws the query as a token.
    scale : float, optional
        Factor of the random numbers that a run starts from; the paper has N(0, 1)/100.
    stationary : bool, optional
        Hold the gradient that arrives at the hidden units where it is for equal outputs, as the
        paper assumes: the error at label j is 1/J - [j is the next token] for ever, and V stays as
        it starts. The loss is then linear in h and has no lower bound, so that exp attention
        reaches infinity in finite time, and linear attention grows exponentially.
    """

    exact: ClassVar[str] = "attnlab.papers.joma.exact:ExactJoint"
    words: ClassVar[Mapping[str, str]] = {
        "decoder": "the MLP",
        "attention": "the attention logits Z",
    }

    hidden: int | None = None
    activation: Activation = "linear"
    attention: Attention = "softmax"
    temperature: float = 1.0
    residual: bool = True
    scale: float = 0.01
    stationary: bool = False

    def __post_init__(self) -> None:
        for name, known in (("activation", Activation), ("attention", Attention)):
            require_choice(name, getattr(self, name), get_args(known))
        for name in ("residual", "stationary"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name}: expected true or false, got {getattr(self, name)!r}")
        if self.hidden is not None:
            require_whole("hidden", self.hidden, 1)
        if not 0 < self.temperature < np.inf:
            raise InputError(f"temperature: expected a positive number, got {self.temperature}")
        refuse_if(not 0 <= self.scale < np.inf, "scale", "a number of at least 0", self.scale)
        if self.activation == "relu" and not self.scale:
            raise InputError("scale: ReLU has no slope at 0 and would never move; give a scale")

    def check(self, run: Any) -> None:
        """Accept any task, gradient and start."""

    @property
    def neutral_logit(self) -> float:
        """The logit with sigma(z/T) = 1."""
        return self.temperature if self.attention == "linear" else 0.0

    def extra_dims(self) -> dict[str, tuple[str, ...]]:
        """Return the dims of the MLP's weights."""
        dims: dict[str, tuple[str, ...]] = {"mlp_weights": ("unit", "token")}
        if self.residual:
            dims["query_weights"] = ("unit", "query")
        if self.hidden:
            dims["upper_weights"] = ("unit", "label")
        return dims

    def extra_numbers(self, classes: SequenceClasses) -> int:
        """Return the numbers of the MLP, over the whole vocabulary."""
        labels = np.unique(classes.next_token).size
        upper = labels if self.hidden else 0
        return (self.hidden or labels) * (classes.vocab_size + classes.queries.size + upper)
