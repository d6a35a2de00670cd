"""The cost of observing: relative to a training and to eager attention, and in memory.

    ./lab bench observe                     all parts that this machine can run
    ./lab bench observe overhead eager      some of them
    ./lab bench observe --busy              one thread and its processor time, for a busy machine

overhead: a probe of 8 x 512 tokens every 100 and every 10 steps of a training. On a processor the
    model is nanoGPT's small one (6 layers, 6 heads, width 384; 16,384 tokens a step), on an
    accelerator GPT-2 small with 491,520 tokens a step, as it is trained.
eager: the same statistics from `output_attentions=True`, whole maps by the same functions, at
    T = 2,048: of one sequence, and on an accelerator of 8, as many as a probe has by default, and
    of one at 8,192. Seconds, and memory beyond the model, next to the model's own forward, which is
    a lower bound; in bfloat16, which models use there, and float32.
memory: GPT-2 small at T = 4,096, memory beyond the model.
check: statistics under the flash kernel in bfloat16 are right, and a training with dropout stays
    bitwise the same.
long: four layers as TinyLlama has them, with 32 heads, at T = 32,768 with 256 rows: memory beyond
    the model and beyond its own forward; needs an accelerator.
kernels: whether the fused programs are right, their fastest tiles (written to `tiles.csv`), and the
    goals with their numbers; needs a CUDA device.

Each part runs in a process of its own, so that its peak of memory counts nothing else. Models
have random weights: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTS = ("overhead", "eager", "memory", "long", "check", "kernels")
PROBE = (8, 512)
ROWS = 256
TIMES = 5
VOCABULARY = 50_257
GIB = 2**30
CLOCK = time.perf_counter


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="./lab bench observe")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which; all without")
    parser.add_argument("--device", help="cpu or cuda; without it, what there is")
    parser.add_argument("--busy", action="store_true", help="one thread and its processor time")
    parser.add_argument("--quick", action="store_true", help="two layers and short sequences")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.inside:
        if chosen.busy:
            _on_a_busy_machine()
        globals()[chosen.parts[0]](chosen.device, chosen.quick)
        return
    import torch

    device = chosen.device or ("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} cores"
    print(f"{device} ({name}), torch {torch.__version__}")
    failed = False
    for part in chosen.parts or PARTS:
        if part in ("long", "kernels") and device == "cpu":
            print(f"{part}: needs an accelerator; left out")
            continue
        command = [sys.executable, "-m", "benchmarks", "observe", part, "--inside"]
        command += ["--device", device]
        command += [f"--{name}" for name in ("quick", "busy") if getattr(chosen, name)]
        failed |= subprocess.run(command, check=False).returncode != 0
    sys.exit(1 if failed else 0)


def overhead(device: str, quick: bool) -> None:
    import torch

    import attnlab

    small = device == "cpu"
    size = (6, 6, 384, 1024) if small else (12, 12, 768, VOCABULARY)
    batch, length, accumulated = (32, 512, 1) if small else (12, 1024, 40)
    if quick:
        size, batch, accumulated = (2, 2, 64, 256), 2, 1
    model = gpt2(*size, length, device).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    ids = torch.randint(0, size[3], (batch, length), device=device)

    def step() -> None:
        for _ in range(accumulated):
            with torch.autocast(device, torch.bfloat16, enabled=not small):
                loss = model(ids, labels=ids).loss
            (loss / accumulated).backward()
        optimizer.step()
        optimizer.zero_grad()

    probe = torch.randint(0, size[3], PROBE)
    observers = {
        "all rows": attnlab.observe(model, probe=probe, every=1),
        f"{ROWS} rows": attnlab.observe(model, probe=probe, every=1, rows=ROWS),
    }
    step()
    for observer in observers.values():
        observer.step(0)
    steps, measured = [], {name: [] for name in observers}  # type: ignore[var-annotated]
    for number in range(1, 4):  # in turn, so that other work on the machine slows both down
        steps.append(seconds(step, device))
        for name, observer in observers.items():
            measured[name].append(seconds(lambda o=observer, n=number: o.step(n), device))
    one = statistics.median(steps)
    print(
        f"overhead: {size[0]} layers, {size[1]} heads, width {size[2]}; a step of "
        f"{batch * length * accumulated:,} tokens takes {one:.3f} s"
    )
    for name, times in measured.items():
        probing = statistics.median(times)
        shares = ", ".join(f"every {n} steps {100 * probing / (n * one):.2f} %" for n in (100, 10))
        print(f"  {name}: a measurement takes {probing:.3f} s; {shares} (1 % and 5 % wanted)")
        if accumulated > 1:
            few = one / accumulated
            shares = ", ".join(f"every {n} {100 * probing / (n * few):.2f} %" for n in (100, 10))
            print(f"    with {batch * length:,} tokens a step, {few:.3f} s: {shares}")


def eager(device: str, quick: bool) -> None:
    small = quick or device == "cpu"
    shapes = [(PROBE[0], 2048), (1, 2048), (1, 8192)]
    if small:  # larger maps would not fit into a laptop's memory
        shapes = [(1, 256)] if quick else [(1, 2048)]
    for sequences, length in shapes:
        for kind in ("float32",) if small else ("bfloat16", "float32"):
            _beside_eager(device, kind, 2 if small else 12, sequences, length)


def _beside_eager(device: str, kind: str, layers: int, sequences: int, length: int) -> None:
    import torch

    import attnlab

    dtype = getattr(torch, kind)
    ids = torch.randint(0, VOCABULARY, (sequences, length))
    found = {}
    for name, rows in (("all rows", None), (f"{ROWS} rows", ROWS)):
        model = gpt2(layers, 12, 768, VOCABULARY, length, device).to(dtype).eval()
        observer = attnlab.observe(model, probe=ids, every=1, rows=rows)
        observer.step(0)  # libraries are loaded, kernels chosen
        observer.step(1)
        found[name] = cost(lambda i, o=observer: o.step(2 + i), device)
    with torch.no_grad():
        there = ids.to(device)
        alone, _ = cost(lambda _: model(there, logits_to_keep=1, use_cache=False), device)
    del observer
    model = gpt2(layers, 12, 768, VOCABULARY, length, device, "eager").to(dtype).eval()
    before = of_eager(model, there, None)
    found["eager"] = cost(lambda _: of_eager(model, there, before), device)
    print(f"eager: GPT-2 small's width, {layers} layers, {sequences} x {length:,} tokens, {kind}")
    time_of_eager, memory_of_eager = found["eager"]
    print(f"  the model's own forward (sdpa): {alone:.3f} s")
    for name, (taken, memory) in found.items():
        print(
            f"  {name}: {taken:.3f} s, {memory / GIB:.3f} GiB beyond the model; eager takes "
            f"{time_of_eager / taken:.1f} x the time "
            f"({(time_of_eager - alone) / max(taken - alone, 1e-9):.1f} x beyond that forward), "
            f"{memory_of_eager / memory:.1f} x the memory"
        )
    print("  (10 x wanted of both, with 256 rows)")


def of_eager(
    model: Any, ids: Any, before: list[Any] | None, results: list[dict[str, Any]] | None = None
) -> list[Any]:
    """Measure what attnlab.observe measures from whole attention weights, layer by layer.

    The weights are those of `output_attentions=True`. Those of a few rows and heavy hitters are
    returned for the next call (`before`), as in observing. results: receives the statistics.
    """
    import torch
    from torch import nn

    from attnlab.measures.arrays import all_to_numpy
    from attnlab.measures.ranks import stable_rank, stable_rank_of_qk, units_for

    seen: dict[str, Any] = {}
    hooks = []
    for i, block in enumerate(model.transformer.h):

        def take_products(_: nn.Module, __: Any, out: Any, i: int = i) -> None:
            seen[f"queries, keys, values {i}"] = out.split(out.shape[-1] // 3, -1)

        def take_hidden(_: nn.Module, given: Any, i: int = i) -> None:
            rows = given[0].reshape(-1, given[0].shape[-1])
            seen[f"hidden {i}"] = rows[:: max(1, len(rows) // 256)]

        hooks += [
            block.attn.c_attn.register_forward_hook(take_products),
            block.mlp.c_proj.register_forward_pre_hook(take_hidden),
        ]
    try:
        with torch.no_grad():
            output = model(ids, output_attentions=True, logits_to_keep=1, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    kept = []
    with torch.no_grad():
        for i, maps in enumerate(output.attentions):
            batch, heads, length, _ = maps.shape
            query, key, value = (
                one.reshape(batch, length, heads, -1).transpose(1, 2).float()
                for one in seen[f"queries, keys, values {i}"]
            )
            earlier = None if before is None else before[i]
            found, rest = of_maps(maps.float(), value, ids, earlier)
            logits = query @ key.mT / key.shape[-1] ** 0.5  # the model does not return logits
            later = torch.ones(length, length, dtype=torch.bool, device=logits.device).triu(1)
            found["max_logit"] = logits.masked_fill_(later, -torch.inf).amax((2, 3))
            del logits
            here = dict(zip(found, all_to_numpy(list(found.values())), strict=True))
            if results is not None:
                results.append(here)
            kept.append(rest)
    # of all layers at once
    blocks = model.transformer.h
    width = seen["hidden 0"].shape[-1] // 4
    weights = torch.stack([block.attn.c_attn.weight.T for block in blocks])
    query, key, _ = weights.reshape(len(blocks), 3, -1, value.shape[-1], width).unbind(1)
    stable_rank_of_qk(query.flatten(0, 1), key.flatten(0, 1))
    stable_rank(torch.stack([block.mlp.c_fc.weight for block in blocks]))
    units_for(torch.stack([seen[f"hidden {i}"] for i in range(len(blocks))]))
    return kept


def of_maps(maps: Any, value: Any, ids: Any, before: Any) -> tuple[dict[str, Any], Any]:
    """Return statistics of whole causal attention weights (sequence, head, query, key)."""
    import numpy as np
    import torch

    from attnlab.measures import maps as m
    from attnlab.measures import positions, received
    from attnlab.observing import kv_cache
    from attnlab.observing.statistics import MIN_KEYS

    length, device = maps.shape[-1], maps.device
    visible = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    number = visible.sum(-1).float()
    entropy, ranked = m.entropy(maps), m.ranked_mass(maps)
    keys_for = m.keys_for(maps, ranked=ranked).float()
    logits = maps.log()  # up to a constant
    norm = m.logit_norm(logits, visible)
    floor = m.entropy_floor(norm, number)
    often, in_sequences = (
        torch.as_tensor(one, device=device)
        for one in received.token_counts(ids.cpu().numpy(), np.ones(tuple(ids.shape), bool))
    )
    several = (in_sequences > 1)[:, None, None, :]
    where: Any = {"visible": visible, "places": torch.arange(length, device=device)}
    rows = {
        "entropy": entropy,
        "relative_entropy": m.relative_entropy(entropy, number),
        "effective_tokens": m.effective_tokens(entropy),
        "participation": m.participation(maps),
        "top_mass": m.top_mass(maps, ranked=ranked),
        "keys_for": keys_for,
        "keys_share": keys_for / number[:, None],
        "logit_norm": norm,
        "entropy_floor": floor,
        "entropy_slack": entropy - floor,
        "sink_mass": positions.sink_mass(maps),
        "self_mass": positions.self_mass(maps),
        "previous_mass": positions.previous_mass(maps),
        "local_mass": positions.local_mass(maps),
        "mean_distance": positions.mean_distance(maps),
        "induction_mass": positions.induction_mass(maps, ids[:, None], **where),
        "duplicate_mass": positions.duplicate_mass(maps, ids[:, None], **where),
        "common_mass": positions.mass_on(maps, several),
        "distinct_mass": positions.mass_on(maps, ~several),
    }
    found = {name: values[:, :, MIN_KEYS - 1 :].nanmean(2) for name, values in rows.items()}
    found["alpha_1"] = maps[..., 0].mean(2)
    found["sink_rate"] = positions.sink_rate(found["alpha_1"])
    counted = maps[:, :, MIN_KEYS - 1 :]
    total = counted.sum(2)
    got = received.received(counted, visible[MIN_KEYS - 1 :])
    heavy = received.heavy_hitters(total)
    norms = value.norm(dim=-1)
    found |= {
        # keys that at least half of the counted rows see
        "strongest_mass": got[..., : (length + MIN_KEYS - 1) // 2 + 1].amax(-1),
        "heavy_mass": torch.where(heavy, total, 0.0).sum(-1) / total.sum(-1),
        "frequency_correlation": received.rank_correlation(got, often[:, None].float()),
        "idf_correlation": received.rank_correlation(got, -in_sequences[:, None].float()),
        "value_norm_ratio": norms[..., 0] / norms[..., 1:].mean(-1),
    }
    later, voters = max(kv_cache.LEAST_LATER, kv_cache.LATER // len(ids)), kv_cache.WINDOW
    start = torch.zeros(len(ids), later, dtype=torch.int64, device=device)
    found["retained_mass"], found["output_error"] = (
        of_later.mean(2)
        for of_later in kv_cache.retained(
            maps[:, :, -later:],
            kv_cache.cache_limits(visible[None, None, -later:], start),
            value=value,
            sink=None,
            heavy=maps[:, :, MIN_KEYS - 1 : -later].sum(2),
            window=maps[:, :, -later - voters : -later].sum(2),
        )
    )
    fixed = maps[:, :, length // 8 - 1 :: length // 8].clone()
    if before is not None:
        earlier, earlier_heavy = before
        found["change"] = m.total_variation(earlier, fixed).mean(-1)
        found["heavy_overlap"] = received.shared(earlier_heavy, heavy)
    return found, (fixed, heavy)


def memory(device: str, quick: bool) -> None:
    import torch

    import attnlab

    length = 512 if quick else 4096
    layers = 2 if quick or device == "cpu" else 12
    model = gpt2(layers, 12, 768, VOCABULARY, length, device).eval()
    ids = torch.randint(0, VOCABULARY, (1, length))
    print(f"memory: GPT-2 small's width, {layers} layers, T = {length:,}")
    for name, rows in ((f"{ROWS} rows", ROWS), ("all rows", None)):
        observer = attnlab.observe(model, probe=ids, every=1, rows=rows)
        attnlab.observe(model, probe=ids[:, :64], every=1, rows=rows).step(0)
        taken, beyond = cost(lambda i, o=observer: o.step(i), device)
        print(
            f"  {name}: {taken:.2f} s, {beyond / GIB:.2f} GiB beyond the model (under 1.5 wanted)"
        )


def long(device: str, quick: bool) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import attnlab

    length, layers = (1024, 1) if quick else (32_768, 4)
    config = LlamaConfig(  # as wide as TinyLlama
        vocab_size=1024,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=length,
    )
    with torch.device(device):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    ids = torch.randint(0, 1024, (1, length))
    there = ids.to(device)

    def forward(_: int) -> None:
        with torch.no_grad():
            model(there, logits_to_keep=1, use_cache=False)

    forward(0)
    plain_seconds, plain = cost(forward, device)
    observer = attnlab.observe(model, probe=ids, every=1, rows=ROWS)
    observer.step(0)
    taken, beyond = cost(lambda i: observer.step(1 + i), device)
    print(f"long: Llama-like, 32 heads of which 4 have keys, {layers} layers, T = {length:,}")
    print(f"  its own forward: {plain_seconds:.2f} s, {plain / GIB:.2f} GiB beyond the model")
    print(
        f"  with {ROWS} rows: {taken:.2f} s, {beyond / GIB:.2f} GiB beyond the model, "
        f"{(beyond - plain) / GIB:.2f} beyond its forward (under 2 wanted)"
    )


def kernels(_: str, quick: bool) -> None:
    from benchmarks.kernels import run

    run(quick)


def check(device: str, quick: bool) -> None:
    """Check statistics under flash kernels, and that observing leaves a training unchanged."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from attnlab.observing.probe import make_probe
    from attnlab.observing.snapshot import take_snapshot

    sizes = (2, 4, 256, 512, 256)
    ids = torch.randint(0, 512, (8, 256), generator=torch.Generator().manual_seed(0))
    halves = gpt2(*sizes, device).to(torch.bfloat16).eval()
    with torch.no_grad():
        for name, weight in halves.named_parameters():
            if "c_attn.weight" in name:
                weight *= 4  # attention far from uniform
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        moment = take_snapshot(halves, make_probe(halves, ids))
    plain = gpt2(*sizes, device, "eager").eval()
    plain.load_state_dict(halves.state_dict())  # in float32
    kept: list[dict[str, Any]] = []
    of_eager(plain, ids.to(device), None, kept)
    worst: dict[str, float] = {}
    for layer, wanted in zip(moment.layers.values(), kept, strict=True):
        for name, values in wanted.items():
            values, mine = values.reshape(layer[name].shape), layer[name].values
            if name in ("retained_mass", "output_error"):
                # which keys are kept turns where two are nearly alike: of all heads together
                values, mine = (one.mean(axis=(0, 1)) for one in (values, mine))
            far = abs(mine - values) / (1 + abs(values))
            worst[name] = max(worst.get(name, 0.0), float(far.max()))
    print("check: statistics under the flash kernel in bfloat16, against eager maps in float32")
    wrong = []
    for name, far in sorted(worst.items(), key=lambda item: -item[1]):
        # one key more or less, or one row that bfloat16 rounds
        few = name.startswith("keys_") or name.endswith("_correlation") or name == "max_logit"
        near = 0.03 if few else 5e-3
        print(f"  {name}: off by {far:.1e}{'' if far <= near else f', more than {near}'}")
        wrong += [name] if far > near else []
    if wrong:
        sys.exit(f"check: not the same: {', '.join(wrong)}")
    torch.use_deterministic_algorithms(True, warn_only=True)
    runs = [training(device, observed=observed) for observed in (False, False, True)]
    same = [all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True)) for run in runs[1:]]
    print(f"check: 50 steps with dropout, twice: bitwise {'the same' if same[0] else 'different'}")
    print(f"  and observed every 10 steps: bitwise {'the same' if same[1] else 'DIFFERENT'}")
    if not all(same):
        sys.exit("check: not the same training")


def training(device: str, *, observed: bool) -> list[Any]:
    """Return the losses and final weights of 50 steps."""
    import torch

    import attnlab

    model = gpt2(2, 4, 128, 512, 128, device).train()  # with its default dropout
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    probe = torch.arange(256).reshape(2, 128)
    observer = attnlab.observe(model, probe=probe, every=10) if observed else None
    torch.manual_seed(1)
    losses = []
    for step in range(50):
        ids = torch.randint(0, 512, (4, 128), device=device)
        with torch.autocast(device, torch.bfloat16):
            if observer is not None:
                observer.step(step)
            loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [torch.stack(losses), *(weight.detach() for weight in model.parameters())]


def gpt2(
    layers: int,
    heads: int,
    width: int,
    vocabulary: int,
    context: int,
    device: str,
    attention: str = "sdpa",
) -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=layers,
        n_head=heads,
        n_embd=width,
        vocab_size=vocabulary,
        n_positions=context,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=attention,
    )
    return GPT2LMHeadModel(config).to(device)


def cost(work: Callable[[int], object], device: str) -> tuple[float, int]:
    """Return the median seconds of the calls work(0), work(1), ..., and the memory they add."""
    import torch

    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        ctypes.CDLL(None).malloc_trim(0)  # freed memory would be reused without counting
        Path("/proc/self/clear_refs").write_text("5")  # Linux: resets the peak to what is held now
        before = _status("VmRSS")
    taken = statistics.median(seconds(lambda n=n: work(n), device) for n in range(TIMES))
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else _status("VmHWM")
    return taken, peak - before


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def _on_a_busy_machine() -> None:
    """Use one thread and processor time, which other work on the machine disturbs least."""
    import torch

    torch.set_num_threads(1)
    global CLOCK
    CLOCK = time.process_time


def seconds(work: Callable[[], object], device: str) -> float:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    begun = CLOCK()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return CLOCK() - begun
