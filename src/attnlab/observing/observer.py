"""Observer: measures the attention of a model while it trains, or of one as it is."""

from __future__ import annotations

import re
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.optim.swa_utils import AveragedModel

from attnlab.files.errors import InputError, require_whole
from attnlab.files.numerics import numerics
from attnlab.files.provenance import provenance
from attnlab.observing import snapshot as snapshots
from attnlab.observing import trackers, training
from attnlab.observing.alerts import Alert, Alerts
from attnlab.observing.call import listening
from attnlab.observing.capture import Capture, follow, in_forward, trains
from attnlab.observing.history import History
from attnlab.observing.probe import Probe, batch_of, make_probe
from attnlab.observing.sources import capturing
from attnlab.observing.statistics import MIN_KEYS
from attnlab.observing.trackers import Terminal, Tracker
from attnlab.observing.weights import WeightCapture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnlab.observing.trajectory import SnapshotFolder

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")  # number of a layer, in the name of a module


class Observer:
    """Watch a model's attention while it trains: `attnlab.observe(model, probe=ids)`.

    As a context manager around any loop with torch optimizers, as below, it counts training steps
    itself, each once, however many optimizers make it. Or say where the training is: with
    `observer.step(n)` in a loop of your own, `Trainer(..., callbacks=[observer.callback()])`, or
    `observer.lightning()`. A measurement is one forward pass of the probe without gradients, in
    evaluation mode; outputs, gradients and losses of the training are bitwise what they would be
    without it. Of replicas that train together, the one of the first process is measured.

    The observer holds a weak reference to the model, and puts nothing into it. Wrong settings raise
    an error at the start; later failures warn once, and the training goes on.

    Parameters
    ----------
    model : torch.nn.Module
        Any torch module that attends through transformers' attention functions, torch's
        `scaled_dot_product_attention` or `MultiheadAttention`; compiled or not.
    probe
        Token ids (sequence, position), the result of a tokenizer, or any other arguments of
        `forward` as a mapping or a tuple.
    every : int, optional
        Measure the first step that reaches each multiple of this.
    live : bool, optional
        Measure the training's own batches instead of a probe. Each measurement then has other
        tokens, so that the motion of attention is left out; processes are put together.
    rows : int, optional
        Number of queries to sample, of all sequences together; None measures all.
    min_keys : int, optional
        Queries that see fewer keys are left out.
    repeated : bool, optional
        Also measure induction and duplicate tokens on repeated random tokens, which takes one
        forward pass more.
    learning_rate : float or callable, optional
        The learning rate of the attention, or a function of the step (0 for the first) that returns
        it. By default it is read from the torch optimizers that train the attention's parameters.
        A snap is judged by it, so that the end of a schedule does not count as one.
    log : optional
        Where the numbers of each measurement go, as for `attach`.
    alert : Alerts, callable or bool, optional
        Thresholds of alerts, or a function that is called with each `Alert`; by default each is a
        warning. False switches them off.
    out : path, optional
        A folder in which each measurement is kept while the model trains, and the result at the
        end. A later observer with the same settings and the same folder resumes from them.

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

    def __init__(
        self,
        model: nn.Module,
        *,
        probe: Any = None,
        every: int = 100,
        live: bool = False,
        rows: int | None = None,
        min_keys: int = MIN_KEYS,
        repeated: bool = False,
        learning_rate: training.LearningRate | None = None,
        log: Any = None,
        alert: Alerts | Callable[[Alert], object] | bool = True,
        out: str | Path | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(
                f"model: expected a torch.nn.Module, got {type(model).__name__}; of other code "
                "give queries and keys to attnlab.observing.record"
            )
        require_whole("every", every, 1)
        if live and probe is not None:
            raise InputError("probe: live=True measures the training's own batches; leave it out")
        if live and repeated:
            raise InputError("repeated: live=True makes no forward pass of its own; leave it out")
        if not live and probe is None:
            raise InputError(
                "probe: nothing to measure on; give token ids (sequence, position), or live=True "
                "to measure the training's own batches"
            )
        if not (isinstance(alert, Alerts | bool) or callable(alert)):
            raise InputError(
                f"alert: expected Alerts(...), a function or False, got {type(alert).__name__}"
            )
        inner = snapshots.unwrapped(model)
        snapshots.refuse_partitioned(inner)
        if live and (snapshots.is_compiled(model) or snapshots.is_compiled(inner)):
            raise InputError(
                "live: the model is compiled, and attention in compiled code cannot be captured; "
                "give a probe instead, on which the model runs uncompiled"
            )
        self.every, self.live, self.min_keys = every, live, min_keys
        self._sample: dict[str, Any] = {"rows": rows, "min_keys": min_keys}
        self.history = History(comparable=not live)
        self.seconds = 0.0  # spent on measuring
        self._model = weakref.ref(inner)
        self._name, self._sharded = type(inner).__name__, snapshots.is_sharded(inner)
        self._probe = None if live else make_probe(inner, probe)
        self._cache = snapshots.SnapshotCache(same_probe=not live)
        self._repeated: Probe | None = None
        if repeated and self._probe is not None:
            self._repeated = snapshots.random_twice(inner, self._probe)
        self._repeated_cache = snapshots.SnapshotCache(same_probe=True)
        self._trackers: list[Tracker | Terminal] = []
        if log is not None:
            self.attach(log)
        self.alerts: list[Alert] = []
        self._alert = alert if isinstance(alert, Alerts) else Alerts()
        if not isinstance(alert, Alerts | bool):
            self._alert = Alerts(call=alert)
        self._alerting = alert is not False
        self._rates = training.LearningRateSum(learning_rate)
        self._attention: set[int] = set()  # ids of the parameters whose learning rate counts
        self._hook: Callable[[], object] | None = None  # ends the following of optimizers
        self._counter = training.StepCounter()
        self._began = 0  # what was counted before `with`
        self._offset = 0  # added to what is counted
        self._started = False  # errors are raised before the training starts only
        self._due: int | None = None  # a step that was counted and not yet measured
        self._last: int | None = None  # where the training is
        self._measured: int | None = None  # the last step that this process has measured
        self._by_hand = False
        self._open: ExitStack | None = None
        self._armed: _LiveCapture | None = None
        self._warned: set[str] = set()
        self._kept: SnapshotFolder | None = None
        if out is not None:
            self._go_on(Path(out).expanduser(), probe)

    # -- input -----------------------------------------------------------------------------------

    def __enter__(self) -> Observer:
        if self._open is not None:
            raise InputError("observer: is open already; make another for another training")
        if self._last is None and self.history.steps:
            raise InputError(
                f"out: holds steps {self.history.steps[0]} to {self.history.steps[-1]} of a "
                "training; say at which step this one begins with observer.step(n) before `with` "
                "(0 begins anew), or give another folder"
            )
        self._open = ExitStack()
        self._follow()
        self._open.callback(self._unfollow)
        start = 0 if self._last is None else self._last
        self._began = self._counter.number
        self._offset = start - self._began
        try:
            self._at(start)
        except BaseException:
            self._open.close()
            self._open = None
            raise
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._open is None:
            raise InputError("observer: was not entered; write `with observer:` around a training")
        if kind is None:
            self._settle()
        self._open.close()
        self._open = None
        self._disarm(failed=kind is not None)
        if kind is not None:
            return
        if not (self._counter.number or self._by_hand):
            self._warn(
                "steps",
                f"no step of a torch optimizer that trains this {self._name} was seen, so only "
                "the start was measured; call observer.step(n) after each training step",
            )
        assert self._last is not None
        self._end(self._last)

    def step(self, number: int) -> bool:
        """Report that the training has made `number` steps, and measure if it is time.

        Call it after each step of the training, and with 0 before the first to measure the start.
        The first step that reaches each multiple of `every` is measured. A smaller number than
        before forgets the measurements from there on. `finish` measures the end, and ends the
        capture of a training's own batches (live=True). Returns True if this step was measured.
        """
        require_whole("step", number, 0)
        self._the_model()
        self._follow()
        self._due = None
        if self._open is not None and not self._by_hand:
            self._by_hand = self._counter.number > self._began
            if number != self._counter.number + self._offset:  # a training that goes on, say
                self._offset = number - self._counter.number
                self._forget(0)
                self._rates.rewind(number, 0.0)
                self._last = None
        return self._at(number)

    def attach(
        self, target: Any, *, maps_every: int = 0, statistics: Sequence[str] = trackers.LOGGED
    ) -> Observer:
        """Send the numbers of each measurement to a trainer or a tracker; return the observer.

        target: the Trainer of transformers or of Lightning, which then calls the observer and logs
        to its own trackers; a SummaryWriter, a run of wandb or trackio, the module mlflow;
        `attnlab.observing.terminal()`; or a function of a mapping of numbers and the step.
        statistics: names of variables over (layer, head), which become attention/<name>/layer_NN,
        the mean over the heads of a layer, and attention/<name>/max. maps_every: number of
        measurements between heat maps of the entropy, for trackers that take figures. Those that
        take tables get one at the end of the training: `trackers.summary`.
        """
        require_whole("maps_every", maps_every, 0)
        is_terminal = isinstance(target, Terminal)
        tracker = target if is_terminal else Tracker(self, target, maps_every, statistics)
        self._trackers.append(tracker)
        return self

    def callback(self) -> Any:
        """Return a callback for the Trainer of transformers: `Trainer(..., callbacks=[...])`."""
        return type("Attention", training.trainer_callbacks(self), {})()

    def lightning(self) -> Any:
        """Return a callback for Lightning's Trainer."""
        return training.lightning_callback(self)

    def finish(self, number: int) -> None:
        """Measure the end of a training, if it was not measured."""
        self._unfollow()
        self._disarm()
        self._end(number)

    # -- output ----------------------------------------------------------------------------------

    def result(self) -> xr.Dataset:
        """Return the measurements so far, as a dataset over (step, layer, head)."""
        self._settle()
        found = self.history.dataset()
        spec = {"every": self.every, **self._settings}
        about = provenance(spec, torch=str(torch.__version__), seconds=self.seconds)
        found.attrs = about | found.attrs
        return found

    @property
    def _settings(self) -> dict[str, Any]:
        return {"live": self.live, **self._sample, "model": self._name}

    def report(
        self,
        path: str | Path | None = None,
        *,
        text: Any = None,
        names: Any = None,
        maps: Sequence[tuple[int, int]] = (),
    ) -> str:
        """Return the page about the measurements so far, as HTML; write it to `path` if given.

        text: tokens that the model learns from, as the model takes them: then the page says
        whether theory expects what the first layer did. names: a tokenizer, or the names of tokens
        in the order of their ids. maps: heads (layer, head) whose attention weights now, on the
        first sequence of the probe, are drawn with its tokens; a forward pass for each.
        """
        from attnlab.observing.head_maps import head_map
        from attnlab.observing.report_page import expected, report

        found = self.result()
        model = self._the_model() if maps else None
        drawn = [
            head_map(model, self._probe, layer=layer, head=head, names=names)
            for layer, head in maps
        ]
        theory = () if text is None else expected(found, text, names)
        return report(found, path, theory=theory, maps=drawn)

    def plot(self, variable: str = "relative_entropy", **entry: Any) -> Figure:
        """Draw a statistic of every head so far, with matplotlib: see `attnlab.plots.heads`."""
        from attnlab.plots import heads

        return heads(self.result(), variable, **entry)

    def __repr__(self) -> str:
        steps = self.history.steps
        return f"Observer({self._name}, {len(steps)} steps measured)"

    # -- when ------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Follow the optimizers that train this model, until `_unfollow` or the end of self."""
        if self._hook is not None:
            return
        me = weakref.ref(self)

        def calling(act: Callable[[Observer, Any, nn.Module], None]) -> Callable[..., None]:
            def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
                if (observer := me()) is not None and (model := observer._model()) is not None:
                    act(observer, optimizer, model)

            return hook

        hooks = ExitStack()
        hooks.callback(register_optimizer_step_pre_hook(calling(Observer._begins)).remove)
        hooks.callback(register_optimizer_step_post_hook(calling(Observer._stepped)).remove)
        # `record` in a model's code measures nothing in the many forward passes of a training
        hooks.enter_context(listening(in_forward))
        self._hook = weakref.finalize(self, hooks.close)

    def _unfollow(self) -> None:
        if self._hook is not None:
            self._hook()
            self._hook = None

    def _begins(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        if self._counter.trains(optimizer, model) and self._counter.begin(optimizer, model):
            self._settle()  # the step before is complete, and the weights are still its own

    def _stepped(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        if not (self._counter.trains(optimizer, model) and self._counter.end(optimizer)):
            return
        if self._attention:
            self._rates.add(optimizer, self._attention)
        if self._open is None or self._by_hand:
            return
        number = self._counter.number + self._offset
        if number != self._last:
            self._due = number
        if self._due is None:
            return
        if training.in_backward():
            training.after_backward(weakref.WeakMethod(self._settle_after_backward))
        elif self.live or not self._reaches(number) or self._is_complete(model):
            self._settle()

    def _is_complete(self, model: nn.Module) -> bool:
        """Check whether every gradient was used, so that no other optimizer is expected to step."""
        # Sharded processes might disagree; and an average is updated after the step.
        if self._sharded or isinstance(model, AveragedModel):
            return False
        moved = self._counter.moved
        return all(p.grad is None or id(p) in moved for p in model.parameters())

    def _settle_after_backward(self) -> None:
        self._settle(ended=True)

    def _settle(self, *, ended: bool = False) -> None:
        """Measure the step that was counted last, if it is due.

        Never inside the backward pass, whose optimizers may have more to do. ended: the pass has
        just ended.
        """
        if self._due is None:
            return
        if training.in_backward() and not ended:
            self._warn(
                "backward",
                "optimizers step inside a nested backward pass, where nothing can be measured; "
                "call observer.step(n) after each backward()",
            )
            return
        due, self._due = self._due, None
        self._at(due)

    def _reaches(self, number: int) -> bool:
        """Check whether a step is the first to reach a multiple of `every`."""
        if self._last is None or number < self._last:
            return number % self.every == 0
        return number // self.every > self._last // self.every

    def _at(self, number: int) -> bool:
        """Go on to a step. Errors are raised at the first one only, before the training begins."""
        if number == self._last:
            return False
        due = self._reaches(number)
        self._disarm()
        self._rewind(number)
        measure = self._arm if self.live else self._measure
        if self._started:
            self._last = number
            return due and bool(self._trying("measure", _not_measured(number), measure, number))
        snapshots.refuse_partitioned(self._the_model())
        measured = due and measure(number)
        self._last, self._started = number, True
        return measured

    def _end(self, number: int) -> None:
        """Measure the last step, and write the result."""
        if not self.live:
            self._at(number)
            self._trying("measure", _not_measured(number), self._measure, number)
        if not (self.history.steps and snapshots.is_first_process()):
            return
        if self._kept is not None:
            words = f"{self._kept.folder}: the result is not written"
            self._trying("out", words, lambda kept: kept.save(self.result()), self._kept)
        for tracker in self._trackers:
            words = f"step {number}: the last log failed"
            self._trying("log", words, lambda one: one.finish(self.result()), tracker)

    def _rewind(self, number: int) -> None:
        """Forget the measurements from a step on, if the training goes on from there."""
        steps, last = self.history.steps, self._last
        if last is None:  # perhaps with measurements of an earlier observer
            last = steps[-1] if steps else number
            if number > last:
                self._rates.skip_to(number)
        elif number < last:
            self._measured = None
            self._warn(
                "rollback",
                f"step {number} after {last}: the training goes on from an earlier step; "
                f"measurements from step {number} on are dropped",
            )
        if number < last or (steps and number <= steps[-1]):
            spent = self.history.spent_at(number, last=last, spent=self._rates.spent)
            self._forget(number)
            self._rates.rewind(number, spent)

    def _forget(self, number: int) -> None:
        before = len(self.history.steps)
        self.history.trim(number)
        fewer = len(self.history.steps) < before
        if fewer and self._kept is not None and snapshots.is_first_process():
            words = f"{self._kept.folder}: steps from {number} on are not put aside"
            self._trying("out", words, self._forget_kept, self._kept, number)

    def _forget_kept(self, kept: SnapshotFolder, number: int) -> None:
        kept.roll_back(number)
        read = self._history_of(kept)  # it has the attention weights of its last step
        if read.steps == self.history.steps:
            self.history = read

    # -- failures ---------------------------------------------------------------------------------

    def _warn(self, kind: str, words: str) -> None:
        """Warn once of each kind of failure."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(words, stacklevel=2)

    def _trying(self, kind: str, words: str, act: Callable[..., Any], *given: Any) -> Any:
        """Return what a function returns; None where it fails, with a warning the first time."""
        try:
            return act(*given)
        except Exception as problem:
            name = "" if isinstance(problem, InputError) else f"{type(problem).__name__}: "
            self._warn(
                kind,
                f"{words} ({name}{problem}); the training goes on, and no later "
                "failure of this kind is reported",
            )
            return None

    # -- measuring -------------------------------------------------------------------------------

    def _the_model(self) -> nn.Module:
        model = self._model()
        if model is None:
            raise InputError("model: is gone; keep a reference to it while it is observed")
        return model

    def _measure(self, number: int) -> bool:
        """Run the probe through the model, undisturbed."""
        if number == self._measured:
            return False
        if not (self._sharded or snapshots.is_first_process()):
            return False  # only the replica of the first process is measured
        begun = time.perf_counter()
        assert self._probe is not None
        model = self._the_model()
        snapshots.refuse_partitioned(model)
        snapshot = snapshots.take_snapshot(model, self._probe, cache=self._cache, **self._sample)
        if self._repeated is not None:
            snapshot = snapshots.with_repeated(
                snapshot, model, self._repeated, min_keys=self.min_keys, cache=self._repeated_cache
            )
        self._keep(number, snapshot)
        self._measured = number
        self.seconds += time.perf_counter() - begun
        return True

    def _keep(self, number: int, snapshot: snapshots.Snapshot) -> None:
        if not snapshots.is_first_process():
            return
        if not snapshot.order:
            warnings.warn(
                f"step {number}: no query of the training's batch sees {self.min_keys} keys, so "
                "nothing is measured; give a smaller min_keys",
                stacklevel=5,
            )
            return
        kinds = ", ".join(sorted(set(snapshot.unseen.values())))
        if snapshot.unseen and not self.history.steps:
            warnings.warn(
                f"only some layers of {self._name} are measured; nothing is known of "
                f"{', '.join(sorted(snapshot.unseen))} ({kinds})",
                stacklevel=5,
            )
        model = self._the_model()
        spent = self._rates.at(number, first=not self.history.steps)
        layers = alike(model, snapshot.order) if self.live else ()
        self.history.add(number, snapshot, learning_rate_sum=spent, layers=layers)
        if not self._attention:
            self._attention = training.attention_parameters(model, snapshot.order)
        if self._kept is not None:
            words = f"step {number}: not written to {self._kept.folder}"
            about = {"learning_rate_sum": spent}
            self._trying("out", words, self._kept.write, number, snapshot, about)
        before = len(self.alerts)
        if self._alerting:
            words = f"step {number}: an alert failed"
            self._trying("alert", words, self._give_alerts, number)
        measured = self.history.means() if self._trackers else None
        for tracker in self._trackers:
            words, new = f"step {number}: log failed", len(self.alerts) - before
            self._trying("log", words, tracker.log, number, measured, new)

    def _give_alerts(self, number: int) -> None:
        """Give each alert that no earlier measurement gave."""
        known = {(one.kind, one.layer) for one in self.alerts}
        now = {name: values[None] for name, values in self.history.of_layers(-1).items()}
        for one in self._alert.found_in([number], now, self.history.of_layers(0)):
            if (one.kind, one.layer) not in known:
                self.alerts.append(one)
                if self._alert.call is not None:
                    self._alert.call(one)
                else:
                    warnings.warn(f"attention at step {number}: {one.words}", stacklevel=2)

    def _go_on(self, folder: Path, probe: Any) -> None:
        """Read the measurements of an earlier observer with the same settings."""
        state = np.random.get_state()  # noqa: NPY002
        from attnlab.observing.trajectory import SnapshotFolder, digest  # slow to import

        np.random.set_state(state)  # noqa: NPY002 (importing JAX draws from it)
        key = {
            **self._settings,
            "probe": None if self.live else digest(probe),
            "repeated": self._repeated is not None,
            "numerics": numerics("measures"),
        }
        self._kept = SnapshotFolder(folder, key)
        self.history = self._history_of(self._kept)
        if self.history.steps:
            self._rates.rewind(self.history.steps[-1], self.history.spent)

    def _history_of(self, kept: SnapshotFolder) -> History:
        history = History(comparable=not self.live)
        for step, spent, snapshot in kept.records():
            layers = alike(self._the_model(), snapshot.order) if self.live else ()
            history.add(step, snapshot, learning_rate_sum=spent, layers=layers)
        return history

    # -- live ------------------------------------------------------------------------------------

    def _arm(self, number: int) -> bool:
        """Capture the next forward pass of the training."""
        model, opened = self._the_model(), ExitStack()
        batch: list[Probe] = []
        problems: list[Exception] = []

        @contextmanager
        def guard() -> Iterator[None]:
            try:
                yield
            except Exception as problem:
                problems.append(problem)

        def take(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            with guard():
                if trains(model) and not batch:
                    batch.append(batch_of(model, args, kwargs))

        with opened:
            opened.callback(follow(take, model))
            weights = WeightCapture(model, opened, self._cache.orders, guard)
            builder = snapshots.SnapshotBuilder(
                lambda: batch[0], weights, self._cache, live=True, **self._sample
            )
            watch = capturing(model, builder.add, only_training=True, guard=guard)
            capture = opened.enter_context(watch)
            # closed even where nobody disarms and the observer is dropped
            close = weakref.finalize(self, opened.pop_all().close)
        self._armed = _LiveCapture(number, close, capture, builder, problems)
        return True

    def _disarm(self, *, failed: bool = False) -> None:
        """Keep what was captured; after a failed training, do not wait for other processes."""
        if self._armed is None:
            return
        armed, self._armed = self._armed, None
        armed.close()
        if failed or not armed.capture.over:
            return
        self._trying("measure", _not_measured(armed.number), self._keep_seen, armed)

    def _keep_seen(self, armed: _LiveCapture) -> None:
        problem, snapshot = next(iter(armed.problems), None), snapshots.Snapshot((), ())
        if problem is None:
            try:
                snapshot = armed.builder.result(armed.capture)
            except Exception as found:
                problem = found
        snapshot = snapshots.gather_sequences(snapshot)  # which waits for every process
        if snapshot.order or problem is None:
            self._keep(armed.number, snapshot)
        if problem is not None:
            raise problem


def _not_measured(number: int) -> str:
    return f"step {number}: not measured"


def alike(model: nn.Module, layers: Collection[str]) -> list[str]:
    """Return the names of modules like these: of the same class, with other numbers in their names.
    A batch of a training may skip some of them (LayerDrop)."""
    modules = dict(model.named_modules())
    kinds = {(_NUMBER.sub("*", name), type(modules[name])) for name in layers if name in modules}
    return [
        name for name, module in modules.items() if (_NUMBER.sub("*", name), type(module)) in kinds
    ]


@dataclass(frozen=True, eq=False)
class _LiveCapture:
    """Capture of the training's next forward pass."""

    number: int
    close: Callable[[], object]
    capture: Capture
    builder: snapshots.SnapshotBuilder
    problems: list[Exception]


observe = Observer  # the name of the verb: attnlab.observe(model, probe=ids)
