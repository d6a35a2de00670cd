"""The gradient flow of the expected loss, integrated adaptively."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.dynamics.engines import Flow
from attnlab.dynamics.gradient import Parameters, class_rows
from attnlab.dynamics.layout import Layout
from attnlab.dynamics.models import Model
from attnlab.dynamics.program import each, observe
from attnlab.dynamics.progress import Report
from attnlab.dynamics.run import Recorded, Run, flatten
from attnlab.dynamics.stack import stacks

FIRST_STEP = 1e-3
TOLERANCES = {"float32": (1e-5, 1e-7), "float64": (1e-9, 1e-11)}


def run_flow(run: Run, report: Report) -> Recorded:
    """Integrate all settings, seeds and rates, and record at the times that were asked for."""
    assert isinstance(run.engine, Flow)
    rtol, atol = TOLERANCES[str(run.dtype)]
    rtol, atol = run.engine.rtol or rtol, run.engine.atol or atol
    times = run.moments.astype(run.dtype)
    rates = [rate.astype(run.dtype) for rate in run.grid.rates()]
    out = Recorded(run.moments)
    for stack in chain.from_iterable(stacks(run)):
        for runs in stack.batches():
            _, seeds, points = runs
            fixed, trained = stack.begin(run.grid.seeds[seeds].astype(np.uint32), points.size)
            values = _integrate(
                run.model, run.what, stack.layout, fixed, trained,
                tuple(rate[points] for rate in rates), times, rtol, atol,
                run.optimizer.weight_decay,
            )  # fmt: skip
            stopped = np.asarray(values.pop("stopped"))
            finite = np.isfinite(values.pop("largest"))
            some = Recorded(run.moments, flatten(values))
            for setting, seed, point in np.argwhere(stopped | ~finite.all(axis=-1)).tolist():
                first = int(np.argmin(finite[setting, seed, point]))
                some.failures[setting, seed, point] = (float(run.moments[first]), "the flow")
            out.put(run, runs, some)
            report(float(run.moments[-1]) * stopped.size)
    return out


@partial(jax.jit, static_argnames=("model", "what", "rtol", "atol", "weight_decay"))
def _integrate(
    model: Model,
    what: tuple[str, ...],
    layout: Layout,
    fixed: Any,
    trained: Parameters,
    rates: tuple[jax.Array, jax.Array],
    times: jax.Array,
    rtol: float,
    atol: float,
    weight_decay: float,
) -> dict[str, Any]:
    import diffrax

    factors = model.rate_factors()

    def one_run(
        layout: Layout, fixed: Any, trained: Parameters, eta_y: jax.Array, eta_z: jax.Array
    ) -> dict[str, Any]:
        rows = class_rows(layout, layout.prior)

        def velocity(t: jax.Array, trained: Parameters, args: None) -> Parameters:
            _, slope = model.loss_and_gradient(layout, rows, trained, fixed)
            if weight_decay:
                slope = jax.tree.map(lambda g, w: g + weight_decay * w, slope, trained)
            return Parameters(
                jax.tree.map(lambda g: -eta_y * factors[0] * g, slope.Y),
                jax.tree.map(lambda g: -eta_z * factors[1] * g, slope.Z),
            )

        def look(t: jax.Array, trained: Parameters, args: None) -> dict[str, Any]:
            out = observe(model, layout, trained, fixed, what)
            # not what was recorded: that can be undefined where the run is well
            out["largest"] = jnp.max(
                jnp.stack([jnp.max(abs(leaf), initial=0) for leaf in jax.tree.leaves(trained)])
            )
            if "loss" in what:
                out["loss"] = model.loss(layout, rows, trained, fixed)
            return out

        # An explicit method suffices: the loss and its curvature decay alike, about as 1/t, so
        # that stable steps grow in proportion to t.
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(velocity),
            diffrax.Tsit5(),
            t0=0.0,
            t1=times[-1],
            dt0=jnp.minimum(FIRST_STEP, times[-1]),
            y0=trained,
            saveat=diffrax.SaveAt(ts=times, fn=look),
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
            max_steps=None,
            throw=False,
        )
        return {**solution.ys, "stopped": solution.result != diffrax.RESULTS.successful}

    over_rates = jax.vmap(one_run, in_axes=(None, None, 0, 0, 0))
    over_seeds = jax.vmap(over_rates, in_axes=(None, 0, 0, None, None))

    def one_setting(layout: Layout, fixed: Any, trained: Parameters) -> dict[str, Any]:
        return over_seeds(layout, fixed, trained, *rates)

    return each(one_setting)(layout, fixed, trained)
