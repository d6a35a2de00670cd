"""A sighting: an attention call beside what the model itself made of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.files.errors import InputError
from attnlab.observing.call import DROP, AttentionCall

CHECKED = 8  # queries whose output is computed again
TF32 = 2.0**-10  # what an accelerator may round the factors of a float32 product to


@dataclass(frozen=True, eq=False)
class Sighting:
    """What a seam saw.

    call: queries, keys and all that decides the attention between them.
    output: what the model's own function made of it.
    layer: the name of the module, with #2 for its second call in one forward.
    kind: the module's class.
    exact: whether the output is that of the whole map, without dropout.
    """

    call: AttentionCall
    output: Float[Tensor, "batch head query width"]
    layer: str
    kind: str
    exact: bool

    def check(self) -> None:
        """Refuse a call that does not explain the output, at once: see `doubt`."""
        if (doubt := self.doubt()) is not None:
            doubt.settle(*doubt.numbers.tolist())

    def doubt(self) -> Doubt | None:
        """How far the call is from explaining the output, for `Doubt.settle`.

        A bias, a mask or a normaliser that came by a way that no seam knows would otherwise make
        every statistic wrong without a word. Of eight queries, spread evenly, the output is
        computed again from the call. Nothing is waited for here.
        """
        call, value = self.call, self.call.value
        if value is None or not self.exact:
            return None
        queries = call.query.shape[-2]
        rows = torch.linspace(0, queries - 1, min(queries, CHECKED), device=call.query.device)
        rows = rows.round().long()
        logits = _logits(call, rows)
        seen = logits.isfinite()
        found = _times(_weights(call, logits), value, call)
        wrong = (found - self.output[..., rows, :].float()).abs().amax(-1)
        # of values that are not finite nothing can be told: the model has diverged
        known = seen.any(-1) & value.isfinite().all()
        worst = wrong.masked_fill(~known, 0.0).amax()
        largest = logits.masked_fill(~seen, 0.0).abs().amax()
        bound = (
            _rounding(call.query, call.key, value, self.output)
            * (8 + 2 * largest)
            * value.abs().amax().float()
        )
        return Doubt(self.layer, self.kind, torch.stack([worst, bound]))


@dataclass(frozen=True, eq=False)
class Doubt:
    """numbers: how far the output of a layer is off, and how much of that rounding explains."""

    layer: str
    kind: str
    numbers: Float[Tensor, " 2"]

    def settle(self, wrong: float, bound: float) -> None:
        """Refuse the layer if its numbers are these and rounding does not explain them."""
        if not (wrong == 0 or wrong <= bound):  # both may be NaN
            raise InputError(
                f"model: {self.layer} ({self.kind}) makes something else of its queries, keys and "
                "mask than softmax attention to the keys that the mask shows (an additive mask "
                f"hides those below a drop of {DROP:g}): its output is off by {wrong:.2g}, of "
                f"which rounding explains {bound:.2g}; its statistics would be wrong, so "
                "inside the module call attnlab.observing.record(query, key, value, mask=...) with "
                "what it really uses"
            )


def _rounding(*tensors: Tensor) -> float:
    """The rounding of the coarsest dtype that took part."""
    coarsest = max(torch.finfo(tensor.dtype).eps for tensor in tensors)
    return max(coarsest, 1e-6 if tensors[0].device.type == "cpu" else TF32)


def _logits(call: AttentionCall, rows: Tensor) -> Float[Tensor, "batch head row key"]:
    """The logits of some queries, minus infinity where a key is hidden.

    On purpose not the code that the statistics use: what both say is right.
    """
    query = call.query[..., rows, :].float()
    logits = _times(query * call.scale, call.key.transpose(-1, -2), call)
    if call.softcap is not None:
        logits = call.softcap * torch.tanh(logits / call.softcap)
    queries, keys = call.query.shape[-2], call.key.shape[-2]
    place = (rows + keys - queries)[:, None]
    key = torch.arange(keys, device=rows.device)[None, :]
    if call.mask is not None:
        mask = call.mask.expand(*call.mask.shape[:-2], queries, keys)[..., rows, :]
        if mask.dtype == torch.bool:
            logits = logits.masked_fill(~mask, -torch.inf)
        else:
            logits = (logits + mask.float()).masked_fill(_hidden(mask.float()), -torch.inf)
    if call.causal:
        logits = logits.masked_fill(key > place, -torch.inf)
    if call.window is not None:
        far = (place - key) >= call.window
        logits = logits.masked_fill(far if call.causal else far | (key - place >= call.window),
                                    -torch.inf)  # fmt: skip
    return logits


def _hidden(mask: Float[Tensor, "batch head row key"]) -> Tensor:
    """Return which keys an additive mask hides: see `AttentionCall`.

    Where it leaves them a weight that matters, the output of the model has it and ours does not.
    """
    ordered, order = mask.sort(dim=-1, descending=True)
    dropped = (ordered.diff(dim=-1) <= -DROP).cumsum(-1) > 0
    hidden = torch.zeros_like(mask, dtype=torch.bool)
    hidden.scatter_(-1, order[..., 1:], dropped)
    return hidden | (mask <= torch.finfo(torch.float16).min / 2)  # whole rows, which see nothing


def _weights(call: AttentionCall, logits: Tensor) -> Tensor:
    """The softmax, with a learnt logit in the denominator where the head has one."""
    if call.sinks is None:
        return logits.softmax(-1).nan_to_num()
    sinks = call.sinks.float().view(1, -1, 1, 1).expand(*logits.shape[:-1], 1)
    return torch.cat([logits, sinks], -1).softmax(-1)[..., :-1]


def _times(rows: Tensor, matrix: Tensor, call: AttentionCall) -> Tensor:
    """Of each head (batch, head, row, ...) with the keys or values that its KV head has: one serves
    several that stand together."""
    batch, _, number, width = rows.shape
    together = rows.reshape(batch, matrix.shape[1], -1, width)
    return (together @ matrix.float()).reshape(batch, call.query.shape[1], number, -1)
