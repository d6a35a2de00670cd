"""A moment of a model: the statistics of every layer's attention in one forward."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import xarray as xr
from torch import Tensor, nn

from attnlab.files.errors import InputError
from attnlab.measures.arrays import alone, exactly, on_processor
from attnlab.observing.behind import Behind, Layout, Looking, looking
from attnlab.observing.call import AttentionCall
from attnlab.observing.ground import Ground
from attnlab.observing.heads import Heads, side_by_side
from attnlab.observing.plan import TooShort, plan_of
from attnlab.observing.probe import Probe
from attnlab.observing.seams import Doubt, Sighting, Watch, watching
from attnlab.observing.sheet import Layers, Sheet, brought_here
from attnlab.observing.statistics import BUDGET_BYTES, MIN_KEYS, Look, bytes_of, conclude, look
from attnlab.observing.undisturbed import undisturbed, version_of

# On an accelerator a block may take so much for each sequence of the probe, if that is more than
# BUDGET_BYTES, as the model's own forward takes more for several: small blocks leave it waiting.
SEQUENCE_BYTES, MOST_BYTES = 2**27, 2**30


@dataclass(frozen=True, eq=False)
class Moment:
    """What was found.

    sheets: what was measured of layers that are alike.
    order: the names of all layers, as they ran.
    unseen: what ran without being seen, and its classes: see `Watch.unseen`.
    behind: what the weights and the MLP of each layer say.
    """

    sheets: tuple[Sheet, ...]
    order: tuple[str, ...]
    unseen: Mapping[str, str] = field(default_factory=dict)
    behind: Behind = field(default_factory=Behind)

    @classmethod
    def of(
        cls, layers: Mapping[str, xr.Dataset], unseen: Mapping[str, str], behind: Behind
    ) -> Moment:
        """From the datasets of layers, in the order in which they ran."""
        sheets = tuple(Sheet.of(name, one) for name, one in layers.items())
        return cls(sheets, tuple(layers), unseen, behind)

    @cached_property
    def layers(self) -> Mapping[str, xr.Dataset]:
        """What `statistics` says of each layer, over (sequence, head), with a coord `kind`: "self",
        or "cross" where keys are of another sequence."""
        return Layers(self.sheets, self.order)


@dataclass(eq=False)
class Known:
    """What moments of a model leave for its next: what does not change with its weights.

    same_probe: whether all are of one probe; then what is known of its rows is kept too.
    layout: how the model is built. number: moments so far, and layers: how many it has.
    """

    same_probe: bool = False
    layout: Layout = field(default_factory=Layout)
    grounds: dict[Hashable, Ground] = field(default_factory=dict)
    number: int = 0
    layers: int = 1

    def doubts(self, layer: int) -> bool:
        """Whether to compute again what this layer made of a call: in the first moment of each,
        later of one after the other, because it is the code that would be wrong."""
        return self.number == 0 or layer == self.number % self.layers

    def keep(self, layers: int, grounds: Mapping[Hashable, Ground]) -> None:
        """After a moment."""
        self.number, self.layers = self.number + 1, layers
        if self.same_probe:
            self.grounds = {
                kind: ground for kind, ground in grounds.items() if ground.call.mask is None
            }


@dataclass(eq=False)
class _Alike:
    """Layers that are alike: held until they are looked at together, then until it is concluded
    what was seen."""

    ground: Ground
    version: int | None  # of the mask, with which they have to be looked at
    held: list[Heads] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    values: list[Tensor | None] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def hold(self, sighting: Sighting) -> None:
        """Take of a call what is measured of it; of its own, because the model goes on."""
        call, ground = sighting.call, self.ground
        heads = ground.heads(call)
        if ground.together > 1 and heads.key.data_ptr() == call.key.data_ptr():
            heads = replace(heads, key=heads.key.clone())
        self.held.append(heads)
        self.values.append(None if call.value is None else alone(call.value.detach()))
        self.names.append(sighting.layer)

    def look(self) -> None:
        """Look at those that are held."""
        if not self.held:
            return
        if _version(self.ground.call.mask) != self.version:
            raise InputError(
                f"model: changes the mask of {self.names[-1]} in its place after it was used; "
                "inside the module call attnlab.observing.record(query, key, value, mask=...)"
            )
        heads = side_by_side(self.held)
        self.held.clear()  # their keys are twice here otherwise
        self.looks.append(look(self.ground, heads))

    @property
    def full(self) -> bool:
        """Whether no more would fit beside those that were looked at."""
        each = bytes_of(self.looks[0], self.values[0]) if self.looks else 0
        return (len(self.names) + self.ground.together) * each > self.ground.budget_bytes

    def conclude(self) -> Sheet:
        """What was seen of all of them."""
        self.look()
        return conclude(self.ground, self.looks, self.values, self.names)


class Measuring:
    """Measures the calls that it is shown, layers that are alike together.

    What waits of a call is what is measured of it, and only as long as a block may be large.
    live: whether the forward is the training's own, which goes on where its batch is too short to
    be measured: then nothing is.
    """

    def __init__(
        self, batch: Callable[[], Probe], look: Looking, known: Known, *, rows: int | None,
        min_keys: int, live: bool = False,
    ) -> None:  # fmt: skip
        self._known, self._live = known, live
        self._batch, self._look, self._rows, self._min_keys = batch, look, rows, min_keys
        self._order: list[str] = []
        self._doubts: list[Doubt] = []
        self._grounds = dict(known.grounds)
        self._waiting: dict[Hashable, _Alike] = {}
        self._sheets: list[Sheet] = []
        self._too_short = False

    def see(self, sighting: Sighting) -> None:
        """Look at a call. Nothing is waited for on the device."""
        if self._too_short:
            return
        asked = self._known.doubts(len(self._order))
        if asked and (doubt := sighting.doubt()) is not None:
            self._doubts.append(doubt)
        batch, call = self._batch(), sighting.call
        beside = batch.beside(sighting)
        number, heads = call.shape[:2]
        if heads == 1 and number > batch.sequences and number % batch.sequences == 0:
            warnings.warn(
                f"{sighting.layer or 'the model'}: {number} sequences of one head, where the batch "
                f"has {batch.sequences}: what it has folded into them (heads, windows) counts as "
                "sequences, so that errors over sequences are over those too",
                stacklevel=2,
            )
        self._order.append(sighting.layer)
        with exactly(call.query):
            kind = _kind(call, beside)
            ground = self._grounds.get(kind)
            if ground is None:
                try:
                    ground = self._grounds[kind] = self._ground(call, beside)
                except TooShort:
                    if not self._live:
                        raise
                    self._too_short = True
                    return
            alike = self._waiting.setdefault(kind, _Alike(ground, _version(call.mask)))
            alike.hold(sighting)
            # a training may fill the mask of its next batch into this one's
            changes = self._live and call.mask is not None
            if changes or len(alike.held) == ground.together:
                alike.look()
                if alike.full:
                    self._sheets.append(self._waiting.pop(kind).conclude())
            self._look.at(sighting, beside["present"])

    def result(self, watch: Watch) -> Moment:
        """What was seen, if anything; refused if a call does not explain what the model made."""
        unseen = watch.unseen()
        if watch.foreign:
            kinds = ", ".join(sorted(watch.foreign))
            warnings.warn(
                f"{type(watch.model).__name__}: its forward calls another model that attends "
                f"({kinds}), which is not measured: none of its weights are among the model's; "
                "if it is a part of the model, register it (nn.ModuleList instead of a list)",
                stacklevel=2,
            )
        if self._too_short:
            return Moment((), (), unseen)
        if not self._order:
            kinds = ", ".join(sorted(set(unseen.values())))
            why = f"computes it in code of its own ({kinds})" if unseen else "has none, or hides it"
            raise InputError(
                f"model: no attention of {type(watch.model).__name__} was seen: it {why}; "
                f"{_ways_out(watch.model)}, or inside it call "
                "attnlab.observing.record(query, key, value, mask=...) with what its softmax uses"
            )
        for alike in self._waiting.values():
            with exactly(alike.ground.call.query):
                self._sheets.append(alike.conclude())
        self._waiting.clear()
        numbers = [doubt.numbers for doubt in self._doubts]
        # one wait for the device in all
        sheets, others = brought_here(self._sheets, [*numbers, *self._look.waiting()])
        for doubt, found in zip(self._doubts, others, strict=False):
            doubt.settle(*found.tolist())
        self._known.keep(len(self._order), self._grounds)
        behind = self._look.result(others[len(numbers) :])
        return Moment(sheets, tuple(self._order), unseen, behind)

    def _ground(self, call: AttentionCall, beside: Mapping[str, Any]) -> Ground:
        room = _budget_bytes(call)
        plan = plan_of(call, min_keys=self._min_keys, budget_bytes=room, **beside)
        return Ground.of(call, plan, rows=self._rows, seed=0, budget_bytes=room)


def moment_of(
    model: nn.Module, probe: Probe, *, rows: int | None = None, min_keys: int = MIN_KEYS,
    known: Known | None = None,
) -> Moment:  # fmt: skip
    """Run the probe through the model, beside whatever else it does, and measure each layer.

    known: what earlier moments of the same model on the same probe have left; added to.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    there, known = probe.on(device), known or Known()
    with undisturbed(model), looking(model, known.layout) as behind:
        measuring = Measuring(lambda: there, behind, known, rows=rows, min_keys=min_keys)
        with watching(model, measuring.see) as watch:
            there.run(model)
    return measuring.result(watch)


def _ways_out(model: nn.Module) -> str:
    """How a model of which nothing is seen may come to be."""
    eager = getattr(getattr(model, "config", None), "_attn_implementation", None) == "eager"
    if eager and getattr(model, "_supports_sdpa", False):
        return 'load it with attn_implementation="sdpa"'
    return "let it call torch.nn.functional.scaled_dot_product_attention"


def _budget_bytes(call: AttentionCall) -> int:
    """What a block of a call may take."""
    if on_processor(call.query):
        return BUDGET_BYTES
    return min(max(BUDGET_BYTES, call.shape[0] * SEQUENCE_BYTES), MOST_BYTES)


def _kind(call: AttentionCall, beside: Mapping[str, Any]) -> Hashable:
    """By which calls are known to be alike in all but their numbers."""
    mask, value = call.mask, call.value
    of_mask = None
    if mask is not None:
        of_mask = (mask.data_ptr(), mask.shape, mask.stride(), _version(mask))
    return (
        call.shape, call.key.shape, None if value is None else (value.shape, value.dtype),
        call.query.dtype, call.query.device, of_mask, call.causal, call.window, call.cross,
        call.softcap, call.sinks is None, *(id(one) for one in beside.values()),
    )  # fmt: skip


def _version(mask: Tensor | None) -> int | None:
    """Changes when the mask is changed in its place."""
    return None if mask is None else version_of(mask)
