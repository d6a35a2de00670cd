"""Sources for torch's own functions: scaled dot products, multi-head attention, and softmax.

The first two are measured. The last only detects attention in a module's own code, which cannot be
measured.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.nn import functional

from attnlab.files.errors import InputError
from attnlab.observing.call import AttentionCall
from attnlab.observing.capture.base import Capture, Source, crosses, differ_by_positions, muted

SCALED_DOT_PRODUCT, MULTIHEAD = "scaled_dot_product_attention", "multi_head_attention_forward"
PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm", "einsum")
EXPONENTIALS = ("softmax", "exp", "exp_", "exp2")
FLEX = "torch.nn.attention.flex_attention"
# Called with a capture, the name of a function, its arguments and what it returned.
Note = Callable[[Capture, str, tuple[Any, ...], Any], None]
MIXTURE = 8  # a square of no more is a mixture of streams (hyper-connections)


class ScaledDotProduct(Source):
    """Patches torch's function; the module that runs tells which layer calls it.

    A module that has imported the function by name keeps the original, so that the names in the
    files of the model's classes are replaced as well. (A `TorchFunctionMode` would not see the call
    inside `torch.nn.MultiheadAttention`.)
    """

    def patch(self, capture: Capture) -> None:
        if len(self.captures) == 1:
            self.original = getattr(functional, SCALED_DOT_PRODUCT)
            self.replace(functional, SCALED_DOT_PRODUCT, self._attend)
        self.replace_by_name(capture, {self.original: lambda _: self._attend})

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        output: Tensor = self.original(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        for capture in self.active_captures():
            name = capture.current
            with capture.measuring():
                unfold = folded(capture, query, value)
                q, k, v = (unfold(one) for one in (query, key, value))
                mask = attn_mask
                if mask is not None and unfold is not _four:
                    mask = unfold(mask.expand(*query.shape[:-1], key.shape[-2]))
                cross = capture.cross
                if crosses(name):
                    cross = True
                elif cross is None and not is_causal:
                    cross = capture.comes_from_elsewhere(query, key)
                named = crosses(name) or q.shape[2] != k.shape[2]
                if cross and not (named or is_causal) and capture.sequences < 2:
                    warn_of_origin(name)
                call = understand(
                    q,
                    k,
                    v,
                    mask,
                    is_causal,
                    scale,
                    layer=capture.next_layer,
                    cross=cross,
                    name=name,
                    appended=capture.appended,
                )
                capture.see(name, call, unfold(output), exact=dropout_p == 0)
        return output


def understand(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    *,
    layer: int = 0,
    cross: bool | None = None,
    name: str = "",
    appended: int = 0,
) -> AttentionCall:
    """Return the call that torch's function makes of these arguments.

    cross: whether keys are of another sequence; None: not known. appended: keys that are not of
    the sequence, behind those that are.
    """
    if query.is_nested:
        raise InputError(
            "probe: makes nested tensors, whose rows have lengths of their own; give sequences of "
            "one length, or padded ones with their mask"
        )
    queries, keys = query.shape[-2], key.shape[-2]
    mask = _mask_of_four(query, key, mask)
    if is_causal and keys > queries:  # counted from the first key: the others are never seen
        key, value, keys = key[..., :queries, :], value[..., :queries, :], queries
    elif is_causal and keys < queries:
        mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril()[None, None]
        is_causal = False
    seen = {"key": _four(key), "value": _four(value), "mask": mask}
    is_cross = bool(cross) and not is_causal
    if queries != keys and not (is_causal or is_cross):
        own = own_sequence(_four(query), **seen, appended=appended)
        seen, is_cross = own or seen, own is None
        if own is None:
            warn_of_lengths(name, queries, keys)
    return AttentionCall(
        query=_four(query),
        layer=layer,
        causal=is_causal,
        cross=is_cross,
        **seen,
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
    )


def own_sequence(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, appended: int = 0
) -> dict[str, Any] | None:
    """Return key, value, mask (and sinks) of self-attention that has more keys than queries, so
    that the last query's own key is the last; None if nothing tells that it is self-attention.

    A key of zeros with a value of zeros, which softmax attention is given to attend to nothing, is
    a learnable sink of logit 0. A mask that shows each query one key more than the query before is
    causal: keys that come first (prefix tuning) are keys like others, and those after the last
    query (queries in chunks) are never seen.
    """
    mask = None if mask is None else mask.expand(*mask.shape[:-1], key.shape[2])
    sinks = {}
    for at, rest in ((-1, slice(None, -1)), (0, slice(1, None))):
        if key.shape[2] <= query.shape[2]:
            break
        shown = mask is None or bool(
            mask[..., at].all() if mask.dtype == torch.bool else not mask[..., at].any()
        )
        if shown and not (key[:, :, at].any() or value[:, :, at].any()):
            key, value = key[:, :, rest], value[:, :, rest]
            mask = None if mask is None else mask[..., rest]
            sinks = {"sinks": query.new_zeros(query.shape[1])}
            break
    if appended and key.shape[2] == query.shape[2] + appended:  # first, as if it were a prefix
        key, value = key.roll(appended, 2), value.roll(appended, 2)
        mask = None if mask is None else mask.roll(appended, -1)
    elif key.shape[2] != query.shape[2]:
        number = _causal_keys(query, key, mask)
        if number is None:
            return None
        key, value = key[:, :, :number], value[:, :, :number]
        mask = None if mask is None else mask[..., :number]
    return {"key": key, "value": value, "mask": mask, **sinks}


def _causal_keys(query: Tensor, key: Tensor, mask: Tensor | None) -> int | None:
    """Return how many keys there are up to the last query's own, if a mask tells."""
    queries, keys = query.shape[2], key.shape[2]
    if mask is None or mask.shape[-2] != queries or queries < 2 or keys < queries:
        return None
    call = AttentionCall(query, key, None, 1.0, 0, mask=mask, cross=True)
    shown = mask if call.floor is None else mask.float() > call.floor
    last = (shown.flatten(0, -3).any(0) * torch.arange(1, keys + 1, device=mask.device)).amax(-1)
    found: list[int] = last.tolist()  # 0: sees nothing
    first = next((i for i, end in enumerate(found) if end), queries)
    steps = [after - before for before, after in itertools.pairwise(found[first:])]
    if not set(steps) <= {0, 1} or 2 * sum(steps) < queries - 1:  # padding at the end sees no more
        return None
    number = found[first] - 1 - first + queries
    return number if queries <= number <= keys else None


def warn_of_lengths(name: str, queries: int, keys: int) -> None:
    """Warn of a layer that is taken for cross-attention for its lengths alone."""
    warnings.warn(
        f"{name or 'the model'}: {queries} queries and {keys} keys, and no causal mask that tells "
        "where the queries stand among them: taken for cross-attention, so that what is said of "
        "positions, induction and caches is left out; attnlab.observing.record measures them as "
        "they are",
        stacklevel=2,
    )


def warn_of_origin(name: str) -> None:
    """Warn of a layer that is taken for cross-attention in a model that reads one sequence."""
    warnings.warn(
        f"{name or 'the model'}: its keys are made from another tensor than its queries, and the "
        "model reads one sequence: taken for cross-attention, so that what is said of positions, "
        "induction and caches is left out; if it is self-attention (positions added to one of "
        "them), give a probe of several sequences, or measure it with attnlab.observing.record",
        stacklevel=2,
    )


def folded(capture: Capture, query: Tensor, value: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what makes batch, head, position, width of the tensors of a call.

    Three dims may be one head, or heads that were folded into the batch. What some module has made
    of whole sequences (sequence, position, heads times width) tells: the second matrix of values is
    then the second head of its first sequence, or the first head of its second.
    """
    if query.ndim != 3:
        return _four
    number, length, width = value.shape
    for made in capture.outputs():
        if made.ndim != 3 or not made.is_floating_point():
            continue
        for whole in (made, made.transpose(0, 1)):
            batch, heads = whole.shape[0], number // whole.shape[0]
            fits = whole.shape[1] == length and batch * heads == number and heads > 1
            if not fits or whole.shape[2] % width or whole.shape[2] < heads * width:
                continue
            of_heads = whole.unflatten(-1, (-1, width))

            def has(sequence: int, one: int, of_heads: Tensor = of_heads) -> bool:
                same = of_heads[sequence] == value[one][:, None]
                return bool(same.flatten(2).all(-1).all(0).any())

            if not has(0, 0):
                continue
            if has(0, 1):
                return functools.partial(torch.unflatten, dim=0, sizes=(batch, heads))
            if batch > 1 and has(1, 1):
                return lambda one: one.unflatten(0, (heads, batch)).transpose(0, 1)
    return _four


def _four(tensor: Tensor) -> Tensor:
    """Return a tensor as batch, head, position, width; of fewer dims as one head, of more as one
    batch."""
    if tensor.ndim < 4:
        return tensor.reshape(*(1,) * (3 - tensor.ndim), *tensor.shape).unsqueeze(1)
    return tensor.flatten(0, -4)


def _mask_of_four(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return the mask for the dims of `_four`."""
    if mask is None:
        return None
    if query.ndim == 4:
        return mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape)
    whole = mask.expand(*query.shape[:-1], key.shape[-2])
    return _four(whole)


class Multihead(Source):
    """Patches `multi_head_attention_forward`: asked for weights, it computes them in products of
    its own, which no source captures.

    The same is then computed once more without weights, for the captures alone: that goes
    through `scaled_dot_product_attention`, after all that this function does to masks and biases.

    torch's fast path calls nothing that could be seen, so that modules that ask whether it is
    enabled get no for an answer. The flag itself belongs to the process: other threads may run
    other models, and it stays as it is.
    """

    def patch(self, capture: Capture) -> None:
        if len(self.captures) == 1:
            self.original = getattr(functional, MULTIHEAD)
            self.signature = inspect.signature(self.original)
            self.replace(functional, MULTIHEAD, self._attend)
            enabled = mha.get_fastpath_enabled
            self.replace(
                mha,
                enabled.__name__,
                lambda: enabled() and not any(capture.is_active for capture in self.captures),
            )

    def _attend(self, *args: Any, **kwargs: Any) -> Any:
        given = self.signature.bind(*args, **kwargs)
        captures = self.active_captures()
        query, key = given.arguments["query"], given.arguments["key"]
        alike = query is key or (
            query.shape == key.shape
            and (torch.equal(query, key) or differ_by_positions(query, key))
        )
        for capture in captures:
            capture.cross = not alike
            capture.appended = int(given.arguments.get("bias_k") is not None)
        weights = given.arguments.get("need_weights", True)
        try:
            with muted(captures, weights):
                result = self.original(*args, **kwargs)
            if captures and weights:
                quiet = {"need_weights": False, "training": False}  # no dropout, no random number
                with ExitStack() as measuring:
                    for capture in captures:
                        measuring.enter_context(capture.measuring())
                    self.original(**(given.arguments | quiet))
        finally:
            for capture in captures:
                capture.cross, capture.appended = None, 0
        return result


class Softmax(Source):
    """Patches torch's softmax, exponentials and products, and notes modules that attend.

    A module attends if it takes the softmax or the exponential of a product of activations, all
    keys at a time or some; if it takes a softmax as wide as it is high, which what a router makes
    of experts is not; or if it calls flex_attention. Without it only the name of a module's class
    would tell.
    """

    def patch(self, capture: Capture) -> None:
        if len(self.captures) == 1:
            self._by_name: dict[Any, Any] = {}
            for note, names in ((_note_product, PRODUCTS), (_note_exponential, EXPONENTIALS)):
                for owner in (functional, torch, Tensor):
                    for name in names:
                        if hasattr(owner, name):
                            self._replace(owner, name, note)
            if (flex := sys.modules.get(FLEX)) is not None:
                self._replace(flex, "flex_attention", _note_flex)
        self.replace_by_name(capture, self._by_name)

    def _replace(self, owner: Any, name: str, note: Note) -> None:
        original, make = getattr(owner, name), functools.partial(self._noted, note)
        self.replace(owner, name, make(original))
        if owner is not Tensor:
            self._by_name[original] = make

    def _noted(self, note: Note, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, whose calls in active captures are noted."""
        name = getattr(original, "__name__", "")

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            for capture in self.captures:
                if capture.is_active:
                    note(capture, name, args, made)
            return made

        return call


def _note_product(capture: Capture, name: str, args: tuple[Any, ...], made: Any) -> None:
    if isinstance(made, Tensor) and made.ndim > 2 and not any(map(_is_weight, args)):
        capture.products.add((capture.current, tuple(made.shape)))


def _note_exponential(capture: Capture, name: str, args: tuple[Any, ...], made: Any) -> None:
    if not isinstance(made, Tensor) or made.ndim <= 2 or made.shape[-1] <= MIXTURE:
        return
    is_square = name == "softmax" and made.shape[-1] == made.shape[-2]
    if is_square or (capture.current, tuple(made.shape)) in capture.products:
        capture.note_unsupported()


def _note_flex(capture: Capture, *_: Any) -> None:
    capture.note_unsupported()


def _is_weight(value: Any) -> bool:
    """Check for a parameter, or a view of one."""
    return isinstance(value, nn.Parameter) or (
        isinstance(value, Tensor) and isinstance(value._base, nn.Parameter)
    )
