"""Capture of a model's attention calls: the module that attends, its inputs and its output.

`follow` patches `nn.Module.__call__` to see which module runs; `sources.py` patches the functions
that attend. Nothing is put into modules: hooks would be copied and saved with them.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import FrameType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.files.errors import InputError
from attnlab.observing.call import DROP, AttentionCall
from attnlab.observing.probe import sequences_read

CHECKED = 8  # queries whose output is computed again
TF32 = 2.0**-10  # rounding of the factors of a float32 product on an accelerator
# Called with a module and its arguments; returns None, or a function to call with the output (None
# after an error).
Begin = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Callable[[Any], None] | None]
ATTENDS = re.compile("attention|attn", re.IGNORECASE)  # in the name of a class
Guard = Callable[[], AbstractContextManager[None]]
SMALL = 8  # modules in a part whose output is held while the module around it runs
CROSSES = re.compile("cross|encdec|enc_dec|encoder_attn", re.IGNORECASE)  # in a module's name
Outputs = dict[int, tuple[Tensor, Tensor]]  # output and input, by the address of the output


@dataclass(frozen=True, eq=False)
class CapturedCall:
    """A captured attention call and the output that the model computed from it.

    call: queries, keys and everything else that decides the attention weights.
    output: output of the model's own attention function; None where dropout changed it, or where
    the model's code gave the call to `record`.
    layer: name of the module, with #2 for its second call in one forward pass.
    kind: class name of the module.
    """

    call: AttentionCall
    output: Float[Tensor, "batch head query width"] | None
    layer: str
    kind: str

    def output_check(self) -> Float[Tensor, " 2"] | None:
        """Compute the output of eight queries again from the call; return its distance from the
        model's and the part that rounding explains, or None where that is impossible.

        A bias, a mask or a normaliser that no source knows would otherwise make every statistic
        silently wrong. Does not synchronise with the device.
        """
        call, value, output = self.call, self.call.value, self.output
        if value is None or output is None:
            return None
        queries = call.query.shape[-2]
        rows = torch.linspace(0, queries - 1, min(queries, CHECKED), device=call.query.device)
        rows = rows.round().long()
        logits = logits_of(call, rows)
        seen = logits.isfinite()
        found = times(weights_of(call, logits), value, call)
        wrong = (found - output[..., rows, :].float()).abs().amax(-1)
        # values that are not finite do not count: the model has diverged
        known = seen.any(-1) & value.isfinite().all()
        worst = wrong.masked_fill(~known, 0.0).amax()
        largest = logits.masked_fill(~seen, 0.0).abs().amax()
        # rounding of the coarsest dtype that took part
        eps = max(torch.finfo(t.dtype).eps for t in (call.query, call.key, value, output))
        rounding = max(eps, 1e-6 if call.query.device.type == "cpu" else TF32)
        bound = rounding * (8 + 2 * largest) * value.abs().amax().float()
        return torch.stack([worst, bound])


def require_match(layer: str, kind: str, wrong: float, bound: float) -> None:
    """Refuse a layer if rounding does not explain the difference of its output from ours."""
    if not (wrong == 0 or wrong <= bound):  # both may be NaN
        raise InputError(
            f"model: the output of {layer} ({kind}) is not softmax attention of its queries, keys "
            f"and mask (an additive mask hides keys below a drop of {DROP:g}): it differs by "
            f"{wrong:.2g}, and rounding explains {bound:.2g}; statistics would be wrong, so call "
            "attnlab.observing.record(query, key, value, mask=...) inside the module, before it "
            "attends, with what its softmax uses"
        )


def logits_of(call: AttentionCall, rows: Tensor) -> Float[Tensor, "batch head row key"]:
    """Return the logits of some queries, minus infinity where a key is hidden.

    Deliberately independent of the code of the statistics: the two check each other.
    """
    query = call.query[..., rows, :].float()
    logits = times(query * call.scale, call.key.transpose(-1, -2), call)
    if call.softcap is not None:
        logits = call.softcap * torch.tanh(logits / call.softcap)
    queries, keys = call.query.shape[-2], call.key.shape[-2]
    position = (rows + keys - queries)[:, None]
    key = torch.arange(keys, device=rows.device)[None, :]
    if call.mask is not None:
        mask = call.mask.expand(*call.mask.shape[:-2], queries, keys)[..., rows, :]
        if mask.dtype == torch.bool:
            logits = logits.masked_fill(~mask, -torch.inf)
        else:
            logits = (logits + mask.float()).masked_fill(_hidden(mask.float()), -torch.inf)
    if call.causal:
        logits = logits.masked_fill(key > position, -torch.inf)
    if call.window is not None:
        far = (position - key) >= call.window
        logits = logits.masked_fill(
            far if call.causal else far | (key - position >= call.window), -torch.inf
        )
    return logits


def _hidden(mask: Float[Tensor, "batch head row key"]) -> Tensor:
    """Return the keys that an additive mask hides: see `AttentionCall`.

    Where these keep a weight that matters, the model's output has it and ours does not.
    """
    ordered, order = mask.sort(dim=-1, descending=True)
    dropped = (ordered.diff(dim=-1) <= -DROP).cumsum(-1) > 0
    hidden = torch.zeros_like(mask, dtype=torch.bool)
    hidden.scatter_(-1, order[..., 1:], dropped)
    return hidden | (mask <= torch.finfo(torch.float16).min / 2)  # rows that see nothing


def weights_of(call: AttentionCall, logits: Tensor) -> Tensor:
    """Return the softmax, with a learnable sink in the denominator where the head has one."""
    if call.sinks is None:
        return logits.softmax(-1).nan_to_num()
    sinks = call.sinks.float().view(1, -1, 1, 1).expand(*logits.shape[:-1], 1)
    return torch.cat([logits, sinks], -1).softmax(-1)[..., :-1]


def times(rows: Tensor, matrix: Tensor, call: AttentionCall) -> Tensor:
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
            # another patch on top calls `_call`: then both stay
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

    It holds the model's modules by identity and name, and lives as long as that forward pass.
    Other threads may run the same model or others meanwhile: only the thread of that forward pass
    is seen, and there only modules of the model. A teacher or a loss that its forward pass calls is
    another model. see: called with each call; a tensor that it returns takes the place of the
    output. guard: opened around the code that measures inside the forward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        see: Callable[[CapturedCall], Tensor | None],
        *,
        only_training: bool = False,
        guard: Guard = nullcontext,
    ) -> None:
        self.model, self._see, self._guard = model, see, guard
        self.names = {id(module): name for name, module in model.named_modules()}
        # modules that run now, from the outermost to the innermost; None: of another model
        self.running: list[str | None] = []
        self.foreign: set[str] = set()  # classes of other models that attend inside the forward
        self.ran: dict[str, nn.Module] = {}  # all modules that ran
        self.times: Counter[str] = Counter()  # number of calls captured of each
        self.alone: set[str] = set()  # modules that attend in code of their own
        self.recorded: set[str] = set()  # modules whose code calls `record`
        self.products: set[tuple[str, tuple[int, ...]]] = set()  # of activations: module, shape
        self.muted = False  # inside a function that is captured as a whole
        # whether the module that runs attends to another sequence; None: not known
        self.cross: bool | None = None
        self.sequences = 0  # number of sequences that the model reads
        self.appended = 0  # number of keys put behind those of the sequence
        self.inner: list[Outputs] = []  # outputs inside each module that runs
        self._outermost_foreign = ""
        self.over = False  # the captured forward pass has ended
        # the thread of that forward: this one, or the first that begins a forward of a training
        self.thread = None if only_training else threading.get_ident()

    @property
    def is_active(self) -> bool:
        """True if the code that runs now belongs to the captured forward pass.

        Recomputation in the backward pass runs without the whole model around it.
        """
        if not (self.in_thread and self.running):
            return False
        inside = self.running[0] == "" and self.running[-1] is not None
        return inside and not (self.muted or self.over)

    @property
    def in_thread(self) -> bool:
        """True in the thread of the captured forward pass."""
        return threading.get_ident() == self.thread

    @property
    def current(self) -> str:
        """Name of the innermost module of the model that runs."""
        return next(name for name in reversed(self.running) if name is not None)

    @property
    def next_layer(self) -> int:
        """Number of the layer that attends next; layers are counted as they come."""
        return self.times.total()

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Run code that measures, within the model's own forward pass."""
        with self._guard(), torch.no_grad():
            yield

    def see(self, name: str, call: AttentionCall, output: Tensor | None) -> Tensor | None:
        """Report a call of the module of this name; output: see `CapturedCall`. Return what takes
        the place of the output, if anything does."""
        self.times[name] += 1
        again = "" if self.times[name] == 1 else f"#{self.times[name]}"
        captured = CapturedCall(call, output, name + again, type(self.ran[name]).__name__)
        with muted([self]):  # calls made while measuring are not the model's
            return self._see(captured)

    def take_recorded(self, call: AttentionCall) -> bool:
        """Report a call that the code of the module that runs gives to `record`."""
        if not (self.is_active and isinstance(call.query, Tensor)):
            return False
        name = self.current
        if self.times[name] and name not in self.recorded:
            raise InputError(
                f"record: {name or 'the model'} has called an attention function before, which is "
                "measured already; call attnlab.observing.record before that function"
            )
        self.recorded.add(name)
        with self.measuring():
            self.see(name, replace(call, layer=self.next_layer), None)
        return True

    def origins(self, tensor: Tensor) -> list[Tensor]:
        """Return the inputs from which running modules computed a tensor, the nearest first.

        Views share the storage of their tensor, so that this sees through chunks and transpositions
        of a linear layer's output, but not through sums or rotations of it.
        """
        found: list[Tensor] = []
        source: Tensor | None = tensor
        while source is not None:
            at = _address(source)
            inputs = (outputs[at][1] for outputs in reversed(self.inner) if at in outputs)
            if (source := next(inputs, None)) is not None:
                found.append(source)
        return found

    def comes_from_elsewhere(self, query: Tensor, key: Tensor) -> bool | None:
        """Return whether keys are made from another tensor than queries; None: not known."""
        first, second = self.origins(query), self.origins(key)
        if not (first and second):
            return None
        # views of one sequence overlap; two sequences of one tensor do not
        if _address(first[-1]) == _address(second[-1]):
            return not _overlap(first[-1], second[-1])
        return not any(differ_by_positions(*both) for both in itertools.product(first, second))

    def outputs(self) -> Iterator[Tensor]:
        """Yield outputs of modules inside those that run, the latest first."""
        for outputs in reversed(self.inner):
            yield from (output for output, _ in reversed(outputs.values()))

    def note_unsupported(self) -> None:
        """Note that the module that runs attends in code that no source captures."""
        self.alone.add(self.current)

    def note_foreign(self) -> None:
        """Note that attention runs, if it belongs to another model inside the forward pass."""
        if self.in_thread and self.running and self.running[-1] is None:
            self.foreign.add(self._outermost_foreign)

    def unseen(self) -> dict[str, str]:
        """Return names and classes of modules that ran without being captured: those that attend,
        by their operations or by their class name, and blocks of a stack in which others attend."""
        named = [name for name, module in self.ran.items() if ATTENDS.search(type(module).__name__)]
        known = {*self.times, *self.alone}
        found = {
            name
            for name in self.alone
            if not any(_within(one, name) or _within(name, one) for one in self.recorded)
        }
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
        """Note that a module of another model runs; return the function that notes its end.

        One without weights, or with weights of the model, may be a part of the model that each
        forward pass makes anew.
        """
        if not self.running or id(module) in self.names or not self.in_thread:
            return None
        if self.running[-1] is not None:
            weights = {id(weight) for weight in module.parameters()}
            if not weights or weights & {id(weight) for weight in self.model.parameters()}:
                return None
            self._outermost_foreign = type(module).__name__
        depth = len(self.running)
        self.running.append(None)
        self.inner.append({})

        def leave(_: Any) -> None:
            del self.running[depth:], self.inner[depth:]

        return leave

    def _begin_plain(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None]:
        return partial(self._note_output, args)

    def _beginning(self, name: str, module: nn.Module) -> Begin:
        """Return the function that follows the calls of a module."""
        # outputs of a whole block would keep the activations of all blocks alive
        is_small = sum(1 for _ in islice(module.modules(), SMALL + 1)) <= SMALL

        def begin(
            _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Callable[[Any], None]:
            if self.thread is None and name == "" and trains(self.model):
                self.thread = threading.get_ident()
            if self.in_thread:
                if name == "":
                    self.sequences = sequences_read(self.model, args, kwargs)
                self.running.append(name)
                self.inner.append({})
                self.ran[name] = module
            return partial(leave, args)

        def leave(given: tuple[Any, ...], output: Any) -> None:
            if not self.in_thread:
                return
            if self.running and self.running[-1] == name:
                self.running.pop()
                self.inner.pop()
            if not self.running and name == "":
                self.over = True
            if is_small:
                self._note_output(given, output)

        return begin

    def _note_output(self, given: tuple[Any, ...], output: Any) -> None:
        """Note a module's output and first argument."""
        if not self.inner or not self.in_thread:
            return
        if isinstance(output, Tensor) and given and isinstance(given[0], Tensor):
            at = _address(output)
            if at != _address(given[0]):  # it may work in place
                self.inner[-1][at] = (output, given[0])


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


def in_forward(_: AttentionCall) -> bool:
    """Check whether this code is called by the forward pass of a torch module."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not nn.Module._call_impl.__code__:
        frame = frame.f_back
    return frame is not None


def trains(model: nn.Module) -> bool:
    """Check whether a forward pass that begins now trains: generating has no gradients."""
    return model.training and torch.is_grad_enabled()


def crosses(name: str) -> bool:
    """Check whether a module's name says that it attends to another sequence."""
    return bool(CROSSES.search(".".join(name.split(".")[-2:])))


def _is_plain(module: nn.Module) -> bool:
    """Check for torch's own layers without parts, none of which attends."""
    return type(module).__module__.startswith("torch.nn.modules.") and not module._modules


def _address(tensor: Tensor) -> int:
    """Return the address of a tensor's storage; 0 for sparse and nested tensors."""
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
    """Check whether two tensors of a batch differ by the same amount in all sequences: positions
    were added to one of them. A single sequence does not tell."""
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
