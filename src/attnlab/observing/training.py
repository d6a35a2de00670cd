"""A training seen by an observer: steps, learning rates, and callbacks of trainers.

Attention that no longer moves may have come to rest, or the schedule may have stopped it. Changes
per learning rate distinguish the two.
"""

from __future__ import annotations

import importlib
import itertools
import json
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from attnlab.files.errors import InputError, not_installed

if TYPE_CHECKING:
    from attnlab.observing.observer import Observer

LearningRate = float | Callable[[int], float]
TRAINER_STATE = "trainer_state.json"  # of the Trainer of transformers, in each checkpoint
MOST_BYTES = 2**26  # of that file


class StepCounter:
    """Counts the training steps of a model by the torch optimizers that move its parameters.

    An optimizer's step belongs to the current training step, unless that has already moved one of
    its parameters. So a training step counts once with several optimizers (Muon beside AdamW), with
    an optimizer inside another (ZeroRedundancyOptimizer), and with an optimizer for each parameter
    that steps inside the backward pass.

    number: training steps so far. moved: ids of the parameters moved in the current one.
    """

    def __init__(self) -> None:
        self.number = 0
        self.moved: set[int] = set()
        self._is_counted = False
        self._outer: weakref.ref[Any] | None = None  # the optimizer that is stepping now
        self._parameters: weakref.WeakKeyDictionary[Any, tuple[int, frozenset[int]]] = (
            weakref.WeakKeyDictionary()
        )

    def trains(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> bool:
        """Check whether an optimizer moves this model's parameters."""
        return bool(self._trained(optimizer, model))

    def begin(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> bool:
        """Note that an optimizer begins a step; return True if a new training step begins."""
        if self._outer is not None and self._outer() not in (None, optimizer):
            return False
        self._outer = weakref.ref(optimizer)
        parameters = self._trained(optimizer, model)
        is_new = not self.moved or not self.moved.isdisjoint(parameters)
        if is_new:
            self.moved, self._is_counted = set(), False
        self.moved |= parameters
        return is_new

    def end(self, optimizer: torch.optim.Optimizer) -> bool:
        """Note that an optimizer has stepped; return False for one inside another's step."""
        if self._outer is None or self._outer() is not optimizer:
            return False
        self._outer = None
        if not self._is_counted:
            self.number, self._is_counted = self.number + 1, True
        return True

    def _trained(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> frozenset[int]:
        """Return the ids of an optimizer's parameters, if it trains the model."""
        given = [p for group in optimizer.param_groups for p in group["params"]]
        known = self._parameters.get(optimizer)
        if known is None or known[0] != len(given):
            known = self._parameters[optimizer] = len(given), frozenset(_own(given, model))
        return known[1]


def _own(given: Sequence[nn.Parameter], model: nn.Module) -> Iterator[int]:
    """Yield the ids of the model's parameters, or of the parameters that it averages."""
    if isinstance(model, AveragedModel):
        # No optimizer moves this copy; its source has parameters of the same shapes.
        shapes = Counter(p.shape for p in model.parameters())
        if not Counter(p.shape for p in given) - shapes:
            yield from map(id, given)
        return
    own = {id(p) for p in model.parameters()}
    yield from (id(p) for p in given if id(p) in own)


def in_backward() -> bool:
    """Check whether the backward pass runs in this thread."""
    return torch._C._current_graph_task_id() != -1


def after_backward(act: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Call a method, if its object is alive, when the current backward pass has ended; not if that
    runs inside another (reentrant checkpoints), which goes on."""

    def ended() -> None:
        if torch._C._current_autograd_node() is None and (alive := act()) is not None:
            alive()

    torch.autograd.Variable._execution_engine.queue_callback(ended)


class LearningRateSum:
    """Sum of the learning rate of a model's attention, as its optimizers use it or as given.

    given: a number, or a function of the step (0 for the first) that returns one.
    """

    def __init__(self, given: LearningRate | None = None) -> None:
        if given is not None and not callable(given):
            _require_rate(given)
        self._given = given
        self._sum: Any = 0.0
        self._steps = 0  # optimizer steps that moved attention
        self._read = 0, 0  # the step of the last reading, and `_steps` then
        self._shares: weakref.WeakKeyDictionary[Any, list[float]] = weakref.WeakKeyDictionary()

    def add(self, optimizer: torch.optim.Optimizer, attention: Collection[int]) -> None:
        """Add a step of an optimizer. attention: ids of the attention's own parameters."""
        groups = optimizer.param_groups
        shares = self._shares.get(optimizer)
        if shares is None or len(shares) != len(groups):
            counts = [sum(id(p) in attention for p in group["params"]) for group in groups]
            shares = [count / max(1, len(attention)) for count in counts]
            self._shares[optimizer] = shares
        # a learning rate may be a tensor on a device, which is read only when it is needed
        for group, share in zip(groups, shares, strict=True):
            rate = group.get("lr")
            if share:
                known = isinstance(rate, int | float | torch.Tensor)
                self._sum = self._sum + (rate * share if known else np.nan)
        self._steps += any(shares)

    @property
    def spent(self) -> float | None:
        """Sum so far; None where it is not known."""
        spent = float(self._sum)
        return spent if np.isfinite(spent) else None

    def rewind(self, step: int, spent: float | None) -> None:
        """Go on from an earlier step, at which `spent` was the sum."""
        self._sum = np.nan if spent is None else spent
        self._read = step, self._steps

    def skip_to(self, step: int) -> None:
        """Go on from a later step than the last reading; without a given learning rate, that in
        between is unknown."""
        if self._given is None:
            self._sum, self._read = np.nan, (step, self._steps)

    def at(self, step: int, *, first: bool = False) -> float | None:
        """Return the sum up to `step`; None where it is not known since the last reading.

        first: whether `step` is the first reading, from which the sum starts.
        """
        before, seen = self._read
        self._read = step, self._steps
        if not first and self._given is not None:
            self._sum = self._sum + summed(self._given, before, step)
        elif not first and step != before and seen == self._steps:
            return None
        return self.spent


def summed(rate: LearningRate, start: int, end: int) -> float:
    """Return the learning rate summed over the steps from `start` to `end`."""
    if not callable(rate):
        return float(rate) * (end - start)
    return sum(_require_rate(rate(step)) for step in range(start, end))


def sums_of_checkpoints(
    steps: Sequence[int], folders: Sequence[Path], given: LearningRate | None
) -> list[float] | None:
    """Return the learning rate summed up to each checkpoint's step; None where it is not known.

    Without a given one it is interpolated between the values that transformers' Trainer logged
    beside the last checkpoint.
    """
    if given is not None:
        if not callable(given):
            _require_rate(given)
        parts = [summed(given, a, b) for a, b in itertools.pairwise(steps)]
        return np.cumsum([0.0, *parts]).tolist()
    at, logged = _logged(folders[-1] / TRAINER_STATE)
    if not at or at[0] > steps[-1]:
        return None
    knots = np.unique(np.array([*at, *steps], np.float64))
    rates = np.interp(knots, at, logged)
    areas = np.diff(knots) * (rates[1:] + rates[:-1]) / 2
    sums = np.concatenate([[0.0], np.cumsum(areas)])[np.searchsorted(knots, steps)]
    return (sums - sums[0]).tolist()


def attention_parameters(model: nn.Module, modules: Collection[str]) -> set[int]:
    """Return the ids of the parameters inside the modules that attend; of all parameters if these
    have none, because projections are beside them."""
    named = dict(model.named_modules())
    inside = {id(p) for name in modules if name in named for p in named[name].parameters()}
    return inside or {id(p) for p in model.parameters()}


def _logged(path: Path) -> tuple[list[int], list[float]]:
    """Return the steps and learning rates that a Trainer logged; empty without a usable file."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_BYTES:
            return [], []
        entries = json.loads(path.read_text(encoding="utf-8"))["log_history"]
        pairs = {
            int(entry["step"]): float(entry["learning_rate"])
            for entry in entries
            if "learning_rate" in entry
        }
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return [], []
    good = {step: rate for step, rate in pairs.items() if 0 <= rate < np.inf}
    return sorted(good), [good[step] for step in sorted(good)]


def _require_rate(rate: Any) -> float:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < np.inf:
        raise InputError(
            f"learning_rate: expected a number from 0 on, or a function of the step that returns "
            f"one, got {rate!r}"
        )
    return float(rate)


def trainer_callbacks(observer: Observer) -> tuple[Any, Any]:
    """Return two classes of callbacks for the Trainer of transformers: for the start and each step,
    and for the end."""
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise not_installed("callback()", "transformers", extra="observe") from None

    class Steps(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            observer.step(state.global_step)

        on_step_end = on_train_begin

    class End(TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            observer.finish(state.global_step)

    return Steps, End


def lightning_callback(observer: Observer) -> Any:
    """Return a callback for `lightning.Trainer(callbacks=[...])`."""
    for name in ("lightning.pytorch", "pytorch_lightning"):  # whichever is installed
        with suppress(ImportError):
            Callback: Any = importlib.import_module(name).Callback
            break
    else:
        raise not_installed("lightning()", "lightning")

    class Attention(Callback):
        """Counts batches after which an optimizer has stepped: `global_step` counts the steps of
        each optimizer."""

        steps, seen = 0, 0
        restored: int | None = None

        def state_dict(self) -> dict[str, int]:
            return {"steps": self.steps}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.restored = state["steps"]

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.seen = trainer.global_step
            optimizers = len(getattr(trainer, "optimizers", ())) or 1
            self.steps = self.seen // optimizers if self.restored is None else self.restored
            self.restored = None
            observer.step(self.steps)

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step > self.seen:
                self.seen = trainer.global_step
                self.steps += 1
                observer.step(self.steps)

        def on_train_end(self, trainer: Any, module: Any) -> None:
            observer.finish(self.steps)

    return Attention()
