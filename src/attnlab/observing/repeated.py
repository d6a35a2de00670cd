"""Repeated random tokens: nothing but copying foresees their second half, so that heads that copy
show as they do not on text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from attnlab.files.errors import InputError
from attnlab.observing.behind import Behind
from attnlab.observing.moment import Known, Moment, moment_of
from attnlab.observing.probe import Probe, make_probe

SEQUENCES = 4
LENGTH = 64  # tokens that come twice, or as many as fit into the probe's length
NAMES = {"induction_mass": "repeated_induction", "duplicate_mass": "repeated_duplicate"}


def random_twice(model: nn.Module, probe: Probe) -> Probe:
    """Random tokens, of those that the probe knows, and the same again."""
    tokens = probe.side.tokens
    if tokens is None:
        raise InputError(
            "repeated: the probe has no token ids of which some could be drawn; leave it out"
        )
    real = tokens if probe.side.real is None else tokens[probe.side.real.to(tokens.device)]
    words = np.unique(real.cpu().numpy())
    length = min(LENGTH, tokens.shape[-1] // 2)
    rng = np.random.default_rng(0)  # the same at every step
    whole = np.tile(words, (SEQUENCES, -(-length // len(words))))
    drawn = rng.permuted(whole, axis=1)[:, :length]  # each but once, where there are enough
    return make_probe(model, torch.as_tensor(np.concatenate([drawn, drawn], axis=1)))


def with_repeated(
    moment: Moment, model: nn.Module, probe: Probe, *, min_keys: int, known: Known | None = None
) -> Moment:
    """The moment with what its layers do on repeated random tokens, the mean over sequences.

    They may be shorter than the probe: where none of their queries sees `min_keys` keys, those of
    the second half count, which are all that has something to copy.
    """
    assert probe.side.tokens is not None
    length = probe.side.tokens.shape[-1]
    min_keys = min_keys if min_keys <= length else length // 2
    other = moment_of(model, probe, min_keys=min_keys, known=known)
    behind = moment.behind
    values = {
        layer: dict(behind.values.get(layer, {}))
        | {
            name: found[variable].mean("sequence").values
            for variable, name in NAMES.items()
            if variable in found
        }
        for layer, found in other.layers.items()
    }
    return replace(moment, behind=Behind({**behind.values, **values}, behind.unrecognised))
