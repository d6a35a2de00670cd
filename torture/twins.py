"""Observer twins: random small trainings, run with an observer and without, bitwise the same."""

from __future__ import annotations

import copy
import gc
import io
import random
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from torture.campaign import RIGHT, Campaign, Case, Verdict, bad

VOCABULARY, LENGTH = 13, 12
MODELS = ("plain", "counting", "layerdrop", "reentrant", "taught", "encoder")
OPTIMIZERS = ("one", "two", "three", "nested", "in backward", "replaced", "averaged", "some")
EVENTS = ("deepcopy", "save", "evaluate", "generate", "short", "fail", "rollback", "result")


class Twins(Campaign):
    name, share, cpu_seconds = "twins", 0.2, 120.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import torch

        torch.set_num_threads(1)

    def cases(self, draw: Random) -> Iterator[Case]:
        while True:
            steps = draw.randint(2, 10)
            given = {
                "seed": draw.randrange(2**31),
                "steps": steps,
                "every": draw.randint(1, 4),
                "model": draw.choice(MODELS),
                "layers": draw.randint(1, 3),
                "dropout": draw.choice((0.0, 0.3)),
                "optimizers": draw.choice(OPTIMIZERS),
                "kind": draw.choice(("SGD", "AdamW", "Adagrad")),
                "rate": draw.choice((0.1, 0.1, 1e-3, 1e30)),
                "live": draw.random() < 0.5,
                "by_hand": draw.choice((0, 0, 1, 64)),
                "autocast": draw.random() < 0.3,
                "accumulate": draw.choice((1, 1, 2)),
                "rows": draw.choice((None, 8)),
                "repeated": draw.random() < 0.2,
                "log": draw.choice(("none", "works", "raises")),
                "out": draw.random() < 0.2,
                "thread": draw.random() < 0.15,
                "given_rate": draw.random() < 0.2,
                "events": {
                    str(n): draw.choice(EVENTS) for n in range(steps) if draw.random() < 0.4
                },
            }
            yield Case("live" if given["live"] else "probe", given)

    def judge(self, case: Case) -> Verdict:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = self.folder / "out"
            try:
                alone = _train(case.given, None)
                watched = _train(case.given, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        problem = watched.pop("problem")
        for name, value in watched.items():
            if not _same(value, alone[name]):
                return bad(f"with an observer other {name}; {problem}")
        return bad(problem) if problem else RIGHT


def _models() -> dict[str, Any]:
    """The kinds of models, defined where torch is there."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    class Attention(nn.Module):
        def __init__(self, dropout: float) -> None:
            super().__init__()
            self.dropout, self.qkv, self.out = dropout, nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
            dropout = self.dropout if self.training else 0.0
            y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
            return self.out(y.transpose(1, 2).flatten(2))

    class Block(nn.Module):
        def __init__(self, dropout: float) -> None:
            super().__init__()
            self.attention = Attention(dropout)
            self.mlp = nn.Sequential(
                nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Dropout(dropout)
            )

        def forward(self, x: Any) -> Any:
            x = x + self.attention(x)
            return x + self.mlp(x)

    class Plain(nn.Module):
        fails = False

        def __init__(self, layers: int, dropout: float) -> None:
            super().__init__()
            self.tokens, self.head = nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY)
            self.blocks = nn.ModuleList(Block(dropout) for _ in range(layers))

        def through(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return x

        def forward(self, ids: Any) -> Any:
            if self.fails and not self.training:
                raise RuntimeError("this evaluation fails")
            return self.head(self.through(self.tokens(ids)))

    class Counting(Plain):
        def __init__(self, layers: int, dropout: float) -> None:
            super().__init__(layers, dropout)
            self.calls = 0
            self.shapes: list[Any] = []
            self.seen: dict[int, int] = {}
            self.generator, self.python = torch.Generator().manual_seed(1), random.Random(1)
            self.register_buffer("total", torch.zeros(1))
            self.register_buffer("later", torch.zeros(1))

        def forward(self, ids: Any) -> Any:
            self.calls += 1
            self.shapes.append(tuple(ids.shape))
            self.seen[self.calls] = self.calls
            self.total += 1
            self.later = self.total * 2
            noise = torch.rand((), generator=self.generator) + self.python.random()
            return super().forward(ids) * noise

    class LayerDrop(Plain):
        def through(self, x: Any) -> Any:
            for block in self.blocks:
                if not self.training or float(torch.rand(())) < 0.6:
                    x = block(x)
            return x

    class Reentrant(Plain):
        def through(self, x: Any) -> Any:
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=True)
            return x

    class Taught(Plain):
        """Calls another model in its forward, which is not a part of it."""

        def __init__(self, layers: int, dropout: float) -> None:
            super().__init__(layers, dropout)
            self.teacher = (Plain(2, 0.0).eval(),)

        def forward(self, ids: Any) -> Any:
            with torch.no_grad():
                hint = self.teacher[0](ids).mean()
            return super().forward(ids) + hint

    def encoder(layers: int, dropout: float) -> nn.Module:
        blocks = (
            nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True) for _ in range(layers)
        )
        return nn.Sequential(nn.Embedding(VOCABULARY, 8), *blocks, nn.Linear(8, VOCABULARY))

    kinds = (Plain, Counting, LayerDrop, Reentrant, Taught, encoder)
    return dict(zip(MODELS, kinds, strict=True))


class _Trained:
    """A model with its optimizers, in the ways in which people have several."""

    def __init__(self, given: dict[str, Any]) -> None:
        import torch

        torch.manual_seed(given["seed"])
        self.given = given
        self.model = _models()[given["model"]](given["layers"], given["dropout"]).train()
        self.observed = self.model
        self.make = lambda some: getattr(torch.optim, given["kind"])(some, lr=given["rate"])
        parameters, way = list(self.model.parameters()), given["optimizers"]
        self.optimizers: list[Any] = []
        if way in ("two", "three"):
            number = 2 if way == "two" else 3
            self.optimizers = [self.make(parameters[i::number]) for i in range(number)]
        elif way == "nested":
            self.optimizers = [_nested(self.make(parameters))]
        elif way == "in backward":
            for one in parameters:
                one.register_post_accumulate_grad_hook(self._stepping(self.make([one])))
        elif way == "some":
            self.optimizers = [self.make(parameters[::2])]
        else:
            self.optimizers = [self.make(parameters)]
        if way == "averaged":
            self.observed = torch.optim.swa_utils.AveragedModel(self.model)

    def _stepping(self, optimizer: Any) -> Callable[[Any], None]:
        def step(_: Any) -> None:
            optimizer.step()
            optimizer.zero_grad()

        return step

    def step(self, number: int, *, short: bool) -> Any:
        """Make a training step; returns its loss."""
        import torch
        from torch.nn import functional

        way, total = self.given["optimizers"], 0
        if way == "replaced" and number == self.given["steps"] // 2:
            self.optimizers = [self.make(list(self.model.parameters()))]
        # each backward pass is a step of optimizers inside it
        for _ in range(1 if way == "in backward" else self.given["accumulate"]):
            ids = torch.randint(VOCABULARY, (2, 2 if short else LENGTH))
            with torch.autocast("cpu", torch.bfloat16, enabled=self.given["autocast"]):
                logits = self.model(ids)
                loss = functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
            loss.backward()
            total = total + loss.detach()
        for one in self.optimizers:
            one.step()
            one.zero_grad()
        if way == "averaged":
            self.observed.update_parameters(self.model)
        return total


def _nested(inner: Any) -> Any:
    """An optimizer that has another inside, as ZeroRedundancyOptimizer has."""
    import torch

    class Nested(torch.optim.Optimizer):
        def __init__(self) -> None:
            super().__init__(inner.param_groups, inner.defaults)

        def step(self, closure: Any = None) -> Any:
            return inner.step(closure)

    return Nested()


def _train(given: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """Train, with an observer where there is a folder; returns what came of it."""
    trained = _Trained(given)
    companion = _Companion() if given["thread"] else None
    try:
        return _run(given, trained, folder, companion)
    finally:
        if companion is not None:
            companion.ended.set()


def _run(
    given: dict[str, Any], trained: _Trained, folder: Path | None, companion: _Companion | None
) -> dict[str, Any]:
    import numpy as np
    import torch

    model, losses, other = trained.model, [], {}
    torch.manual_seed(given["seed"] + 1)
    random.seed(given["seed"])
    np.random.seed(given["seed"])  # noqa: NPY002
    watch = None if folder is None else _Watched(trained, folder)
    number = 0  # of the step that is next; goes back in a rollback
    kept = copy.deepcopy(model.state_dict())
    for n in range(given["steps"]):
        event = given["events"].get(str(n))
        if event == "deepcopy":
            other["copied"] = copy.deepcopy(model)(torch.ones(1, LENGTH, dtype=torch.long))
        elif event == "save":
            # hooks of a parameter cannot be saved, nor classes that are defined in a function
            whole = given["optimizers"] != "in backward" and given["model"] == "encoder"
            torch.save(model if whole else model.state_dict(), io.BytesIO())
        elif event in ("evaluate", "generate"):
            model.train(event == "generate")
            with torch.no_grad():
                losses.append(model(torch.ones(1, LENGTH, dtype=torch.long)).sum())
            model.train()
        elif event == "result" and watch is not None:
            watch.ask_result()
        elif event == "rollback" and given["by_hand"]:
            model.load_state_dict(kept)
            number //= 2
            if watch is not None:
                watch.step(number)
        model.fails = event == "fail"
        losses.append(trained.step(n, short=event == "short"))
        number += 1
        if watch is not None:
            watch.step(number)
        model.fails = False
    if watch is not None:
        watch.finish(number)
    if companion is not None:
        other["companion"] = companion.end()
    return {
        "losses": losses,
        "weights": [p.detach().clone() for p in model.parameters()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "buffers": list(model.buffers()),
        "modes": [m.training for m in model.modules()],
        "attributes": [_plain(module) for module in model.modules()],
        "random numbers": [torch.rand(2), random.random(), np.random.rand()],  # noqa: NPY002
        "nn.Module": [torch.nn.Module.__call__, torch.backends.mha.get_fastpath_enabled()],
        "other": [other.get("copied"), other.get("companion")],
        "problem": None if watch is None else watch.problem,
    }


class _Watched:
    """The observer of a training, used as its case says; problem: what it did wrong, in words."""

    def __init__(self, trained: _Trained, folder: Path) -> None:
        import torch

        self.given, self.trained, self.problem = trained.given, trained, ""
        rate = self.given["rate"]
        ids = torch.arange(2 * LENGTH).reshape(2, LENGTH) % VOCABULARY
        self.options = {
            "every": self.given["every"],
            "min_keys": 4,
            "rows": self.given["rows"],
            "learning_rate": rate if self.given["given_rate"] else None,
            **(
                {"live": True}
                if self.given["live"]
                else {"probe": ids, "repeated": self.given["repeated"]}
            ),
            **({"out": folder} if self.given["out"] else {}),
            **({} if self.given["log"] == "none" else {"log": self._log}),
        }
        self._try(self._begin)

    def _begin(self) -> None:
        import attnlab

        self.observer = attnlab.observe(self.trained.observed, **self.options)
        if self.given["by_hand"]:
            self.observer.step(0)
        else:
            self.observer.__enter__()

    def _log(self, step: int, _: Any) -> None:
        if self.given["log"] == "raises":
            raise ValueError("no connection")

    def _try(self, act: Callable[..., Any], *given: Any) -> None:
        try:
            act(*given)
        except Exception as problem:
            self.problem = self.problem or f"{type(problem).__name__}: {problem}"

    def step(self, number: int) -> None:
        if not self.given["by_hand"]:
            return
        if self.given["out"] and number == 3:  # killed, and started again
            self.trained.model.fails = False  # what fails at a start is an error
            self._try(self._again)
        self._try(self.observer.step, number * self.given["by_hand"])

    def _again(self) -> None:
        import attnlab

        del self.observer
        gc.collect()
        self.observer = attnlab.observe(self.trained.observed, **self.options)

    def ask_result(self) -> None:
        if self.observer.history.steps:
            self._try(self.observer.result)

    def finish(self, number: int) -> None:
        if self.given["by_hand"]:
            self._try(self.observer.finish, number * self.given["by_hand"])
        else:
            self._try(self.observer.__exit__, None, None, None)
        steps = self.observer.history.steps
        if steps:
            self._try(self._words)
        wrong = self._wrong_steps(steps)
        self.problem = self.problem or wrong

    def _words(self) -> None:
        from attnlab.observing.words import in_words

        result = self.observer.result()
        in_words(result)
        if result.sizes["layer"] > self.given["layers"]:
            raise AssertionError(f"layers {result['layer'].values.tolist()}")

    def _wrong_steps(self, steps: list[int]) -> str:
        """Say which steps should have been measured, where that is known."""
        events = set(self.given["events"].values())
        if events & {"fail", "short", "rollback"} or self.given["model"] == "layerdrop":
            return "" if steps == sorted(set(steps)) else f"steps {steps}"
        unit, every = self.given["by_hand"] or 1, self.given["every"]
        numbers = [unit * n for n in range(self.given["steps"] + 1)]
        expected = [n for n in numbers if n == 0 or n // every > (n - unit) // every]
        if self.given["live"]:
            expected = [n for n in expected if n < numbers[-1]]
            if self.given["optimizers"] == "averaged":  # which nobody trains
                return ""
        elif numbers[-1] not in expected:
            expected.append(numbers[-1])
        if self.given["live"] and self.given["out"] and self.given["by_hand"]:
            return ""  # what was not over when it was killed is measured no more
        return "" if steps == expected else f"measured {steps} and not {expected}"


class _Companion:
    """Another model that trains in a thread of its own, and draws no random numbers."""

    def __init__(self) -> None:
        self.steps, self.ended = 0, threading.Event()
        self.trained = self._new()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _new(self) -> _Trained:
        return _Trained(
            {
                "seed": 5,
                "model": "plain",
                "layers": 4,
                "dropout": 0.0,
                "kind": "SGD",
                "rate": 0.1,
                "optimizers": "one",
            }
        )

    def _run(self) -> None:
        while not self.ended.is_set():
            self._step(self.trained)
            self.steps += 1

    def _step(self, trained: _Trained) -> None:
        import torch

        loss = trained.model(torch.arange(LENGTH)[None]).square().mean()
        loss.backward()
        trained.optimizers[0].step()
        trained.optimizers[0].zero_grad()

    def end(self) -> bool:
        """Return whether it trained as it does alone."""
        self.ended.set()
        self.thread.join()
        again = self._new()
        for _ in range(self.steps):
            self._step(again)
        return _same(
            *([p.detach() for p in one.model.parameters()] for one in (self.trained, again))
        )


def _plain(module: Any) -> dict[str, Any]:
    """The attributes of a module that are plain values."""
    kinds = (bool, int, float, str, list, dict, type(None))
    own = vars(module)
    hooks = {name: len(own[name]) for name in ("_forward_hooks", "_forward_pre_hooks")}
    return hooks | {
        name: copy.copy(value)
        for name, value in own.items()
        if isinstance(value, kinds) and not name.startswith("_")
    }


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same to the last bit; NaN is itself."""
    import torch

    if isinstance(one, torch.Tensor):
        same = one.shape == other.shape and one.dtype == other.dtype
        return bool(
            same
            and torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
            and torch.equal(one.isnan(), other.isnan())
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
