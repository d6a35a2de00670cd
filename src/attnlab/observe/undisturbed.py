"""A forward beside the training, after which everything is as it was."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

_ABSENT = object()
_ONE_AT_A_TIME = threading.RLock()


def unwrapped(model: nn.Module) -> nn.Module:
    """The module that holds the model's own code: neither compiled nor in a data-parallel wrapper.

    Replicas are alike, and a forward of theirs outside the wrapper waits for no other process.
    """
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    while True:
        if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        elif isinstance(model, wrappers):
            model = model.module
        else:
            return model


def is_compiled(model: nn.Module) -> bool:
    """Whether a forward of the model runs compiled code, in whole or in part."""
    return any(
        module.__dict__.get("_compiled_call_impl") is not None
        or isinstance(getattr(module, "_orig_mod", None), nn.Module)
        for module in model.modules()
    )


def is_sharded(model: nn.Module) -> bool:
    """Whether a forward needs all processes, each of which holds a part of the weights."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    return any(isinstance(module, FullyShardedDataParallel) for module in model.modules()) or any(
        isinstance(parameter, DTensor) for parameter in model.parameters()
    )


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run the model in evaluation mode, without gradients, uncompiled; then put everything back.

    Put back are the mode of each module, buffers, the random numbers of Python, numpy and torch on
    every device of the model, compiled calls, and autocast. The forward has the autocast of the
    moment but not its cache: a weight that was cast without gradients would be used again by the
    training step around it, and its gradient would be lost.

    Random numbers belong to the process, so that threads that measure take turns: each would
    otherwise put back what another has drawn.
    """
    with ExitStack() as undo:
        undo.enter_context(_ONE_AT_A_TIME)
        modules = list(model.modules())
        devices = {parameter.device for parameter in model.parameters()}
        _keep_random_numbers(devices, undo)
        _keep_buffers(modules, undo)
        undo.callback(_set_modes, modules, [module.training for module in modules])
        _set_modes(modules, [False] * len(modules))
        for module in modules:
            _uncompile(module, undo)
        undo.enter_context(torch.inference_mode(False))  # of its tensors torch tells less
        undo.enter_context(torch.no_grad())
        for kind in {device.type for device in devices}:
            enabled = torch.is_autocast_enabled(kind)
            undo.enter_context(
                torch.autocast(
                    kind, torch.get_autocast_dtype(kind), enabled=enabled, cache_enabled=False
                )
            )
        yield


def _set_modes(modules: list[nn.Module], modes: list[bool]) -> None:
    """As it is for each; train() and eval() may do more than set this: LoRA merges its weights."""
    for module, training in zip(modules, modes, strict=True):
        if module.training != training:
            module.training = training


def _keep_random_numbers(devices: set[torch.device], undo: ExitStack) -> None:
    """Put them back later; meanwhile they are the same in every forward."""
    undo.callback(random.setstate, random.getstate())
    undo.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
    undo.callback(torch.set_rng_state, torch.get_rng_state())
    torch.default_generator.manual_seed(0)  # some draw in evaluation mode too (ViT MAE)
    for device in sorted((d for d in devices if d.type == "cuda"), key=str):
        undo.callback(torch.cuda.set_rng_state, torch.cuda.get_rng_state(device), device)
        with torch.cuda.device(device):
            torch.cuda.manual_seed(0)


def _keep_buffers(modules: list[nn.Module], undo: ExitStack) -> None:
    """Buffers may be changed in their place, or by others in their place (rotary embeddings)."""
    for module in modules:
        for name, buffer in module._buffers.items():
            if buffer is not None:
                undo.callback(_restore, module._buffers, name, buffer, version_of(buffer),
                              buffer.detach().clone())  # fmt: skip


def version_of(tensor: torch.Tensor) -> int | None:
    """Changes when the tensor is changed in its place; None of one that inference mode has made,
    of which torch does not tell."""
    return None if tensor.is_inference() else tensor._version


def _restore(
    buffers: dict[str, Any], name: str, buffer: torch.Tensor, version: int | None,
    content: torch.Tensor,
) -> None:  # fmt: skip
    if version_of(buffer) != version:
        buffer.copy_(content)
    buffers[name] = buffer


def _uncompile(module: nn.Module, undo: ExitStack) -> None:
    compiled = module.__dict__.get("_compiled_call_impl", _ABSENT)
    if compiled is not _ABSENT and compiled is not None:
        undo.callback(setattr, module, "_compiled_call_impl", compiled)
        module._compiled_call_impl = None
    if "_orig_mod" in module.__dict__.get("_modules", ()):  # a part that torch.compile has wrapped
        undo.callback(setattr, module, "forward", module.forward)
        module.forward = module._orig_mod.__call__
