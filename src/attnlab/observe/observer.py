"""The observer: measures the attention of a model while it trains, or of one as it is."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import xarray as xr
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from attnlab.files.errors import InputError, require_whole
from attnlab.files.provenance import provenance
from attnlab.observe import ranks
from attnlab.observe.behind import looking
from attnlab.observe.clock import LearningRate, LearningRateSum, attention_parameters
from attnlab.observe.history import History
from attnlab.observe.moment import Known, Measuring, Moment, moment_of
from attnlab.observe.probe import Probe, batch_of, make_probe
from attnlab.observe.repeated import random_twice, with_repeated
from attnlab.observe.seams import Watch, watching
from attnlab.observe.seams.watch import trains
from attnlab.observe.statistics import MIN_KEYS
from attnlab.observe.undisturbed import is_compiled, is_sharded, unwrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Log = Callable[[int, xr.Dataset], None]


class Observer:
    """Measures a model's attention every so many steps. `attnlab.observe` makes one.

    As a context manager it counts the optimiser's steps itself; with `step`, `callback` or
    `lightning`, whoever trains says where the training is. It holds no reference to the model but
    a weak one, and outside of a measurement nothing of it is in the model.
    """

    def __init__(
        self, model: nn.Module, *, probe: Any = None, every: int = 100, live: bool = False,
        rows: int | None = None, min_keys: int = MIN_KEYS, repeated: bool = False,
        learning_rate: LearningRate | None = None, log: Log | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(model, nn.Module):
            raise InputError(
                f"model: expected a torch.nn.Module, got {type(model).__name__}; of other code "
                "give queries and keys to attnlab.observe.record"
            )
        require_whole("every", every, 1)
        if live and probe is not None:
            raise InputError("probe: live=True looks at the training's own batches; leave it out")
        if live and repeated:
            raise InputError("repeated: live=True runs nothing of its own; leave it out")
        if not live and probe is None:
            raise InputError(
                "probe: nothing to measure on; give token ids (sequence, place), or live=True to "
                "look at the training's own batches"
            )
        if log is not None and not callable(log):
            raise InputError(
                f"log: expected a function of a step and a dataset, got {type(log).__name__}; "
                "attnlab.observe.tensorboard(writer), wandb and mlflow make one"
            )
        inner = unwrapped(model)
        if live and (is_compiled(model) or is_compiled(inner)):
            raise InputError(
                "live: the model is compiled, and its forward runs nothing that could be seen; "
                "give a probe instead, which runs the model uncompiled beside the training"
            )
        self.every, self.live, self.rows, self.min_keys = every, live, rows, min_keys
        self.history = History(comparable=not live)
        self.seconds = 0.0  # spent on measuring
        self._model = weakref.ref(inner)
        self._name, self._sharded = type(inner).__name__, is_sharded(inner)
        self._probe = None if live else make_probe(inner, probe)
        self._known = Known(same_probe=not live)
        self._repeated = random_twice(inner, self._probe) if repeated and self._probe else None
        self._known_of_repeated = Known(same_probe=True)
        self._log = log
        self._rates = LearningRateSum(learning_rate)
        self._attention: set[int] = set()  # ids of the parameters whose learning rate counts
        self._hook: Callable[[], object] | None = None  # ends the following of optimizers
        self._counted = 0  # optimiser steps that were seen
        self._last: int | None = None  # where the training is
        self._by_hand = False
        self._open: ExitStack | None = None
        self._armed: _Armed | None = None

    # -- ways in ---------------------------------------------------------------------------------

    def __enter__(self) -> Observer:
        if self._open is not None:
            raise InputError("observer: is open already; make another for another training")
        self._open = ExitStack()
        self._follow()
        self._open.callback(self._unfollow)
        try:
            self._at(0)
        except BaseException:
            self._open.close()
            self._open = None
            raise
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        assert self._open is not None
        self._open.close()
        self._open = None
        self._disarm(failed=kind is not None)
        if kind is None and not self.live and self._last is not None:
            self._measure(self._last)  # how it ended

    def step(self, number: int) -> bool:
        """Say that the training has made so many steps; measures when it is time to.

        Call it after each step of the optimiser, and with 0 before the first if the start is
        wanted; `finish` measures the end, and takes a look at a training's own batches (live=True)
        out of the model again. Returns whether this step was measured.
        """
        require_whole("step", number, 0)
        self._follow()
        if self._open is not None and not self._by_hand:
            self._by_hand = True
            if number != self._counted:  # a training that goes on, say: its numbers are right
                self.history.clear()
        return self._at(number)

    def callback(self) -> Any:
        """A callback for the Trainer of transformers: `Trainer(..., callbacks=[...])`."""
        from attnlab.observe.callbacks import trainer_callback

        return trainer_callback(self)

    def lightning(self) -> Any:
        """A callback for Lightning's Trainer."""
        from attnlab.observe.callbacks import lightning_callback

        return lightning_callback(self)

    def finish(self, number: int) -> None:
        """Measure the end of a training, if it was not measured."""
        self._unfollow()
        self._disarm()
        if not self.live:
            self._measure(number)

    # -- ways out --------------------------------------------------------------------------------

    def result(self) -> xr.Dataset:
        """What was measured so far, as a dataset over (step, layer, head)."""
        found = self.history.dataset()
        spec = {
            "every": self.every, "live": self.live, "rows": self.rows, "min_keys": self.min_keys,
            "model": self._name,
        }  # fmt: skip
        found.attrs = (
            provenance(spec, torch=str(torch.__version__), seconds=self.seconds) | found.attrs
        )
        return found

    def report(
        self, path: str | Path | None = None, *, text: Any = None, names: Any = None, **options: Any
    ) -> str:
        """The page about what was measured so far, as HTML; written to `path` if there is one.

        text: tokens that the model learns from, as the model takes them: then the page says
        whether theory expects what the first layer did. names: a tokenizer, or the names of tokens
        in the order of their ids. options: of `attnlab.observe.expectation`.
        """
        from attnlab.observe.expectation import expectation
        from attnlab.observe.report import report

        found = self.result()
        told = None if text is None else expectation(found, text, names=names, **options)
        return report(found, path, theory=told.in_words() if told else ())

    def plot(self, variable: str = "relative_entropy", **entry: Any) -> Figure:
        """A statistic of every head so far, with matplotlib: see `attnlab.plots.heads`."""
        from attnlab.plots import heads

        return heads(self.result(), variable, **entry)

    def __repr__(self) -> str:
        steps = self.history.steps
        return f"Observer({self._name}, {len(steps)} steps measured)"

    def _follow(self) -> None:
        """Follow the optimizers that train this model, until `_unfollow` or the end of self."""
        if self._hook is not None:
            return
        me = weakref.ref(self)

        def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            observer = me()
            if observer is None:
                return
            if observer._attention:
                observer._rates.add(optimizer, observer._attention)
            if observer._open is not None and observer._moves(optimizer):
                observer._count()

        self._hook = weakref.finalize(self, register_optimizer_step_post_hook(stepped).remove)

    def _unfollow(self) -> None:
        if self._hook is not None:
            self._hook()
            self._hook = None

    # -- when ------------------------------------------------------------------------------------

    def _moves(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimiser trains this model."""
        model = self._model()
        if model is None:
            return False
        own = {id(parameter) for parameter in model.parameters()}
        return any(id(p) in own for group in optimizer.param_groups for p in group["params"])

    def _count(self) -> None:
        self._counted += 1
        if not self._by_hand:
            self._at(self._counted)

    def _at(self, number: int) -> bool:
        self._last = number
        self._disarm()
        if number % self.every:
            return False
        if self.live:
            self._arm(number)
            return True
        return self._measure(number)

    # -- measuring -------------------------------------------------------------------------------

    def _the_model(self) -> nn.Module:
        model = self._model()
        if model is None:
            raise InputError("model: is gone; keep a reference to it while it is observed")
        return model

    def _measure(self, number: int) -> bool:
        """One forward of the probe, which leaves no trace."""
        if number in self.history.steps:
            return False
        if not (self._sharded or ranks.first()):
            return False  # the replica of the first process is measured
        begun = time.perf_counter()
        assert self._probe is not None
        model = self._the_model()
        moment = moment_of(
            model, self._probe, rows=self.rows, min_keys=self.min_keys, known=self._known
        )
        if self._repeated is not None:
            moment = with_repeated(
                moment, model, self._repeated, min_keys=self.min_keys,
                known=self._known_of_repeated,
            )  # fmt: skip
        self._keep(number, moment)
        self.seconds += time.perf_counter() - begun
        return True

    def _keep(self, number: int, moment: Moment) -> None:
        if not ranks.first():
            return
        if not moment.order:
            warnings.warn(
                f"step {number}: no query of the training's batch sees {self.min_keys} keys, so "
                "that it is not measured; a smaller min_keys would",
                stacklevel=5,
            )
            return
        kinds = ", ".join(sorted(set(moment.unseen.values())))
        if moment.unseen and not self.history.steps:
            warnings.warn(
                f"only some layers of {self._name} are seen; nothing is known of "
                f"{', '.join(sorted(moment.unseen))} ({kinds})",
                stacklevel=5,
            )
        spent = self._rates.at(number, first=not self.history.steps)
        self.history.add(number, moment, learning_rate_sum=spent)
        if not self._attention:
            self._attention = attention_parameters(self._the_model(), moment.order)
        if self._log is not None:
            self._log(number, self.history.latest())

    # -- live ------------------------------------------------------------------------------------

    def _arm(self, number: int) -> None:
        """Look at the next forward of the training."""
        model, opened = self._the_model(), ExitStack()
        batch: list[Probe] = []

        def take(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if trains(module) and not batch:
                batch.append(batch_of(module, args, kwargs))

        opened.callback(model.register_forward_pre_hook(take, with_kwargs=True).remove)
        behind = opened.enter_context(looking(model, self._known.layout))
        measuring = Measuring(
            lambda: batch[0], behind, self._known, rows=self.rows, min_keys=self.min_keys, live=True
        )
        watch = opened.enter_context(watching(model, measuring.see, only_training=True))
        self._armed = _Armed(number, opened, watch, measuring)

    def _disarm(self, *, failed: bool = False) -> None:
        """Keep what was seen since; where training has failed, no other process is waited for."""
        if self._armed is None:
            return
        armed, self._armed = self._armed, None
        armed.opened.close()
        if failed or not armed.watch.over or armed.number in self.history.steps:
            return
        moment = ranks.together(armed.measuring.result(armed.watch))
        self._keep(armed.number, moment)


@dataclass(frozen=True, eq=False)
class _Armed:
    """A look at the training's next forward."""

    number: int
    opened: ExitStack
    watch: Watch
    measuring: Measuring


def observe(
    model: nn.Module, *, probe: Any = None, every: int = 100, live: bool = False,
    rows: int | None = None, min_keys: int = MIN_KEYS, repeated: bool = False,
    learning_rate: LearningRate | None = None, log: Log | None = None,
) -> Observer:  # fmt: skip
    """Watch a model's attention while it trains: `attnlab.observe(model, probe=ids)`.

    Around any loop with an optimiser, as below; or `observer.step(n)` in a loop of your own,
    `Trainer(..., callbacks=[observer.callback()])`, `observer.lightning()`. A measurement is one
    forward of the probe without gradients, in evaluation mode; outputs, gradients and losses of the
    training are bitwise what they would be without it. Of replicas that train together, that of the
    first process is measured.

    Parameters
    ----------
    model : torch.nn.Module
        Any torch module that attends through transformers' attention functions, torch's
        `scaled_dot_product_attention` or `MultiheadAttention`; compiled or not.
    probe
        Token ids (sequence, place), what a tokenizer returns, or any other arguments of `forward`
        as a mapping or a tuple.
    every : int, optional
        Measure when the number of steps is a multiple of this.
    live : bool, optional
        Look at the training's own batches instead of a probe. Each measurement is then of other
        tokens, so that nothing is said of maps that move; processes are put together.
    rows : int, optional
        How many queries are sampled, of all sequences together; None measures all.
    min_keys : int, optional
        Queries that see fewer keys are left out.
    repeated : bool, optional
        Measure induction and duplicate tokens on random tokens that come twice as well, which is
        one forward more.
    learning_rate : float or callable, optional
        The learning rate of the attention, or a function of the step (0 for the first) that returns
        it. By default it is read from the torch optimizers that train the attention's parameters.
        A snap is judged by it, so that a schedule's end does not pass for one.
    log : callable, optional
        Called with the step and the means over (layer, head) of each measurement;
        `attnlab.observe.tensorboard`, `wandb` and `mlflow` make such functions.

    Returns
    -------
    Observer
        A context manager; `result()`, `report()` and `plot()` say what it saw.

    Examples
    --------
    >>> import torch
    >>> import attnlab
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> sgd = torch.optim.SGD(model.parameters(), 0.1)
    >>> with attnlab.observe(model, probe=(torch.randn(2, 16, 8),), every=1) as observer:
    ...     model(torch.randn(4, 16, 8)).square().mean().backward()
    ...     sgd.step()
    >>> observer.result().entropy.dims
    ('step', 'layer', 'head')
    """
    return Observer(
        model, probe=probe, every=every, live=live, rows=rows, min_keys=min_keys,
        repeated=repeated, learning_rate=learning_rate, log=log,
    )  # fmt: skip
