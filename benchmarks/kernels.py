"""The fused Triton programs on a GPU: are they right, which tiles are fastest, are the goals met.

    ./lab bench observe kernels             all of it; writes the table of tile sizes

1. Statistics of random calls in float16, bfloat16 and float32 against the path through torch.
2. The time of each program with every candidate tile, by width and dtype, at T = 8,192; the fastest
   are written to `tiles.csv` for this device. Programs are compiled before, in parallel.
3. The goals: whole measurements of GPT-2 small against its forward pass, long calls against flash
   attention, memory, and the overhead of a probe in a training. Each is printed with its number.

First calls, which compile, are never timed.
"""

from __future__ import annotations

import csv
import itertools
import os
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

TILES = [(m, n, w) for m, n in ((64, 32), (64, 64), (128, 32)) for w in (4, 8)]
TILES += [(64, 128, 4), (64, 128, 8), (128, 64, 8), (128, 128, 8)]
STAGES = (2, 3)
WIDTHS = (32, 64, 128, 256)
DTYPES = ("bfloat16", "float32")  # float16 takes the tiles of bfloat16
PROGRAMS = ("rows", "keys", "largest")
WORKERS = 15  # processes that compile
NEAR = 1e-3
DEVICE = "cuda"
RANKED = ("top_mass", "keys_for", "keys_share")  # of sampled rows


def run(quick: bool) -> None:
    """Check, choose tiles, and print the goals; exit with 1 if a number is wrong."""
    wrong = check(quick)
    if wrong:
        sys.exit(f"kernels: not the same as torch: {', '.join(wrong)}")
    choose_tiles(quick)
    goals(quick)


def call_of(length: int, heads: int, width: int, dtype: str, **options: Any) -> Any:
    """A causal call of one sequence on the GPU, with logits of a trained model's size."""
    import torch

    from attnlab.observing.call import AttentionCall

    kv_heads, batch = options.pop("kv_heads", heads), options.pop("batch", 1)
    made = torch.Generator(DEVICE).manual_seed(0)

    def drawn(count: int) -> Any:
        shape = (batch, count, length, width)
        return torch.randn(shape, generator=made, device=DEVICE).to(getattr(torch, dtype))

    settings = {"causal": True} | options
    return AttentionCall(drawn(heads), drawn(kv_heads), None, 1.5 * width**-0.5, 0, **settings)


def check(quick: bool) -> list[str]:
    """Compare random calls with torch's path; return what differs.

    Most of this is compilation, so each dtype and width has a process of its own.
    """
    print("kernels: largest distance from torch's statistics, relative to 1 + |statistic|")
    jobs = list(itertools.product(("float16", "bfloat16", "float32"), (32, 64, 80, 128, 256)))
    wrong = []
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        for shown, differs in pool.map(partial(check_one, quick), *zip(*jobs, strict=True)):
            print(shown, flush=True)
            wrong += differs
    return wrong


def check_one(quick: bool, dtype: str, width: int) -> tuple[str, list[str]]:
    """Compare calls of one dtype and width; return a line to print, and what differs."""
    import numpy as np
    import torch

    from attnlab.observing import kernels
    from attnlab.observing.statistics import statistics as measured

    batch, heads, length = 2, 4, 300 if quick else 1100
    device = torch.device(DEVICE)
    there = torch.arange(length, device=device) >= torch.tensor([[0], [77]], device=device)
    bias = torch.randn(1, heads, length, length, device=device)
    cases: dict[str, dict[str, Any]] = {
        "causal": {},
        "both directions": {"causal": False},
        "window": {"window": 100},
        "padding": {"mask": there[:, None, None, :]},
        "bias, softcap, sinks": {
            "mask": bias,
            "softcap": 15.0,
            "sinks": torch.randn(heads, device=device),
        },
        "grouped": {"kv_heads": 1},
        "cross": {"causal": False, "cross": True},
    }
    tokens = np.random.default_rng(0).integers(0, 50, (batch, length))
    wrong = []
    worst: dict[str, tuple[float, str]] = {}
    for name, options in cases.items():
        call = call_of(length, heads, width, dtype, batch=batch, **options)
        found = {}
        for kernel in ("torch", "triton"):
            os.environ[kernels.VARIABLE] = kernel
            found[kernel] = measured(call, tokens=tokens)
        if not found["triton"].attrs["kernel"].startswith("triton"):
            wrong.append(f"{dtype} {width} {name}: {found['triton'].attrs['kernel']}")
            kernels._wrong.clear()
            continue
        for variable, values in found["torch"].items():
            if str(variable).removesuffix("_se") in RANKED:
                continue
            mine, wanted = found["triton"][variable].values, values.values
            far = abs(mine - wanted) / (1 + abs(wanted))
            far = float(np.nanmax(np.where(np.isnan(wanted) & np.isnan(mine), 0, far)))
            if not far <= worst.get(name, (0.0, ""))[0]:
                worst[name] = far, str(variable)
            few = str(variable) in ("retained_mass", "output_error", "strongest_is_first")
            few |= str(variable).endswith("_correlation")  # ties turn
            if not far <= (0.05 if few else NEAR):
                wrong.append(f"{dtype} {width} {name} {variable} ({far:.1e})")
    shown = ", ".join(f"{name} {far:.0e} ({of})" for name, (far, of) in worst.items())
    return f"  {dtype}, width {width}: {shown}", wrong


def launch_of(program: str, call: Any, size: Any) -> Callable[[], None]:
    """Return a function that runs one program on a call with these tiles."""
    import numpy as np

    from attnlab.observing.kernels import launch
    from attnlab.observing.kernels.tiles import Tile
    from attnlab.observing.query_plan import QueryPlan

    found: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def keep(this: Any, *args: Any, **own: Any) -> None:
        found[this.__name__] = (this, *args), own
        if this.__name__ == "rows" and program == "keys":
            run_it(this, *args, **own)  # keys read what it writes

    run_it, choose = launch._launch, launch._tile
    launch._launch = keep
    launch._tile = lambda name, _: size if name == program else Tile(64, 32, 4, 2)
    tokens = np.random.default_rng(0).integers(0, 5000, (call.shape[0], call.shape[3]))
    try:
        plan = QueryPlan.of(call, rows=None, seed=0, budget_bytes=2**28, min_keys=16, tokens=tokens)
        if program == "largest":
            launch.largest_logits(plan, call)
        else:
            launch.chosen_rows(plan, plan.heads(call))
    finally:
        launch._launch, launch._tile = run_it, choose
    args, own = found[program]
    return lambda: run_it(*args, **own)


def compile_one(program: str, width: int, dtype: str, size: tuple[int, ...]) -> None:
    """Compile a program into Triton's cache, in a process of its own."""
    import torch

    from attnlab.observing.kernels.tiles import Tile

    try:
        launch_of(program, call_of(512, 16, width, dtype, kv_heads=4), Tile(*size))()
        torch.cuda.synchronize()
    except Exception:  # too large for the device: found again, and left out, when it is timed
        return


def milliseconds(work: Callable[[], object], times: int = 7) -> float:
    """Median time on the device after two calls that are not timed."""
    import torch

    for _ in range(2):
        work()
    found = []
    for _ in range(times):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        work()
        ended.record()
        torch.cuda.synchronize()
        found.append(begun.elapsed_time(ended))
    return statistics.median(found)


def choose_tiles(quick: bool) -> None:
    """Time the candidates and write the table."""
    import torch
    from triton.runtime.errors import OutOfResources

    from attnlab.observing.kernels import tiles

    widths, sizes = WIDTHS, [(*one, stages) for one in TILES for stages in STAGES]
    if quick:
        widths, sizes = (64,), sizes[:3]
    length = 1024 if quick else 8192
    jobs = list(itertools.product(PROGRAMS, widths, DTYPES, sizes))
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        list(pool.map(compile_one, *zip(*jobs, strict=True)))
    major, minor = torch.cuda.get_device_capability()
    table = dict(tiles.table())
    print(f"kernels: fastest tiles at T = {length:,}, 16 heads (rows x keys, warps, stages)")
    for program, width, dtype in itertools.product(PROGRAMS, widths, DTYPES):
        call, found = call_of(length, 16, width, dtype, kv_heads=4), {}
        for size in sizes:
            try:
                found[size] = milliseconds(launch_of(program, call, tiles.Tile(*size)))
            except OutOfResources:
                continue
        best = min(found, key=lambda size: found[size])
        slowest = max(found.values())
        print(
            f"  {program} {width} {dtype}: {found[best]:.3f} ms with {best}; up to {slowest:.3f} ms"
        )
        for name in (dtype, "float16") if dtype == "bfloat16" else (dtype,):
            table[program, 10 * major + minor, width, name] = tiles.Tile(*best)
    if quick:
        return
    path = Path(tiles.__file__).with_name("tiles.csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(tiles.FIELDS)
        writer.writerows([*at, *size] for at, size in sorted(table.items()))
    tiles.table.cache_clear()
    print(f"  written to {path.name}; commit it:\n{path.read_text()}")


def goal(what: str, measured: float, most: float, unit: str) -> None:
    """Print a goal beside what was measured."""
    verdict = "met" if measured <= most else "MISSED"
    print(f"  {verdict}: {what}: {measured:.4g} {unit}, at most {most:.4g} wanted")


def goals(quick: bool) -> None:
    """Print each goal with its number."""
    import torch

    import attnlab
    from attnlab.observing import kernels
    from benchmarks.observe import GIB, PROBE, VOCABULARY, cost, gpt2, seconds

    print("kernels: goals, GPT-2 small in bfloat16 with random weights, all rows")
    for sequences, length in ((2, 256),) if quick else ((8, 2048), (1, 8192)):
        model = gpt2(12, 12, 768, VOCABULARY, length, DEVICE).to(torch.bfloat16).eval()
        ids = torch.randint(0, VOCABULARY, (sequences, length))
        there, found = ids.to(DEVICE), {}
        for kernel in ("torch", "triton"):
            os.environ[kernels.VARIABLE] = kernel
            observer = attnlab.observe(model, probe=ids, every=1)
            observer.step(0)
            observer.step(1)
            found[kernel] = cost(lambda i, o=observer: o.step(2 + i), DEVICE)
        used = observer.result().attrs["kernel"]
        _forward(model, there)
        forward, _ = cost(lambda _, m=model, ids=there: _forward(m, ids), DEVICE)
        (before, memory_before), (taken, memory) = found["torch"], found["triton"]
        print(
            f"  {sequences} x {length:,}: forward {1e3 * forward:.1f} ms; by torch "
            f"{1e3 * before:.1f} ms, {memory_before / GIB:.2f} GiB; now {1e3 * taken:.1f} ms, "
            f"{memory / GIB:.2f} GiB ({used})"
        )
        most = 3 * 1e3 * forward + 20
        goal(f"whole measurement, {sequences} x {length:,}", 1e3 * taken, most, "ms")
        if length == 8192:
            goal("memory beyond the model", memory / GIB, 0.3, "GiB")
        del observer, model
    os.environ.pop(kernels.VARIABLE)

    shapes = (
        ("32 heads of 128, T = 32,768", 32_768, 32, 128),
        ("12 of 64, T = 8,192", 8192, 12, 64),
    )
    for name, length, heads, width in (("quick", 1024, 4, 64),) if quick else shapes:
        call = call_of(length, heads, width, "bfloat16")
        took = {p: milliseconds(_chosen(p, call)) for p in PROGRAMS}
        flash = milliseconds(lambda c=call: _flash(c))
        print(
            f"  {name}: flash {flash:.3f} ms, " + ", ".join(f"{p} {t:.3f}" for p, t in took.items())
        )
        goal(f"rows and keys, {name}", (took["rows"] + took["keys"]) / flash, 3.0, "times flash")
        goal(f"largest logit alone, {name}", took["largest"] / flash, 0.6, "times flash")
        measure = _measurement(call)
        whole = statistics.median(seconds(measure, DEVICE) for _ in range(3))
        print(f"  {name}: one layer measured whole, with torch's rows: {1e3 * whole:.1f} ms")

    model = gpt2(12, 12, 768, VOCABULARY, 1024, DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    ids = torch.randint(0, VOCABULARY, (12, 1024), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    observer = attnlab.observe(model, probe=torch.randint(0, VOCABULARY, PROBE), every=1)
    for number in range(3):
        step()
        observer.step(number)
    steps = statistics.median(seconds(step, DEVICE) for _ in range(10))
    probing = statistics.median(
        seconds(lambda n=n: observer.step(3 + n), DEVICE) for n in range(10)
    )
    print(f"  a step of 12,288 tokens {1e3 * steps:.1f} ms, a probe {1e3 * probing:.1f} ms")
    goal("a probe of 8 x 512 every 10 steps", 100 * probing / (10 * steps), 4.0, "%")


def _chosen(program: str, call: Any) -> Callable[[], None]:
    """Return a function that runs a program with the tiles of the table."""
    from attnlab.observing.kernels import launch

    return launch_of(program, call, launch._tile(program, call.query))


def _forward(model: Any, ids: Any) -> None:
    import torch

    with torch.no_grad():
        model(ids, logits_to_keep=1, use_cache=False)


def _flash(call: Any) -> None:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        torch.nn.functional.scaled_dot_product_attention(
            call.query, call.key, call.key, is_causal=True
        )


def _measurement(call: Any) -> Callable[[], object]:
    """Return a function that measures a call as an observer does, its plan made before."""
    import numpy as np

    from attnlab.measures.arrays import full_precision
    from attnlab.observing.query_plan import QueryPlan
    from attnlab.observing.statistics import measure_heads, summarize_layers

    tokens = np.random.default_rng(0).integers(0, 5000, (call.shape[0], call.shape[3]))
    call = replace(call, value=call.key)
    with full_precision(call.query):
        plan = QueryPlan.of(call, rows=None, seed=0, budget_bytes=2**28, min_keys=16, tokens=tokens)

    def measure() -> object:
        with full_precision(call.query):
            measured = measure_heads(plan, plan.heads(call))
            return summarize_layers(plan, [measured], [call.value], ["0"])

    measure()
    return measure
