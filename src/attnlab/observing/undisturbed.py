"""A forward beside the training, after which everything is as it was."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from attnlab.files.errors import InputError

_ABSENT = object()
# Attributes that every module has, which are left alone, but for buffers and the mode.
_TORCHS_OWN = frozenset(vars(nn.Module()))
# Types of attributes that nothing changes in place; weights and modules are not the forward's.
_FIXED = (
    int, float, str, bytes, type(None), torch.dtype, torch.device, type, nn.Parameter, nn.Module,
)  # fmt: skip
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


def refuse_partitioned(model: nn.Module) -> None:
    """Refuse a model whose weights DeepSpeed has partitioned (ZeRO-3): a forward in one process
    would wait for the others without end."""
    if any(hasattr(p, "ds_id") or hasattr(p, "ds_status") for p in model.parameters()):
        raise InputError(
            "model: its weights are partitioned by DeepSpeed ZeRO-3, with which nothing can be "
            "measured while it trains; use ZeRO-2 or FSDP, or measure its checkpoints with "
            "attnlab.observing.observe_checkpoints"
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

    Put back are the mode of each module, buffers, what the forward sets or changes in attributes of
    modules (counters, lists, generators), the random numbers of Python, numpy and torch on every
    device of the model, compiled calls, and autocast. The forward has the autocast of the moment
    but not its cache: a weight that was cast without gradients would be used again by the training
    step around it, and its gradient would be lost.

    Random numbers belong to the process, so that threads that measure take turns: each would
    otherwise put back what another has drawn.
    """
    with ExitStack() as undo:
        undo.enter_context(_ONE_AT_A_TIME)
        modules = list(model.modules())
        devices = {parameter.device for parameter in model.parameters()}
        _keep_random_numbers(devices, undo)
        _keep_attributes(modules, undo, buffers_only=is_sharded(model))
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


def _keep_attributes(modules: list[nn.Module], undo: ExitStack, *, buffers_only: bool) -> None:
    """Put attributes of modules back later, those that are set and those that are changed in place.

    buffers_only: of sharded weights, whose wrapper keeps a state of its own in the modules.
    """
    seen: dict[int, Any] = {}
    for module in modules:
        _keep(module._buffers, undo, seen)
        if not buffers_only:
            own = {name: v for name, v in vars(module).items() if name not in _TORCHS_OWN}
            undo.callback(_put_back_attributes, module, own)
            _keep_each(own.values(), undo, seen)


def _keep(value: Any, undo: ExitStack, seen: dict[int, Any]) -> None:
    """Put a value back later that may be changed in place; `seen` has those that are kept.

    Other objects are left alone: what the state of one means (of a quantised weight, say) only its
    own code knows.
    """
    if isinstance(value, _FIXED) or id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, torch.Tensor):
        undo.callback(_put_back, value, version_of(value), value.detach().clone())
    elif isinstance(value, np.ndarray) and value.flags.writeable:
        undo.callback(np.copyto, value, value.copy())
    elif isinstance(value, torch.Generator):
        undo.callback(value.set_state, value.get_state())
        value.manual_seed(0)  # every measurement draws the same
    elif isinstance(value, random.Random):
        undo.callback(value.setstate, value.getstate())
    elif isinstance(value, np.random.Generator):
        undo.callback(setattr, value.bit_generator, "state", value.bit_generator.state)
    elif isinstance(value, np.random.RandomState):
        undo.callback(value.set_state, value.get_state())
    elif isinstance(value, dict):
        undo.callback(_put_back_items, value, dict(value))
        _keep_each(value.values(), undo, seen)
    elif isinstance(value, list | set | deque):
        undo.callback(_refill, value, list(value))
        _keep_each(value, undo, seen)
    elif isinstance(value, tuple):
        _keep_each(value, undo, seen)


def _keep_each(values: Iterable[Any], undo: ExitStack, seen: dict[int, Any]) -> None:
    for one in values:
        _keep(one, undo, seen)


def _put_back_attributes(module: nn.Module, own: dict[str, Any]) -> None:
    now = vars(module)
    for name in [name for name in now if name not in own and name not in _TORCHS_OWN]:
        del now[name]
    now.update(own)


def _put_back_items(holder: dict[Any, Any], items: dict[Any, Any]) -> None:
    same = len(holder) == len(items) and all(
        name in holder and holder[name] is value for name, value in items.items()
    )
    if not same:
        holder.clear()
        holder.update(items)


def _refill(holder: Any, items: list[Any]) -> None:
    now = list(holder)
    if len(now) != len(items) or any(a is not b for a, b in zip(now, items, strict=True)):
        holder.clear()
        (holder.update if isinstance(holder, set) else holder.extend)(items)


def version_of(tensor: torch.Tensor) -> int | None:
    """Changes when the tensor is changed in its place; None of one that inference mode has made,
    of which torch does not tell."""
    return None if tensor.is_inference() else tensor._version


@torch.no_grad()
def _put_back(tensor: torch.Tensor, version: int | None, content: torch.Tensor) -> None:
    if version_of(tensor) != version:
        tensor.copy_(content)


def _uncompile(module: nn.Module, undo: ExitStack) -> None:
    compiled = module.__dict__.get("_compiled_call_impl", _ABSENT)
    if compiled is not _ABSENT and compiled is not None:
        undo.callback(setattr, module, "_compiled_call_impl", compiled)
        module._compiled_call_impl = None
    if "_orig_mod" in module.__dict__.get("_modules", ()):  # a part that torch.compile has wrapped
        undo.callback(setattr, module, "forward", module.forward)
        # not its bound __call__, which `attnlab.observing.calls` would not see
        module.forward = lambda *args, **kwargs: module._orig_mod(*args, **kwargs)
