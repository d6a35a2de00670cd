"""Several tokens: a ReLU head, and what the released code compares its weights with."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import xarray as xr

from attnlab.auditing.runs import trained_run
from attnlab.simulation import Simulation

from . import theory
from .model import CrossAttention, released
from .runs import descent, instances
from .task import TokenSelection

KEPT, LOST = 1e-3, 1e-6  # the released filter: no attention weight may lie between
HIDDEN = 4  # ReLUs of the head; the released number is not known to us
BY = ("both parts", "margin alone", "one token")


def several_tokens_run(d: int, *, at: tuple[int, ...] = (2000,), seeds: int = 100) -> Simulation:
    """Return a run of a ReLU head by released steps, n = 3, T = 4."""
    task = TokenSelection(sequences=3, length=4, vocab_size=d)
    model = CrossAttention(hidden=HIDDEN, arithmetic="usual")
    return descent(task, model, at=at, seeds=seeds, optimizer=released)


@lru_cache(maxsize=16)
def several_tokens(run: Simulation) -> xr.Dataset:
    """Compare W with the parts of the theory, by the tokens that keep weight at the end.

    Returns
    -------
    xarray.Dataset
        kept: whether the released filter keeps the instance: a negative label, no weight in
        (1e-6, 1e-3], one below, and a solution. gap: 1 - correlation of W with W_fin + R W_mm, with
        W_mm and with the programme of the largest tokens, over (by, seed, step); NaN where it does
        not.
    """
    found = trained_run(run)
    made = instances(run)
    gaps = np.full((len(BY), len(made), found.sizes["step"]), np.nan)
    for seed, of in enumerate(made):
        s = found["attention"].values[seed, -1]
        if (of["y"] > 0).all() or ((s > LOST) & (s <= KEPT)).any() or (s > LOST).all():
            continue
        x, z = of["x"], of["z"]
        one = theory.max_margin(x, z, s.argmax(-1)).weights
        for step, W in enumerate(found["matrix"].values[seed]):
            both = theory.several_tokens(x, z, s, W, least=KEPT)
            for by, said in enumerate((both.weights, both.margin, one)):
                gaps[by, seed, step] = 1 - theory.correlation(W, said)
    dims = ("by", "seed", "step")
    gap = xr.DataArray(gaps, dims=dims, coords={"by": list(BY), "step": found["step"]})
    return xr.Dataset({"gap": gap, "kept": gap.notnull().all(["by", "step"])})
