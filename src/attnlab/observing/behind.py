"""Behind the maps: what the weights and the MLP of each layer say in the same forward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.measures.ranks import gram, numbers_of_gram, product, stable_rank_of_numbers
from attnlab.measures.units import units_of
from attnlab.observing import matrices
from attnlab.observing.calls import follow
from attnlab.observing.labels import Label
from attnlab.observing.seams import Sighting
from attnlab.observing.seams.watch import Guard

UNITS_TOKENS = 256  # of the probe, evenly spread, whose active units are counted
AT_ONCE = 2**26  # bytes of matrices whose ranks are waited for together,
UNITS_AT_ONCE = 20 * 2**20  # and of units
LABELS = {
    "qk_stable_rank": Label("stable rank of W_Q^T W_K", dims=("head",)),
    "mlp_stable_rank": Label("stable rank of the input matrix of the block's MLP"),
    "mlp_units": Label("units of the MLP that hold 95 % of a token's |activation|", "units"),
    "mlp_units_share": Label("mlp_units over the number of units"),
    "repeated_induction": Label(
        "induction_mass on random tokens that come twice, above chance", dims=("head",)
    ),
    "repeated_duplicate": Label(
        "duplicate_mass on random tokens that come twice, above chance", dims=("head",)
    ),
}


@dataclass(frozen=True, eq=False)
class Behind:
    """values: of each layer, the variables of LABELS. unrecognised: what of a layer they are
    missing for, in words."""

    values: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    unrecognised: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Layout:
    """What an earlier look has found of how a model is built, by the names of its modules.

    orders: how fused weights are laid out. mlps: which modules are the MLP beside attention.
    """

    orders: dict[str, matrices.Order] = field(default_factory=dict)
    mlps: dict[str, matrices.Names] = field(default_factory=dict)


class Looking:
    """Looks at the modules behind the calls that are seen. `looking` makes one."""

    def __init__(self, model: nn.Module, opened: ExitStack, layout: Layout, guard: Guard) -> None:
        self._model, self._opened, self._layout, self._guard = model, opened, layout, guard
        self._made: dict[int, Tensor] = {}  # by fused layers, for the first tokens
        self._found: dict[str, dict[str, Any]] = defaultdict(dict)
        self._hidden: dict[Any, list[tuple[str, Tensor]]] = defaultdict(list)
        self._counted: list[tuple[list[tuple[str, int]], Tensor]] = []
        self._tokens: dict[tuple[int, torch.device], Tensor] = {}
        self._used: set[str] = set()  # layers whose MLP has run
        self._unrecognised: dict[str, str] = {}
        self._waiting: dict[Any, list[tuple[str, str, Tensor]]] = defaultdict(list)
        self._ranked: list[tuple[list[tuple[str, str, int]], Tensor]] = []
        if not layout.orders:
            for module in matrices.fused(model):
                opened.callback(follow(module, after=partial(self._take_made, id(module))))

    def at(self, sighting: Sighting, real: Tensor | None) -> None:
        """Look behind a call. real: which of its queries are no padding."""
        layer = sighting.layer
        name = layer.partition("#")[0]
        self._found[layer] = {}
        module = self._model.get_submodule(name)
        pair = matrices.queries_and_keys(
            module, sighting.call, self._made, orders=self._layout.orders, name=name
        )
        if pair is None:
            self._without(layer, f"W_Q and W_K of {sighting.kind}")
        else:
            self._wait(layer, "qk_stable_rank", product(*pair))
        mlp = matrices.mlp(self._model, name, self._layout.mlps)
        if mlp is None:
            self._without(layer, f"the MLP beside {sighting.kind}")
            return
        self._wait(layer, "mlp_stable_rank", gram(mlp.matrix)[None])
        take = partial(self._take_units, layer, real)
        self._opened.callback(follow(mlp.output, before=take))

    def waiting(self) -> list[Tensor]:
        """What `result` needs to know of what is on the device."""
        for waiting in self._waiting.values():
            self._rank(waiting)
        for hidden in self._hidden.values():
            self._count(hidden)
        return [*(made for _, made in self._ranked), *(made for _, made in self._counted)]

    def result(self, here: Sequence[NDArray[Any]]) -> Behind:
        """What was seen. here: what is `waiting`, in numpy."""
        for (of_layers, _), numbers in zip(self._ranked, here, strict=False):
            ranks = stable_rank_of_numbers(numbers)
            ends = np.cumsum([number for _, _, number in of_layers])[:-1]
            for (layer, name, _), some in zip(of_layers, np.split(ranks, ends), strict=True):
                self._found[layer][name] = some if LABELS[name].dims else some[0]
        for (layers, _), numbers in zip(self._counted, here[len(self._ranked) :], strict=True):
            for (layer, width), number in zip(layers, numbers, strict=True):
                self._found[layer] |= {"mlp_units": number, "mlp_units_share": number / width}
        values = {
            layer: {name: np.asarray(value, np.float64) for name, value in found.items()}
            for layer, found in self._found.items()
        }
        for layer, found in values.items():
            if "mlp_stable_rank" in found and "mlp_units" not in found:
                self._without(layer, "units of the MLP, which did not run after attention")
        return Behind(values, dict(self._unrecognised))

    def _without(self, layer: str, what: str) -> None:
        before = self._unrecognised.get(layer)
        self._unrecognised[layer] = what if before is None else f"{before}; {what}"

    def _wait(self, layer: str, name: str, made: Tensor) -> None:
        """Matrices of one size are looked at together: each alone would cost a wait for it."""
        waiting = self._waiting[made.shape[-1], made.dtype, made.device]
        waiting.append((layer, name, made))
        if sum(one.nbytes for _, _, one in waiting) > AT_ONCE:
            self._rank(waiting)

    def _rank(self, waiting: list[tuple[str, str, Tensor]]) -> None:
        if not waiting:
            return
        numbers = numbers_of_gram(torch.cat([one for _, _, one in waiting]))
        self._ranked.append(([(layer, name, len(one)) for layer, name, one in waiting], numbers))
        waiting.clear()

    def _take_made(self, module: int, _: tuple[Any, ...], output: Any) -> None:
        with self._guard():
            if isinstance(output, Tensor) and output.ndim == 3:
                self._made[module] = output[0, : matrices.TOKENS].detach().clone()

    def _take_units(
        self, layer: str, real: Tensor | None, given: tuple[Any, ...], _: dict[str, Any]
    ) -> None:
        if layer in self._used or not given:  # the second time is not this layer's
            return
        self._used.add(layer)
        with self._guard(), torch.no_grad():
            hidden = given[0].detach()
            rows = hidden.reshape(-1, hidden.shape[-1])
            if real is not None and real.numel() == len(rows):
                rows = rows[real.reshape(-1).to(rows.device)]
            taken = rows[self._spread(len(rows), rows.device)]
            waiting = self._hidden[taken.shape, taken.dtype, taken.device]
            waiting.append((layer, taken))
            if (len(waiting) + 1) * taken.nbytes > UNITS_AT_ONCE:
                self._count(waiting)

    def _spread(self, rows: int, device: torch.device) -> Tensor:
        """The tokens whose active units are counted, of so many: brought to the device once."""
        if (rows, device) not in self._tokens:
            some = torch.linspace(0, rows - 1, min(rows, UNITS_TOKENS))
            self._tokens[rows, device] = some.round().long().to(device)
        return self._tokens[rows, device]

    def _count(self, waiting: list[tuple[str, Tensor]]) -> None:
        if not waiting:
            return
        numbers = units_of(torch.stack([taken for _, taken in waiting]))
        self._counted.append(([(layer, taken.shape[-1]) for layer, taken in waiting], numbers))
        waiting.clear()


@contextmanager
def looking(
    model: nn.Module, layout: Layout | None = None, guard: Guard = nullcontext
) -> Iterator[Looking]:
    """Look behind the calls of the model's next forward.

    layout: what earlier looks have found; added to. guard: as for `Watch`.
    """
    with ExitStack() as opened:
        yield Looking(model, opened, layout or Layout(), guard)
