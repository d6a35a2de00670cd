"""The complete Fig. 6 grid: 4 x 4 x 4 cells x 10 seeds = 640 runs of 100 steps.

Timed cold (first call of a fresh process: compilation and run together), then warm (the same
calls again), then the loop of plain_torch.py on a sample of its runs, scaled to 640, in the same
process. Compare ratios; absolute times depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import xarray as xr

from attnlab import simulate
from attnlab.papers.scan_and_snap.classes import syn_medium

NUM_LAST = (10, 5, 3, 1)  # the longest first
ETA_Z, RATIO = (0.5, 1.0, 2.0, 3.0), (1.0, 2.0, 5.0, 10.0)
SEEDS = 10
PANELS_AT_ONCE = {"cpu": 2}
COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


def panel(num_last: int, seeds: int = SEEDS, *, independent: bool = False) -> xr.Dataset:
    """Run the cells of one panel of Fig. 6."""
    z = xr.DataArray(list(ETA_Z), dims="eta_z", coords={"eta_z": list(ETA_Z)})
    r = xr.DataArray(list(RATIO), dims="ratio", coords={"ratio": list(RATIO)})
    return simulate(
        syn_medium(num_last=num_last),
        length=128,
        batch_size=128,
        eta_y=r * z,
        eta_z=z,
        steps=100,
        momentum=0.9,
        init="uniform",
        seeds=seeds,
        independent=independent,
        what="statistics",
        at=[100],
        progress=False,
    )


def grid() -> float:
    """Return the seconds of all panels, side by side: one compiles while another runs."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(PANELS_AT_ONCE.get(jax.default_backend(), len(NUM_LAST))) as pool:
        list(pool.map(panel, NUM_LAST))
    return time.perf_counter() - begun


def torch_seconds(sample: int) -> float:
    """Return the time of all 640 runs of the plain loop, by the median of some of each size."""
    from benchmarks import plain_torch

    total = 0.0
    for num_last in NUM_LAST:
        runs = [
            plain_torch.train(num_last, 2, eta_y=1.0, eta_z=1.0, steps=100, seed=seed)[1]
            for seed in range(sample + 1)
        ][1:]  # the first run warms the allocator up
        total += statistics.median(runs) * 16 * SEEDS
        print(f"  plain loop, num_last {num_last}: {statistics.median(runs):.2f} s a run")
    return total


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench fig6", description=__doc__)
    parser.add_argument("--no-torch", action="store_true", help="leave the plain loop out")
    parser.add_argument("--sample", type=int, default=2, help="runs of the plain loop per size")
    options = parser.parse_args(arguments)
    compiling = [0.0]

    def listen(event: str, duration: float, **_: object) -> None:
        if event == COMPILE_EVENT:
            compiling[0] += duration

    jax.monitoring.register_event_duration_secs_listener(listen)
    print(f"device: {jax.devices()[0].device_kind}")
    cold = grid()
    compile_seconds = compiling[0]
    warm = min(grid() for _ in range(2))
    print(f"cold: {cold:.2f} s; compilation took {compile_seconds:.2f} s, partly beside running")
    print(f"warm: {warm:.2f} s, {64 * SEEDS * 100 / warm:.0f} run-steps a second")
    if not options.no_torch:
        plain = torch_seconds(options.sample)
        print(f"plain PyTorch loop, 640 runs: {plain:.0f} s")
        print(f"ratio: {plain / warm:.0f} times faster warm, {plain / cold:.0f} cold")
