"""Probe: a fixed batch on which attention is measured, again and again."""

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
# the names of what tells padding from tokens, and whether it is the tokens that it marks
_PADDING = {"attention_mask": True, "src_key_padding_mask": False, "key_padding_mask": False}
_DECODER_PADDING = {"decoder_attention_mask": True, "tgt_key_padding_mask": False}
# what a decoder reads
_DECODED = (
    "decoder_input_ids",
    "tgt",
    "tgt_ids",
    "tgt_tokens",
    "trg",
    "decoder_ids",
    "decoder_tokens",
    "decoder_inputs_embeds",
)
# whole numbers that are not the tokens that a model reads
_NOT_READ = re.compile("mask|pos|type|label|target|segment|len")
# parts of a model beside one another, by their names
_DECODES = re.compile("decod|(^|_)dec(_|$)|tgt")
_ENCODES = re.compile("encod|(^|_)enc(_|$)|src")
# what is read beside tokens, and the parts of a model that read it, by their names
_SENSES = re.compile("pixel|image|video|vision|visual|audio|speech|sound|input_(feature|value)s?")
_BEGIN_AT_2 = ("roberta", "xlm-roberta", "camembert")


@dataclass(frozen=True, eq=False)
class Side:
    """Tokens, padding and text starts of the sequences that a query or a key belongs to.

    tokens: the ids of the tokens, (sequence, place). real: which places hold tokens and not
    padding; None where all do. starts: the first place of each token's own text, where several
    texts are packed in one sequence.
    """

    tokens: Tensor | None = None
    real: Tensor | None = None
    starts: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Probe:
    """Arguments of a forward pass of the model.

    args, kwargs: as the model's `forward` takes them.
    side: of what the model reads; decoder: of what a decoder beside an encoder reads.
    senses: images or sound are read beside tokens.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    side: Side
    decoder: Side | None = None
    senses: bool = False
    _cut: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def on(self, device: torch.device) -> Probe:
        """Return the same probe on a device."""
        moved = {name: _moved(value, device) for name, value in self.kwargs.items()}
        return replace(self, args=tuple(_moved(v, device) for v in self.args), kwargs=moved)

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(_first(self))

    def run(self, model: nn.Module) -> None:
        """Run a forward pass of the model on the probe, and ignore its result."""
        model(*self.args, **self.kwargs)

    def call_inputs(self, captured: CapturedCall) -> dict[str, Any]:
        """Return the tokens of a call's keys, and which of its queries are present: for
        `statistics`."""
        call = captured.call
        of_keys, of_queries = (call.shape[0], call.shape[3]), (call.shape[0], call.shape[2])
        others = Side() if self.senses else self.side
        queries = self._reader(captured.layer, of_queries)
        if self.senses and _SENSES.search(captured.layer):
            queries = others
        if not call.cross and of_keys != of_queries:
            return self._of_more_keys(queries, of_keys, of_queries)
        keys = others if call.cross else queries
        return {
            "tokens": _fitting(keys.tokens, of_keys),
            "present": _fitting(queries.real, of_queries),
            "starts": None if call.cross else _fitting(queries.starts, of_queries),
        }

    def _of_more_keys(
        self, side: Side, of_keys: tuple[int, int], of_queries: tuple[int, int]
    ) -> dict[str, Any]:
        """Return the same of self-attention with more keys than queries, the last of which stands
        at the last key: there are keys before the tokens, or the queries are some of them."""
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
                real = _fitting(
                    side.real if whole else side.real[:, keys - queries : keys], of_queries
                )
            self._cut[where] = {"tokens": tokens, "present": real, "starts": None}
        return self._cut[where]

    def _reader(self, layer: str, shape: tuple[int, int]) -> Side:
        """Return what is known of the sequences that a layer reads, by its name or else by their
        shape; where neither tells the encoder's from the decoder's, nothing."""
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
                f"{layer}: whether it reads the encoder's tokens or the decoder's, its name does "
                "not tell; what is said of tokens is left out",
                stacklevel=2,
            )
            return Side()
        fits = _fitting(self.decoder.tokens, shape) is not None
        return self.decoder if fits else self.side


def make_probe(model: nn.Module, given: Any) -> Probe:
    """Make the probe that a model is called with from what a person has.

    given: token ids (sequence, place) as a tensor, an array or lists; what a tokenizer gives, or
        any other mapping of the arguments of `forward`; or a tuple of its arguments.
    """
    if isinstance(given, Mapping):
        kwargs = {name: _tensor(value, name) for name, value in given.items()}
        probe = Probe((), kwargs, _side(kwargs))
    elif isinstance(given, tuple):
        args = tuple(_tensor(value, "probe") for value in given)
        probe = Probe(args, {}, _side(_named(model, args)))
    else:
        ids = _tensor(given, "probe")
        if not isinstance(ids, Tensor):
            raise InputError(
                f"probe: expected token ids, got {type(given).__name__}; give a tensor "
                "(sequence, place), or what your tokenizer returns for a text"
            )
        args = (ids[None] if ids.ndim == 1 else ids,)
        probe = Probe(args, {}, _side(_named(model, args)))
    _check_size(probe)
    return _for_model(model, probe)


def context_of(config: Any) -> int | None:
    """Return how many tokens a model of this configuration can read, where it says so."""
    # positions of some begin at 2, which their configuration counts as two places more
    beyond = 2 if getattr(config, "model_type", None) in _BEGIN_AT_2 else 0
    for name in ("max_position_embeddings", "block_size"):
        context = getattr(config, name, None)
        if isinstance(context, int) and context > 0:
            return context - beyond
    return None


def batch_of(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Probe:
    """Return a batch of the training, as the model was called with it."""
    given = _named(model, args) | dict(kwargs)
    return _beside_decoder(model, Probe(args, kwargs, _side(given)), given)


def sequences_read(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return how many sequences a call gives to a model: tokens, embeddings, images or sound."""
    given = _named(model, args) | dict(kwargs)
    decoded = [value for name, value in given.items() if name in _DECODED and _are_ids(value)]
    dense = [
        value
        for name, value in given.items()
        if isinstance(value, Tensor)
        and value.is_floating_point()
        and value.ndim >= 3
        and not _NOT_READ.search(name)
    ]
    return len({id(one) for one in (*_read(given), *decoded, *dense)})


def _for_model(model: nn.Module, probe: Probe) -> Probe:
    """Add what a model of transformers needs beside its tokens, and check the probe against its
    sizes."""
    config: Any = getattr(model, "config", None)
    kwargs: dict[str, Any] = dict(probe.kwargs)
    args = probe.args
    if hasattr(config, "model_type"):
        if args and probe.side.tokens is not None:  # by name, beside the others
            kwargs["input_ids"], args = args[0], args[1:]
        takes = inspect.signature(model.forward).parameters
        # neither keys for later nor the logits of every place: nobody reads them
        spared = {"use_cache": False, "logits_to_keep": 1}
        kwargs |= {k: v for k, v in spared.items() if k in takes and k not in kwargs}
        decoder = (*_DECODED, "labels")
        reads = "decoder_input_ids" in takes and "input_ids" in kwargs
        if reads and config.is_encoder_decoder and not any(name in kwargs for name in decoder):
            shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
            ids = kwargs["input_ids"]
            kwargs["decoder_input_ids"] = ids if shift is None else shift(ids)
    _check_context(model, config, probe)
    return _beside_decoder(
        model, Probe(args, kwargs, probe.side), _named(model, probe.args) | kwargs
    )


def _check_size(probe: Probe) -> None:
    first = _first(probe)
    if first.numel() == 0:
        raise InputError("probe: nothing in it; give at least one sequence of two tokens")
    if first.ndim >= 2 and first.shape[1] < LEAST and probe.side.tokens is not None:
        raise InputError(
            f"probe: sequences of {first.shape[1]} token; a query needs keys to choose from, "
            "give sequences of at least two"
        )
    if probe.kwargs.get("past_key_values") is not None:
        raise InputError(
            "probe: past_key_values: every forward adds to it, and no two would be alike; leave it "
            "out, and give the tokens that it holds before the others"
        )
    if probe.side.real is not None and not bool(probe.side.real.any(-1).all()):
        raise InputError("probe: a sequence is all padding; leave it out")


def _check_context(model: nn.Module, config: Any, probe: Probe) -> None:
    tokens = probe.side.tokens
    if tokens is None:
        return
    length, context = tokens.shape[-1], context_of(config)
    if context is not None and context < length:
        raise InputError(
            f"probe: {length} tokens are longer than the model's context of {context}; cut the "
            f"sequences, probe[:, :{context}]"
        )
    words = _words(model)
    if isinstance(words, int) and not 0 <= int(tokens.min()) <= int(tokens.max()) < words:
        raise InputError(
            f"probe: token ids from {int(tokens.min())} to {int(tokens.max())}, where "
            f"the model knows 0 to {words - 1}; use the tokenizer of this model"
        )


def _words(model: nn.Module) -> Any:
    """Return how many tokens the model knows, if it says so; one of text and images (CLIP) does
    not."""
    try:
        embeddings = getattr(model, "get_input_embeddings", lambda: None)()
    except NotImplementedError:
        return None
    return getattr(embeddings, "num_embeddings", None)


def _first(probe: Probe) -> Tensor:
    tensors = [v for v in (*probe.args, *probe.kwargs.values()) if isinstance(v, Tensor)]
    if not tensors:
        raise InputError("probe: no tensor in it; give token ids (sequence, place)")
    return probe.kwargs.get("input_ids", tensors[0])


def _named(model: nn.Module, args: tuple[Any, ...]) -> dict[str, Any]:
    """Return arguments by the names that `forward` has for them; by their number where it has
    none, as wrappers that take whatever comes."""
    parameters = inspect.signature(model.forward).parameters.values()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in by_place]
    names += [str(i) for i in range(len(names), len(args))]
    return dict(zip(names, args, strict=False))


def _are_ids(value: Any) -> bool:
    """Check whether these may be token ids of sequences."""
    return (
        isinstance(value, Tensor)
        and value.ndim == 2
        and value.dtype in (torch.int64, torch.int32, torch.int16, torch.uint8)
    )


def _read(given: Mapping[str, Any]) -> list[Tensor]:
    """Return the token ids among arguments that are not a decoder's, in their order."""
    if isinstance(ids := given.get("input_ids"), Tensor):
        return [ids]
    return [
        value
        for name, value in given.items()
        if _are_ids(value) and name not in _DECODED and not _NOT_READ.search(name)
    ]


def _side(given: Mapping[str, Any]) -> Side:
    tokens = _read(given)
    return Side(tokens[0] if tokens else None, _real(given), _starts(given.get("position_ids")))


def _beside_decoder(model: nn.Module, probe: Probe, given: Mapping[str, Any]) -> Probe:
    """Add what parts read that do not read `side`; the model may be wrapped in another."""
    configs = (getattr(module, "config", None) for module in model.modules())
    decodes = any(getattr(config, "is_encoder_decoder", False) for config in configs)
    decoder = None
    if decodes or any(given.get(name) is not None for name in _DECODED):
        tokens = (given.get(name) for name in _DECODED)
        decoder = Side(
            next((one for one in tokens if _are_ids(one)), None), _real(given, _DECODER_PADDING)
        )
    elif len(_read(given)) > 1:  # which of them a decoder reads, if there is one, is not known
        names = [name for name, _ in model.named_modules()]
        if all(any(kind.search(name) for name in names) for kind in (_ENCODES, _DECODES)):
            decoder = Side()
    senses = any(_SENSES.match(name) for name, value in given.items() if value is not None)
    return replace(probe, decoder=decoder, senses=senses and "input_ids" in given)


def _real(kwargs: Mapping[str, Any], names: Mapping[str, bool] = _PADDING) -> Tensor | None:
    for name, marks_tokens in names.items():
        mask = kwargs.get(name)
        if isinstance(mask, Tensor) and mask.ndim == 2:
            real = mask.bool() if marks_tokens else ~mask.bool()
            return None if bool(real.all()) else real
    return None


def _starts(positions: Tensor | None) -> Tensor | None:
    """Return where each text begins, in sequences whose positions begin anew."""
    if not isinstance(positions, Tensor) or positions.ndim != 2:
        return None
    anew = positions.diff(prepend=positions[:, :1] - 1) != 1
    if not bool(anew.any()):
        return None
    place = torch.arange(positions.shape[1], device=positions.device)
    return torch.where(anew, place, 0).cummax(-1).values


def _fitting(values: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
    """Return values of this shape; None where they belong to other positions."""
    return None if values is None or tuple(values.shape) != shape else values


def _tensor(value: Any, name: str) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()  # a batch that the training changes is a probe no more
    if isinstance(value, np.ndarray | list):
        try:
            return torch.as_tensor(np.array(value))  # its own, as above
        except (TypeError, ValueError):
            raise InputError(
                f"{name}: expected numbers in rows of one length; pad them, and give a mapping "
                "with input_ids and attention_mask"
            ) from None
    return value


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value
