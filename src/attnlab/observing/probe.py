"""Probe: the fixed batch on which attention is measured at every step."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.files.errors import InputError

if TYPE_CHECKING:
    from attnlab.observing.capture import CapturedCall

LEAST = 2  # tokens of a sequence: one alone has nothing to choose from
# names of padding masks; True where they mark tokens, False where they mark padding
_PADDING = {"attention_mask": True, "src_key_padding_mask": False, "key_padding_mask": False}
_DECODER_PADDING = {"decoder_attention_mask": True, "tgt_key_padding_mask": False}
# names of what a decoder reads
_DECODED: tuple[str, ...] = ("decoder_input_ids", "tgt", "tgt_ids", "tgt_tokens", "trg")
_DECODED += ("decoder_ids", "decoder_tokens", "decoder_inputs_embeds")
_ID_DTYPES = (torch.int64, torch.int32, torch.int16, torch.uint8)
# names of whole numbers that are not tokens
_NOT_TOKENS = re.compile("mask|pos|type|label|target|segment|len")
# names of parts of a model
_DECODES = re.compile("decod|(^|_)dec(_|$)|tgt")
_ENCODES = re.compile("encod|(^|_)enc(_|$)|src")
# names of inputs beside tokens, and of the parts that read them
_MODALITIES = re.compile(
    "pixel|image|video|vision|visual|audio|speech|sound|input_(feature|value)s?"
)
_POSITIONS_FROM_2 = ("roberta", "xlm-roberta", "camembert")


@dataclass(frozen=True, eq=False)
class Side:
    """Tokens, padding and text starts of the sequences that a query or a key belongs to.

    tokens: token ids, (sequence, position). real: positions that hold tokens and not padding; None
    where all do. starts: the first position of each token's own text, where one sequence packs
    several texts.
    """

    tokens: Tensor | None = None
    real: Tensor | None = None
    starts: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Probe:
    """Arguments of a forward pass of the model.

    args, kwargs: as the model's `forward` takes them.
    side: what the model reads; decoder: what a decoder beside an encoder reads.
    multimodal: the model reads images or sound beside tokens.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    side: Side
    decoder: Side | None = None
    multimodal: bool = False
    _cut: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def on(self, device: torch.device) -> Probe:
        """Return the same probe on a device."""

        def moved(value: Any) -> Any:
            return value.to(device) if isinstance(value, Tensor) else value

        kwargs = {name: moved(value) for name, value in self.kwargs.items()}
        return replace(self, args=tuple(map(moved, self.args)), kwargs=kwargs)

    @property
    def first(self) -> Tensor:
        """The token ids, or else the first tensor."""
        tensors = [v for v in (*self.args, *self.kwargs.values()) if isinstance(v, Tensor)]
        if not tensors:
            raise InputError("probe: no tensor in it; give token ids (sequence, position)")
        return self.kwargs.get("input_ids", tensors[0])

    def run(self, model: nn.Module) -> None:
        """Run a forward pass of the model on the probe, and ignore its result."""
        model(*self.args, **self.kwargs)

    def call_inputs(self, captured: CapturedCall) -> dict[str, Any]:
        """Return tokens, present and starts of a call, as `statistics` takes them."""
        call = captured.call
        of_keys, of_queries = (call.shape[0], call.shape[3]), (call.shape[0], call.shape[2])
        others = Side() if self.multimodal else self.side
        queries = self._reader(captured.layer, of_queries)
        if self.multimodal and _MODALITIES.search(captured.layer):
            queries = others
        if not call.cross and of_keys != of_queries:
            return self._with_more_keys(queries, of_keys, of_queries)
        keys = others if call.cross else queries
        return {
            "tokens": _fitting(keys.tokens, of_keys),
            "present": _fitting(queries.real, of_queries),
            "starts": None if call.cross else _fitting(queries.starts, of_queries),
        }

    def _with_more_keys(
        self, side: Side, of_keys: tuple[int, int], of_queries: tuple[int, int]
    ) -> dict[str, Any]:
        """Return the inputs of self-attention with more keys than queries, whose last query stands
        at the last key: keys precede the tokens, or the queries are some of the tokens."""
        (batch, keys), (_, queries) = of_keys, of_queries
        where = (id(side), keys, queries)
        if where not in self._cut:  # kept, because calls are known to be alike by these tensors
            tokens = real = None
            if side.tokens is not None and tuple(side.tokens.shape) == of_queries:
                before = -1 - torch.arange(keys - queries, device=side.tokens.device)
                tokens = torch.cat([before.expand(batch, -1), side.tokens], 1)
            elif side.tokens is not None and len(side.tokens) == batch:
                tokens = _fitting(side.tokens[:, :keys], of_keys)
            if side.real is not None and len(side.real) == batch:
                whole = side.real.shape[1] == queries
                real = side.real if whole else side.real[:, keys - queries : keys]
                real = _fitting(real, of_queries)
            self._cut[where] = {"tokens": tokens, "present": real, "starts": None}
        return self._cut[where]

    def _reader(self, layer: str, shape: tuple[int, int]) -> Side:
        """Return the sequences that a layer reads, by its name or else by their shape; an empty
        side where neither tells the encoder's from the decoder's."""
        if self.decoder is None:
            return self.side
        for part in layer.split("."):
            if _DECODES.search(part):
                return self.decoder
            if _ENCODES.search(part):
                return self.side
        tokens = [side.tokens for side in (self.side, self.decoder) if side.tokens is not None]
        if len({tuple(one.shape) for one in tokens}) < 2:
            warnings.warn(
                f"{layer}: cannot tell from its name whether it attends to encoder or decoder "
                "tokens; token statistics are left out",
                stacklevel=2,
            )
            return Side()
        fits = _fitting(self.decoder.tokens, shape) is not None
        return self.decoder if fits else self.side


def make_probe(model: nn.Module, given: Any) -> Probe:
    """Make the probe that a model is called with.

    given: token ids (sequence, position) as a tensor, an array or lists; the result of a tokenizer,
        or any other mapping of the arguments of `forward`; or a tuple of its arguments.
    """
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(given, Probe):
        return given
    if isinstance(given, Mapping):
        kwargs = {name: _tensor(value, name) for name, value in given.items()}
    elif isinstance(given, tuple):
        args = tuple(_tensor(value, "probe") for value in given)
    else:
        ids = _tensor(given, "probe")
        if not isinstance(ids, Tensor):
            raise InputError(
                f"probe: expected token ids, got {type(given).__name__}; give a tensor "
                "(sequence, position), or what your tokenizer returns for a text"
            )
        args = (ids[None] if ids.ndim == 1 else ids,)
    probe = batch_of(model, args, kwargs)
    _check_size(probe)
    _check_context(model, probe)
    if hasattr(getattr(model, "config", None), "model_type"):
        return _for_transformers(model, probe)
    return probe


def batch_of(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Probe:
    """Return the batch that a model is called with."""
    given = _by_name(model, args) | dict(kwargs)
    tokens = _tokens_read(given)
    starts = _starts(given.get("position_ids"))
    side = Side(tokens[0] if tokens else None, _real(given, _PADDING), starts)
    modalities = any(_MODALITIES.match(name) for name, v in given.items() if v is not None)
    multimodal = modalities and "input_ids" in given
    return Probe(args, kwargs, side, _decoder_side(model, given, tokens), multimodal)


def sequences_read(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return the number of sequences in a call of a model: of tokens, embeddings, images, sound."""
    given = _by_name(model, args) | dict(kwargs)
    found = _tokens_read(given)
    for name, value in given.items():
        is_dense = isinstance(value, Tensor) and value.is_floating_point() and value.ndim >= 3
        is_decoded = name in _DECODED and _are_ids(value)
        if is_decoded or (is_dense and not _NOT_TOKENS.search(name)):
            found.append(value)
    return len({id(one) for one in found})


def context_of(config: Any) -> int | None:
    """Return the number of tokens that a model of this configuration can read, if it says."""
    # the configuration of models whose positions begin at 2 counts two more
    beyond = 2 if getattr(config, "model_type", None) in _POSITIONS_FROM_2 else 0
    for name in ("max_position_embeddings", "block_size"):
        context = getattr(config, name, None)
        if isinstance(context, int) and context > 0:
            return context - beyond
    return None


def _for_transformers(model: Any, probe: Probe) -> Probe:
    """Add the arguments that a model of transformers needs beside its tokens."""
    kwargs, args = dict(probe.kwargs), probe.args
    if args and probe.side.tokens is not None:  # by name, as the others
        kwargs["input_ids"], args = args[0], args[1:]
    takes = inspect.signature(model.forward).parameters
    # neither keys for later nor the logits of every position: nobody reads them
    spared = {"use_cache": False, "logits_to_keep": 1}
    kwargs |= {k: v for k, v in spared.items() if k in takes and k not in kwargs}
    decodes = "decoder_input_ids" in takes and model.config.is_encoder_decoder
    if decodes and "input_ids" in kwargs and not kwargs.keys() & {*_DECODED, "labels"}:
        shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
        ids = kwargs["input_ids"]
        kwargs["decoder_input_ids"] = ids if shift is None else shift(ids)
    return replace(batch_of(model, args, kwargs), side=probe.side)


def _check_size(probe: Probe) -> None:
    first = probe.first
    if first.numel() == 0:
        raise InputError("probe: is empty; give at least one sequence of two tokens")
    if first.ndim >= 2 and first.shape[1] < LEAST and probe.side.tokens is not None:
        raise InputError(
            f"probe: sequences of {first.shape[1]} token, too short to choose between keys; give "
            "sequences of at least two"
        )
    if probe.kwargs.get("past_key_values") is not None:
        raise InputError(
            "probe: past_key_values: every forward pass would change it; leave it out, and give "
            "its tokens as part of the sequence"
        )
    if probe.side.real is not None and not bool(probe.side.real.any(-1).all()):
        raise InputError("probe: a sequence is all padding; leave it out")


def _check_context(model: nn.Module, probe: Probe) -> None:
    tokens = probe.side.tokens
    if tokens is None:
        return
    length, context = tokens.shape[-1], context_of(getattr(model, "config", None))
    if context is not None and context < length:
        raise InputError(
            f"probe: {length} tokens are longer than the model's context of {context}; cut the "
            f"sequences, probe[:, :{context}]"
        )
    try:
        embeddings = getattr(model, "get_input_embeddings", lambda: None)()
    except NotImplementedError:  # a model of text and images (CLIP)
        return
    size = getattr(embeddings, "num_embeddings", None)
    if isinstance(size, int) and not 0 <= int(tokens.min()) <= int(tokens.max()) < size:
        raise InputError(
            f"probe: token ids from {int(tokens.min())} to {int(tokens.max())}, but the model's "
            f"vocabulary is 0 to {size - 1}; use the tokenizer of this model"
        )


def _by_name(model: nn.Module, args: tuple[Any, ...]) -> dict[str, Any]:
    """Return arguments by the names that `forward` has for them; by their number where it has none,
    as wrappers that take any arguments."""
    parameters = inspect.signature(model.forward).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    names += [str(i) for i in range(len(names), len(args))]
    return dict(zip(names, args, strict=False))


def _are_ids(value: Any) -> bool:
    """Check whether these may be token ids of sequences."""
    return isinstance(value, Tensor) and value.ndim == 2 and value.dtype in _ID_DTYPES


def _tokens_read(given: Mapping[str, Any]) -> list[Tensor]:
    """Return the token ids among arguments that are not a decoder's, in their order."""
    if isinstance(ids := given.get("input_ids"), Tensor):
        return [ids]
    return [
        value
        for name, value in given.items()
        if _are_ids(value) and name not in _DECODED and not _NOT_TOKENS.search(name)
    ]


def _decoder_side(model: nn.Module, given: Mapping[str, Any], tokens: list[Tensor]) -> Side | None:
    """Return what a decoder reads, None if there is no decoder; the model may be wrapped in
    another."""
    configs = (getattr(module, "config", None) for module in model.modules())
    decodes = any(getattr(config, "is_encoder_decoder", False) for config in configs)
    if decodes or any(given.get(name) is not None for name in _DECODED):
        ids = next((given[name] for name in _DECODED if _are_ids(given.get(name))), None)
        return Side(ids, _real(given, _DECODER_PADDING))
    if len(tokens) > 1:  # it is not known which of them a decoder reads, if there is one
        names = [name for name, _ in model.named_modules()]
        if all(any(kind.search(name) for name in names) for kind in (_ENCODES, _DECODES)):
            return Side()
    return None


def _real(given: Mapping[str, Any], names: Mapping[str, bool]) -> Tensor | None:
    for name, marks_tokens in names.items():
        mask = given.get(name)
        if isinstance(mask, Tensor) and mask.ndim == 2:
            real = mask.bool() if marks_tokens else ~mask.bool()
            return None if bool(real.all()) else real
    return None


def _starts(positions: Any) -> Tensor | None:
    """Return the position at which each text begins, in sequences whose positions start anew."""
    if not isinstance(positions, Tensor) or positions.ndim != 2:
        return None
    anew = positions.diff(prepend=positions[:, :1] - 1) != 1
    if not bool(anew.any()):
        return None
    index = torch.arange(positions.shape[1], device=positions.device)
    return torch.where(anew, index, 0).cummax(-1).values


def _fitting(values: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
    """Return values of this shape; None where they belong to other positions."""
    return None if values is None or tuple(values.shape) != shape else values


def _tensor(value: Any, name: str) -> Any:
    """Return a tensor of its own, which the training cannot change."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray | list):
        try:
            return torch.as_tensor(np.array(value))
        except (TypeError, ValueError):
            raise InputError(
                f"{name}: expected numbers in rows of one length; pad them, and give a mapping "
                "with input_ids and attention_mask"
            ) from None
    return value
