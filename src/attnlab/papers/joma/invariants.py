"""joint_invariants(): the attention logits that a run's MLP implies.

An invariant relates two measured quantities, the weights v and the logits z of one run. So it needs
a result, and not a simulation that has not been run.
"""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.files.errors import InputError
from attnlab.measures import clock_of
from attnlab.simulation import Simulation

from . import theory
from .predict import joint_model, kind

LEVELS = ("joma", "joma-moving")


def joint_invariants(result: xr.Dataset) -> xr.Dataset:
    """Return the logits that JoMA's invariants give from the weights, and what they assume.

    Parameters
    ----------
    result : xarray.Dataset
        A result of `simulate` with `Joint`, with the logits recorded from the start on. One set of
        classes; any learning rates and seeds.

    Returns
    -------
    xarray.Dataset
        With dim `level` before those of the logits: `implied_logits` of "joma" (claim 1: b-bar as
        it starts, each query as if it were alone) and of "joma-moving" (ours: the current b-bar,
        each of several queries by its own share; for exp and linear attention of one query the two
        are the same). Along the run: `mean_attention_drift` and `factorisation_residual`
        for each query, and `gradient_change` (`theory.joint_assumptions`).

    Examples
    --------
    >>> import attnlab
    >>> from attnlab.papers.joma.invariants import joint_invariants
    >>> from attnlab.papers.joma.model import Joint
    >>> run = attnlab.Simulation("joma-toy", Joint(), gradient="population")
    >>> joint_invariants(attnlab.simulate(run, progress=False)).level.values.tolist()
    ['joma', 'joma-moving']
    """
    simulation = Simulation.of(result)
    model = joint_model(simulation.model)
    if "setting" in result.dims:
        raise InputError("result: give one set of classes at a time, as result.isel(setting=0)")
    if "mlp_weights" not in result:
        raise InputError('result: its weights are not recorded; record what="logits"')
    if any(of.name != "sgd" for of in simulation.optimizers.values()):
        raise InputError("result: the invariants are those of gradient descent; use 'sgd'")
    grid = simulation.grid
    if len(grid.named) < 2 or grid.schedules:
        raise InputError("result: the invariants need constant learning rates eta_y and eta_z")
    clock = clock_of(result)
    if result[clock].values[0] != 0:
        raise InputError("result: the invariants count from the start; record it too")
    (classes,) = simulation.sets
    tokens = classes.in_play
    setting = formulas.Setting(classes)
    rates = [result[name] if name in result.coords else of for name, of in grid.named.items()]
    kept, dims = result.isel(token=tokens), model.extra_dims()
    names = list(dims)
    t = np.asarray(formulas.momentum_time(result[clock].values, momentum=simulation.momentum))
    keywords = kind(model)
    if model.stationary and model.hidden is None:
        keywords["incoming"] = theory.start_gradient(setting)

    def one(
        z: NDArray[np.float64], eta_y: float, eta_z: float, *weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], ...]:
        of = dict(zip(names, weights, strict=True))
        v, r, V = (of.get(n) for n in ("mlp_weights", "query_weights", "upper_weights"))
        assert v is not None
        how = {"r": r, "upper": V, **keywords}
        speeds: Any = {"eta_w": float(eta_y), "eta_z": float(eta_z)}
        assumed = theory.joint_assumptions(setting, v, z, **how)
        implied = _both_levels(setting, v, z, t, speeds, how)
        return implied, assumed.drift, assumed.residual, assumed.change

    logits = [clock, "query", "token"]
    implied, drift, residual, change = xr.apply_ufunc(
        one,
        kept["attention_logits"].astype(np.float64),
        *rates,
        *(kept[n].astype(np.float64) for n in names),
        input_core_dims=[logits, [], [], *([clock, *dims[n]] for n in names)],
        output_core_dims=[["level", *logits], [clock, "query"], [clock, "query"], [clock]],
        vectorize=True,
    )
    whole = result["attention_logits"].astype(np.float64).expand_dims(level=list(LEVELS)).copy()
    implied = implied.assign_coords(level=list(LEVELS)).transpose(*whole.dims)
    whole[{"token": tokens}] = implied.values
    return xr.Dataset(
        {
            "implied_logits": whole,
            "mean_attention_drift": drift,
            "factorisation_residual": residual,
            "gradient_change": change,
        }
    )


def _both_levels(
    s: formulas.Setting, v: Any, z: Any, t: Any, rates: dict[str, float], how: dict[str, Any]
) -> NDArray[np.float64]:
    """Return the logits by each level, (level, time, Q, L)."""
    kind, T = how["attention"], how["temperature"]

    def mean_attention(z: Any) -> NDArray[np.float64]:
        return theory.mean_attention(s, theory.attend(s, z, attention=kind, temperature=T))

    def alone(*, moving: bool) -> NDArray[np.float64]:
        """By claim 1, for each query as if it were alone."""
        queries, mean = range(z.shape[1]), mean_attention(z if moving else z[0])
        settings: dict[str, Any] = {"moving": moving, "temperature": T, **rates}
        each = [by_invariant(kind, v, mean[..., m, :], z0=z[0, m], **settings) for m in queries]
        return np.stack(each, axis=1)

    if z.shape[1] == 1:
        return np.stack([alone(moving=False), alone(moving=True)])
    shared = theory.shared_invariant(
        v,
        theory.joint_gradient(s, v, z, **how).shares,
        mean_attention(z) if kind == "softmax" else None,
        t,
        z0=z[0],
        eta_z=rates["eta_z"],
        temperature=T,
        linear=kind == "linear",
    )
    return np.stack([alone(moving=False), shared])


def by_invariant(
    attention: str, v: Any, mean: Any, *, moving: bool, z0: Any, temperature: float, **rates: float
) -> NDArray[np.float64]:
    """Return the logits of one query by its invariant, (time, L).

    mean: b-bar, along the run if it is `moving`, else at the start.
    """
    if attention == "linear":
        squared = theory.linear_invariant(v, v0=v[0], z0=z0, **rates)
        return np.asarray(np.sign(z0) * np.sqrt(np.maximum(squared, 0.0)))
    if attention == "exp":
        return theory.exp_invariant(v, v0=v[0], z0=z0, temperature=temperature, **rates)
    if moving:
        return theory.moving_invariant(v, mean, z0=z0, temperature=temperature, **rates)
    return theory.softmax_invariant(v, mean, v0=v[0], z0=z0, temperature=temperature, **rates)
