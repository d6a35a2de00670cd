"""Source for Hugging Face: the attention function that a model asks transformers for."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.files.errors import InputError
from attnlab.observing.call import AttentionCall
from attnlab.observing.capture.base import Capture, Source, crosses, muted
from attnlab.observing.capture.torch_functions import own_sequence, warn_of_lengths


class HuggingFace(Source):
    """Patches `ALL_ATTENTION_FUNCTIONS.get_interface`, so that it gives captured functions.

    Queries and keys arrive after positions and norms, keys with the KV heads. The name under which
    a model asks stays as it is: transformers makes the mask by that name, and would make none for
    a name of our own.
    """

    def patch(self, capture: Capture) -> None:
        utils = sys.modules.get("transformers.modeling_utils")
        if utils is None or len(self.captures) > 1:  # no model of theirs is there, or it is done
            return
        original = utils.AttentionInterface.get_interface

        def get_interface(interface: Any, attn_implementation: str, default: Callable) -> Callable:
            function = original(interface, attn_implementation, default)
            return self._watched(function, attn_implementation)

        self.replace(utils.AttentionInterface, "get_interface", get_interface)

    def _watched(self, function: Callable, implementation: str) -> Callable:
        @functools.wraps(function)
        def attend(
            module: nn.Module,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            attention_mask: Any,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            captures = [one for one in self.active_captures() if id(module) in one.names]
            with muted(captures):
                result = function(module, query, key, value, attention_mask, *args, **kwargs)
            for capture in captures:
                name = capture.names[id(module)]
                cross = getattr(module, "is_cross_attention", False) or crosses(name)
                if not cross and query.shape[2] != key.shape[2]:
                    cross = capture.comes_from_elsewhere(query, key)
                with capture.measuring():
                    call = understand(
                        implementation,
                        module,
                        query,
                        key,
                        value,
                        attention_mask,
                        layer=capture.next_layer,
                        cross=cross,
                        name=name,
                        **kwargs,
                    )
                    output = result[0].transpose(1, 2)
                    capture.see(name, call, output, exact=not kwargs.get("dropout"))
            return result

        return attend


def understand(
    implementation: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    *,
    layer: int = 0,
    cross: bool | None = None,
    name: str = "",
    **kwargs: Any,
) -> AttentionCall:
    """Return the call that an implementation makes of these arguments.

    Each has its own way to say which keys a query sees. "eager" adds what it is given and knows no
    causality but the mask's; "sdpa" is causal where there is no mask; "flex_attention" has a
    function of the places; the flash kernels have a mask of the padding, and a window beside it.
    """
    read = _READERS.get(implementation, _flash if "flash" in str(implementation) else _sdpa)
    seen: dict[str, Any] = {
        "mask": attention_mask,
        "causal": False,
        "softcap": kwargs.get("softcap"),
        "sinks": kwargs.get("s_aux"),
    }
    seen |= read(module, query, key, attention_mask, kwargs)
    keys = seen.pop("keys", key.shape[2])
    mask = _with_bias(seen["mask"], kwargs.get("position_bias"), keys)
    seen |= {"key": key[:, :, :keys], "value": value[:, :, :keys], "mask": mask}
    scale = kwargs.get("scaling")
    is_cross = bool(cross)
    if query.shape[2] != keys and not (seen["causal"] or is_cross):
        own = own_sequence(query, seen["key"], seen["value"], mask)
        seen, is_cross = seen | (own or {}), own is None
        if own is None:
            warn_of_lengths(name, query.shape[2], keys)
    return AttentionCall(
        query=query,
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        layer=layer,
        cross=is_cross,
        **seen,
    )


def _eager(*_: Any) -> dict[str, Any]:
    return {}


def _sdpa(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, kwargs: dict[str, Any]
) -> dict[str, Any]:
    asked = kwargs.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if asked is None else asked)
    causal = causal and mask is None and query.shape[2] > 1
    # where keys go on beyond the queries, it counts from the first key and leaves the others out
    keys = min(query.shape[2], key.shape[2]) if causal else key.shape[2]
    return {"causal": causal, "sinks": None, "keys": keys}


def _flex(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, kwargs: dict[str, Any]
) -> dict[str, Any]:
    if hasattr(mask, "mask_mod"):  # a BlockMask
        from torch.nn.attention.flex_attention import create_mask

        heads = mask.shape[1]
        sizes = query.shape[0], heads, query.shape[2], key.shape[2]
        mask = create_mask(mask.mask_mod, *sizes, device=query.device)
    elif mask is not None:
        mask = mask.to(query.dtype)  # it is added, whatever it is
    return {"mask": mask}


def _flash(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, kwargs: dict[str, Any]
) -> dict[str, Any]:
    if kwargs.get("block_table") is not None:
        raise InputError(
            "model: attends to a paged cache, whose keys are elsewhere; observe a forward without "
            "a cache"
        )
    asked = kwargs.get("is_causal")
    causal = bool(module.is_causal if asked is None else asked)
    if mask is not None:
        mask = mask[:, None, None, -key.shape[2] :].bool()
    pack = _packed(query, kwargs)
    if pack is not None:
        mask = pack[:, None, :, None] == pack[:, None, None, :]
    window = kwargs.get("sliding_window")
    window = window if window is not None and key.shape[2] > window else None
    return {"mask": mask, "causal": causal, "window": window}


_READERS = {"eager": _eager, "sdpa": _sdpa, "flex_attention": _flex}


def _packed(query: Tensor, kwargs: dict[str, Any]) -> Tensor | None:
    """Return the number of the sequence to which each position belongs, where several are packed in
    one.

    Flash kernels are told by where sequences begin, or find positions that do not go on.
    """
    begins = kwargs.get("cu_seq_lens_q")
    positions = kwargs.get("position_ids")
    places = torch.arange(query.shape[2], device=query.device)
    if begins is not None:
        if query.shape[0] != 1:
            raise InputError("probe: packed sequences in a batch of several; give one row")
        return torch.bucketize(places, begins[1:].to(places.device), right=True)[None]
    if positions is None or query.shape[0] != 1 or positions.shape[-1] != query.shape[2]:
        return None
    return (positions.diff(prepend=positions[:, :1] - 1) != 1).cumsum(-1)


def _with_bias(mask: Tensor | None, bias: Tensor | None, keys: int) -> Tensor | None:
    """Combine the mask and the bias of positions that is added to the logits (T5)."""
    if mask is not None and mask.shape[-1] > keys:  # else the same tensor for every layer
        mask = mask[..., :keys]
    if bias is None:
        return mask
    bias = bias[..., :keys]
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return bias.masked_fill(~mask, -torch.inf)
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    return (bias + mask).masked_fill(hidden, -torch.inf)
