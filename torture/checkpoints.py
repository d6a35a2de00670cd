"""Hostile checkpoints: folders of small models and saved observations, damaged in every way."""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from torture import mutate
from torture.campaign import REFUSED, RIGHT, Campaign, Case, Verdict, bad, clean_words

BAD_INPUT, FAULTS = 2, 1  # exit codes
STEPS = (0, 10, 20)
SIZES = {
    "vocab_size": 24,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab_size": 24, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "gpt_neox": SIZES,
    "llama": {**SIZES, "num_key_value_heads": 1},
    "bert": SIZES,
    "t5": {
        "vocab_size": 24,
        "d_model": 8,
        "d_kv": 4,
        "d_ff": 8,
        "num_layers": 2,
        "num_heads": 2,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
    },
    "opt": {**SIZES, "ffn_dim": 8, "word_embed_proj_dim": 8, "pad_token_id": 1},
    "mistral": {**SIZES, "num_key_value_heads": 1, "sliding_window": 6},
}
ASKED = ["--text", "text.txt", "--sequences", "2", "--length", "16", "--min-keys", "4"]
WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
# Parts of a tokenizer that take exponential time or memory, if they are used.
RULES: tuple[dict[str, Any], ...] = (
    {
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"(\w+)+\d*x"},
            "behavior": "Isolated",
            "invert": False,
        }
    },
    {
        "normalizer": {
            "type": "Sequence",
            "normalizers": 12
            * [{"type": "Replace", "pattern": {"Regex": ""}, "content": "w" * 10}],
        }
    },
    {
        "padding": {
            "strategy": {"Fixed": 10**12},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<unk>",
        }
    },
    {
        "truncation": {
            "direction": "Right",
            "max_length": 0,
            "strategy": "LongestFirst",
            "stride": 9,
        }
    },
    {
        "added_tokens": [
            {
                "id": 2**32 - 1,
                "content": "w1",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ]
    },
)
# Values that a configuration may be given anywhere.
VALUES: tuple[Any, ...] = (
    0,
    -1,
    1,
    3,
    2**31,
    10**9,
    1e9,
    10**12,
    2**63,
    10**400,
    0.5,
    1e-300,
    1e300,
    float("nan"),
    float("inf"),
    None,
    True,
    "",
    "x",
    "owner/kernel",
    "../..",
    [],
    [1],
    {},
    {"a": 1},
    [[["a"], 10**9]],
)
KEYS = (
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "dtype",
    "torch_dtype",
    "quantization_config",
    "auto_map",
    "transformers_weights",
    "model_type",
    "configuration_files",
    "rope_parameters",
    "rope_scaling",
    "layer_types",
    "is_encoder_decoder",
    "add_cross_attention",
    "is_decoder",
    "pruned_heads",
    "tie_word_embeddings",
    "architectures",
    "id2label",
    "num_labels",
    "output_attentions",
    "return_dict",
    "use_cache",
    "head_dim",
    "attention_types",
    "sliding_window",
    "fusion_config",
    "sub_configs",
    "text_config",
)
# In the place of a file. Those that lead out of the folder must be refused.
KINDS = ("gone", "empty", "cut", "longer", "zeros", "folder", "fifo", "socket", "loop", "dangling")
OUTSIDE = ("outside", "device")
PLACES = (
    "/outside/" + WEIGHTS,
    "../../outside/" + WEIGHTS,
    "..",
    "",
    "a/b",
    "x\0",
    "\ud800",
    5,
    None,
)
INDEXES: tuple[Any, ...] = (
    "",
    "[]",
    "7",
    "{}",
    "null",
    '"x"',
    '{"weight_map": []}',
    "[" * 5000,
    '{"weight_map": {}}',
    '{"weight_map": {"a": {}}}',
    "\0",
)
REFS = (b"", b"..", b"../../../outside", b"/outside", b"\0\xff\xfe", b"x" * 5000, b"a/../b", b"\n")
NAMES = (
    "step9223372036854775808",
    "step" + "9" * 200,
    "checkpoint--1",
    "step5\n",
    "step\x1b[2J7",
    "step\udcff5",
    "step10",
    "step0010",
    "iter5M",
    "ckpt_3k",
)
PATTERNS = (
    r"(\d+)",
    "(",
    "x",
    r"(\D+)",
    "(a+)+$",
    r"((.*)*)*(\d)z",
    "(" * 400 + ")" * 400,
    "(a{99999999999})",
    r"(?P<a>\d+)(?P=b)",
    r"(\d)?",
    r"()",
    "\0(.)",
    r"(.|.)*(\d+)\Z\n",
    "(x" * 2000,
    r"(?i)STEP(\d+)",
)
OBSERVED = ("steps.nc", "model.nc")
# what reports read of them, or some of it
READ = (
    "entropy",
    "relative_entropy",
    "keys_",
    "visible_keys",
    "sink_mass",
    "induction_mass",
    "attention_speed",
    "snap_",
    "received_",
    "retained_mass",
    "output_error",
)
CATASTROPHIC_SECONDS = 2.0  # instead of 10, which nothing is learned from


class Checkpoints(Campaign):
    """A case is right when it gives numbers, and refused with exit code 2 and words that name a
    field. For lint, faults that are told are right as well."""

    name, share, memory = "checkpoints", 0.2, 2**33

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ["OMP_NUM_THREADS"] = "1"
        import torch

        from attnlab.files.netcdf import load

        torch.set_num_threads(1)
        finding = import_module("attnlab.observing.checkpoints")
        finding.PATTERN_SECONDS = CATASTROPHIC_SECONDS  # type: ignore[attr-defined]
        self.whole = folder / "whole"
        _make(self.whole)
        self.observed = {name: load(self.whole / name) for name in OBSERVED}
        gc.freeze()  # else each model that is measured goes through all that was imported
        self.place = folder / "tried"
        self.changes: dict[str, Callable[[Random], tuple[dict[str, Any], bytes]]] = {
            "bytes": self._bytes,
            "header": self._header,
            "config": self._config,
            "tokenizer": self._tokenizer,
            "kind": self._kind,
            "values": self._values,
            "index": self._index,
            "ref": self._ref,
            "name": self._name,
            "pattern": self._pattern,
            "pickle": self._pickle,
            "dataset": self._dataset,
        }
        often = {
            "bytes": 5,
            "header": 3,
            "config": 8,
            "tokenizer": 3,
            "kind": 4,
            "values": 3,
            "index": 3,
            "dataset": 5,
        }
        self.often = [name for name in self.changes for _ in range(often.get(name, 1))]

    def cases(self, draw: Random) -> Iterator[Case]:
        while True:
            kind = draw.choice(self.often)
            given, data = self.changes[kind](draw)
            verb = "report" if kind == "dataset" else given.pop("verb", None)
            verb = verb or draw.choice(("model", "checkpoints", "lint"))
            given = {"change": kind, "model": draw.choice(list(MODELS)), "must": False, **given}
            given |= {"step": draw.choice(STEPS), "json": draw.random() < 0.7}
            given |= {"out": draw.random() < 0.2}  # which takes most of the time
            yield Case(f"observe {verb}", given, data)

    # What is changed: everything that decides it, and the content of a file.

    def _file(self, draw: Random, names: tuple[str, ...]) -> tuple[dict[str, Any], bytes]:
        given = {"model": draw.choice(list(MODELS)), "file": draw.choice(names)}
        return given, self._read(given["model"], given["file"])

    def _read(self, model: str, name: str) -> bytes:
        return (self.whole / model / f"checkpoint-{STEPS[0]}" / name).read_bytes()

    def _bytes(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        given, data = self._file(draw, (WEIGHTS, WEIGHTS, CONFIG, *TOKENIZER))
        return given, mutate.mutate_bytes(data, draw)

    def _header(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        """safetensors whose header says something else."""
        given, data = self._file(draw, (WEIGHTS,))
        size = struct.unpack("<Q", data[:8])[0]
        made = mutate.mutate(json.loads(data[8 : 8 + size]), draw)
        header = mutate.as_text(made.document, ".json")
        long = draw.choice((len(header), len(header), len(header), 0, 2**40, 2**64 - 1, size))
        return given | {"words": made.words}, struct.pack("<Q", long) + header + data[8 + size :]

    def _config(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        given, data = self._file(draw, (CONFIG,))
        config = json.loads(data)
        if draw.random() < 0.3:
            made = mutate.mutate(config, draw)
            return given | {"words": made.words}, mutate.as_text(made.document, ".json")
        for _ in range(draw.choice((1, 1, 2))):
            config[draw.choice((*config, *config, *KEYS))] = draw.choice(VALUES)
        return given, json.dumps(config).encode()

    def _tokenizer(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        given, data = self._file(draw, TOKENIZER)
        given |= {"verb": draw.choice(("model", "checkpoints"))}
        if given["file"] == TOKENIZER[0] and draw.random() < 0.2:
            return given, json.dumps({**json.loads(data), **draw.choice(RULES)}).encode()
        made = mutate.mutate(json.loads(data), draw)
        return given | {"words": made.words}, mutate.as_text(made.document, ".json")

    def _kind(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        given, data = self._file(draw, (WEIGHTS, CONFIG, INDEX, *TOKENIZER))
        kind = draw.choice((*KINDS, *OUTSIDE))
        own = given["file"] in (WEIGHTS, CONFIG)
        must = own and kind in (*OUTSIDE, "empty", "cut", "zeros", "fifo", "socket", "loop")
        return given | {"kind": kind, "at": draw.randrange(max(1, len(data))), "must": must}, b""

    def _values(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        """Weights with other numbers, dtypes or shapes."""
        import torch
        from safetensors.torch import load, save

        given, data = self._file(draw, (WEIGHTS,))
        tensors = load(data)
        name = draw.choice([name for name in tensors if "pooler" not in name])
        value = draw.choice(
            ("nan", "inf", "huge", "zero", "shape", "dtype", "less", "more", "empty")
        )
        one = tensors[name]
        flat = one.reshape(-1)
        if value in ("nan", "inf"):
            flat[draw.randrange(flat.numel())] = float(value)
        elif value == "less":
            del tensors[name]
        elif value == "more":
            tensors["x" * draw.choice((1, 5000))] = one.clone()
        else:
            kinds = (
                torch.float16,
                torch.bfloat16,
                torch.int8,
                torch.bool,
                torch.float8_e4m3fn,
                torch.complex64,
                torch.float64,
                torch.uint8,
            )
            tensors[name] = {
                "huge": one * 1e38,
                "zero": one * 0,
                "shape": one[None],
                "empty": flat[:0],
                "dtype": one.to(draw.choice(kinds)),
            }[value].clone()
        must = value in ("nan", "inf")
        return given | {"words": f"{name} {value}", "must": must}, save(tensors, {"format": "pt"})

    def _index(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        given, _ = self._file(draw, (INDEX,))
        if draw.random() < 0.3:
            return given | {"must": True}, draw.choice(INDEXES).encode()
        place = draw.choice(PLACES)
        if isinstance(place, str):
            place = place.replace("/outside", str(self.place / "outside"), place.startswith("/"))
        names = ["transformer.wte.weight", "a"][: draw.choice((1, 2))]
        weight_map = dict.fromkeys(names, place)
        return given | {"must": True}, json.dumps(
            {"metadata": {}, "weight_map": weight_map}
        ).encode()

    def _ref(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        data = draw.choice(REFS).replace(b"/outside", os.fsencode(self.place / "outside"), 1)
        return {"verb": draw.choice(("checkpoints", "lint")), "must": True}, data

    def _name(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        name = os.fsencode(draw.choice(NAMES))
        return {"verb": draw.choice(("checkpoints", "lint"))}, name

    def _pattern(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        verb = draw.choice(("checkpoints", "lint"))
        return {"verb": verb, "pattern": draw.choice(PATTERNS)}, b""

    def _pickle(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        data = draw.choice(
            (b"", b"x", b"cos\nsystem\n(S'touch ran'\ntR.", b"PK\x03\x04" + b"x" * 99)
        )
        return {"must": True}, data

    def _dataset(self, draw: Random) -> tuple[dict[str, Any], bytes]:
        return {"seed": draw.randrange(2**32), "file": draw.choice(OBSERVED)}, b""

    # How it goes.

    def judge(self, case: Case) -> Verdict:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        os.chdir(self.place)
        given, verb = case.given, case.target.split()[-1]
        shutil.copy(self.whole / "text.txt", self.place)
        if verb == "report":
            if not _save_changed(self.observed[given["file"]], given["seed"], Path("x.nc")):
                return REFUSED  # cannot be saved in the first place
            return self._run(["report", "x.nc"], case)
        shutil.copytree(self.whole / given["model"], "out")
        shutil.copytree(self.whole / "outside", "outside")
        where = self._damage(case)
        if verb == "lint":
            argv = ["lint", where]
        elif verb == "model":
            argv = ["model", f"out/checkpoint-{given['step']}", *ASKED]
            argv += ["--out", "x.nc"] if given["out"] else []
        else:
            argv = ["checkpoints", where, *ASKED]
        argv += ["--pattern", given["pattern"]] if "pattern" in given else []
        argv += ["--json"] if given["json"] else []
        return self._run(argv, case)

    def _damage(self, case: Case) -> str:
        """Do it; the folder that the checkpoints are in."""
        given, change = case.given, case.given["change"]
        folder = Path("out", f"checkpoint-{given['step']}")
        if change == "ref":
            return _cached(case.data)
        if change == "name":
            with suppress(OSError):
                os.rename(os.fsencode(folder), b"out/" + case.data)
            return "out"
        if change == "pattern":
            folder.rename(f"out/step{'a' * 100}{given['step']}")  # hard for some patterns
            return "out"
        if change == "pickle":
            (folder / WEIGHTS).unlink()
            (folder / "pytorch_model.bin").write_bytes(case.data)
            return "out"
        path = folder / given["file"]
        if given["file"] == INDEX:
            (folder / WEIGHTS).rename(folder / "part-1.safetensors")
            if change == "kind":
                names = dict.fromkeys(("a", "b"), "part-1.safetensors")
                path.write_text(json.dumps({"metadata": {}, "weight_map": names}))
        if change == "kind":
            _replace(path, given["kind"], given["at"])
        else:
            path.write_bytes(case.data)
        return "out"

    def _run(self, argv: list[str], case: Case) -> Verdict:
        out, err = io.StringIO(), io.StringIO()
        seen: list[str] = []
        code: Any = 0
        with ExitStack() as stack:
            for guard in self._guards(seen):
                stack.enter_context(guard)
            stack.enter_context(redirect_stdout(out))
            stack.enter_context(redirect_stderr(err))
            stack.enter_context(patch.object(sys, "argv", ["attnlab", "observe", *argv]))
            try:
                from attnlab.cli import main

                main()
            except SystemExit as end:
                code = end.code or 0
            except Exception as problem:
                return bad(f"{type(problem).__name__}: {problem}"[:500])
        if seen:
            return bad(seen[0])
        if Path("ran").exists():
            return bad("ran code of a pickle")
        if code == BAD_INPUT:
            if Path("x.nc").exists() and argv[0] == "model":
                return bad("wrote --out, and then refused")
            return clean_words(err.getvalue())
        told = argv[0] == "lint" and code == FAULTS
        if code and not told:
            return bad(f"exit code {code}: {err.getvalue()[:500]}")
        return _judge_words(argv, out.getvalue(), told, must=case.given["must"])

    def _guards(self, seen: list[str]) -> Iterator[Any]:
        """What must not happen: other folders' weights, pickles, kernels, the network."""
        import safetensors
        import torch
        from transformers import modeling_utils

        real, place = safetensors.safe_open, os.path.realpath(self.place)

        def opened(path: Any, *args: Any, **options: Any) -> Any:
            inside = os.path.realpath(path).startswith((f"{place}/out/", f"{place}/hub/"))
            if not inside:
                seen.append(f"opened weights elsewhere: {path}")
            return real(path, *args, **options)

        def never(what: str) -> Callable[..., Any]:
            def called(*args: Any, **options: Any) -> Any:
                seen.append(what)
                raise RuntimeError(what)

            return called

        yield patch.object(safetensors, "safe_open", opened)
        yield patch.object(modeling_utils, "safe_open", opened)
        yield patch.object(torch, "load", never("read a pickle"))
        loader = never("reached the loader of kernels")
        yield patch.object(modeling_utils, "lazy_import_flash_attention", loader)
        yield patch.object(socket.socket, "connect", never("reached for the network"))


def _judge_words(argv: list[str], said: str, told: bool, *, must: bool) -> Verdict:
    """Judge what was said with exit code 0, or 1 where lint found faults."""
    if not said.strip():
        return bad("said nothing, with success")
    faults = told or "lint: " in said
    if "--json" in argv:
        document = json.loads(said, parse_constant=lambda word: bad(word))
        if argv[0] == "lint":
            faults = bool(document["faults"])
        else:
            heads = [row for row in document["heads"] if row["entropy"] is not None]
            if not heads and not document.get("not_finite"):
                return bad("no heads, with success")
            faults = bool(document.get("lint", {}).get("faults"))
    if must and not faults:
        return bad(f"accepted: {said[:300]!r}")
    return RIGHT


def _make(whole: Path) -> None:
    """Write the models, a tokenizer, a text, a model elsewhere, and what was observed of one."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    from attnlab.files.netcdf import save
    from attnlab.observing import observe_checkpoints, observe_model

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    words = {"<unk>": 0, **{f"w{i}": i for i in range(1, 24)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    for kind, sizes in MODELS.items():
        for step in STEPS:
            torch.manual_seed(step)
            model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes))
            folder = whole / kind / f"checkpoint-{step}"
            model.save_pretrained(folder)
            fast.save_pretrained(folder)
            names = dict.fromkeys(model.state_dict(), WEIGHTS)
            (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))
    shutil.copytree(whole / "gpt2" / "checkpoint-0", whole / "outside")
    (whole / "text.txt").write_text(" ".join(f"w{i * 7 % 24}" for i in range(200)))
    probe = torch.randint(1, 24, (3, 16))
    out = whole / "gpt2"
    found = (
        observe_checkpoints(out, probe, min_keys=4, progress=False),
        observe_model(out / "checkpoint-0", probe, min_keys=4),
    )
    for name, dataset in zip(OBSERVED, found, strict=True):
        # a file of a hundred variables takes a second
        few = [one for one in dataset.data_vars if str(one).startswith(READ)]
        save(dataset[few], whole / name)


def _cached(ref: bytes) -> str:
    """Move the checkpoints into a cache of Hugging Face's; one ref is this."""
    repository = Path("hub", "models--lab--tiny")
    (repository / "refs").mkdir(parents=True)
    (repository / "snapshots").mkdir()
    for step in STEPS:
        Path("out", f"checkpoint-{step}").rename(repository / "snapshots" / f"{step:040x}")
        (repository / "refs" / f"step{step}").write_text(f"{step:040x}")
    (repository / "refs" / "step5").write_bytes(ref)
    return str(repository)


def _replace(path: Path, kind: str, at: int) -> None:
    """Put something else in the place of a file."""
    data = path.read_bytes()
    path.unlink()
    content = {
        "empty": b"",
        "cut": data[:at],
        "longer": data + data[:at],
        "zeros": bytes(len(data)),
    }
    targets = {
        "loop": path.name,
        "dangling": "nowhere",
        "outside": f"../../outside/{path.name}",
        "device": "/dev/zero",
    }
    if kind in content:
        path.write_bytes(content[kind])
    elif kind in targets:
        path.symlink_to(targets[kind])
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))


def _save_changed(dataset: Any, seed: int, path: Path) -> bool:
    """Save an observation with one to three changes; False where it cannot be saved."""
    from attnlab.files.errors import InputError
    from attnlab.files.netcdf import save

    draw = Random(seed)
    try:
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            dataset = _change(dataset, draw)
        save(dataset, path)
    except (InputError, ValueError, TypeError, KeyError, OverflowError):
        return False  # xarray or netCDF have no such dataset
    return True


def _change(dataset: Any, draw: Random) -> Any:
    """The dataset with another variable, dim, coordinate or attribute."""
    import numpy as np

    name = draw.choice(sorted(map(str, dataset.variables)))
    dim = draw.choice(sorted(map(str, dataset.dims)))
    variable, change = dataset[name], draw.randrange(12)
    if change == 0:
        return dataset.drop_vars(name)
    if change == 1:
        return dataset.rename({name: draw.choice(("x", "entropy", "snap_step", "step"))})
    if change == 2:
        return dataset.isel({dim: draw.choice(([], [0], [-1], [0, 0], slice(None, None, -1)))})
    if change == 3:
        kind = draw.choice(("int64", "float32", "bool", "str", "uint8"))
        return dataset.assign({name: variable.astype(kind)})
    if change == 4:
        value = draw.choice((np.nan, np.inf, -np.inf, 0, -1, 1e300, 1e-300))
        return dataset.assign({name: (variable.dims, np.full(variable.shape, value))})
    if change == 5:
        size = dataset.sizes[dim]
        values = draw.choice(
            (
                np.arange(size) * 0,
                -np.arange(size),
                np.arange(size) / 2,
                np.array([f"x{i}" for i in range(size)]),
            )
        )
        return dataset.assign_coords({dim: values})
    if change == 6:
        return dataset.drop_vars(dim, errors="ignore")
    if change == 7:
        return dataset.transpose(*draw.sample(sorted(map(str, dataset.dims)), len(dataset.dims)))
    if change == 8:
        other = draw.choice(sorted(map(str, dataset.data_vars)))
        return dataset.assign({name: dataset[other]})
    attribute = draw.choice([*map(str, dataset.attrs), "theory", "seconds", "lint", "unseen"])
    if change == 9:
        return (
            dataset.drop_attrs(deep=False)
            if attribute not in dataset.attrs
            else (
                dataset.assign_attrs(
                    {attribute: draw.choice(("", "x", "{", "[]", "{}", 5, "null"))}
                )
            )
        )
    with suppress(ValueError, TypeError):
        made = mutate.mutate(json.loads(dataset.attrs.get(attribute, "[]")), draw)
        return dataset.assign_attrs({attribute: mutate.as_text(made.document, ".json").decode()})
    return dataset.assign_attrs({attribute: draw.choice(("", "x", "{", "[1]", 5, 0.5))})
