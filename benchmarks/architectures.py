"""Check attnlab.observe on every transformer architecture that can be built small.

    ./lab bench architectures                   all of them, about 20 minutes
    ./lab bench architectures llama t5 clip     some of them

Each model is built from its configuration with random weights (6 layers of width 64, 4 heads,
windows of 16 positions; nothing is downloaded) and reads two padded sequences of 48 tokens, images
or sound. The reference is the input of each softmax that torch runs in a forward pass (SDPA's
included, as plain products), by the module that calls it. Entropy, keys, sinks and other statistics
of every layer and head are compared with the measures of these attention weights, under eager and,
if the model has it, sdpa:

agrees: all layers were seen, by their names and in their order, with the right statistics.
in part: the layers that were seen agree, and the observer names those that were not.
refused: with a reason, which is printed.
no attention: there is no softmax, and the observer says so.
not built: the configuration has no such sizes, or the forward takes other inputs.
WRONG: anything else. Then the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.auto import modeling_auto as auto

from attnlab.files.errors import InputError
from attnlab.measures import maps as m
from attnlab.measures import positions, received
from attnlab.observing.probe import make_probe
from attnlab.observing.snapshot import Snapshot, take_snapshot

WIDTH, HEADS, LAYERS, LENGTH, DECODED, VOCABULARY, WINDOW = 64, 4, 6, 48, 40, 97, 16
LEAST, NEAR = 6, 1e-5  # least keys of a counted query; largest relative error
HIDDEN = 60.0  # a gap in a row's logits that only a mask can cause (Swin's is -100)
MOST, SECONDS = 30_000_000, 120  # most parameters and seconds of a model
SIZES = (
    (
        WIDTH,
        "hidden_size d_model n_embd dim emb_dim embed_dim embedding_size word_embed_proj_dim "
        "decoder_hidden_size encoder_hidden_size lru_width out_hidden_size output_hidden_size "
        "projection_dim embedding_dim model_dim hidden_dim width embedding_hidden_size image_size",
    ),
    (
        HEADS,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads attention_heads "
        "decoder_attention_heads mamba_n_heads mamba_num_heads linear_num_key_heads "
        "linear_num_value_heads index_n_heads",
    ),
    (
        2,
        "num_key_value_heads num_kv_heads num_local_experts num_experts n_routed_experts "
        "moe_num_experts num_key_value_head attn_layer_period num_kv_shared_layers",
    ),
    (
        1,
        "num_experts_per_tok num_experts_per_token n_group topk_group moe_topk n_shared_experts "
        "first_k_dense_replace mamba_n_groups n_groups attn_layer_offset",
    ),
    (
        WIDTH // HEADS,
        "head_dim d_kv attention_head_dim kv_channels d_head v_head_dim "
        "qk_rope_head_dim qk_nope_head_dim attention_head_size index_head_dim linear_key_head_dim "
        "linear_value_head_dim hidden_size_per_layer_input",
    ),
    (8, "rotary_dim patch_size"),
    (
        32,
        "q_lora_rank kv_lora_rank mamba_d_state mamba_chunk_size chunk_size mamba_d_head "
        "mamba_head_dim",
    ),
    (
        2 * WIDTH,
        "intermediate_size d_ff ffn_dim n_inner ffn_hidden_size encoder_ffn_dim mlp_dim "
        "decoder_ffn_dim d_inner moe_intermediate_size shared_expert_intermediate_size "
        "shared_intermediate_size mamba_d_ssm",
    ),
    (
        LAYERS,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers depth "
        "num_decoder_layers num_encoder_layers",
    ),
    (
        VOCABULARY,
        "vocab_size encoder_vocab_size decoder_vocab_size src_vocab_size tgt_vocab_size "
        "vocab_size_per_layer_input",
    ),
    (
        256,
        "max_position_embeddings n_positions max_seq_len max_sequence_length max_seq_length "
        "max_source_positions max_target_positions",
    ),
    (
        WINDOW,
        "sliding_window window_size attention_window local_attention_window "
        "sliding_window_size attention_window_size local_attention attention_chunk_size",
    ),
)
SIZE_OF = {name: size for size, names in SIZES for name in names.split()}
LISTS = {"attention_types": [[["global", "local"], LAYERS // 2]], "attn_layer_indices": [1, 3]}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
# variants to try where these sizes do not fit together
VARIANTS: tuple[dict[str, int], ...] = (
    {},
    {"num_key_value_heads": HEADS},
    {"head_dim": 2 * WIDTH},
    {"window_size": 4},
    {"window_size": 4, "patch_size": 2},
)
KINDS = ("MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "CAUSAL_LM")


class NotBuilt(BaseException):
    """Reason why a model was not built; not an Exception, which models raise themselves."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="./lab bench architectures")
    parser.add_argument("names", nargs="*", help="model types such as llama; all by default")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}", flush=True)
    known = [name for name in sorted(transformers.CONFIG_MAPPING) if class_of(name) is not None]
    signal.signal(signal.SIGALRM, give_up)
    outcomes: Counter[str] = Counter()
    for name in chosen.names or known:
        signal.alarm(SECONDS)
        try:
            outcome, why = check(name)
        except NotBuilt as problem:
            outcome, why = "not built", " ".join(str(problem).split())[:200]
        signal.alarm(0)
        outcomes[outcome] += 1
        print(f"{name:28} {outcome:12} {why}", flush=True)
    print(", ".join(f"{outcome}: {number}" for outcome, number in outcomes.most_common()))
    sys.exit(1 if outcomes["WRONG"] else 0)


def give_up(*_: Any) -> None:
    raise NotBuilt(f"takes more than {SECONDS} s")


def check(name: str) -> tuple[str, str]:
    """Return the outcome for one model type, and its explanation."""
    variant, inputs, model, truth = first_that_runs(name)
    agreed, refusals, unseen = [], [], {}
    for implementation in ("eager", "sdpa"):
        if implementation != "eager":
            try:
                model = small(name, variant, implementation)
                truth = softmaxes(model, inputs)
            except Exception:
                continue  # the model has none, or does not run with it
        try:
            with sdpa_kernel(SDPBackend.MATH):
                snapshot = take_snapshot(model, make_probe(model, inputs), min_keys=LEAST)
        except InputError as refusal:
            refusals.append(f"{implementation} is refused: {refusal}")
            continue
        except Exception as problem:  # any other error is a fault of the observer
            return "WRONG", f"{implementation}: {type(problem).__name__}: {problem}"
        if wrong := faults(model, snapshot, truth, inputs):
            return "WRONG", f"{implementation}: {wrong}"
        agreed.append(implementation)
        unseen = dict(snapshot.unseen)
    if not agreed:
        none = not truth and all("it has none" in refusal for refusal in refusals)
        return "no attention" if none else "refused", "; ".join(refusals)
    seen = f"{len(snapshot.layers)} layers of {type(model).__name__}, {' and '.join(agreed)}"
    if unseen:
        parts = ", ".join(f"{one} ({kind})" for one, kind in unseen.items())
        return "in part", "; ".join([seen, f"it names {parts}", *refusals])
    return "agrees", "; ".join([seen, *refusals])


def faults(
    model: Any, snapshot: Snapshot, truth: Mapping[str, Any], inputs: Mapping[str, Any]
) -> str:
    """Describe missing or unexpected layers and wrong statistics; empty if all is right."""

    def is_named(layer: str) -> bool:
        name = layer.split("#")[0]
        both = ((f"{name}.", f"{one}.") for one in snapshot.unseen)
        return any(mine.startswith(its) or its.startswith(mine) for mine, its in both)

    expected = [layer for layer in truth if layer in snapshot.layers or not is_named(layer)]
    if list(snapshot.layers) != expected:
        return f"sees {list(snapshot.layers)}, where there are {expected}"
    for layer, found in snapshot.layers.items():
        sinks = getattr(model.get_submodule(layer.split("#")[0]), "sinks", None)
        if wrong := differences(found, truth[layer], sinks, inputs):
            return f"{layer}: {wrong}"
    return ""


def differences(found: Any, logits: Any, sinks: Any, inputs: Mapping[str, Any]) -> str:
    """Describe the statistics of a layer that do not follow from the input of its softmax."""
    batch, heads, keys = (found.sizes[dim] for dim in ("sequence", "head", "key"))
    logits = logits.reshape(batch, heads, -1, logits.shape[-1])
    if sinks is not None and logits.shape[-1] == keys:  # the sink scales the attention weights
        logits = torch.cat([logits, sinks.detach().view(-1, 1, 1).expand_as(logits[..., :1])], -1)
    maps = logits.softmax(-1)[..., :keys]
    visible = shown(logits[..., :keys])
    real = torch.ones(batch, maps.shape[2], dtype=torch.bool)
    if maps.shape[2] == LENGTH and "attention_mask" in inputs:
        real = inputs["attention_mask"].bool()
    number = visible.sum(-1).float()
    counted = real[:, None] & (number >= LEAST)
    start = (visible & real[:, None, :, None]).any(1).any(1).int().argmax(-1)[:, None, None]
    entropy = m.entropy(maps)
    rows = {
        "visible_keys": number,
        "entropy": entropy,
        "participation": m.participation(maps),
        "relative_entropy": m.relative_entropy(entropy, number),
        "top_mass": m.top_mass(maps),
        "keys_for": m.keys_for(maps).float(),
        "sink_mass": positions.sink_mass(maps, start=start),
    }
    if found.kind.item() == "self":
        rows |= {
            "self_mass": positions.self_mass(maps),
            "mean_distance": positions.mean_distance(maps),
        }
    wanted = {}
    for name, values in rows.items():
        among = counted.view(*counted.shape, *(1,) * (values.ndim - 3))
        wanted[name] = torch.where(among, values, torch.nan).nanmean(2)
    some = counted[..., None]
    wanted["received"] = received.received(torch.where(some, maps, 0.0), visible & some)
    wrong = []
    for name, right in wanted.items():
        off = np.abs(found[name].values - right.numpy()) / (1 + np.abs(right.numpy()))
        there = ~(np.isnan(found[name].values) & np.isnan(right.numpy()))
        # where a row's mass is at the bound, rounding decides whether one key more is counted
        bound = 2.5 / LENGTH if name == "keys_for" else NEAR
        if not (off[there] <= bound).all():
            wrong.append(f"{name} off by {off[there].max():.2g}")
    return ", ".join(wrong)


def shown(logits: Any) -> Any:
    """Return the visible keys of a softmax: those above the first gap caused by a mask.

    They are found from the logits, not from the mask, which the observer uses.
    """
    ordered, order = logits.sort(-1)
    gaps = ordered.diff(dim=-1) > HIDDEN
    above = torch.cat([gaps.flip(-1).cumsum(-1).flip(-1) == 0, torch.ones_like(gaps[..., :1])], -1)
    return torch.empty_like(above).scatter_(-1, order, above)


def first_that_runs(name: str) -> tuple[dict[str, int], dict[str, Any], Any, dict[str, Any]]:
    """Return the first variant whose eager forward runs, its inputs, model and softmax inputs."""
    problems = []
    for variant in VARIANTS:
        for shape in range(2):
            try:
                model = small(name, variant, "eager")
                inputs = inputs_of(model, shape)
                return variant, inputs, model, softmaxes(model, inputs)
            except Exception as problem:  # raised by the model
                problems.append(f"{type(problem).__name__}: {problem}")
    raise NotBuilt(problems[0])


def small(name: str, variant: Mapping[str, int], implementation: str) -> Any:
    """Build a small model of this type, with attention that is far from uniform."""
    config = small_config(transformers.CONFIG_MAPPING[name], SIZE_OF | variant)
    config._attn_implementation = implementation
    kind = getattr(transformers, class_of(name) or "")
    if implementation == "eager":
        with torch.device("meta"):
            number = sum(weight.numel() for weight in kind(config).parameters())
        if number > MOST:
            raise NotBuilt(f"{number:,} parameters: some of its sizes are not set here")
    torch.manual_seed(0)
    model = kind(config).float()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=min(0.3, 1.5 / weight[0].numel() ** 0.5))
            else:
                weight.nan_to_num_().add_(torch.randn_like(weight), alpha=0.1)
    return model.eval()


def class_of(name: str) -> str | None:
    """Return the class of a model type to build: one that reads text, if there is one."""
    tables = [getattr(auto, f"MODEL_FOR_{kind}_MAPPING_NAMES") for kind in KINDS]
    kinds = [table[name] for table in [*tables, auto.MODEL_MAPPING_NAMES] if name in table]
    return None if not kinds else kinds[0] if isinstance(kinds[0], str) else kinds[0][0]


def small_config(kind: Any, sizes: Mapping[str, int]) -> Any:
    """Return a configuration with these sizes, also in the configurations inside it."""
    default = kind()
    given: dict[str, Any] = {}
    for field in [*vars(default), *kind.attribute_map]:
        own = kind.attribute_map.get(field, field)
        was = vars(default).get(own)
        if field in sizes and not isinstance(was, bool | list | tuple | dict | str):
            given[own] = sizes[field]
        elif field in ("num_heads", "num_attention_heads") and isinstance(was, list | tuple):
            given[own] = [HEADS] * len(was)
        elif field in TOKENS:
            given[field] = TOKENS[field]
        elif field in LISTS:
            given[field] = LISTS[field]
        elif field.endswith(("_token_id", "_token_index")) and isinstance(was, int):
            given[field] = min(was, VOCABULARY - 1 - len(field) % 20)
    if isinstance(rope := vars(default).get("rope_parameters"), dict):
        half = int(sizes["head_dim"] * rope.get("partial_rotary_factor", 1)) // 2
        sections = [half - 2 * (half // 3), half // 3, half // 3]  # of positions in time and space
        given["rope_parameters"] = rope | {"mrope_section": sections}
    for field in kind.sub_configs:
        if (inner := getattr(default, field, None)) is not None:
            given[field] = small_config(type(inner), sizes)
    return kind(**given)


def inputs_of(model: Any, shape: int) -> dict[str, Any]:
    """Return the inputs of a forward pass: tokens with padding, images or sound.

    shape: 0 or 1, the first or second of two shapes to try (film; features first or last).
    """
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 70, (2, LENGTH), generator=random)
    mask = torch.ones_like(ids)
    mask[0, :5], mask[1, -7:] = 0, 0
    config, takes = model.config, inspect.signature(model.forward).parameters
    # models that read images and tokens get images only if they compare the two
    main = "pixel_values" if hasattr(model, "logit_scale") else model.main_input_name
    bins = getattr(config, "num_mel_bins", getattr(config, "feature_size", 80))
    side = getattr(getattr(config, "vision_config", config), "image_size", WIDTH)
    high, wide = side if isinstance(side, list | tuple) else (side, side)
    image = (getattr(config, "num_channels", 3), high, wide)
    others = {
        "pixel_values": ((2, *image), (2, getattr(config, "num_frames", 8), *image)),
        "input_features": ((2, bins, 512), (2, 512, bins)),
        "input_values": ((2, 16_000), (2, 1, 16_000)),
    }
    given: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    if "input_ids" not in takes:
        del given["attention_mask"]
    if getattr(config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = ids.flip(1)[:, :DECODED]
    if main in others:
        given[main] = torch.randn(others[main][shape], generator=random)
    return {name: value for name, value in given.items() if name in takes}


def softmaxes(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of each softmax of a forward pass, by the module that runs it."""
    running: list[str] = []
    times: Counter[str] = Counter()
    found: dict[str, Any] = {}
    kinds = (torch.ops.aten._softmax, torch.ops.aten._safe_softmax)

    class Recording(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = function(*args, **(kwargs or {}))
            # a softmax over few entries is a router's choice of experts
            maps = function.overloadpacket in kinds and made.ndim > 2 and made.shape[-1] > 8
            if maps and args[1] in (-1, made.ndim - 1):
                name = running[-1]
                times[name] += 1
                found[name if times[name] == 1 else f"{name}#{times[name]}"] = args[0].clone()
            return made

    with contextlib.ExitStack() as opened:
        for name, module in model.named_modules():
            enter = module.register_forward_pre_hook(lambda *_, name=name: running.append(name))
            leave = module.register_forward_hook(lambda *_: running.pop() and None)
            opened.callback(enter.remove)
            opened.callback(leave.remove)
        fast = torch.backends.mha.get_fastpath_enabled()
        opened.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        for context in (torch.no_grad(), sdpa_kernel(SDPBackend.MATH), Recording()):
            opened.enter_context(context)
        torch.manual_seed(0)  # as in the observer: some models draw random keys
        cached = "use_cache" in inspect.signature(model.forward).parameters
        model(**inputs, **({"use_cache": False} if cached else {}))
    return found
