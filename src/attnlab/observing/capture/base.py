"""Capture of a model's attention calls: which module attends, with what, and what it makes of it.

Calls of modules are followed by a patch of `nn.Module.__call__`, functions that attend by the
patches of each `Source`. Nothing is put into modules: hooks would be copied and saved with them.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.files.errors import InputError
from attnlab.observing.call import DROP, AttentionCall
from attnlab.observing.probe import sequences_read

CHECKED = 8  # queries whose output is computed again
TF32 = 2.0**-10  # what an accelerator may round the factors of a float32 product to
# Called with a module and the arguments of its call; returns what is called with its output (None
# after an error), or None.
Begin = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Callable[[Any], None] | None]
ATTENDS = re.compile("attention|attn", re.IGNORECASE)  # in the name of a class
Guard = Callable[[], AbstractContextManager[None]]
SMALL = 8  # modules of one whose output is held while the module around it runs
CROSSES = re.compile("cross|encdec|enc_dec|encoder_attn", re.IGNORECASE)  # in that of a module
Made = dict[int, tuple[Tensor, Tensor]]  # by the place of what was made: that, and from what
_LOCK = threading.RLock()  # functions are replaced for all threads of the process


@dataclass(frozen=True, eq=False)
class CapturedCall:
    """A captured attention call beside the output that the model made of it.

    call: queries, keys and all that decides the attention between them.
    output: what the model's own function made of it.
    layer: the name of the module, with #2 for its second call in one forward.
    kind: the module's class.
    exact: whether the output is that of the whole map, without dropout.
    """

    call: AttentionCall
    output: Float[Tensor, "batch head query width"]
    layer: str
    kind: str
    exact: bool

    def check(self) -> None:
        """Refuse a call that does not explain the model's output, at once: see `output_check`."""
        if (check := self.output_check()) is not None:
            check.require_match(*check.numbers.tolist())

    def output_check(self) -> OutputCheck | None:
        """Compute the output of eight queries again from the call, for `OutputCheck`.

        A bias, a mask or a normaliser that no source knows of would otherwise make every statistic
        wrong without a word. Does not synchronise with the device.
        """
        call, value = self.call, self.call.value
        if value is None or not self.exact:
            return None
        queries = call.query.shape[-2]
        rows = torch.linspace(0, queries - 1, min(queries, CHECKED), device=call.query.device)
        rows = rows.round().long()
        logits = _logits(call, rows)
        seen = logits.isfinite()
        found = _times(_weights(call, logits), value, call)
        wrong = (found - self.output[..., rows, :].float()).abs().amax(-1)
        # of values that are not finite nothing can be told: the model has diverged
        known = seen.any(-1) & value.isfinite().all()
        worst = wrong.masked_fill(~known, 0.0).amax()
        largest = logits.masked_fill(~seen, 0.0).abs().amax()
        rounding = _rounding(call.query, call.key, value, self.output)
        bound = rounding * (8 + 2 * largest) * value.abs().amax().float()
        return OutputCheck(self.layer, self.kind, torch.stack([worst, bound]))


@dataclass(frozen=True, eq=False)
class OutputCheck:
    """Difference between a layer's output and ours, and how much of it rounding explains."""

    layer: str
    kind: str
    numbers: Float[Tensor, " 2"]

    def require_match(self, wrong: float, bound: float) -> None:
        """Refuse the layer if rounding does not explain these numbers."""
        if not (wrong == 0 or wrong <= bound):  # both may be NaN
            raise InputError(
                f"model: {self.layer} ({self.kind}) makes something else of its queries, keys and "
                "mask than softmax attention to the keys that the mask shows (an additive mask "
                f"hides those below a drop of {DROP:g}): its output is off by {wrong:.2g}, of "
                f"which rounding explains {bound:.2g}; its statistics would be wrong, so "
                "inside the module call attnlab.observing.record(query, key, value, mask=...) with "
                "what it really uses"
            )


def _rounding(*tensors: Tensor) -> float:
    """Return the rounding of the coarsest dtype that took part."""
    coarsest = max(torch.finfo(tensor.dtype).eps for tensor in tensors)
    return max(coarsest, 1e-6 if tensors[0].device.type == "cpu" else TF32)


def _logits(call: AttentionCall, rows: Tensor) -> Float[Tensor, "batch head row key"]:
    """Return the logits of some queries, minus infinity where a key is hidden.

    On purpose not the code that the statistics use: what both say is right.
    """
    query = call.query[..., rows, :].float()
    logits = _times(query * call.scale, call.key.transpose(-1, -2), call)
    if call.softcap is not None:
        logits = call.softcap * torch.tanh(logits / call.softcap)
    queries, keys = call.query.shape[-2], call.key.shape[-2]
    place = (rows + keys - queries)[:, None]
    key = torch.arange(keys, device=rows.device)[None, :]
    if call.mask is not None:
        mask = call.mask.expand(*call.mask.shape[:-2], queries, keys)[..., rows, :]
        if mask.dtype == torch.bool:
            logits = logits.masked_fill(~mask, -torch.inf)
        else:
            logits = (logits + mask.float()).masked_fill(_hidden(mask.float()), -torch.inf)
    if call.causal:
        logits = logits.masked_fill(key > place, -torch.inf)
    if call.window is not None:
        far = (place - key) >= call.window
        logits = logits.masked_fill(
            far if call.causal else far | (key - place >= call.window), -torch.inf
        )
    return logits


def _hidden(mask: Float[Tensor, "batch head row key"]) -> Tensor:
    """Return which keys an additive mask hides: see `AttentionCall`.

    Where it leaves them a weight that matters, the output of the model has it and ours does not.
    """
    ordered, order = mask.sort(dim=-1, descending=True)
    dropped = (ordered.diff(dim=-1) <= -DROP).cumsum(-1) > 0
    hidden = torch.zeros_like(mask, dtype=torch.bool)
    hidden.scatter_(-1, order[..., 1:], dropped)
    return hidden | (mask <= torch.finfo(torch.float16).min / 2)  # whole rows, which see nothing


def _weights(call: AttentionCall, logits: Tensor) -> Tensor:
    """Return the softmax, with a learnt logit in the denominator where the head has one."""
    if call.sinks is None:
        return logits.softmax(-1).nan_to_num()
    sinks = call.sinks.float().view(1, -1, 1, 1).expand(*logits.shape[:-1], 1)
    return torch.cat([logits, sinks], -1).softmax(-1)[..., :-1]


def _times(rows: Tensor, matrix: Tensor, call: AttentionCall) -> Tensor:
    """Multiply the rows of each head with the keys or values of its KV head."""
    batch, _, number, width = rows.shape
    together = rows.reshape(batch, matrix.shape[1], -1, width)
    return (together @ matrix.float()).reshape(batch, call.query.shape[1], number, -1)


_followers: dict[int | None, tuple[Begin, ...]] = {}  # by the id of the module; None: all modules
_lock = threading.Lock()
_original: Callable[..., Any] | None = None  # nn.Module.__call__, while `_call` stands for it


def follow(begin: Begin, module: nn.Module | None = None) -> Callable[[], None]:
    """Follow the calls of a module, or of all modules; return the function that ends it.

    A copy of the module is another module, and is not followed. The caller keeps the module alive.
    """
    global _original
    key = None if module is None else id(module)
    with _lock:
        _followers[key] = (*_followers.get(key, ()), begin)
        if _original is None:
            _original = nn.Module.__call__
            nn.Module.__call__ = _call

    def end() -> None:
        global _original
        with _lock:
            rest = tuple(one for one in _followers.pop(key, ()) if one is not begin)
            if rest:
                _followers[key] = rest
            # where another has taken the place since, it calls `_call`: both stay
            if not _followers and nn.Module.__call__ is _call and _original is not None:
                nn.Module.__call__ = _original
                _original = None

    return end


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    original = _original or nn.Module._wrapped_call_impl  # ended by another thread just now
    begins = (*_followers.get(None, ()), *_followers.get(id(module), ()))
    if not begins:
        return original(module, *args, **kwargs)
    ends, output = [], None
    try:
        for begin in begins:
            if (end := begin(module, args, kwargs)) is not None:
                ends.append(end)
        output = original(module, *args, **kwargs)
        return output
    finally:
        for end in reversed(ends):
            end(output)


class Capture:
    """Attention calls of one model in its next forward pass (only_training: of a training).

    Holds the model's modules by identity and name: it lives as long as the forward pass that
    it captures. Other threads may run other models, or the same one, in the meantime: only what the
    thread of that forward does is seen, and of that only what modules of the model do: a teacher or
    a loss that its forward calls is a model of its own. guard: opened around the code that
    measures, within the model's own forward.
    """

    def __init__(
        self,
        model: nn.Module,
        see: Callable[[CapturedCall], None],
        *,
        only_training: bool = False,
        guard: Guard = nullcontext,
    ) -> None:
        self.model, self._see, self._guard = model, see, guard
        self.names = {id(module): name for name, module in model.named_modules()}
        # the modules that run, from the outermost to the innermost; None: of another model
        self.running: list[str | None] = []
        self.foreign: set[str] = set()  # classes of other models that attend inside the forward
        self.ran: dict[str, nn.Module] = {}  # all that ran
        self.times: Counter[str] = Counter()  # how often each has attended
        self.alone: set[str] = set()  # those that attend in code of their own
        self.products: set[tuple[str, tuple[int, ...]]] = set()  # of activations: who, what shape
        self.muted = False  # within a function that was seen, and while that is measured
        # whether the module that runs is known to attend to another sequence; None: not known
        self.cross: bool | None = None
        self.sequences = 0  # that the model reads
        self.appended = 0  # keys that it has put behind those of the sequence
        self.made: list[Made] = []  # by the modules inside each that runs
        self._outermost_foreign = ""
        self.over = False  # the captured forward pass has ended
        # the thread of that forward: this one, or the first that begins a forward of a training
        self.thread = None if only_training else threading.get_ident()

    @property
    def is_active(self) -> bool:
        """True if the code that runs now belongs to the captured forward pass.

        What is computed again in the backward pass runs without the whole model around it.
        """
        if threading.get_ident() != self.thread:
            return False
        inside = bool(self.running) and self.running[0] == "" and self.running[-1] is not None
        return inside and not (self.muted or self.over)

    @property
    def current(self) -> str:
        """Name of the innermost module of the model that runs."""
        return next(name for name in reversed(self.running) if name is not None)

    @property
    def next_layer(self) -> int:
        """Number of the layer that attends next: layers are counted as they come."""
        return self.times.total()

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Run code that measures, within the model's own forward pass."""
        with self._guard(), torch.no_grad():
            yield

    def see(self, name: str, call: AttentionCall, output: Tensor, *, exact: bool) -> None:
        """Report a call that the module of this name has made."""
        self.times[name] += 1
        again = "" if self.times[name] == 1 else f"#{self.times[name]}"
        captured = CapturedCall(call, output, name + again, type(self.ran[name]).__name__, exact)
        with muted([self]):  # calls made while measuring are not the model's
            self._see(captured)

    def origins(self, tensor: Tensor) -> list[Tensor]:
        """Return what a tensor was made from by modules of those that run, the nearest first.

        Views share the storage of what they are views of, so that this goes through chunks and
        transpositions of what a linear layer gave, but not through sums or rotations of it.
        """
        found: list[Tensor] = []
        while (made := self._maker(found[-1] if found else tensor)) is not None:
            found.append(made)
        return found

    def _maker(self, tensor: Tensor) -> Tensor | None:
        place = _place(tensor)
        return next((made[place][1] for made in reversed(self.made) if place in made), None)

    def comes_from_elsewhere(self, query: Tensor, key: Tensor) -> bool | None:
        """Return whether keys are made from another tensor than queries; None: not known."""
        first, second = self.origins(query), self.origins(key)
        if not (first and second):
            return None
        # views of one sequence overlap; two sequences of one tensor do not
        if _place(first[-1]) == _place(second[-1]):
            return not _overlap(first[-1], second[-1])
        return not any(differ_by_positions(*both) for both in itertools.product(first, second))

    def outputs(self) -> Iterator[Tensor]:
        """Yield what modules inside of those that run have made, the latest first."""
        for made in reversed(self.made):
            yield from (output for output, _ in reversed(made.values()))

    def note_unsupported(self) -> None:
        """Note that the module that runs attends in code that no source captures."""
        self.alone.add(self.current)

    def note_foreign(self) -> None:
        """Take note that somebody attends, if that is another model inside the forward."""
        if threading.get_ident() == self.thread and self.running and self.running[-1] is None:
            self.foreign.add(self._outermost_foreign)

    def unseen(self) -> dict[str, str]:
        """Return names and classes of what ran without being captured: modules that attend, by what
        they do or by the name of their class, and blocks of a stack in which others attend."""
        named = [name for name, module in self.ran.items() if ATTENDS.search(type(module).__name__)]
        known = {*self.times, *self.alone}
        found = set(self.alone)
        found |= {
            name
            for name in named
            if not any(_within(one, name) or _within(name, one) for one in known)
            and not any(other != name and _within(other, name) for other in named)
        }
        stacks = {self._stack(seen) for seen in self.times} - {None}
        found |= {
            name
            for name in self.ran
            if name.rpartition(".")[0] in stacks
            and not any(_within(one, name) for one in {*self.times, *found})
        }
        return {name: type(self.ran[name]).__name__ for name in self.ran if name in found}

    def _stack(self, name: str) -> str | None:
        """Return the name of the outermost list of modules that the module of this name is in."""
        parts = name.split(".")
        outer = (".".join(parts[:depth]) for depth in range(len(parts)))
        lists = (one for one in outer if isinstance(self.model.get_submodule(one), nn.ModuleList))
        return next(lists, None)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow which module runs."""
        with ExitStack() as opened:
            opened.callback(follow(self._enter_foreign))
            for name, module in self.model.named_modules():
                is_plain = name and _is_plain(module)
                begin = self._begin_plain if is_plain else self._beginning(name, module)
                opened.callback(follow(begin, module))
            yield

    def _enter_foreign(self, module: nn.Module, *_: Any) -> Callable[[Any], None] | None:
        """Note that a module of another model runs; return what notes its end.

        One without weights, or with weights of the model, may be a part that is made anew in each
        forward.
        """
        if not self.running or id(module) in self.names or threading.get_ident() != self.thread:
            return None
        if self.running[-1] is not None:
            weights = {id(weight) for weight in module.parameters()}
            if not weights or weights & {id(weight) for weight in self.model.parameters()}:
                return None
            self._outermost_foreign = type(module).__name__
        depth = len(self.running)
        self.running.append(None)
        self.made.append({})

        def leave(_: Any) -> None:
            del self.running[depth:], self.made[depth:]

        return leave

    def _begin_plain(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None]:
        return partial(self._take_made, args)

    def _beginning(self, name: str, module: nn.Module) -> Begin:
        """Return what follows the calls of a module."""
        # what a block makes of its input would keep the activations of all blocks alive
        is_small = sum(1 for _ in module.modules()) <= SMALL

        def begin(
            _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Callable[[Any], None]:
            if self.thread is None and name == "" and trains(self.model):
                self.thread = threading.get_ident()
            if threading.get_ident() == self.thread:
                if name == "":
                    self.sequences = sequences_read(self.model, args, kwargs)
                self.running.append(name)
                self.made.append({})
                self.ran[name] = module
            return partial(leave, args)

        def leave(given: tuple[Any, ...], output: Any) -> None:
            if threading.get_ident() != self.thread:
                return
            if self.running and self.running[-1] == name:
                self.running.pop()
                self.made.pop()
            if not self.running and name == "":
                self.over = True
            if is_small:
                self._take_made(given, output)

        return begin

    def _take_made(self, given: tuple[Any, ...], output: Any) -> None:
        """Note what a module makes of what."""
        if not self.made or threading.get_ident() != self.thread:
            return
        if isinstance(output, Tensor) and given and isinstance(given[0], Tensor):
            place = _place(output)
            if place != _place(given[0]):  # it may work in place
                self.made[-1][place] = (output, given[0])


@contextmanager
def muted(captures: Collection[Capture], on: bool = True) -> Iterator[None]:
    """Ignore the calls inside: they belong to a call that is captured as a whole."""
    for capture in captures:
        capture.muted = on
    try:
        yield
    finally:
        for capture in captures:
            capture.muted = False


def trains(model: nn.Module) -> bool:
    """Check whether a forward pass that begins now is one of a training; generating needs no
    gradients."""
    return model.training and torch.is_grad_enabled()


def crosses(name: str) -> bool:
    """Check whether a module's name says that it attends to another sequence."""
    return bool(CROSSES.search(".".join(name.split(".")[-2:])))


def _is_plain(module: nn.Module) -> bool:
    """Check for torch's own layers without parts, none of which attends."""
    return type(module).__module__.startswith("torch.nn.modules.") and not module._modules


def _place(tensor: Tensor) -> int:
    """Return the address of a tensor's storage; 0 if it has none (a sparse one)."""
    strided = tensor.layout == torch.strided and not tensor.is_nested
    return tensor.untyped_storage().data_ptr() if strided else 0


def _overlap(first: Tensor, second: Tensor) -> bool:
    """Check whether two views of one storage overlap."""
    begun = [one.storage_offset() for one in (first, second)]
    ends = [
        start + sum((size - 1) * step for size, step in zip(one.shape, one.stride(), strict=True))
        for start, one in zip(begun, (first, second), strict=True)
    ]
    return max(begun) <= min(ends)


def differ_by_positions(first: Tensor, second: Tensor) -> bool:
    """Check whether two tensors of a batch differ by what is the same in all of its sequences:
    positions that were added to one of them. A single sequence does not tell."""
    alike = first.shape == second.shape and first.dtype == second.dtype
    if not (alike and first.ndim >= 3 and first.is_floating_point()):
        return False
    difference = first - second
    rounding = 4 * torch.finfo(first.dtype).eps * torch.maximum(first.abs(), second.abs()).amax()
    for dim in (0, 1):  # sequences are the first dim or the second
        varies, same = ((one - one.narrow(dim, 0, 1)).abs().amax() for one in (second, difference))
        if bool((same <= rounding) & (varies > rounding)):
            return True
    return False


def _within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


class Source(ABC):
    """Patches functions that attend during capture, and reports their calls.

    A further source is one file with a subclass that says which functions it patches (`patch`), and
    its place in `attnlab.observing.capture.SOURCES`. A patch calls the original with the arguments
    that it was given, returns what that returned, and makes an `AttentionCall` of them for each of
    `active_captures`.
    """

    def __init__(self) -> None:
        self.captures: tuple[Capture, ...] = ()  # never changed in place: all threads go through it
        self._undo = ExitStack()

    @abstractmethod
    def patch(self, capture: Capture) -> None:
        """Replace (`replace`) the functions that the captured model may call."""

    @contextmanager
    def open(self, capture: Capture) -> Iterator[None]:
        """Report calls to this capture. The last capture that ends puts everything back.

        Captures may end in any order: each would otherwise put back what it found, which may be
        the patch of another.
        """
        try:
            with _LOCK:
                self.captures = (*self.captures, capture)
                self.patch(capture)
            yield
        finally:
            with _LOCK:
                self.captures = tuple(one for one in self.captures if one is not capture)
                if not self.captures:
                    self._undo.close()

    def active_captures(self) -> list[Capture]:
        """Return the captures of the forward pass that runs; others note a foreign model."""
        for capture in self.captures:
            capture.note_foreign()
        return [capture for capture in self.captures if capture.is_active]

    def replace_by_name(self, capture: Capture, makers: Mapping[Any, Callable[..., Any]]) -> None:
        """Replace functions that a model has under names of its own: imported into the files of
        its classes, or set as attributes of its modules.

        makers: for each function, what makes its stand-in from it, or from it compiled.
        """
        homes = {type(module).__module__ for module in capture.model.modules()}
        files = [sys.modules[name] for name in homes if name in sys.modules]
        for owner in (*files, *capture.model.modules()):
            for name, value in list(vars(owner).items()):
                if not callable(value) or isinstance(value, type):
                    continue
                original = getattr(value, "_torchdynamo_orig_callable", value)
                if isinstance(original, Hashable) and original in makers:
                    self.replace(owner, name, makers[original](value))

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until the last capture ends."""
        if name in vars(owner):
            self._undo.callback(setattr, owner, name, vars(owner)[name])
        else:  # it is inherited
            self._undo.callback(delattr, owner, name)
        setattr(owner, name, value)
