"""Compile Triton programs for named devices, without one: `compiled_kernels.py rows:90 keys:80`.

The arguments are those with which `launch` would run them.
"""

import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from attnlab.observing import kernels
from attnlab.observing.call import AttentionCall
from attnlab.observing.kernels import launch, tiles
from attnlab.observing.query_plan import QueryPlan

TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int32": "i32", "uint8": "u8"}


def launches(dtype, width, **of_call):
    """The programs with their tiles and arguments for a call."""
    found = []
    launch._launch = lambda program, size, _, shared, **own: found.append(
        (program, size, shared | own | {"BLOCK_M": size.rows, "BLOCK_N": size.keys})
    )
    launch._tile = lambda name, query: tiles.Tile(64, 32, 4, 2)
    query, key = (
        torch.zeros(1, 4, 256, width, dtype=dtype),
        torch.zeros(1, 2, 256, width, dtype=dtype),
    )
    call = AttentionCall(query, key, None, 0.1, 0, **of_call)
    tokens = torch.arange(256)[None] % 9
    plan = QueryPlan.of(call, rows=None, seed=0, budget_bytes=2**28, min_keys=16, tokens=tokens)
    launch.chosen_rows(plan, plan.heads(call))
    launch.largest_logits(plan, call)
    return found


def types(value, at, aligned):
    """The type of an argument, or of each of its parts; `aligned` gets where pointers are."""
    if isinstance(value, tuple):
        return type(value)(*(types(one, (*at, i), aligned) for i, one in enumerate(value)))
    if isinstance(value, torch.Tensor):
        aligned[at] = [["tt.divisibility", 16]]
        return "*" + TYPES[str(value.dtype).removeprefix("torch.")]
    return "fp32" if isinstance(value, float) else "i32"


def compiled(program, size, arguments, capability):
    signature, constants, aligned = {}, {}, {}
    for i, parameter in enumerate(program.params):
        name, value = parameter.name, arguments.pop(parameter.name)
        if parameter.is_constexpr:
            signature[name], constants[name] = "constexpr", value
        else:
            signature[name] = types(value, (i,), aligned)
    assert not arguments
    return triton.compile(
        ASTSource(program, signature, constants, aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": size.warps, "num_stages": size.stages, "enable_fp_fusion": True},
    )


CALLS = {
    80: (torch.float32, 64, {"causal": True}),
    90: (torch.bfloat16, 64, {"causal": True}),
    100: (
        torch.float16,
        64,
        {
            "mask": torch.zeros(1, 1, 256, 256),
            "window": 64,
            "softcap": 20.0,
            "sinks": torch.zeros(4),
        },
    ),
}

if __name__ == "__main__":
    kernels.refusal = lambda call: None
    for asked in sys.argv[1:]:
        name, _, capability = asked.partition(":")
        dtype, width, of_call = CALLS[int(capability)]
        for program, size, arguments in launches(dtype, width, **of_call):
            if program.__name__ == name:
                made = compiled(program, size, arguments, int(capability))
                assert made.asm["cubin"] and made.metadata.shared <= 99 * 1024
                print(asked)
