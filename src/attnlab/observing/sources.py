"""Sources of attention calls: patches of the functions through which models attend.

All sources are patched while a model is captured. Where one function calls another (transformers'
"sdpa" calls torch's), only the outer call is captured. `Softmax` only detects attention in a
module's own code, which cannot be measured.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.nn import functional

from attnlab.files.errors import InputError
from attnlab.observing.call import AttentionCall, listening
from attnlab.observing.capture import Capture, CapturedCall, crosses, differ_by_positions, muted

SCALED_DOT_PRODUCT, MULTIHEAD = "scaled_dot_product_attention", "multi_head_attention_forward"
PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm", "einsum")
EXPONENTIALS = ("softmax", "exp", "exp_", "exp2")
FLEX = "torch.nn.attention.flex_attention"
# Called with a capture, the name of a function, its arguments and its result.
Note = Callable[[Capture, str, tuple[Any, ...], Any], None]
MIXTURE = 8  # a square of no more is a mixture of streams (hyper-connections)
_LOCK = threading.RLock()  # functions are replaced for all threads of the process


class Source(ABC):
    """Patches functions that attend during capture, and reports their calls.

    A patch calls the original with the arguments that it was given, returns its result, and makes
    an `AttentionCall` of the arguments for each of `active_captures`. To add a source, write a
    subclass that replaces functions in `patch`, and add it to `SOURCES`.
    """

    def __init__(self) -> None:
        self.captures: tuple[Capture, ...] = ()  # replaced, never changed: all threads iterate it
        self._undo = ExitStack()

    @abstractmethod
    def patch(self, capture: Capture) -> None:
        """Replace (`replace`) the functions that the captured model may call."""

    @contextmanager
    def open(self, capture: Capture) -> Iterator[None]:
        """Report calls to this capture. The last capture that ends restores everything.

        Captures may end in any order: each would otherwise restore what it found, which may be
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
        """Return the captures of the forward pass that runs; others note a foreign model.

        A module that calls `record` says itself what it computes.
        """
        for capture in self.captures:
            capture.note_foreign()
        active = [capture for capture in self.captures if capture.is_active]
        return [capture for capture in active if capture.current not in capture.recorded]

    def replace_by_name(self, capture: Capture, makers: Mapping[Any, Callable[..., Any]]) -> None:
        """Replace functions that a model has under names of its own: imported into the files of
        its classes, or set as attributes of its modules.

        makers: for each function, what makes its replacement from it or from its compiled form.
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


class ScaledDotProduct(Source):
    """Patches torch's function; the module that runs tells which layer calls it.

    A module that has imported the function by name keeps the original, so that the names in the
    files of the model's classes are replaced as well. (A `TorchFunctionMode` would not see the call
    inside `torch.nn.MultiheadAttention`.)
    """

    def patch(self, capture: Capture) -> None:
        if len(self.captures) == 1:
            self.original = getattr(functional, SCALED_DOT_PRODUCT)
            self.replace(functional, SCALED_DOT_PRODUCT, self._attend)
        self.replace_by_name(capture, {self.original: lambda _: self._attend})

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **others: Any,
    ) -> Tensor:
        output: Tensor = self.original(query, key, value, attn_mask, dropout_p, is_causal, **others)
        for capture in self.active_captures():
            name = capture.current
            with capture.measuring():
                unfold = folded(capture, query, value)
                mask = attn_mask
                if mask is not None and unfold is not _four:
                    mask = unfold(mask.expand(*query.shape[:-1], key.shape[-2]))
                named, cross = crosses(name), capture.cross
                if cross is None and not (named or is_causal):
                    cross = capture.comes_from_elsewhere(query, key)
                alone = capture.sequences < 2 and query.shape[-2] == key.shape[-2]
                if cross and alone and not (named or is_causal):
                    _warn_cross(
                        name,
                        "its keys are made from another tensor than its queries, and the model "
                        "reads one sequence",
                        "if it is self-attention, give a probe of several sequences, or measure it "
                        "with attnlab.observing.record",
                    )
                q, k, v = map(unfold, (query, key, value))
                about: dict[str, Any] = {"name": name, "appended": capture.appended}
                about |= {"scale": others.get("scale"), "cross": named or bool(cross)}
                about["layer"] = capture.next_layer
                call = torch_call(q, k, v, mask, is_causal, **about)
                changed = capture.see(name, call, None if dropout_p else unfold(output))
                if changed is not None and unfold is _four:
                    output = changed.reshape(output.shape).to(output.dtype)
        return output


def torch_call(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, **others: Any
) -> AttentionCall:
    """Return the call that torch's function makes of these arguments; others: of `make_call`."""
    if query.is_nested:
        raise InputError(
            "probe: nested tensors cannot be measured; give sequences of one length, or padded "
            "ones with their mask"
        )
    queries, keys = query.shape[-2], key.shape[-2]
    if mask is not None and query.ndim == 4:
        mask = mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape)
    elif mask is not None:
        mask = _four(mask.expand(*query.shape[:-1], keys))
    if is_causal and keys > queries:  # torch counts from the first key: the others are never seen
        key, value = key[..., :queries, :], value[..., :queries, :]
    elif is_causal and keys < queries:
        mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril()[None, None]
        is_causal = False
    others["cross"] = others["cross"] and not is_causal
    query, key, value = map(_four, (query, key, value))
    return make_call(query, key, value, mask, causal=is_causal, **others)


def make_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    cross: bool,
    scale: float | None,
    layer: int = 0,
    name: str = "",
    appended: int = 0,
    **settings: Any,
) -> AttentionCall:
    """Return the call of a function that attends. Tensors have all four dims.

    cross: whether keys belong to another sequence. appended: keys that do not belong to the
    sequence, behind those that do. settings: other fields of the call.
    """
    settings |= {"key": key, "value": value, "mask": mask}
    queries, keys = query.shape[2], key.shape[2]
    if queries != keys and not (causal or cross):
        own = own_sequence(query, key, value, mask, appended)
        if own is None:
            _warn_cross(
                name,
                f"{queries} queries and {keys} keys, without a causal mask that aligns them",
                "to measure it as self-attention, call attnlab.observing.record",
            )
        settings, cross = settings | (own or {}), own is None
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    return AttentionCall(query, scale=scale, layer=layer, causal=causal, cross=cross, **settings)


def own_sequence(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, appended: int
) -> dict[str, Any] | None:
    """Return key, value, mask (and sinks) of self-attention with more keys than queries, cut so
    that the last query's own key is the last; None if nothing tells that it is self-attention.

    A key of zeros with a value of zeros, which softmax attention is given to attend to nothing, is
    a learnable sink of logit 0. A mask that shows each query one key more than the query before is
    causal: keys that come first (prefix tuning) are keys like others, and those after the last
    query (queries in chunks) are never seen.
    """
    mask = None if mask is None else mask.expand(*mask.shape[:-1], key.shape[2])
    sinks = {}
    for at, rest in ((-1, slice(None, -1)), (0, slice(1, None))):
        if key.shape[2] <= query.shape[2]:
            break
        shown = mask is None or bool(
            mask[..., at].all() if mask.dtype == torch.bool else not mask[..., at].any()
        )
        if shown and not (key[:, :, at].any() or value[:, :, at].any()):
            key, value = key[:, :, rest], value[:, :, rest]
            mask = None if mask is None else mask[..., rest]
            sinks = {"sinks": query.new_zeros(query.shape[1])}
            break
    if appended and key.shape[2] == query.shape[2] + appended:  # first, as if it were a prefix
        key, value = key.roll(appended, 2), value.roll(appended, 2)
        mask = None if mask is None else mask.roll(appended, -1)
    elif key.shape[2] != query.shape[2]:
        number = _causal_keys(query, key, mask)
        if number is None:
            return None
        key, value = key[:, :, :number], value[:, :, :number]
        mask = None if mask is None else mask[..., :number]
    return {"key": key, "value": value, "mask": mask, **sinks}


def _causal_keys(query: Tensor, key: Tensor, mask: Tensor | None) -> int | None:
    """Return the number of keys up to the last query's own; None if no mask tells."""
    queries, keys = query.shape[2], key.shape[2]
    if mask is None or mask.shape[-2] != queries or queries < 2 or keys < queries:
        return None
    call = AttentionCall(query, key, None, 1.0, 0, mask=mask, cross=True)
    shown = mask if call.floor is None else mask.float() > call.floor
    last = (shown.flatten(0, -3).any(0) * torch.arange(1, keys + 1, device=mask.device)).amax(-1)
    found: list[int] = last.tolist()  # 0: sees nothing
    first = next((i for i, end in enumerate(found) if end), queries)
    steps = [after - before for before, after in itertools.pairwise(found[first:])]
    if not set(steps) <= {0, 1} or 2 * sum(steps) < queries - 1:  # padding at the end sees no more
        return None
    number = found[first] - 1 - first + queries
    return number if queries <= number <= keys else None


def _warn_cross(name: str, why: str, remedy: str) -> None:
    """Warn of a layer that counts as cross-attention without being known to be."""
    warnings.warn(
        f"{name or 'the model'}: {why}. It is taken for cross-attention: statistics of "
        f"positions, induction and caches are left out; {remedy}",
        stacklevel=3,
    )


def folded(capture: Capture, query: Tensor, value: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function that gives tensors of a call the dims batch, head, position, width.

    Three dims may be one head, or heads that were folded into the batch. Outputs of modules with
    whole sequences (sequence, position, heads times width) tell: the second matrix of values is
    then the second head of the first sequence, or the first head of the second.
    """
    if query.ndim != 3:
        return _four
    number, length, width = value.shape
    for output in capture.outputs():
        if output.ndim != 3 or not output.is_floating_point():
            continue
        for whole in (output, output.transpose(0, 1)):
            batch, heads = whole.shape[0], number // whole.shape[0]
            fits = whole.shape[1] == length and batch * heads == number and heads > 1
            if not fits or whole.shape[2] % width or whole.shape[2] < heads * width:
                continue
            of_heads = whole.unflatten(-1, (-1, width))

            def has(sequence: int, one: int, of_heads: Tensor = of_heads) -> bool:
                same = of_heads[sequence] == value[one][:, None]
                return bool(same.flatten(2).all(-1).all(0).any())

            if not has(0, 0):
                continue
            if has(0, 1):
                return functools.partial(torch.unflatten, dim=0, sizes=(batch, heads))
            if batch > 1 and has(1, 1):
                return lambda one: one.unflatten(0, (heads, batch)).transpose(0, 1)
    return _four


def _four(tensor: Tensor) -> Tensor:
    """Return a tensor with the dims batch, head, position, width: fewer dims are one head, more
    dims one batch."""
    if tensor.ndim < 4:
        return tensor.reshape(*(1,) * (3 - tensor.ndim), *tensor.shape).unsqueeze(1)
    return tensor.flatten(0, -4)


class Multihead(Source):
    """Patches `multi_head_attention_forward`, which computes attention weights that a module asks
    for in products of its own, where no source captures them.

    The captures then compute the same once more without weights: that goes through
    `scaled_dot_product_attention`, after everything that this function does to masks and biases.

    torch's fast path calls nothing that could be captured, so that modules that ask whether it is
    enabled hear that it is not. The flag itself stays: other threads may run other models.
    """

    def patch(self, capture: Capture) -> None:
        if len(self.captures) == 1:
            self.original = getattr(functional, MULTIHEAD)
            self.signature = inspect.signature(self.original)
            self.replace(functional, MULTIHEAD, self._attend)
            enabled = mha.get_fastpath_enabled
            self.replace(
                mha,
                enabled.__name__,
                lambda: enabled() and not any(capture.is_active for capture in self.captures),
            )

    def _attend(self, *args: Any, **kwargs: Any) -> Any:
        given = self.signature.bind(*args, **kwargs)
        captures = self.active_captures()
        query, key = given.arguments["query"], given.arguments["key"]
        alike = query is key or (
            query.shape == key.shape
            and (torch.equal(query, key) or differ_by_positions(query, key))
        )
        for capture in captures:
            capture.cross = not alike
            capture.appended = int(given.arguments.get("bias_k") is not None)
        weights = given.arguments.get("need_weights", True)
        try:
            with muted(captures, weights):
                result = self.original(*args, **kwargs)
            if captures and weights:
                quiet = {"need_weights": False, "training": False}  # no dropout, no random number
                with ExitStack() as measuring:
                    for capture in captures:
                        measuring.enter_context(capture.measuring())
                    self.original(**(given.arguments | quiet))
        finally:
            for capture in captures:
                capture.cross, capture.appended = None, 0
        return result


class Softmax(Source):
    """Patches torch's softmax, exponentials and products, and notes modules that attend.

    A module attends if it takes the softmax or the exponential of a product of activations, over
    all keys or a block of them; if it takes a softmax as wide as it is high (a router's softmax
    over experts is not); or if it calls flex_attention. Otherwise only class names would tell.
    """

    def patch(self, capture: Capture) -> None:
        if len(self.captures) == 1:
            self._by_name: dict[Any, Any] = {}
            for note, names in ((_note_product, PRODUCTS), (_note_exponential, EXPONENTIALS)):
                for owner in (functional, torch, Tensor):
                    for name in names:
                        if hasattr(owner, name):
                            self._replace(owner, name, note)
            if (flex := sys.modules.get(FLEX)) is not None:
                self._replace(
                    flex, "flex_attention", lambda capture, *_: capture.note_unsupported()
                )
        self.replace_by_name(capture, self._by_name)

    def _replace(self, owner: Any, name: str, note: Note) -> None:
        original, make = getattr(owner, name), functools.partial(self._noted, note)
        self.replace(owner, name, make(original))
        if owner is not Tensor:
            self._by_name[original] = make

    def _noted(self, note: Note, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its calls noted in active captures."""
        name = getattr(original, "__name__", "")

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            for capture in self.captures:
                if capture.is_active:
                    note(capture, name, args, result)
            return result

        return call


def _note_product(capture: Capture, name: str, args: tuple[Any, ...], result: Any) -> None:
    if isinstance(result, Tensor) and result.ndim > 2 and not any(map(_is_weight, args)):
        capture.products.add((capture.current, tuple(result.shape)))


def _note_exponential(capture: Capture, name: str, args: tuple[Any, ...], result: Any) -> None:
    if not isinstance(result, Tensor) or result.ndim <= 2 or result.shape[-1] <= MIXTURE:
        return
    is_square = name == "softmax" and result.shape[-1] == result.shape[-2]
    if is_square or (capture.current, tuple(result.shape)) in capture.products:
        capture.note_unsupported()


def _is_weight(value: Any) -> bool:
    """Check for a parameter, or a view of one."""
    return isinstance(value, nn.Parameter) or (
        isinstance(value, Tensor) and isinstance(value._base, nn.Parameter)
    )


class HuggingFace(Source):
    """Patches `ALL_ATTENTION_FUNCTIONS.get_interface`, so that it gives captured functions.

    Queries and keys arrive after positions and norms, keys with the KV heads. The name under which
    a model asks stays as it is: transformers makes the mask by that name, and would make none for
    a name of our own.
    """

    def patch(self, capture: Capture) -> None:
        utils = sys.modules.get("transformers.modeling_utils")
        if utils is None or len(self.captures) > 1:  # not imported, or patched already
            return
        original = utils.AttentionInterface.get_interface

        def get_interface(interface: Any, attn_implementation: str, default: Callable) -> Callable:
            function = original(interface, attn_implementation, default)
            return self._watched(function, attn_implementation)

        self.replace(utils.AttentionInterface, "get_interface", get_interface)

    def _watched(self, function: Callable, implementation: str) -> Callable:
        @functools.wraps(function)
        def attend(module: nn.Module, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
            captures = [one for one in self.active_captures() if id(module) in one.names]
            with muted(captures):
                result = function(module, query, key, *args, **kwargs)
            for capture in captures:
                name = capture.names[id(module)]
                cross = getattr(module, "is_cross_attention", False) or crosses(name)
                if not cross and query.shape[2] != key.shape[2]:
                    cross = bool(capture.comes_from_elsewhere(query, key))
                given = {**kwargs, "layer": capture.next_layer, "cross": cross, "name": name}
                with capture.measuring():
                    call = huggingface_call(implementation, module, query, key, *args, **given)
                    dropped = kwargs.get("dropout")
                    output = None if dropped else result[0].transpose(1, 2)
                    if (changed := capture.see(name, call, output)) is not None:
                        result = (changed.transpose(1, 2).to(result[0].dtype), *result[1:])
            return result

        return attend


def huggingface_call(
    implementation: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    *_: Any,
    layer: int = 0,
    cross: bool = False,
    name: str = "",
    **kwargs: Any,
) -> AttentionCall:
    """Return the call that an implementation makes of these arguments.

    Each says in its own way which keys a query sees. "eager" adds its mask and knows no causality
    but the mask's; "sdpa" is causal where there is no mask; "flex_attention" has a function of
    positions; flash kernels have a mask of the padding, and a window beside it.
    """
    read = _READERS.get(implementation, _flash if "flash" in str(implementation) else _sdpa)
    seen: dict[str, Any] = {
        "mask": attention_mask,
        "causal": False,
        "softcap": kwargs.get("softcap"),
        "sinks": kwargs.get("s_aux"),
        "keys": key.shape[2],
        **read(module, query, key, attention_mask, kwargs),
    }
    keys = seen.pop("keys")
    mask = _with_bias(seen.pop("mask"), kwargs.get("position_bias"), keys)
    seen |= {"layer": layer, "cross": cross, "name": name, "scale": kwargs.get("scaling")}
    return make_call(query, key[:, :, :keys], value[:, :, :keys], mask, **seen)


def _sdpa(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, kwargs: dict[str, Any]
) -> dict[str, Any]:
    asked = kwargs.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if asked is None else asked)
    causal = causal and mask is None and query.shape[2] > 1
    # torch counts from the first key, and leaves out those beyond the queries
    keys = min(query.shape[2], key.shape[2]) if causal else key.shape[2]
    return {"causal": causal, "sinks": None, "keys": keys}


def _flex(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, kwargs: dict[str, Any]
) -> dict[str, Any]:
    if hasattr(mask, "mask_mod"):  # a BlockMask
        from torch.nn.attention.flex_attention import create_mask

        heads = mask.shape[1]
        sizes = query.shape[0], heads, query.shape[2], key.shape[2]
        mask = create_mask(mask.mask_mod, *sizes, device=query.device)
    elif mask is not None:
        mask = mask.to(query.dtype)  # it is added, whatever it is
    return {"mask": mask}


def _flash(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, kwargs: dict[str, Any]
) -> dict[str, Any]:
    if kwargs.get("block_table") is not None:
        raise InputError(
            "model: attends to a paged cache, which cannot be measured; observe it without a cache"
        )
    asked = kwargs.get("is_causal")
    causal = bool(module.is_causal if asked is None else asked)
    if mask is not None:
        mask = mask[:, None, None, -key.shape[2] :].bool()
    pack = _packed(query, kwargs)
    if pack is not None:
        mask = pack[:, None, :, None] == pack[:, None, None, :]
    window = kwargs.get("sliding_window")
    window = window if window is not None and key.shape[2] > window else None
    return {"mask": mask, "causal": causal, "window": window}


_READERS = {"eager": lambda *_: {}, "sdpa": _sdpa, "flex_attention": _flex}


def _packed(query: Tensor, kwargs: dict[str, Any]) -> Tensor | None:
    """Return the text to which each position belongs, where one sequence packs several.

    Flash kernels get the positions at which texts begin, or find positions that start anew.
    """
    begins = kwargs.get("cu_seq_lens_q")
    positions = kwargs.get("position_ids")
    places = torch.arange(query.shape[2], device=query.device)
    if begins is not None:
        if query.shape[0] != 1:
            raise InputError("probe: packed sequences in a batch of several; give one row")
        return torch.bucketize(places, begins[1:].to(places.device), right=True)[None]
    if positions is None or query.shape[0] != 1 or positions.shape[-1] != query.shape[2]:
        return None
    return (positions.diff(prepend=positions[:, :1] - 1) != 1).cumsum(-1)


def _with_bias(mask: Tensor | None, bias: Tensor | None, keys: int) -> Tensor | None:
    """Combine the mask and the bias of positions that is added to the logits (T5)."""
    if mask is not None and mask.shape[-1] > keys:  # else the same tensor for every layer
        mask = mask[..., :keys]
    if bias is None:
        return mask
    bias = bias[..., :keys]
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return bias.masked_fill(~mask, -torch.inf)
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    return (bias + mask).masked_fill(hidden, -torch.inf)


SOURCES: tuple[Source, ...] = (HuggingFace(), Multihead(), ScaledDotProduct(), Softmax())


@contextmanager
def capturing(
    model: nn.Module, see: Callable[[CapturedCall], Tensor | None], **options: Any
) -> Iterator[Capture]:
    """Capture every attention call of the model's next forward pass; options of `Capture`."""
    capture = Capture(model, see, **options)
    with ExitStack() as opened:
        for source in SOURCES:
            opened.enter_context(source.open(capture))
        opened.enter_context(listening(capture.take_recorded))
        opened.enter_context(capture.following())
        yield capture
