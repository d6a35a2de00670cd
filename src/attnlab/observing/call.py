"""AttentionCall: one call of attention, with everything that its softmax depends on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

from attnlab.files.errors import InputError, require_whole
from attnlab.measures.arrays import falling, is_bool, is_floating, namespace, precise

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

DIMS = ("batch", "head", "query", "key")
# An additive mask hides the keys below a drop of this much; biases of positions fall gradually.
DROP = 50.0
# A row of an additive mask in which nothing is larger sees no key.
HIDDEN = -9e3
FLOOR_BYTES, BYTES_OF_A_MASK = 2**24, 16  # of masks that are sorted at a time, and of an entry


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of attention as a seam saw it: everything that its softmax depends on.

    Arrays are torch tensors, JAX arrays or numpy arrays, all of one kind. The query at index i
    stands at place i + (keys - queries) among the keys, so that the last query is the last key;
    `torch`'s `is_causal` counts from the first, which differs where there are more keys.

    Parameters
    ----------
    query, key
        After rotary embedding and QK norm; the number of KV heads divides that of heads.
    value : array (batch kv_head key value_width), optional
        For errors of the output and norms of values; None leaves those out.
    scale : float
        What the products are multiplied with.
    mask : Shaped[Any, '*broadcast'], optional
        Bool (True: may attend) or additive floats (so come the biases of T5 and ALiBi). Of these,
        sorted from the largest, the first drop of 50 or more in a row hides all keys after it:
        models add -100 (Swin), -10,000 or the lowest number of their dtype, and exp(-50) is 2e-22.
        A bias that falls from key to key hides none. A row whose largest is -9,000 sees nothing.
    causal : bool, optional
        A query sees the keys up to its own place.
    window : int, optional
        It sees only keys nearer than this, in either direction.
    softcap : float, optional
        Softcap * tanh(logits / softcap), before the mask.
    sinks : array (head), optional
        Learnable logits, one for each head, in the denominator of the softmax without a key.
    cross : bool, optional
        The keys are of another sequence, so that places of queries and keys do not compare.
    """

    query: Float[Any, "batch head query width"]
    key: Float[Any, "batch kv_head key width"]
    value: Float[Any, "batch kv_head key value_width"] | None
    scale: float
    layer: int
    mask: Shaped[Any, "*broadcast"] | None = None
    causal: bool = False
    window: int | None = None
    softcap: float | None = None
    sinks: Float[Any, " head"] | None = None
    cross: bool = False

    def __post_init__(self) -> None:
        _require_shape("query", self.query, "batch, head, query, width")
        _require_shape("key", self.key, "batch, kv_head, key, width")
        (batch, head, queries, width), (_, kv_head, keys, _) = self.query.shape, self.key.shape
        if self.key.shape != (batch, kv_head, keys, width):
            raise InputError(
                f"key: expected batch {batch} and width {width} as the queries have, "
                f"got shape {tuple(self.key.shape)}"
            )
        if not (batch and head and queries and keys and kv_head):
            raise InputError("query: nothing to attend; give at least one sequence, query and key")
        if head % kv_head:
            raise InputError(
                f"key: {kv_head} heads do not divide the {head} heads of the queries; "
                "give batch, kv_head, key, width in this order"
            )
        if self.value is not None:
            _require_shape("value", self.value, "batch, kv_head, key, width")
            if tuple(self.value.shape[:3]) != (batch, kv_head, keys):
                raise InputError(
                    f"value: expected {(batch, kv_head, keys)} and a width, as the keys have, "
                    f"got shape {tuple(self.value.shape)}"
                )
        for field in ("key", "value", "mask", "sinks"):
            array = getattr(self, field)
            if array is not None and not _same_kind(array, self.query):
                raise InputError(
                    f"{field}: a {type(array).__name__} beside queries that are a "
                    f"{type(self.query).__name__}; give all of one kind"
                )
        _require_positive("scale", self.scale)
        require_whole("layer", self.layer, 0)
        if self.window is not None:
            require_whole("window", self.window, 1)
        if self.softcap is not None:
            _require_positive("softcap", self.softcap)
        if self.sinks is not None and tuple(self.sinks.shape) != (head,):
            raise InputError(
                f"sinks: expected one logit for each of the {head} heads, "
                f"got shape {tuple(self.sinks.shape)}"
            )
        if self.cross and (self.causal or self.window is not None):
            raise InputError(
                "cross: keys of another sequence have no place before a query; "
                "leave out causal and window, or give what is visible as mask"
            )
        if self.mask is not None:
            self._check_mask(self.mask)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, head, query, key."""
        batch, head, queries, _ = self.query.shape
        return batch, head, queries, self.key.shape[2]

    @property
    def full_mask(self) -> Shaped[Any, "B H Q K"] | None:
        """The mask with all four dims, of which those that it does not tell apart have size 1."""
        if self.mask is None:
            return None
        return self.mask.reshape((1,) * (4 - len(self.mask.shape)) + tuple(self.mask.shape))

    @cached_property
    def floor(self) -> Float[Any, "B H Q 1"] | None:
        """The value at which, and below which, an additive mask hides a key, row by row."""
        mask = self.full_mask
        if mask is None or is_bool(mask):
            return None
        xp = namespace(mask)
        entries = mask.shape[0] * mask.shape[1] * mask.shape[3]
        each = max(1, FLOOR_BYTES // (entries * BYTES_OF_A_MASK))
        return xp.concat(
            [_floor(mask[:, :, i : i + each]) for i in range(0, mask.shape[2], each)], axis=2
        )

    def span(self, place: Int[Any, "*rows"]) -> tuple[Any, Any]:
        """The first and the last key that a query at this place may see but for the mask; they may
        lie outside of what there is."""
        first, last = place * 0, place * 0 + (self.shape[3] - 1)
        if self.window is not None:
            first, last = place - (self.window - 1), place + (self.window - 1)
        return first, place if self.causal else last

    def _check_mask(self, mask: Any) -> None:
        sizes, full = tuple(mask.shape), self.shape
        matches = len(sizes) <= 4 and all(
            size in (1, whole) for size, whole in zip(sizes[::-1], full[::-1], strict=False)
        )
        if not matches:
            raise InputError(
                f"mask: shape {sizes} does not broadcast to {', '.join(DIMS)} = {full}; "
                "a padding mask of batch, key becomes one with mask[:, None, None, :]"
            )
        if not (is_bool(mask) or is_floating(mask)):
            raise InputError(
                f"mask: expected bool (True: may attend) or additive floats, got {mask.dtype}; "
                "of zeros and ones give mask != 0"
            )


def _floor(mask: Float[Any, "B H row key"]) -> Float[Any, "B H row 1"]:
    mask = precise(mask)
    xp = namespace(mask)
    top = xp.max(mask, axis=-1, keepdims=True)
    floor = top - DROP
    if bool(xp.any((mask <= floor) & (mask > HIDDEN))):  # a mask of -100, or a bias that goes far
        ordered = falling(mask)
        drops = ordered[..., :-1] - ordered[..., 1:] >= DROP
        floor = xp.max(xp.where(drops, ordered[..., 1:], -xp.inf), axis=-1, keepdims=True)
    return xp.where(top <= HIDDEN, xp.inf, floor)


def _same_kind(array: Any, other: Any) -> bool:
    return hasattr(array, "shape") and namespace(array) is namespace(other)


def _require_positive(field: str, value: Any) -> None:
    if not (isinstance(value, Real) and 0 < float(value) < math.inf):
        raise InputError(f"{field}: expected a positive number, got {value!r}")


def _require_shape(field: str, array: Any, dims: str) -> None:
    shape = tuple(getattr(array, "shape", ()))
    if len(shape) != 4:
        raise InputError(f"{field}: expected an array of {dims}, got shape {shape}")
    if not is_floating(array):
        raise InputError(f"{field}: expected floating-point numbers, got {array.dtype}")
