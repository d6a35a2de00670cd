"""What measuring one call of attention takes, in memory beyond its inputs and in time.

./lab bench observe_memory                    12 heads, T = 4,096, all rows, on the processor
./lab bench observe_memory 32 32768 256 cuda  heads, T, rows (0: all), device
"""

from __future__ import annotations

import resource
import time
from typing import Any

WIDTH = {12: 64}  # of a head: GPT-2's; 128 otherwise


def main(arguments: list[Any]) -> None:
    import torch

    from attnlab.observe.call import AttentionCall
    from attnlab.observe.statistics import statistics

    heads, length, rows, device = arguments or ("12", "4096", "0", "cpu")
    heads, length, rows = int(heads), int(length), int(rows)
    width = WIDTH.get(heads, 128)
    generator = torch.Generator().manual_seed(0)
    kind = torch.float32 if device == "cpu" else torch.bfloat16
    shape = (1, heads, length, width)
    q, k, v = (torch.randn(shape, generator=generator).to(device, kind) for _ in "qkv")
    tokens = torch.randint(0, 50_000, (1, length), generator=generator)
    small = AttentionCall(q[:, :, :64], k[:, :, :64], v[:, :, :64], width**-0.5, 0, causal=True)
    statistics(small, tokens=tokens[:, :64])  # libraries are loaded now

    def peak() -> int:
        if device == "cpu":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return torch.cuda.max_memory_allocated()

    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before, begun = peak(), time.perf_counter()
    call = AttentionCall(q, k, v, width**-0.5, 0, causal=True)
    statistics(call, tokens=tokens, rows=rows or None)
    seconds, more = time.perf_counter() - begun, (peak() - before) / 2**30
    whole = heads * length**2 * 4 / 2**30
    print(f"{heads} heads, T = {length:,}, {rows or 'all'} rows, {device}: {seconds:.1f} s")
    print(f"{more:.2f} GiB beyond the inputs; one whole map of all heads would be {whole:.2f} GiB")
