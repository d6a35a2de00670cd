"""Golden numbers: a little of what each folder computes, always of the same.

`./lab python tests/support/golden.py FOLDER ...` records them again.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import attnlab
from attnlab import formulas, measures
from attnlab.files.numerics import NUMERICS
from attnlab.papers.scan_and_snap import theory
from attnlab.tasks.classes import (
    class_table,
    count_sampler,
    draw_classes,
    from_preset,
    token_sampler,
)
from attnlab.tasks.text import Corpus, Text, estimate_classes

PATH = Path(__file__).parents[1] / "golden.json"
CLASSES = "syn-medium:num_last=2,next_per_last=2,local_common=1"
RANDOM = "random:vocab=30,classes=4,queries=2"
PRESETS = (
    "syn-small",
    CLASSES,
    "family:lowest=0.2",
    "single-common",
    "symmetric",
    "local-common",
    "zipf:vocab=40,classes=4,queries=2",
    RANDOM,
)


def of(values: Any) -> list[float]:
    """Return two numbers that change with any of the values: their size, and a sum with signs."""
    flat = np.asarray(values, dtype=np.float64).ravel() / np.sqrt(np.size(values))
    return [float(np.linalg.norm(flat)), float(flat @ np.cos(np.arange(flat.size)))]


def tasks() -> dict[str, list[float]]:
    import jax

    found = {}
    for name in PRESETS:
        classes = from_preset(name)
        found[name] = of(np.concatenate([classes.probs.ravel(), classes.prior]))
    classes, key = from_preset(RANDOM), jax.random.key(0)
    counts, tokens = count_sampler(classes, 100), token_sampler(classes, 20)

    @jax.jit
    def draw() -> dict[str, Any]:
        drawn = draw_classes(class_table(classes), key, (64,))
        return {
            "draw_classes": drawn,
            "counts": counts.counts(jax.random.bits(key, (64, counts.words), "uint32"), drawn),
            "tokens": tokens.sequences(jax.random.bits(key, (64, tokens.words), "uint32"), drawn),
        }

    estimated = estimate_classes(corpus(), queries=2, following=2, context=8, min_count=2)
    found["classes of a text"] = of(np.concatenate([estimated.probs.ravel(), estimated.prior]))
    return found | {name: of(values) for name, values in draw().items()}


def corpus() -> Corpus:
    """Return a text of which every word follows from its position."""
    ids = 1 + (np.arange(4000) ** 2 // 7 % 17).astype(np.int32)
    vocabulary = ("<unk>", *(f"w{i}" for i in range(17)))
    return Corpus("counting", "word", vocabulary, ids[:3000], ids[3000:], "counting")


def models() -> dict[str, list[float]]:
    import jax

    task, key = attnlab.MarkovChains(3, 8), jax.random.key(0)
    tokens = np.arange(16).reshape(2, 8) % 3
    found = {}
    for name, model in {
        "attention alone, float32": attnlab.Transformer(),
        "as PyTorch starts it, float32": attnlab.models.text_transformer(dim=16, mlp=16, heads=2),
    }.items():
        outputs, captured = model.apply(model.init(key, task, {}), tokens)
        found[f"{name}: outputs"] = of(outputs)
        found[f"{name}: attention"] = of(captured["attention"])
    return found


def measured() -> xr.Dataset:
    """Return a result by hand: three classes of two queries, attention that comes to rest."""
    classes = from_preset(CLASSES)
    step = np.arange(0, 33, 2)
    token = np.arange(classes.vocab_size)
    logits = (1 - np.exp(-step / 3))[:, None, None] * np.cos(np.add.outer([0, 1], token))
    weight = classes.probs * np.exp(logits)[:, classes.query_index]
    return xr.Dataset(
        {
            "probability": (("sequence_class", "token"), classes.probs),
            "attention": (
                ("step", "sequence_class", "token"),
                weight / weight.sum(-1, keepdims=True),
            ),
            "attention_logits": (("step", "query", "token"), logits),
        },
        coords={
            "step": step,
            "token": token,
            "query": classes.queries,
            "sequence_class": np.arange(len(classes)),
            "query_token": ("sequence_class", classes.query),
            "next_token": ("sequence_class", classes.next_token),
        },
    )


def of_measures() -> dict[str, list[float]]:
    result = measured()
    first, second = np.flatnonzero(result["probability"].values[0])[:2]
    found = {
        name: getattr(measures, name)(result)
        for name in (
            "entropy",
            "distinct_entropy",
            "common_mass",
            "effective_tokens",
            "attention_speed",
            "snap_time",
        )
    }
    pair = {"token": int(first), "other": int(second), "sequence_class": 0}
    found["relative_gain"] = measures.relative_gain(result, **pair)
    found["growth_factor"] = measures.growth_factor(result)
    return {name: of(values) for name, values in found.items()}


def simulation() -> dict[str, list[float]]:
    heads = attnlab.Extended(
        residual=True,
        normalization="layer",
        heads=2,
        combine="concatenate",
        position=attnlab.LearnedPosition(),
        attend_self=True,
    )
    # every gradient and motion, every model and both kinds of start, in few programs
    runs: dict[str, dict[str, Any]] = {
        "sampled, float32": {"length": 16, "batch_size": 8},
        "limit, embedded, adam": {
            "length": "inf",
            "batch_size": 4,
            "model": attnlab.Embedded(dim=24),
            "optimizer": "adam",
            "init": "uniform",
            "dtype": "float64",
        },
        "flow, normalised": {
            "time": 4,
            "model": attnlab.Extended(normalization="rms"),
            "dtype": "float64",
        },
        "few sequences, extended": {
            "length": 16,
            "batch_size": 8,
            "training_set": 16,
            "model": heads,
            "init": "uniform",
            "independent": True,
            "dtype": "float64",
        },
    }
    found = {}
    for name, given in runs.items():
        steps = {} if "time" in given else {"steps": 4}
        result = attnlab.simulate(
            CLASSES,
            eta_y=[0.5, 1.0],
            eta_z=0.5,
            seeds=2,
            what=("attention", "logits", "loss"),
            every=2,
            progress=False,
            **steps,
            **given,
        )
        for variable in ("attention", "attention_logits", "loss"):
            found[f"{name}: {variable}"] = of(result[variable])
    result = attnlab.simulate(
        attnlab.simulation.text_run(
            Text(corpus(), length=8, validation_tokens=160),
            heads=2,
            dim=16,
            mlp=16,
            learning_rate=2.0,
            steps=4,
            batch_size=4,
            every=2,
        ),
        progress=False,
    )
    for variable in ("validation_loss", "entropy", "attention", "top_mass"):
        found[f"text, float32: {variable}"] = of(result[variable])
    return found


def of_theory() -> dict[str, list[float]]:
    classes, t = from_preset(CLASSES), np.array([0.0, 5.0, 50.0, 500.0])
    P, psi, K, M = classes.probs, classes.query_index, len(classes), classes.vocab_size
    rates = {"K": K, "M": M, "eta_y": 1.0}
    setting = formulas.Setting(P, psi=psi, M=M, eta_y=1.0, eta_z=0.5)
    E = theory.correlation(setting)
    found = {
        "h": theory.h(t, M=M, eta_y=1.0),
        "gamma": theory.gamma(t, **rates),
        "gamma_peak": theory.gamma_peak(**rates),
        "transition_times": theory.transition_times(**rates),
        "reduced_time": theory.reduced_time(t, **rates, eta_z=0.5),
        "decoder_error": theory.decoder_error(t, **rates),
        "correlation": E,
        "e_prime": theory.e_prime(E),
        "beta": theory.beta(E, M=M),
        "xi": theory.xi(E, M=M),
        "token_fates": theory.token_fates(setting),
        "attention_flow": theory.attention_flow(setting, t).logits,
        "attention_flow, printed": theory.attention_flow(setting, t, form="printed").logits,
        "sgd_flow": formulas.sgd_flow(setting, t).logits,
        "growth_bound": theory.growth_bound(t, **rates, eta_z=0.5, C0=0.1),
        "residual_velocity": theory.residual_velocity(setting, np.zeros((2, M))),
    }
    return {name: of(values) for name, values in found.items()}


def of_sweep() -> dict[str, list[float]]:
    from attnlab.sweeping.group import summary

    result = measured()
    found = summary(
        result.assign(
            attention=result["attention"].expand_dims(setting=1, cell=1, seed=1),
            probability=result["probability"].expand_dims(setting=1),
        )
    )
    return {str(name): of(found[name]) for name in sorted(found)}


MAKERS: dict[str, Callable[[], dict[str, list[float]]]] = {
    "tasks": tasks,
    "models": models,
    "simulation": simulation,
    "measures": of_measures,
    "theory": of_theory,
    "sweep": of_sweep,
}


def record(*folders: str) -> None:
    """Write the numbers of these folders to the file, with their versions."""
    kept = json.loads(PATH.read_text())
    for folder in folders:
        kept[folder] = {"version": NUMERICS[folder], "numbers": MAKERS[folder]()}
    in_order = {name: kept[name] for name in MAKERS if name in kept}
    PATH.write_text(json.dumps(in_order, indent=1) + "\n")


if __name__ == "__main__":
    record(*(sys.argv[1:] or MAKERS))
