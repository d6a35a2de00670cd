"""Attention of single heads in full: one map, mass by distance and position, and planted facts.

These hold rows of attention weights, so that they are for short sequences and after a training; an
observer measures without them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from attnlab import measures
from attnlab.files.errors import InputError
from attnlab.observing.capture import CapturedCall, logits_of, weights_of
from attnlab.observing.interventions import LanguageModel

ROWS = 128  # of a map in memory at a time
REACH = 0.9  # of the attention beside the first key, within the effective context
PARTS = 16  # parts of a sequence by position


def head_map(
    model: nn.Module, probe: Any, *, layer: int, head: int, sequence: int = 0, names: Any = None
) -> xr.DataArray:
    """Return the attention weights of one head on one sequence.

    Parameters
    ----------
    model : torch.nn.Module
        As for `attnlab.observe`.
    probe
        Token ids (sequence, position), or the result of a tokenizer.
    layer, head : int
        The head.
    sequence : int, optional
        Which sequence of the probe.
    names : tokenizer or sequence of str, optional
        A tokenizer, or the names of tokens in the order of their ids, for the coord `word`.

    Returns
    -------
    xarray.DataArray
        Over (query, key), with the tokens of keys; `.plot()` draws it.
    """
    runner, found = LanguageModel(model, probe), []

    def see(captured: CapturedCall) -> None:
        call = captured.call
        if call.layer == layer:
            if not 0 <= head < call.shape[1]:
                raise InputError(f"head: layer {layer} has {call.shape[1]} heads, got {head}")
            found.append(torch.cat([rows[sequence, head] for _, rows in _rows(captured)]))

    runner.run(see)
    if not found:
        raise InputError(f"layer: the model has no attention layer {layer}")
    tokens = runner.tokens[sequence].tolist()
    named = getattr(names, "convert_ids_to_tokens", None)
    words = named(tokens) if named else [str(names[one]) if names else str(one) for one in tokens]
    coords = {"token": ("key", tokens), "word": ("key", words)}
    about = {"long_name": f"attention of layer {layer} head {head}"}
    return xr.DataArray(found[0].cpu().numpy(), coords, ("query", "key"), "attention", about)


def attention_profiles(model: nn.Module, probe: Any) -> xr.Dataset:
    """Measure where attention goes: by distance, and to the first key by position of the query.

    Parameters
    ----------
    model : torch.nn.Module
        As for `attnlab.observe`.
    probe
        Token ids (sequence, position), or the result of a tokenizer.

    Returns
    -------
    xarray.Dataset
        Over (layer, head): `distance_mass` by `distance` (0, 1, 2 to 3, 4 to 7, ..., labelled with
        the least; the first key apart), `first_mass` by `position` (the part of the sequence that
        the query is in), and `effective_context`, the distance within which 90 % of the attention
        beside the first key lies.
    """
    runner, layers = LanguageModel(model, probe), []

    def see(captured: CapturedCall) -> None:
        call = captured.call
        _, heads, queries, keys = call.shape
        by_distance = torch.zeros(heads, keys, dtype=torch.float64)
        first = torch.zeros(heads, queries, dtype=torch.float64)
        for rows, weights in _rows(captured):
            mean = weights.double().mean(0).cpu()  # head row key
            first[:, rows] = mean[..., 0]
            far = (rows[:, None] + keys - queries - torch.arange(keys)).abs()[:, 1:]
            by_distance.index_add_(1, far.flatten(), mean[..., 1:].flatten(1))
        layers.append((by_distance / queries, first))

    runner.run(see)
    if len({one.shape for one, _ in layers}) != 1:
        raise InputError("model: its layers differ in heads or keys; measure parts of it")
    distance, first = (torch.stack(several).numpy() for several in zip(*layers, strict=True))
    length = distance.shape[-1]
    ends = [0, *(2**i for i in range(length.bit_length()) if 2**i < length), length]
    bins = [distance[..., a:b].sum(-1) for a, b in itertools.pairwise(ends)]
    share = distance.cumsum(-1) / np.maximum(distance.sum(-1, keepdims=True), 1e-30)
    parts = np.array_split(np.arange(first.shape[-1]), min(PARTS, first.shape[-1]))
    dims = ("layer", "head")
    return xr.Dataset(
        {
            "distance_mass": ((*dims, "distance"), np.stack(bins, -1)),
            "first_mass": (
                (*dims, "position"),
                np.stack([first[..., part].mean(-1) for part in parts], -1),
            ),
            "effective_context": (dims, (share < REACH).sum(-1)),
        },
        {"distance": ends[:-1], "position": [int(part[0]) for part in parts]},
    )


def parent_scores(model: nn.Module, probe: Any, parents: Sequence[int]) -> xr.Dataset:
    """Measure how well each head follows a graph of positions.

    Parameters
    ----------
    model : torch.nn.Module
        As for `attnlab.observe`.
    probe
        Token ids (sequence, position), or the result of a tokenizer.
    parents : sequence of int
        The parent of each of the first positions, counted from 0; -1 where it has none.

    Returns
    -------
    xarray.Dataset
        Over (layer, head): `parent_attention` and `parent_recovery` of `attnlab.measures`, means
        over positions with a parent and over sequences.
    """
    runner, layers = LanguageModel(model, probe), []

    def see(captured: CapturedCall) -> None:
        maps = torch.cat([weights for _, weights in _rows(captured)], dim=2)
        attention = measures.parent_attention(maps, parents).mean(-1)
        both = torch.stack([attention, measures.parent_recovery(maps, parents)])
        layers.append(both.mean(1).cpu())

    runner.run(see)
    found = torch.stack(layers).numpy()  # layer measure head
    names = ("parent_attention", "parent_recovery")
    return xr.Dataset({name: (("layer", "head"), found[:, i]) for i, name in enumerate(names)})


def needle_scores(
    model: nn.Module,
    probe: Any,
    *,
    depths: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9),
    seed: int = 0,
) -> xr.Dataset:
    """Plant a fact in each sequence of the probe and ask for it at the end.

    A fact is a pair of random tokens that the sequence does not have; at the end its first token
    comes again, and the model should continue with the second.

    Parameters
    ----------
    model : torch.nn.Module
        A causal language model, whose output has logits for each token.
    probe
        Token ids (sequence, position); the last two of each are replaced.
    depths : sequence of float, optional
        Where the fact is, from 0 (the start) to 1.
    seed : int, optional
        Seed of the facts.

    Returns
    -------
    xarray.Dataset
        Over `depth`: `attention` of each head from the question to the answer (layer, head), and
        the `loss` of the answer in nats; means over sequences.
    """
    runner = LanguageModel(model, probe)
    ids, rng = runner.tokens, np.random.default_rng(seed)
    length = ids.shape[1]
    if length < 8 or runner.real is not None:
        raise InputError("probe: a planted fact needs sequences of at least 8 tokens, not padded")
    embeddings = getattr(runner.model, "get_input_embeddings", lambda: None)()
    size = getattr(embeddings, "num_embeddings", int(ids.max()) + 1)
    facts = []
    for row in ids.tolist():
        free = np.setdiff1d(np.arange(size), row)
        facts.append(rng.choice(free if free.size > 1 else size, 2, replace=False))
    fact = torch.as_tensor(np.stack(facts), device=ids.device)
    attention, losses = [], []
    for depth in depths:
        at = round(depth * (length - 5))
        told = torch.cat([ids[:, :at], fact, ids[:, at : length - 4], fact], 1)
        layers: list[Tensor] = []

        def see(captured: CapturedCall, layers: list[Tensor] = layers, at: int = at) -> None:
            call = captured.call
            question = torch.tensor([length - 2], device=call.query.device)
            weights = weights_of(call, logits_of(call, question))
            layers.append(weights[:, :, 0, at + 1].mean(0).cpu())

        loss = LanguageModel(runner.model, told).losses(see)
        losses.append(float(loss[:, -1].mean()))
        attention.append(torch.stack(layers).numpy())
    dims = ("depth", "layer", "head")
    found = {"attention": (dims, np.stack(attention)), "loss": ("depth", losses)}
    return xr.Dataset(found, {"depth": list(depths)})


def _rows(captured: CapturedCall) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the attention weights of a call, some rows at a time, with these rows."""
    call = captured.call
    for rows in torch.arange(call.shape[2]).split(ROWS):
        there = rows.to(call.query.device)
        yield rows, weights_of(call, logits_of(call, there))
