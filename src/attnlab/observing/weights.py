"""Weights of each layer's attention and MLP, and its residual stream, found by the structure of
modules.

Modules of an unknown structure are not found. Where several layouts would fit, what the module
computes decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.measures import positions
from attnlab.measures.ranks import gram, numbers_of_gram, product, stable_rank_of_numbers, units_of
from attnlab.observing.call import AttentionCall
from attnlab.observing.capture import ATTENDS, CapturedCall, Guard, follow
from attnlab.observing.layer_statistics import LABELS

# names of projections: separate ones of queries and keys, fused ones of queries, keys and values
SEPARATE = {"q_proj": "k_proj", "query": "key", "q": "k", "q_lin": "k_lin"}
SEPARATE |= {"wq": "wk", "to_q": "to_k"}
FUSED = ("c_attn", "query_key_value", "qkv", "qkv_proj", "Wqkv", "in_proj", "to_qkv")
TOKENS = 8  # tokens for which a projection's output is compared with the queries
NEAR = 0.02  # relative difference of norms that count as equal; other layouts differ far more

Pair = tuple["Float[Tensor, 'head width model']", "Float[Tensor, 'kv_head width model']"]
Sizes = tuple[int, int, int]  # heads, KV heads, width
Order = Callable[[Tensor, Sizes], tuple[Tensor, Tensor]]  # gives queries and keys of a fused matrix
UNITS_TOKENS = 256  # tokens of the probe, evenly spread, whose active units are counted
AT_ONCE = 2**26  # bytes of matrices whose ranks are computed together,
UNITS = 20 * 2**20  # and of units that are counted together


@dataclass(frozen=True, eq=False)
class Mlp:
    """An MLP. inputs: modules that make the hidden units, two where one gates the other. output:
    the module that reads them."""

    inputs: tuple[nn.Module, ...]
    output: nn.Module

    @property
    def matrix(self) -> Float[Tensor, "unit model"]:
        """The whole input matrix, with the gate's rows above the others."""
        gate, *others = (_whole(module) for module in self.inputs)
        return torch.cat([gate, *others]) if others else gate


def matrix(module: Any) -> Float[Tensor, "out in"] | None:
    """Return the weights of a linear layer as it multiplies with them; None of other modules.

    Adapters, quantised and sharded weights are other modules: the tensor is not the matrix.
    """
    if not _is_linear(module):
        return None
    weight = module.weight
    plain = type(weight) in (Tensor, nn.Parameter) and weight.ndim == 2
    if not plain or not weight.is_floating_point():
        return None
    return weight.detach().T if _is_turned(module) else weight.detach()


def fused(model: nn.Module) -> Iterator[nn.Module]:
    """Yield linear layers that make queries, keys and values at once."""
    for module in model.modules():
        for name in FUSED:
            child = module._modules.get(name)
            # weights that are sharded now are whole when the module runs
            if child is not None and _is_linear(child):
                yield child


def queries_and_keys(
    module: nn.Module,
    call: AttentionCall,
    outputs: Mapping[int, Tensor],
    *,
    name: str,
    orders: dict[str, Order],
) -> Pair | None:
    """Return W_Q and W_K of the module that made this call, head by head; None if not recognised.

    outputs: those of fused layers for the first tokens, (token, out), by the layer's id. Norms tell
    whether queries, keys and values follow each other as a whole or head by head; a rotary
    embedding does not change these. orders: the layouts found, by the module's name; added to, so
    that later snapshots need no synchronisation.
    """
    heads, width = call.query.shape[1], call.query.shape[3]
    sizes = (heads, call.key.shape[1], width)
    if isinstance(module, nn.MultiheadAttention):
        if module.in_proj_weight is not None:
            return _pair(*_in_a_row(module.in_proj_weight.detach(), sizes), sizes)
        return _pair(module.q_proj_weight.detach(), module.k_proj_weight.detach(), sizes)
    for names in SEPARATE.items():
        query, key = (matrix(module._modules.get(name)) for name in names)
        if query is not None and key is not None:
            return _pair(query, key, sizes)
    for fused_name in FUSED:
        child = module._modules.get(fused_name)
        whole = matrix(child)
        if child is None or whole is None or whole.shape[0] != (heads + 2 * sizes[1]) * width:
            continue
        if name in orders:
            return _pair(*orders[name](whole, sizes), sizes)
        given = outputs.get(id(child))
        for order in (_in_a_row, _by_kv_head):
            if given is not None and _explains(order(given.T, sizes), call):
                orders[name] = order
                return _pair(*order(whole, sizes), sizes)
    return None


def find_block(model: nn.Module, name: str) -> tuple[nn.Module | None, list[nn.Module]]:
    """Find the block around the attention module of this name, and its linear layers outside of
    attention; None and no layers where there is none.

    The block is the smallest part of the model around it that has such layers, and runs itself.
    """
    while name:
        inner, name = name, name.rpartition(".")[0]
        block = model.get_submodule(name)
        if isinstance(block, nn.ModuleList | nn.Sequential) and _repeats(block):
            break
        if ATTENDS.search(type(block).__name__):  # its projection of the output, say
            continue
        layers = list(_linear_outside(block, model.get_submodule(inner)))
        if layers:
            while isinstance(block, nn.ModuleList):  # which does not run itself
                name = name.rpartition(".")[0]
                block = model.get_submodule(name)
            return block, layers
    return None, []


def _linear_outside(block: nn.Module, attention: nn.Module) -> Iterator[nn.Module]:
    for child in block.children():
        if child is attention or ATTENDS.search(type(child).__name__):
            continue
        if matrix(child) is not None:
            yield child
        else:
            yield from _linear_outside(child, attention)


def mlp_of(layers: list[nn.Module]) -> Mlp | None:
    """Return the MLP of these linear layers of a block: one or two that make the hidden units, then
    one that reads them; None of others, such as those of a mixture of experts."""
    if not layers:
        return None
    *inputs, output = layers
    width, units = _whole(output).shape
    fits = all(tuple(_whole(one).shape) == (units, width) for one in inputs)
    return Mlp(tuple(inputs), output) if fits and len(inputs) in (1, 2) else None


def _is_linear(module: Any) -> bool:
    return _is_turned(module) or isinstance(module, nn.Linear)


def _is_turned(module: Any) -> bool:
    return type(module).__name__ == "Conv1D"  # transformers', in GPT-2


def _repeats(modules: nn.Module) -> bool:
    """Check whether these are the blocks of a model, all of one class."""
    kinds = [type(child) for child in modules.children()]
    return len(kinds) > 1 and len(set(kinds)) == 1


def _whole(module: nn.Module) -> Tensor:
    weight = matrix(module)
    assert weight is not None
    return weight


def _in_a_row(whole: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Split all queries, then all keys, then all values: GPT-2, torch."""
    heads, kv_heads, width = sizes
    return whole[: heads * width], whole[heads * width : (heads + kv_heads) * width]


def _by_kv_head(whole: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Split the queries, the key and the value of each KV head: GPT-NeoX."""
    heads, kv_heads, width = sizes
    group = heads // kv_heads
    apart = whole.reshape(kv_heads, group + 2, width, -1)
    return apart[:, :group].flatten(0, 2), apart[:, group].flatten(0, 1)


def _pair(query: Tensor, key: Tensor, sizes: Sizes) -> Pair | None:
    heads, kv_heads, width = sizes
    fits = query.shape[0] == heads * width and key.shape[0] == kv_heads * width
    if not fits or query.shape[1] != key.shape[1]:
        return None
    return query.reshape(heads, width, -1), key.reshape(kv_heads, width, -1)


def _explains(projected: tuple[Tensor, Tensor], call: AttentionCall) -> bool:
    """Check whether these have the norms of the call's queries and keys, up to a common factor."""
    for one, seen in zip(projected, (call.query, call.key), strict=True):
        tokens = one.shape[1]
        apart = one.reshape(seen.shape[1], -1, tokens).float().norm(dim=1)  # head token
        ratio = seen[0, :, :tokens].detach().float().norm(dim=-1) / apart
        if not bool((ratio.max() - ratio.min()) <= NEAR * ratio.mean()):
            return False
    return True


@dataclass(frozen=True, eq=False)
class WeightStatistics:
    """Statistics of weights and activations. values: the variables of LABELS, by layer.
    unrecognised: the parts of a layer that they lack, in words."""

    values: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    unrecognised: Mapping[str, str] = field(default_factory=dict)


def residual_peak(norms: Float[Tensor, "layer 2 sequence position"]) -> Float[Tensor, " layer"]:
    """Return the mean over sequences of `positions.first_ratio`; norms: those of the residual
    stream, and 1 where a position is not padding."""
    return torch.nanmean(positions.first_ratio(norms[:, 0], norms[:, 1]), dim=-1)


class _Batches:
    """Tensors that wait until several of one shape can be measured in one operation.

    measure: returns one number (or row of numbers) for each entry of the first dim. most: bytes
    that may wait.
    """

    def __init__(self, measure: Callable[[Tensor], Tensor], most: int) -> None:
        self._measure, self._most = measure, most
        self._waiting: dict[Any, list[tuple[str, str, Tensor]]] = defaultdict(list)
        self._owners: list[list[tuple[str, str, int]]] = []
        self._results: list[Tensor] = []

    def add(self, layer: str, name: str, tensor: Tensor) -> None:
        waiting = self._waiting[tensor.shape[1:], tensor.dtype, tensor.device]
        waiting.append((layer, name, tensor))
        if sum(one.nbytes for _, _, one in waiting) > self._most:
            self._flush(waiting)

    def results(self) -> list[Tensor]:
        """Return all results, on the device."""
        for waiting in filter(None, self._waiting.values()):
            self._flush(waiting)
        return self._results

    def by_owner(self, results: Sequence[NDArray[Any]]) -> Iterator[tuple[str, str, NDArray[Any]]]:
        """Yield layer, name and its part of the results, in numpy."""
        for owners, numbers in zip(self._owners, results, strict=True):
            ends = np.cumsum([size for _, _, size in owners])[:-1]
            for (layer, name, _), part in zip(owners, np.split(numbers, ends), strict=True):
                yield layer, name, part

    def _flush(self, waiting: list[tuple[str, str, Tensor]]) -> None:
        self._owners.append([(layer, name, len(one)) for layer, name, one in waiting])
        self._results.append(self._measure(torch.cat([one for _, _, one in waiting])))
        waiting.clear()


class WeightCapture:
    """Measures weights, the MLP and the residual stream of layers whose calls are captured.

    opened: to be closed when the forward pass has ended. orders: layouts of fused weights that
    earlier snapshots found, by module; added to. guard: as for `Capture`.
    """

    def __init__(
        self,
        model: nn.Module,
        opened: ExitStack,
        orders: dict[str, Order],
        guard: Guard = nullcontext,
    ) -> None:
        self._model, self._orders, self._guard = model, orders, guard
        self._opened = opened.enter_context(ExitStack())  # added to until it is closed
        self._outputs: dict[int, Tensor] = {}  # outputs of fused layers for the first tokens
        self._found: dict[str, dict[str, Any]] = defaultdict(dict)
        self._ranks, self._units = _Batches(numbers_of_gram, AT_ONCE), _Batches(units_of, UNITS)
        self._peaks = _Batches(residual_peak, UNITS)
        # captured layers inside each block that runs, by the block's id: name, module, shape
        # (sequence, position), positions that are not padding
        self._inside: dict[int, list[tuple[str, nn.Module, Any, Tensor | None]]]
        self._inside = defaultdict(list)
        opened.callback(follow(self._begin_any))
        self._widths: dict[str, int] = {}  # hidden units of each layer whose MLP has run
        self._tokens: dict[tuple[int, torch.device], Tensor] = {}
        self._unrecognised: dict[str, str] = {}
        if not orders:
            for module in fused(model):
                opened.callback(follow(self._begin_fused, module))

    def at(self, captured: CapturedCall, real: Tensor | None) -> None:
        """Measure the weights of a captured call. real: queries that are not padding."""
        layer = captured.layer
        name = layer.partition("#")[0]
        self._found[layer] = {}
        module, outputs = self._model.get_submodule(name), self._outputs
        pair = queries_and_keys(module, captured.call, outputs, orders=self._orders, name=name)
        if pair is None:
            self._without(layer, f"W_Q and W_K of {captured.kind}")
        else:
            self._ranks.add(layer, "qk_stable_rank", product(*pair))
        block, layers = find_block(self._model, name)
        if block is not None:
            shape = captured.call.shape[0], captured.call.shape[2]
            self._inside[id(block)].append((layer, module, shape, real))
        mlp = mlp_of(layers)
        if mlp is None:
            self._without(layer, f"the MLP beside {captured.kind}")
            return
        self._ranks.add(layer, "mlp_stable_rank", gram(mlp.matrix)[None])
        self._opened.callback(follow(partial(self._take_units, layer, real), mlp.output))

    def waiting(self) -> list[Tensor]:
        """Return the tensors on the device that `result` needs."""
        return [*self._ranks.results(), *self._units.results(), *self._peaks.results()]

    def result(self, here: Sequence[NDArray[Any]]) -> WeightStatistics:
        """Return the statistics. here: the tensors of `waiting`, in numpy."""
        ends = np.cumsum([len(one.results()) for one in (self._ranks, self._units)])
        ranks = [stable_rank_of_numbers(one) for one in here[: ends[0]]]
        for layer, name, rank in self._ranks.by_owner(ranks):
            self._found[layer][name] = rank if LABELS[name].dims else rank[0]
        for layer, name, (units,) in self._units.by_owner(here[ends[0] : ends[1]]):
            self._found[layer] |= {name: units, "mlp_units_share": units / self._widths[layer]}
        for layer, name, (peak,) in self._peaks.by_owner(here[ends[1] :]):
            self._found[layer][name] = peak
        values = {
            layer: {name: np.asarray(value, np.float64) for name, value in found.items()}
            for layer, found in self._found.items()
        }
        for layer, found in values.items():
            if "mlp_stable_rank" in found and "mlp_units" not in found:
                self._without(layer, "units of the MLP, which did not run after attention")
        return WeightStatistics(values, dict(self._unrecognised))

    def _without(self, layer: str, what: str) -> None:
        before = self._unrecognised.get(layer)
        self._unrecognised[layer] = what if before is None else f"{before}; {what}"

    def _begin_any(self, module: nn.Module, *_: Any) -> Callable[[Any], None]:
        return partial(self._take_residual, id(module))

    def _take_residual(self, module: int, output: Any) -> None:
        layers = self._inside.pop(module, ())
        stream = output[0] if isinstance(output, tuple) else output
        if not layers or not isinstance(stream, Tensor) or stream.ndim != 3:
            return
        with self._guard(), torch.no_grad():
            norms = torch.linalg.vector_norm(stream.detach(), dim=-1, dtype=torch.float32)
            for layer, attention, shape, real in layers:
                own = norms if getattr(attention, "batch_first", True) else norms.T
                if own.shape == shape:  # windows, for one, are folded into the sequences
                    keys = torch.ones_like(own) if real is None else real.reshape(shape).to(own)
                    self._peaks.add(layer, "residual_peak", torch.stack([own, keys])[None])

    def _begin_fused(self, module: nn.Module, *_: Any) -> Callable[[Any], None]:
        return partial(self._take_output, id(module))

    def _take_output(self, module: int, output: Any) -> None:
        with self._guard():
            if isinstance(output, Tensor) and output.ndim == 3:
                self._outputs[module] = output[0, :TOKENS].detach().clone()

    def _take_units(
        self, layer: str, real: Tensor | None, _: nn.Module, given: tuple[Any, ...], *__: Any
    ) -> None:
        if layer in self._widths or not given:  # a second run belongs to another layer
            return
        with self._guard(), torch.no_grad():
            hidden = given[0].detach()
            self._widths[layer] = hidden.shape[-1]
            rows = hidden.reshape(-1, hidden.shape[-1])
            if real is not None and real.numel() == len(rows):
                rows = rows[real.reshape(-1).to(rows.device)]
            self._units.add(layer, "mlp_units", rows[self._spread(len(rows), rows.device)][None])

    def _spread(self, rows: int, device: torch.device) -> Tensor:
        """Return the tokens whose active units are counted; moved to the device once."""
        if (rows, device) not in self._tokens:
            some = torch.linspace(0, rows - 1, min(rows, UNITS_TOKENS))
            self._tokens[rows, device] = some.round().long().to(device)
        return self._tokens[rows, device]
