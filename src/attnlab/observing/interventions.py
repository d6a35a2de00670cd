"""Interventions: how much the loss of a language model changes without a head, or with a smaller
KV cache.

A cache is simulated by masking: all keys are there, and a policy hides some of them from the
queries after the prompt, in every layer. Keys and values of later tokens are therefore those that a
model with this cache would have computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attnlab.files.errors import InputError
from attnlab.observing.capture import CapturedCall, logits_of, times, weights_of
from attnlab.observing.probe import Probe, make_probe
from attnlab.observing.snapshot import undisturbed, unwrapped
from attnlab.observing.sources import capturing

SINKS = 4  # first keys that are always kept (Xiao et al. 2024)
WINDOW = 32  # queries of the prompt that vote in SnapKV,
POOLED = 7  # and neighbours over which their votes are pooled, as we know it
Change = Callable[[CapturedCall], Tensor | None]
Weights = Float[Tensor, "batch head query key"]
Kept = Bool[Tensor, "batch head later key"]


def ablate_heads(
    model: nn.Module, probe: Any, *, heads: Sequence[tuple[int, int]] | None = None
) -> xr.Dataset:
    """Measure how much the loss rises if the output of one head is set to zero.

    Parameters
    ----------
    model : torch.nn.Module
        A causal language model, whose output has logits for each token.
    probe
        Token ids (sequence, position), or the result of a tokenizer.
    heads : sequence of (layer, head), optional
        Heads to measure, one forward pass each; by default all.

    Returns
    -------
    xarray.Dataset
        `loss` of the whole model and `loss_change` (layer, head), in nats per token, with its
        standard error over sequences.
    """
    runner = LanguageModel(model, probe)
    sizes: list[int] = []
    base = runner.losses(lambda captured: sizes.append(captured.call.shape[1]))
    every = [(layer, head) for layer, size in enumerate(sizes) for head in range(size)]
    change, error = (torch.full((len(sizes), max(sizes)), math.nan) for _ in range(2))
    for layer, head in every if heads is None else heads:
        if not (0 <= layer < len(sizes) and 0 <= head < sizes[layer]):
            raise InputError(f"heads: layer {layer} head {head} is not in the model")

        def zero(captured: CapturedCall, layer: int = layer, head: int = head) -> Tensor | None:
            if captured.call.layer != layer:
                return None
            output = _output(captured).clone()
            output[:, head] = 0
            return output

        more = runner.losses(zero) - base
        change[layer, head], error[layer, head] = _mean(more)
    at = {"layer": range(len(sizes)), "head": range(max(sizes))}
    return _dataset(base, at, change, error)


def cache_losses(
    model: nn.Module,
    probe: Any,
    *,
    prompt: int | None = None,
    budgets: Sequence[float] = (0.1, 0.25, 0.5),
    policies: Sequence[str] | None = None,
) -> xr.Dataset:
    """Measure how much the loss after a prompt rises with a smaller KV cache.

    Parameters
    ----------
    model : torch.nn.Module
        A causal language model, whose output has logits for each token.
    probe
        Token ids (sequence, position), or the result of a tokenizer.
    prompt : int, optional
        Tokens of the prompt, which is read with all keys; by default half of the sequence.
    budgets : sequence of float, optional
        Sizes of the cache, as shares of the prompt.
    policies : sequence of str, optional
        Names of `CACHES`; by default all.

    Returns
    -------
    xarray.Dataset
        `loss` of the tokens after the prompt with all keys, and `loss_change` (policy, budget), in
        nats per token, with its standard error over sequences.
    """
    runner = LanguageModel(model, probe)
    length = runner.tokens.shape[1]
    prompt = length // 2 if prompt is None else prompt
    if not 1 < prompt < length - 1:
        raise InputError(f"prompt: expected 2 to {length - 2} of {length} tokens, got {prompt}")
    names = list(CACHES if policies is None else policies)
    if unknown := sorted(set(names) - set(CACHES)):
        raise InputError(f"policies: {', '.join(unknown)} is not one of {', '.join(CACHES)}")
    if not all(0 < budget <= 1 for budget in budgets):
        raise InputError(f"budgets: expected shares above 0 and at most 1, got {list(budgets)}")
    base = runner.losses()[:, prompt:]
    change, error = (torch.full((len(names), len(budgets)), math.nan) for _ in range(2))
    for i, name in enumerate(names):
        for j, budget in enumerate(budgets):
            size = max(1, math.ceil(budget * prompt))

            def hide(captured: CapturedCall, name: str = name, size: int = size) -> Tensor | None:
                return _with_cache(captured, prompt, size, CACHES[name])

            change[i, j], error[i, j] = _mean(runner.losses(hide)[:, prompt:] - base)
    at = {"policy": names, "budget": list(budgets)}
    return _dataset(base, at, change, error).assign_attrs(prompt=prompt)


class LanguageModel:
    """Runs a language model on a probe, undisturbed, and returns the loss of each token."""

    def __init__(self, model: nn.Module, probe: Any) -> None:
        """Check that the model has a causal language-model loss on the probe's tokens."""
        self.model = unwrapped(model)
        device = next((one.device for one in self.model.parameters()), torch.device("cpu"))
        made: Probe = make_probe(self.model, probe)
        if made.side.tokens is None or made.decoder is not None:
            raise InputError("probe: a loss needs a causal language model and its token ids")
        kwargs = {name: v for name, v in made.kwargs.items() if name != "logits_to_keep"}
        self.probe = replace(made, kwargs=kwargs).on(device)
        self.tokens, self.real = made.side.tokens.to(device), made.side.real

    def run(self, see: Change) -> Any:
        """Run the model and return its output; see: called with each attention call."""
        with undisturbed(self.model), capturing(self.model, see):
            return self.model(*self.probe.args, **self.probe.kwargs)

    def losses(self, change: Change | None = None) -> Float[Tensor, "sequence token"]:
        """Return the loss of each token but the first; change: as `see` of `Capture`."""
        output = self.run(change or (lambda _: None))
        logits = getattr(output, "logits", output)
        logits = logits[0] if isinstance(logits, tuple) else logits
        shape = tuple(logits.shape[:-1]) if isinstance(logits, Tensor) else None
        if shape != tuple(self.tokens.shape):
            raise InputError(
                "model: its output has no logits for each token; give a causal language model with "
                "its head"
            )
        found = functional.cross_entropy(
            logits[:, :-1].transpose(1, 2).float(), self.tokens[:, 1:].long(), reduction="none"
        )
        if self.real is not None:
            found = found.masked_fill(~self.real[:, 1:].to(found.device), math.nan)
        return found.cpu()


def _dataset(base: Tensor, at: dict[str, Any], change: Tensor, error: Tensor) -> xr.Dataset:
    dims = tuple(at)
    found = {"loss_change": (dims, change), "loss_change_se": (dims, error)}
    return xr.Dataset({"loss": float(base.nanmean()), **found}, at)


def _mean(change: Float[Tensor, "sequence token"]) -> tuple[float, float]:
    """Return the mean over sequences and its standard error."""
    of_sequence = change.nanmean(1)
    error = of_sequence.std() / len(of_sequence) ** 0.5 if len(of_sequence) > 1 else math.nan
    return float(of_sequence.mean()), float(error)


def _output(captured: CapturedCall) -> Tensor:
    if captured.output is None:
        raise InputError(f"model: the output of {captured.layer} cannot be changed")
    return captured.output


def _with_cache(
    captured: CapturedCall, prompt: int, size: int, policy: Callable[..., Kept]
) -> Tensor:
    """Return the output of a call whose later queries see only what a policy keeps."""
    call, output = captured.call, _output(captured).clone()
    length = call.shape[2]
    logits = logits_of(call, torch.arange(length, device=call.query.device))
    if call.shape[3] != length or bool(logits.isfinite().triu(1).any()):
        raise InputError(f"model: {captured.layer} is not causal self-attention")
    weights = weights_of(call, logits)
    own = torch.eye(length, dtype=torch.bool, device=weights.device)[prompt:]  # always cached
    kept = policy(weights, prompt, size) | own
    logits = logits[:, :, prompt:].masked_fill(~kept, -torch.inf)
    assert call.value is not None
    output[:, :, prompt:] = times(weights_of(call, logits), call.value, call).to(output.dtype)
    return output


def _largest(scores: Tensor, number: int) -> Bool[Tensor, "*many key"]:
    """Return the keys with the largest scores."""
    kept = torch.zeros_like(scores, dtype=torch.bool)
    at = scores.topk(min(number, scores.shape[-1]), dim=-1).indices
    return kept.scatter(-1, at, True)


def _oracle(weights: Weights, prompt: int, size: int) -> Kept:
    """Keep the keys with the largest attention weights of the query itself."""
    return _largest(weights[:, :, prompt:], size)


def _streaming(weights: Weights, prompt: int, size: int) -> Kept:
    """Keep the first four keys and the latest ones (StreamingLLM, Xiao et al. 2024)."""
    length = weights.shape[-1]
    key = torch.arange(length, device=weights.device)
    query, first = key[prompt:, None], min(SINKS, size // 2)
    kept = (key < first) | ((key <= query) & (key > query - (size - first)))
    return kept.expand(*weights.shape[:2], -1, -1)


def _snapkv(weights: Weights, prompt: int, size: int) -> Kept:
    """Keep the last 32 keys of the prompt, the earlier ones to which their queries attend most,
    pooled by maximum over 7 neighbours, and all later keys (SnapKV, Li et al. 2024)."""
    window = min(WINDOW, size, prompt)
    kept = torch.ones_like(weights[:, :, prompt:], dtype=torch.bool)
    before = prompt - window
    if before > 0:
        votes = weights[:, :, before:prompt, :before].sum(2)
        votes = functional.max_pool1d(votes, POOLED, stride=1, padding=POOLED // 2)
        kept[..., :before] = _largest(votes, size - window)[:, :, None]
    return kept


def _evicting(
    weights: Weights, prompt: int, size: int, score: Tensor, recent: int, add: bool
) -> Kept:
    """Drop one key for each new one: that with the least score among those before the `recent`.

    score: at the end of the prompt. add: whether scores are summed over queries, or those of the
    last query. Weights are taken anew over the keys that are kept.
    """
    length = weights.shape[-1]
    key = torch.arange(length, device=weights.device)
    held = (key >= prompt - recent) & (key < prompt)
    scores = score.masked_fill(held | (key >= prompt), -torch.inf)
    alive = (_largest(scores, size - recent) & scores.isfinite()) | held
    rows = []
    for query in range(prompt, length):
        alive[..., query] = True
        rows.append(alive.clone())
        own = weights[:, :, query] * alive
        own = own / own.sum(-1, keepdim=True).clamp_min(1e-30)
        score = score + own if add else own
        old = alive & (key <= query - recent)
        drop = score.masked_fill(~old, torch.inf).argmin(-1, keepdim=True)
        alive = alive & ~torch.zeros_like(alive).scatter(-1, drop, True)
    return torch.stack(rows, 2)


def _h2o(weights: Weights, prompt: int, size: int) -> Kept:
    """Keep half the latest, half the keys that received most attention so far, where that of later
    queries is over the cache itself (H2O, Zhang et al. 2023)."""
    score = weights[:, :, :prompt].sum(2)
    return _evicting(weights, prompt, size, score, size // 2, True)


def _tova(weights: Weights, prompt: int, size: int) -> Kept:
    """Drop the key with the least attention of the last query, mean over heads (TOVA, Oren et al.
    2024)."""
    mean = weights.mean(1, keepdim=True).expand_as(weights)
    return _evicting(mean, prompt, size, mean[:, :, prompt - 1], 0, False)


CACHES: dict[str, Callable[[Weights, int, int], Kept]] = {
    "oracle": _oracle,
    "StreamingLLM": _streaming,
    "H2O": _h2o,
    "SnapKV": _snapkv,
    "TOVA": _tova,
}
