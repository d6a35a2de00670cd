"""Snapshot of a model: statistics of every layer's attention in one undisturbed forward pass."""

from __future__ import annotations

import random
import threading
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import xarray as xr
from torch import Tensor, nn

from attnlab.files.errors import InputError
from attnlab.measures.arrays import full_precision, on_processor, own_copy
from attnlab.observing import statistics
from attnlab.observing.call import AttentionCall, Heads, concat_heads
from attnlab.observing.capture import Capture, CapturedCall, require_match
from attnlab.observing.layer_statistics import (
    OF_SEQUENCES,
    LayerStatistics,
    concat_sequences,
    means_over_sequences,
    to_host,
)
from attnlab.observing.probe import Probe, make_probe
from attnlab.observing.query_plan import QueryPlan, TooShort
from attnlab.observing.sources import capturing
from attnlab.observing.weights import Order, WeightCapture, WeightStatistics

# Attributes that every module has; only buffers and the mode are restored of these.
_TORCHS_OWN = frozenset(vars(nn.Module()))
# Types of attributes that nothing changes in place; a forward pass leaves weights and modules alone
_FIXED = (int, float, str, bytes, type(None), torch.dtype, torch.device, type, nn.Module)
_ONE_AT_A_TIME = threading.RLock()
# On an accelerator, bytes of a block for each sequence of the probe, if that is more than
# BUDGET_BYTES: small blocks leave it idle, and the model's own forward pass grows with these too
SEQUENCE_BYTES, MOST_BYTES = 2**27, 2**30
SEQUENCES = 4  # of repeated random tokens
LENGTH = 64  # tokens that are repeated, or as many as fit into the probe's length
REPEATED = {"induction_mass": "repeated_induction", "duplicate_mass": "repeated_duplicate"}


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module that holds the model's own code: neither compiled nor in a data-parallel
    wrapper.

    Replicas are alike, and outside the wrapper a forward pass does not wait for other processes.
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
    """Check whether a forward pass of the model runs compiled code, in whole or in part."""
    return any(
        module.__dict__.get("_compiled_call_impl") is not None
        or isinstance(getattr(module, "_orig_mod", None), nn.Module)
        for module in model.modules()
    )


def refuse_partitioned(model: nn.Module) -> None:
    """Refuse a model whose weights DeepSpeed has partitioned (ZeRO-3): a forward pass in one
    process would wait for the others for ever."""
    if any(hasattr(p, "ds_id") or hasattr(p, "ds_status") for p in model.parameters()):
        raise InputError(
            "model: its weights are partitioned by DeepSpeed ZeRO-3, which cannot be measured "
            "during training; use ZeRO-2 or FSDP, or measure its checkpoints with "
            "attnlab.observing.observe_checkpoints"
        )


def is_sharded(model: nn.Module) -> bool:
    """Check whether a forward pass needs all processes, each of which holds a part of the
    weights."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    return any(isinstance(module, FullyShardedDataParallel) for module in model.modules()) or any(
        isinstance(parameter, DTensor) for parameter in model.parameters()
    )


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run the model in evaluation mode, without gradients, uncompiled; then restore everything.

    Restored are the mode of each module, buffers, attributes of modules that the forward sets or
    changes in place (counters, lists, generators), the random numbers of Python, numpy and torch on
    every device of the model, compiled calls, and autocast. The forward has the autocast of the
    training but not its cache: the training step around it would use a weight that was cast without
    gradients again, and lose its gradient.

    Random numbers belong to the process, so that threads take turns at measuring: each would
    otherwise restore the state of another.
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
        undo.enter_context(torch.inference_mode(False))  # its tensors have no version
        undo.enter_context(torch.no_grad())
        for kind in {device.type for device in devices}:
            dtype, enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
            undo.enter_context(torch.autocast(kind, dtype, enabled=enabled, cache_enabled=False))
        yield


def _set_modes(modules: list[nn.Module], modes: list[bool]) -> None:
    """Set the mode of each module; train() and eval() may do more: LoRA merges its weights."""
    for module, training in zip(modules, modes, strict=True):
        if module.training != training:
            module.training = training


def _keep_random_numbers(devices: set[torch.device], undo: ExitStack) -> None:
    """Restore random states later; meanwhile they are the same in every forward pass."""
    undo.callback(random.setstate, random.getstate())
    undo.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
    undo.callback(torch.set_rng_state, torch.get_rng_state())
    torch.default_generator.manual_seed(0)  # some draw in evaluation mode too (ViT MAE)
    for device in sorted((d for d in devices if d.type == "cuda"), key=str):
        undo.callback(torch.cuda.set_rng_state, torch.cuda.get_rng_state(device), device)
        with torch.cuda.device(device):
            torch.cuda.manual_seed(0)


def _keep_attributes(modules: list[nn.Module], undo: ExitStack, *, buffers_only: bool) -> None:
    """Restore attributes of modules later, those that are set and those that are changed in place.

    buffers_only: with sharded weights, whose wrapper keeps state of its own in the modules.
    """
    seen: dict[int, Any] = {}
    for module in modules:
        _keep(module._buffers, undo, seen)
        if not buffers_only:
            own = {name: v for name, v in vars(module).items() if name not in _TORCHS_OWN}
            undo.callback(_put_back_attributes, module, own)
            _keep(tuple(own.values()), undo, seen)


def _keep(value: Any, undo: ExitStack, seen: dict[int, Any]) -> None:
    """Restore a value later that may be changed in place; `seen` has the values kept so far.

    Objects of other types are left alone: only their own code knows what their state means (that
    of a quantised weight, say).
    """
    if isinstance(value, _FIXED) or id(value) in seen or isinstance(value, nn.Parameter):
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
    elif isinstance(value, dict | list | set | deque | tuple):
        if isinstance(value, dict):
            undo.callback(_put_back_items, value, dict(value))
        elif not isinstance(value, tuple):
            undo.callback(_refill, value, list(value))
        for one in value.values() if isinstance(value, dict) else value:
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


def version_of(tensor: Tensor | None) -> int | None:
    """Return a number that changes with the tensor's content; None for tensors of inference mode,
    which have none."""
    return None if tensor is None or tensor.is_inference() else tensor._version


@torch.no_grad()
def _put_back(tensor: torch.Tensor, version: int | None, content: torch.Tensor) -> None:
    if version_of(tensor) != version:
        tensor.copy_(content)


def _uncompile(module: nn.Module, undo: ExitStack) -> None:
    if (compiled := module.__dict__.get("_compiled_call_impl")) is not None:
        undo.callback(setattr, module, "_compiled_call_impl", compiled)
        module._compiled_call_impl = None
    if "_orig_mod" in module.__dict__.get("_modules", ()):  # a part that torch.compile has wrapped
        undo.callback(setattr, module, "forward", module.forward)
        # not its bound __call__, which `capture.follow` would not see
        module.forward = lambda *args, **kwargs: module._orig_mod(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Statistics of all layers in one forward pass.

    groups: statistics of layers that are alike.
    order: the names of all layers, as they ran.
    unseen: modules that ran without being captured, and their classes: see `Capture.unseen`.
    weights: statistics of the weights and the MLP of each layer.
    """

    groups: tuple[LayerStatistics, ...]
    order: tuple[str, ...]
    unseen: Mapping[str, str] = field(default_factory=dict)
    weights: WeightStatistics = field(default_factory=WeightStatistics)

    def layer(self, name: str) -> xr.Dataset:
        """Return the dataset of a layer, over (sequence, head), with a coord `kind`: "self", or
        "cross" where keys belong to another sequence."""
        return next(group for group in self.groups if name in group.layers).dataset(name)

    @cached_property
    def layers(self) -> dict[str, xr.Dataset]:
        """Datasets of all layers, in the order in which they ran."""
        return {name: self.layer(name) for name in self.order}


@dataclass(eq=False)
class SnapshotCache:
    """Values that a snapshot keeps for the next: those that do not change with the weights.

    same_probe: whether all snapshots use one probe; then their plans are kept too.
    orders: layouts of fused weights, by module. number: snapshots so far. layers: number of layers.
    """

    same_probe: bool = False
    orders: dict[str, Order] = field(default_factory=dict)
    plans: dict[Hashable, QueryPlan] = field(default_factory=dict)
    number: int = 0
    layers: int = 1

    def checks_output(self, layer: int) -> bool:
        """Check whether to compute this layer's output again: in the first snapshot every layer,
        later one layer in turn, because only the code could be wrong."""
        return self.number == 0 or layer == self.number % self.layers

    def keep(self, layers: int, plans: Mapping[Hashable, QueryPlan]) -> None:
        """Keep what the next snapshot can reuse."""
        self.number, self.layers = self.number + 1, layers
        if self.same_probe:
            self.plans = {kind: plan for kind, plan in plans.items() if plan.call.mask is None}


@dataclass(eq=False)
class _LayerGroup:
    """Layers that are alike, held until they are measured together and then summarized."""

    plan: QueryPlan
    version: int | None  # of the mask, with which they have to be measured
    held: list[Heads] = field(default_factory=list)
    measurements: list[statistics.HeadMeasurements] = field(default_factory=list)
    values: list[Tensor | None] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def hold(self, captured: CapturedCall) -> None:
        """Keep what is measured of a call; copied, because the model goes on."""
        call, plan = captured.call, self.plan
        heads = plan.heads(call)
        if plan.together > 1 and heads.key.data_ptr() == call.key.data_ptr():
            heads = replace(heads, key=heads.key.clone())
        self.held.append(heads)
        self.values.append(None if call.value is None else own_copy(call.value.detach()))
        self.names.append(captured.layer)

    def measure(self) -> None:
        """Measure the heads that are held."""
        if not self.held:
            return
        if version_of(self.plan.call.mask) != self.version:
            raise InputError(
                f"model: changes the mask of {self.names[-1]} in place before it is measured; "
                "give its attention function a copy, mask.clone()"
            )
        heads = concat_heads(self.held)
        self.held.clear()  # their keys are twice here otherwise
        self.measurements.append(statistics.measure_heads(self.plan, heads))

    @property
    def full(self) -> bool:
        """True if the next layers would not fit into memory beside the measured ones."""
        each = statistics.bytes_of(self.measurements[0], self.values[0]) if self.measurements else 0
        return (len(self.names) + self.plan.together) * each > self.plan.budget_bytes

    def statistics(self) -> LayerStatistics:
        """Return the statistics of all layers of the group."""
        self.measure()
        return statistics.summarize_layers(self.plan, self.measurements, self.values, self.names)


@dataclass(eq=False)
class SnapshotBuilder:
    """Measures the calls of one forward pass, layers that are alike together.

    It holds the measured part of a call, and only as long as that fits into a block.
    live: whether the forward pass is the training's own: then a batch that is too short to be
    measured is skipped.
    """

    batch: Callable[[], Probe]
    weights: WeightCapture
    cache: SnapshotCache
    _: KW_ONLY
    rows: int | None
    min_keys: int
    live: bool = False

    def __post_init__(self) -> None:
        self._order: list[str] = []
        self._checks: list[tuple[str, str, Tensor]] = []
        self._plans = dict(self.cache.plans)
        self._waiting: dict[Hashable, _LayerGroup] = {}
        self._groups: list[LayerStatistics] = []
        self._too_short = False

    def add(self, captured: CapturedCall) -> None:
        """Measure a call. Does not synchronise with the device."""
        if self._too_short:
            return
        asked = self.cache.checks_output(len(self._order))
        if asked and (numbers := captured.output_check()) is not None:
            self._checks.append((captured.layer, captured.kind, numbers))
        batch, call = self.batch(), captured.call
        inputs = batch.call_inputs(captured)
        (number, heads), sequences = call.shape[:2], len(batch.first)
        if heads == 1 and number > sequences and number % sequences == 0:
            warnings.warn(
                f"{captured.layer or 'the model'}: {number} sequences of one head, where the batch "
                f"has {sequences}; heads or windows that are folded into the batch are counted as "
                "sequences, also by standard errors",
                stacklevel=2,
            )
        self._order.append(captured.layer)
        with full_precision(call.query):
            kind = _plan_key(call, inputs)
            plan = self._plans.get(kind)
            if plan is None:
                sample: dict[str, Any] = {"rows": self.rows, "min_keys": self.min_keys}
                budget_bytes = _budget_bytes(call)
                try:
                    plan = QueryPlan.of(call, seed=0, budget_bytes=budget_bytes, **sample, **inputs)
                except TooShort:
                    if not self.live:
                        raise
                    self._too_short = True
                    return
                self._plans[kind] = plan
            group = self._waiting.setdefault(kind, _LayerGroup(plan, version_of(call.mask)))
            group.hold(captured)
            # a training may fill the mask of its next batch into this one's
            changes = self.live and call.mask is not None
            if changes or len(group.held) == plan.together:
                group.measure()
                if group.full:
                    self._groups.append(self._waiting.pop(kind).statistics())
            self.weights.at(captured, inputs["present"])

    def result(self, capture: Capture) -> Snapshot:
        """Return the snapshot; refuse calls that do not explain the model's outputs."""
        unseen = capture.unseen()
        if capture.foreign:
            kinds = ", ".join(sorted(capture.foreign))
            warnings.warn(
                f"{type(capture.model).__name__}: another model inside its forward pass ({kinds}) "
                "is not measured, because their weights have nothing in common; register it "
                "(nn.ModuleList instead of a list) if it is a part of the model",
                stacklevel=2,
            )
        if self._too_short:
            return Snapshot((), (), unseen)
        if not self._order:
            kinds = ", ".join(sorted(set(unseen.values())))
            why = f"computes it in code of its own ({kinds})" if unseen else "has none to capture"
            raise InputError(
                f"model: no attention of {type(capture.model).__name__} was seen: it {why}; "
                f"{_ways_out(capture.model)}, or inside it call "
                "attnlab.observing.record(query, key, value, mask=...) before its softmax"
            )
        for group in self._waiting.values():
            with full_precision(group.plan.call.query):
                self._groups.append(group.statistics())
        self._waiting.clear()
        numbers = [found for _, _, found in self._checks]
        # one wait for the device in all
        groups, others = to_host(self._groups, [*numbers, *self.weights.waiting()])
        for (layer, kind, _), found in zip(self._checks, others, strict=False):
            require_match(layer, kind, *found.tolist())
        self.cache.keep(len(self._order), self._plans)
        weights = self.weights.result(others[len(numbers) :])
        return Snapshot(groups, tuple(self._order), unseen, weights)


def take_snapshot(
    model: nn.Module,
    probe: Probe,
    *,
    rows: int | None = None,
    min_keys: int = statistics.MIN_KEYS,
    cache: SnapshotCache | None = None,
) -> Snapshot:
    """Run the probe through the model, undisturbed, and measure each layer.

    cache: values kept from earlier snapshots of the same model on the same probe; added to.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    there, cache = probe.on(device), cache or SnapshotCache()
    with undisturbed(model), ExitStack() as opened:
        weights = WeightCapture(model, opened, cache.orders)
        builder = SnapshotBuilder(lambda: there, weights, cache, rows=rows, min_keys=min_keys)
        with capturing(model, builder.add) as capture:
            there.run(model)
    return builder.result(capture)


def _ways_out(model: nn.Module) -> str:
    """Return the remedy for a model none of whose calls were captured."""
    eager = getattr(getattr(model, "config", None), "_attn_implementation", None) == "eager"
    if eager and getattr(model, "_supports_sdpa", False):
        return 'load it with attn_implementation="sdpa"'
    return "let it call torch.nn.functional.scaled_dot_product_attention"


def _budget_bytes(call: AttentionCall) -> int:
    """Return the bytes that a block of a call may take."""
    if on_processor(call.query):
        return statistics.BUDGET_BYTES
    return min(max(statistics.BUDGET_BYTES, call.shape[0] * SEQUENCE_BYTES), MOST_BYTES)


def _plan_key(call: AttentionCall, inputs: Mapping[str, Any]) -> Hashable:
    """Return a key that is the same for calls that are alike in all but their numbers."""
    mask, value, of_mask = call.mask, call.value, None
    if mask is not None:
        of_mask = (mask.data_ptr(), mask.shape, mask.stride(), version_of(mask))
    of_value = None if value is None else (value.shape, value.dtype)
    tensors = (call.shape, call.key.shape, call.query.dtype, call.query.device, of_value, of_mask)
    settings = (call.causal, call.window, call.cross, call.softcap, call.sinks is None)
    return (*tensors, *settings, *map(id, inputs.values()))


def is_first_process() -> bool:
    """Check whether this process is the first, or alone."""
    return not _several() or dist.get_rank() == 0


def gather_sequences(snapshot: Snapshot) -> Snapshot:
    """Gather the snapshots of all processes as more sequences of each layer; every process has to
    call it."""
    if not _several():
        return snapshot
    # arrays over keys are left out: each process has its own tokens
    own = [concat_sequences([one]) for group in snapshot.groups for one in group.apart()]
    parts: list[list[LayerStatistics]] = [[]] * dist.get_world_size()
    dist.all_gather_object(parts, own)
    order = tuple(dict.fromkeys(one.layers[0] for part in parts for one in part))
    groups = (
        concat_sequences([one for part in parts for one in part if one.layers == (name,)])
        for name in order
    )
    return replace(snapshot, groups=tuple(groups), order=order)


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def random_twice(model: nn.Module, probe: Probe) -> Probe:
    """Draw random tokens from those of the probe, and repeat them.

    Only copying predicts their second half, so that heads that copy stand out more than on text.
    """
    tokens = probe.side.tokens
    if tokens is None:
        raise InputError(
            "repeated: the probe has no token ids to draw random tokens from; leave it out"
        )
    real = tokens if probe.side.real is None else tokens[probe.side.real.to(tokens.device)]
    words = np.unique(real.cpu().numpy())
    length = min(LENGTH, tokens.shape[-1] // 2)
    rng = np.random.default_rng(0)  # the same at every step
    whole = np.tile(words, (SEQUENCES, -(-length // len(words))))
    drawn = rng.permuted(whole, axis=1)[:, :length]  # each only once, where there are enough
    return make_probe(model, torch.as_tensor(np.concatenate([drawn, drawn], axis=1)))


def with_repeated(
    snapshot: Snapshot,
    model: nn.Module,
    probe: Probe,
    *,
    min_keys: int,
    cache: SnapshotCache | None = None,
) -> Snapshot:
    """Add induction and duplicate mass on repeated random tokens, the mean over sequences.

    These may be shorter than the probe: where none of their queries sees `min_keys` keys, those of
    the second half count, which are the only ones with something to copy.
    """
    assert probe.side.tokens is not None
    length = probe.side.tokens.shape[-1]
    min_keys = min_keys if min_keys <= length else length // 2
    other = take_snapshot(model, probe, min_keys=min_keys, cache=cache)
    weights = snapshot.weights
    values = {layer: dict(found) for layer, found in weights.values.items()}
    for group in other.groups:
        means = means_over_sequences(group)
        for variable, name in REPEATED.items():
            for of in ("", OF_SEQUENCES):
                if variable + of in means:
                    for layer, numbers in zip(group.layers, means[variable + of], strict=True):
                        values.setdefault(layer, {})[name + of] = numbers
    return replace(snapshot, weights=WeightStatistics(values, weights.unrecognised))
