"""Any other module: `torch.nn.functional.scaled_dot_product_attention`."""

from __future__ import annotations

import sys

import torch
from torch import Tensor
from torch.nn import functional

from attnlab.files.errors import InputError
from attnlab.observe.call import AttentionCall
from attnlab.observe.seams.base import Seam
from attnlab.observe.seams.watch import Watch, crosses

NAME = "scaled_dot_product_attention"


class ScaledDotProduct(Seam):
    """Stands in for torch's function; which layer calls it is known by the module that runs.

    A module that has imported the function by name keeps the original, so that the names in the
    files of the model's classes are replaced as well. (A `TorchFunctionMode` would not see the call
    inside `torch.nn.MultiheadAttention`.)
    """

    def stand_in(self, watch: Watch) -> None:
        if len(self.watches) == 1:
            self.original = getattr(functional, NAME)
            self.replace(functional, NAME, self._attend)
        homes = {type(module).__module__ for module in watch.model.modules()}
        for home in (sys.modules[name] for name in homes if name in sys.modules):
            for name in [name for name, value in vars(home).items() if value is self.original]:
                self.replace(home, name, self._attend)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        output: Tensor = self.original(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        for watch in self.watches:
            if watch.awake:
                name = watch.running[-1]
                with watch.beside():
                    call = understand(query, key, value, attn_mask, is_causal, scale,
                                      layer=watch.next_layer,
                                      cross=watch.cross or crosses(name))  # fmt: skip
                    watch.see(name, call, _four(output), exact=dropout_p == 0)
        return output


def understand(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool,
    scale: float | None, *, layer: int = 0, cross: bool = False,
) -> AttentionCall:  # fmt: skip
    """The call that torch's function makes of these arguments."""
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
    return AttentionCall(
        query=_four(query), key=_four(key), value=_four(value),
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale), layer=layer, mask=mask,
        causal=is_causal, cross=cross or (queries != keys and not is_causal),
    )  # fmt: skip


def _four(tensor: Tensor) -> Tensor:
    """As batch, head, place, width: one head where there is no such dim, one batch of several."""
    if tensor.ndim < 4:
        return tensor.reshape(*(1,) * (3 - tensor.ndim), *tensor.shape).unsqueeze(1)
    return tensor.flatten(0, -4)


def _mask_of_four(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask for the dims of `_four`."""
    if mask is None:
        return None
    if query.ndim == 4:
        return mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape)
    whole = mask.expand(*query.shape[:-1], key.shape[-2])
    return _four(whole)
