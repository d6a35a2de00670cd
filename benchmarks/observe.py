"""What observing costs: beside a training, beside eager attention, and in memory.

    ./lab bench observe                     all parts that this machine can do
    ./lab bench observe overhead eager      some of them
    ./lab bench observe --busy              one thread and its processor time: other work beside it

overhead: a probe of 8 x 512 tokens every 100 and every 10 steps of a training. On a processor the
    model is nanoGPT's small one (6 layers, 6 heads, width 384; 16,384 tokens a step), on an
    accelerator GPT-2 small with 491,520 tokens a step, as it is trained.
eager: the same statistics from `output_attentions=True`, whole maps by the same functions, at
    T = 2,048: seconds, and memory beyond the model.
memory: GPT-2 small at T = 4,096, memory beyond the model.
long: a Llama-like model with 32 heads at T = 32,768 with 256 rows, memory beyond the model and
    beyond its own forward; needs an accelerator.

Each part runs in a process of its own, so that its peak of memory is its own. Models have random
weights: nothing is downloaded.
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

PARTS = ("overhead", "eager", "memory", "long")
PROBE = (8, 512)
ROWS = 256
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
        if part == "long" and device == "cpu":
            print("long: needs an accelerator; left out")
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
    for number in range(1, 4):  # in turns, so that other work on the machine meets both
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
    if not small:
        share = accumulated * probing / (100 * one)
        print(f"  with {batch * length:,} tokens a step, every 100 steps: {100 * share:.2f} %")


def eager(device: str, quick: bool) -> None:
    import torch

    import attnlab
    from attnlab.observe.statistics import MIN_KEYS

    length = 256 if quick else 2048
    layers = 2 if quick or device == "cpu" else 12
    ids = torch.randint(0, VOCABULARY, (1, length))
    found = {}
    for name, rows in (("all rows", None), (f"{ROWS} rows", ROWS)):
        model = gpt2(layers, 12, 768, VOCABULARY, length, device).eval()
        observer = attnlab.observe(model, probe=ids, every=1, rows=rows)
        observer.step(0)  # libraries are loaded, kernels chosen
        found[name] = cost(lambda o=observer: o.step(1), device)
    del observer
    model = gpt2(layers, 12, 768, VOCABULARY, length, device, "eager").eval()
    there = ids.to(device)

    def whole() -> None:
        with torch.no_grad():
            output = model(there, output_attentions=True, logits_to_keep=1, use_cache=False)
            for maps in output.attentions:
                of_maps(maps, there, MIN_KEYS)

    found["eager"] = cost(whole, device)
    print(f"eager: GPT-2 small's width, {layers} layers, T = {length:,}")
    time_of_eager, memory_of_eager = found["eager"]
    for name, (taken, memory) in found.items():
        print(
            f"  {name}: {taken:.3f} s, {memory / GIB:.3f} GiB beyond the model; eager takes "
            f"{time_of_eager / taken:.1f} x the time, {memory_of_eager / memory:.1f} x the memory"
        )
    print("  (10 x wanted of both, with 256 rows; caches are not in what eager computes)")


def of_maps(maps: Any, tokens: Any, least: int) -> dict[str, Any]:
    """The statistics of whole maps, by the functions that attnlab.observe uses for its blocks."""
    import torch

    from attnlab.measures import maps as m
    from attnlab.measures import places, received

    length = maps.shape[-1]
    visible = torch.ones(length, length, dtype=torch.bool, device=maps.device).tril()
    number = visible.sum(-1).float()
    entropy, ranked = m.entropy(maps), m.ranked_mass(maps)
    where: Any = {"visible": visible, "places": torch.arange(length, device=maps.device)}
    rows = {
        "entropy": entropy,
        "relative_entropy": m.relative_entropy(entropy, number),
        "effective_tokens": m.effective_tokens(entropy),
        "participation": m.participation(maps),
        "top_mass": m.top_mass(maps, ranked=ranked),
        "keys_for": m.keys_for(maps, ranked=ranked).float(),
        "sink_mass": places.sink_mass(maps),
        "self_mass": places.self_mass(maps),
        "previous_mass": places.previous_mass(maps),
        "local_mass": places.local_mass(maps),
        "mean_distance": places.mean_distance(maps),
        "induction_mass": places.induction_mass(maps, tokens[:, None], **where),
        "duplicate_mass": places.duplicate_mass(maps, tokens[:, None], **where),
    }
    means = {name: values[:, :, least - 1 :].nanmean(2).cpu() for name, values in rows.items()}
    return means | {"received": received.received(maps, visible).cpu()}


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
        taken, beyond = cost(lambda o=observer: o.step(0), device)
        print(
            f"  {name}: {taken:.2f} s, {beyond / GIB:.2f} GiB beyond the model (under 1.5 wanted)"
        )


def long(device: str, quick: bool) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import attnlab

    length, layers = (1024, 1) if quick else (32_768, 4)
    config = LlamaConfig(
        vocab_size=1024, hidden_size=2048, intermediate_size=8192, num_hidden_layers=layers,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=length,
    )  # fmt: skip
    with torch.device(device):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    ids = torch.randint(0, 1024, (1, length))
    there = ids.to(device)

    def forward() -> None:
        with torch.no_grad():
            model(there, logits_to_keep=1, use_cache=False)

    forward()
    plain_seconds, plain = cost(forward, device)
    observer = attnlab.observe(model, probe=ids, every=1, rows=ROWS)
    observer.step(0)
    taken, beyond = cost(lambda: observer.step(1), device)
    print(f"long: Llama-like, 32 heads of which 8 have keys, {layers} layers, T = {length:,}")
    print(f"  its own forward: {plain_seconds:.2f} s, {plain / GIB:.2f} GiB beyond the model")
    print(
        f"  with {ROWS} rows: {taken:.2f} s, {beyond / GIB:.2f} GiB beyond the model, "
        f"{(beyond - plain) / GIB:.2f} beyond its forward (under 2 wanted)"
    )


def gpt2(
    layers: int, heads: int, width: int, vocabulary: int, context: int, device: str,
    attention: str = "sdpa",
) -> Any:  # fmt: skip
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=layers, n_head=heads, n_embd=width, vocab_size=vocabulary, n_positions=context,
        bos_token_id=0, eos_token_id=0, attn_implementation=attention,
    )  # fmt: skip
    return GPT2LMHeadModel(config).to(device)


def cost(work: Callable[[], object], device: str) -> tuple[float, int]:
    """Seconds, and the peak of memory beyond what is held before."""
    import torch

    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed would be taken again unseen
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak is what is held now
        before = _status("VmRSS")
    taken = seconds(work, device)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else _status("VmHWM")
    return taken, peak - before


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def _on_a_busy_machine() -> None:
    """Threads that wait for each other, and wall time, would tell of the others' work."""
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
