"""Trainings as they are: steps count once, copies and saves stay clean, and nothing ends one."""

import copy
import gc
import io
import os
import random
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_models import NanoGPT, small_model, tokens
from torch import nn
from torch.nn import functional
from torch.optim import SGD, AdamW
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import attnlab
from attnlab.files.errors import InputError
from attnlab.observing import statistics
from attnlab.observing.sources import SOURCES

FEW = {"min_keys": 8}
PROBE = tokens(2)
CALL = nn.Module.__call__


def loss_of(model, ids):
    logits = model(ids)
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def train(model, steps, *optimizers, after=lambda n: None, first=0):
    optimizers = optimizers or (SGD(model.parameters(), 0.1),)
    for n in range(first, first + steps):
        for one in optimizers:
            one.zero_grad()
        loss_of(model, tokens(2, seed=n)).backward()
        for one in optimizers:
            one.step()
        after(n + 1)


def halves(model):
    """Parameters of the attention and all others, as Muon and AdamW share them."""
    named = list(model.named_parameters())
    return (
        [p for n, p in named if "attention" in n],
        [p for n, p in named if "attention" not in n],
    )


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# -- steps count once ----------------------------------------------------------------------------


class Sharing(torch.optim.Optimizer):
    """An optimizer with another inside, as ZeroRedundancyOptimizer is."""

    def __init__(self, parameters):
        self.inner = AdamW(parameters, 1e-3)
        super().__init__(self.inner.param_groups, self.inner.defaults)

    def step(self, closure=None):
        return self.inner.step(closure)


def test_several_optimizers_count_once_and_are_complete_when_measured():
    for kinds in ((SGD, AdamW), (AdamW, SGD, SGD)):
        model = NanoGPT()
        parts = [*halves(model), []][: len(kinds)]
        if len(kinds) == 3:
            parts[2], parts[1] = parts[1][:3], parts[1][3:]
        optimizers = [kind(part, 0.1) for kind, part in zip(kinds, parts, strict=True)]
        seen = []
        log = lambda _, step: seen.append((step, weights(model)))  # noqa: E731, B023
        ends = []
        with attnlab.observe(model, probe=PROBE, every=2, log=log, **FEW) as observer:
            train(model, 5, *optimizers, after=lambda n: ends.append(weights(model)))  # noqa: B023
        assert observer.history.steps == [0, 2, 4, 5]
        assert all(equal(found, ends[step - 1]) for step, found in seen if step)
        np.testing.assert_allclose(
            observer.result()["learning_rate_sum"], [0, 0.2, 0.4, 0.5], rtol=1e-6
        )


def test_an_optimizer_inside_another_counts_once():
    model = NanoGPT()
    with attnlab.observe(model, probe=PROBE, every=5, **FEW) as observer:
        train(model, 10, Sharing(model.parameters()))
    assert observer.history.steps == [0, 5, 10]
    np.testing.assert_allclose(observer.result()["learning_rate_sum"], [0, 0.005, 0.01])


def test_another_optimizer_of_the_same_parameters_is_another_step():
    model = NanoGPT()
    with attnlab.observe(model, probe=PROBE, every=1, **FEW) as observer:
        train(model, 2)
        train(model, 2, AdamW(model.parameters()))
    assert observer.history.steps == [0, 1, 2, 3, 4]


def test_parameters_without_an_optimizer_do_not_delay_the_numbers():
    model = NanoGPT()
    seen = []
    with attnlab.observe(model, probe=PROBE, every=1, **FEW) as observer:
        train(model, 3, SGD(halves(model)[0], 0.1), after=lambda n: seen.append(weights(model)))
        entropy = observer.result().entropy
    assert observer.history.steps == [0, 1, 2, 3]
    alone = attnlab.observe(model, probe=PROBE, **FEW)
    alone.step(0)
    np.testing.assert_allclose(entropy[-1], alone.result().entropy[0])


def in_backward(model, rate=0.1):
    """An optimizer for each parameter, which steps when its gradient is there."""
    optimizers = {p: SGD([p], rate) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)


class Reentrant(NanoGPT):
    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x)


@pytest.mark.parametrize("kind", [NanoGPT, Reentrant])
@pytest.mark.parametrize("live", [False, True])
def test_optimizers_in_the_backward_pass_count_once_and_nothing_is_measured_inside(kind, live):
    alone, model = kind(), kind()
    in_backward(alone)
    in_backward(model)
    options = {"live": True} if live else {"probe": PROBE}
    ends, seen = [weights(model)], []

    def log(_, step):
        seen.append((step, weights(model)))
        assert torch._C._current_autograd_node() is None

    with attnlab.observe(model, every=5, log=log, **options, **FEW) as observer:
        for n in range(11):
            loss_of(model, tokens(2, seed=n)).backward()
            ends.append(weights(model))
    for n in range(11):
        loss_of(alone, tokens(2, seed=n)).backward()
    assert equal(weights(model), weights(alone))
    assert observer.history.steps == ([0, 5, 10] if live else [0, 5, 10, 11])
    if not live:
        assert all(equal(found, ends[step]) for step, found in seen)


def test_an_averaged_model_is_followed():
    model = NanoGPT()
    averaged = AveragedModel(model)
    other = nn.Linear(3, 5)
    unrelated = SGD(other.parameters(), 0.1)
    with attnlab.observe(averaged, probe=PROBE, every=2, **FEW) as observer:

        def update(_):
            averaged.update_parameters(model)
            unrelated.step()

        train(model, 5, *(SGD(part, 0.1) for part in halves(model)), after=update)
    assert observer.history.steps == [0, 2, 4, 5]
    result = observer.result().entropy
    assert (abs(result.diff("step")).max(("layer", "head")) > 0).all()


@pytest.mark.parametrize("live", [False, True])
def test_the_first_step_that_reaches_a_multiple_is_measured(live):
    model = NanoGPT().train()
    options = {"live": True} if live else {"probe": PROBE}
    observer = attnlab.observe(model, every=100, **options, **FEW)
    for n in range(0, 641, 64):
        due = n == 0 or n // 100 > (n - 64) // 100
        assert observer.step(n) == due
        model(PROBE)
    observer.finish(640)
    assert observer.history.steps == [0, 128, 256, 320, 448, 512, 640]


def test_lightning_counts_batches_and_goes_on_from_its_checkpoints(monkeypatch):
    patch = SimpleNamespace(Callback=type("Callback", (), {}))
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", patch)
    model = NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, every=5, **FEW)
    callback = observer.lightning()
    trainer = SimpleNamespace(global_step=0, optimizers=[1, 2])
    callback.on_train_start(trainer, model)
    for batch in range(10):
        trainer.global_step += 2
        callback.on_train_batch_end(trainer, model, None, None, batch)
        callback.on_train_batch_end(trainer, model, None, None, batch)  # gradients accumulate
    callback.on_train_end(trainer, model)
    assert observer.history.steps == [0, 5, 10]
    later = attnlab.observe(model, probe=PROBE, every=5, **FEW)
    resumed = later.lightning()
    resumed.load_state_dict(callback.state_dict())
    resumed.on_train_start(trainer, model)
    trainer.global_step += 1
    resumed.on_train_batch_end(trainer, model, None, None, 0)
    resumed.on_train_end(trainer, model)
    assert later.history.steps == [10, 11]


# -- copies, saves, counters ---------------------------------------------------------------------


def test_live_a_copy_is_clean_and_is_not_measured_in_the_models_place():
    model = NanoGPT().train()
    observer = attnlab.observe(model, live=True, every=1, **FEW)
    observer.step(0)
    other = copy.deepcopy(model)
    other(tokens(2, seed=9))
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    again = torch.load(saved, weights_only=False)
    for one in (other, again):
        for module in one.modules():
            assert not module._forward_hooks and not module._forward_pre_hooks
    ids = tokens(2, seed=5)
    model(ids)
    observer.finish(1)
    alone = attnlab.observe(model, probe=ids, **FEW)
    alone.step(0)
    np.testing.assert_allclose(observer.result().entropy[0], alone.result().entropy[0], rtol=1e-5)
    assert nn.Module.__call__ is CALL


def test_live_an_observer_that_is_dropped_leaves_nothing():
    model = NanoGPT().train()
    observer = attnlab.observe(model, live=True, **FEW)
    observer.step(0)
    assert any(source.captures for source in SOURCES)
    del observer
    gc.collect()
    assert not any(source.captures for source in SOURCES)
    assert nn.Module.__call__ is CALL
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class Counting(NanoGPT):
    """Counts and draws in its forward, in all the ways there are."""

    def __init__(self):
        super().__init__()
        self.calls, self.lengths, self.about = 0, [], {"last": None, "deep": [[0]]}
        self.tensor, self.array = torch.zeros(2), np.zeros(2)
        self.register_buffer("later", None)
        self.generator = torch.Generator().manual_seed(3)
        self.drawing = {"python": random.Random(3), "numpy": np.random.default_rng(3)}

    def forward(self, ids):
        self.calls += 1
        self.lengths.append(ids.shape[1])
        self.about["last"] = ids.shape
        self.about["deep"][0][0] += 1
        self.tensor += 1
        self.array += 1
        self.later = torch.ones(2) if self.later is None else self.later + 1
        self.new = self.calls
        self.blocks[0].seen = getattr(self.blocks[0], "seen", 0) + 1
        drawn = torch.rand((), generator=self.generator)
        drawn = drawn + self.drawing["python"].random() + self.drawing["numpy"].random()
        return super().forward(ids) * (1 + drawn)


def test_counters_and_generators_of_the_model_are_as_before():
    alone, model = Counting(), Counting()
    train(alone, 4)
    with attnlab.observe(model, probe=PROBE, every=1, **FEW):
        train(model, 4)
    assert equal(weights(model), weights(alone))
    for name in ("calls", "lengths", "about", "new"):
        assert getattr(model, name) == getattr(alone, name), name
    assert model.blocks[0].seen == 4
    assert torch.equal(model.tensor, alone.tensor) and torch.equal(model.later, alone.later)
    assert (model.array == alone.array).all()
    fresh = Counting()
    attnlab.observe(fresh, probe=PROBE, **FEW).step(0)
    assert not hasattr(fresh, "new") and fresh.later is None and fresh.lengths == []


# -- nothing ends a training ---------------------------------------------------------------------


class LayerDrop(NanoGPT):
    def __init__(self):
        super().__init__(layers=4)
        self.draw = random.Random(0)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            if not self.training or self.draw.random() < 0.5:
                x = block(x)
        return self.head(x)


def test_live_layers_that_are_dropped_are_not_a_number():
    alone, model = LayerDrop().train(), LayerDrop().train()
    train(alone, 12)
    with (
        pytest.warns(UserWarning, match="not measured .*no attention of LayerDrop was seen"),
        attnlab.observe(model, live=True, every=1, **FEW) as observer,
    ):
        train(model, 12)
    assert equal(weights(model), weights(alone))
    result = observer.result()
    assert result.module.values.tolist() == [f"blocks.{i}.attention" for i in range(4)]
    seen = result.entropy.notnull().all("head").values
    draw = random.Random(0)
    expected = np.array([[draw.random() < 0.5 for _ in range(4)] for _ in range(12)])
    assert result.step.values.tolist() == np.flatnonzero(expected.any(1)).tolist()
    np.testing.assert_array_equal(seen, expected[expected.any(1)])
    assert attnlab.observing.in_words(result)


class Failing(NanoGPT):
    """Fails in evaluation, for a while."""

    wrong = False

    def forward(self, ids):
        if self.wrong and not self.training:
            raise ZeroDivisionError("the probe")
        return super().forward(ids)


def test_a_failing_log_or_probe_warns_once():
    def log(_, step):
        raise ValueError("no connection")

    alone, model = Failing().train(), Failing().train()
    train(alone, 6)

    def after(n):
        model.wrong = n in (1, 2, 3)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with attnlab.observe(model, probe=PROBE, every=1, log=log, **FEW) as observer:
            train(model, 6, after=after)
    words = [str(one.message) for one in caught if one.category is UserWarning]
    assert len(words) == 2
    assert "step 0: log failed (ValueError: no connection); the training goes on" in words[0]
    assert "step 2: not measured (ZeroDivisionError: the probe)" in words[1]
    assert observer.history.steps == [0, 1, 5, 6]
    assert equal(weights(model), weights(alone))
    assert model.training


def test_failures_before_the_training_are_errors():
    model = Failing()
    model.wrong = True
    observer = attnlab.observe(model, probe=PROBE, **FEW)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            observer.step(0)
    with pytest.raises(ZeroDivisionError), observer:
        pass
    with pytest.raises(InputError, match="observer: was not entered"):
        observer.__exit__(None, None, None)


def test_live_a_failure_in_the_forward_pass_warns(monkeypatch):
    from attnlab.observing import observer as module

    model = NanoGPT().train()
    with attnlab.observe(model, live=True, every=1, **FEW) as observer:
        train(model, 2)
        for name in ("batch_of", "SnapshotBuilder"):
            with monkeypatch.context() as patch:
                wrong = lambda *_, **__: 1 / 0  # noqa: E731
                if name == "batch_of":
                    patch.setattr(module, name, wrong)
                else:
                    patch.setattr(module.snapshots.SnapshotBuilder, "add", wrong)
                observer._warned.clear()
                with pytest.warns(UserWarning, match="not measured .ZeroDivisionError"):
                    train(model, 3)
        train(model, 2)
    assert observer.history.steps[-1] > 8


def test_an_earlier_step_forgets_what_came_after_it():
    model = NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, every=10, learning_rate=0.1, **FEW)
    before = {}
    for n in range(0, 100, 10):
        observer.step(n)
        before[n] = observer.result().entropy[-1].values
        with torch.no_grad():
            for weight in model.parameters():
                weight *= 1.02
    with pytest.warns(UserWarning, match="step 45 after 90: the training goes on from an earlier"):
        assert not observer.step(45)
    assert observer.history.steps == [0, 10, 20, 30, 40]
    result = observer.result()
    assert "received_end" not in result
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (50, 60, 70):
            assert observer.step(n)
        assert observer.step(20)
    result = observer.result()
    assert result.step.values.tolist() == [0, 10, 20]
    np.testing.assert_allclose(result.learning_rate_sum, [0, 1, 2])
    for i, n in enumerate((0, 10)):
        np.testing.assert_array_equal(result.entropy[i], before[n])
    for n in range(30, 200, 10):
        observer.step(n)
    result = observer.result()
    assert result.step.values.tolist() == list(range(0, 200, 10))
    known = result.attention_speed.notnull().all(("layer", "head")).values
    assert known[0] and known[2:-1].all()
    assert attnlab.observing.in_words(result) and "<html" in observer.report()


def test_learning_rates_after_an_earlier_step_are_those_of_the_training():
    model = NanoGPT()
    optimizer = SGD(model.parameters(), 0.5)
    observer = attnlab.observe(model, probe=PROBE, every=2, **FEW)
    observer.step(0)
    train(model, 6, optimizer, after=observer.step)
    optimizer.param_groups[0]["lr"] = 0.25
    with pytest.warns(UserWarning, match="step 4 after 6"):
        observer.step(4)
    train(model, 2, optimizer, after=observer.step, first=4)
    np.testing.assert_allclose(observer.result().learning_rate_sum, [0, 1, 2, 2.5])


def test_live_an_earlier_step_forgets_what_came_after_it():
    model = NanoGPT().train()
    observer = attnlab.observe(model, live=True, every=2, **FEW)
    observer.step(0)
    train(model, 6, after=observer.step)
    with pytest.warns(UserWarning, match="step 3 after 6"):
        observer.step(3)
    train(model, 3, after=observer.step, first=3)
    observer.finish(6)
    assert observer.history.steps == [0, 2, 4]


def test_a_training_that_diverges_at_once_has_a_result():
    model = NanoGPT()
    with attnlab.observe(model, probe=PROBE, every=1, **FEW) as observer:
        train(model, 2, SGD(model.parameters(), 1e30))
    result = observer.result()
    assert result.entropy.isel(step=slice(1, None)).isnull().all()
    assert result.snap_step.isnull().all()
    assert "diverged" in " ".join(attnlab.observing.in_words(result))


def test_records_without_equal_spans_have_a_result():
    model = NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, every=1, learning_rate=0.1, **FEW)
    for n in (0, 1, 5):
        observer.step(n)
    result = observer.result()
    assert result.attrs["snap_spans"] == 0
    assert result.snap_step.isnull().all()


def test_a_second_training_begins_anew(tmp_path):
    pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
    from transformers import Trainer, TrainingArguments

    model = small_model("gpt2").train()
    rows = [{"input_ids": row, "labels": row} for row in tokens(8, seed=4)]
    arguments = TrainingArguments(
        tmp_path,
        max_steps=4,
        per_device_train_batch_size=2,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=True,
        learning_rate=1e-2,
    )
    observer = attnlab.observe(model, probe=PROBE, every=2, **FEW)
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[observer.callback()])
    trainer.train()
    first = observer.result()
    with pytest.warns(UserWarning, match="step 0 after 4"):
        trainer.train()
    second = observer.result()
    assert first.step.values.tolist() == second.step.values.tolist() == [0, 2, 4]
    np.testing.assert_allclose(second.entropy[0], first.entropy[-1])
    assert (second.entropy[1:] != first.entropy[1:]).any()
    np.testing.assert_allclose(second.learning_rate_sum, first.learning_rate_sum)


# -- on the disk ---------------------------------------------------------------------------------


def steps_on(folder):
    return sorted(int(path.stem.partition("-")[2]) for path in (folder / "steps").iterdir())


def test_measurements_are_on_the_disk_and_a_later_observer_goes_on(tmp_path):
    out = tmp_path / "observed"
    whole = NanoGPT()
    with attnlab.observe(whole, probe=PROBE, every=2, **FEW) as undivided:
        train(whole, 10)
    model = NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, every=2, out=out, **FEW)
    with observer:
        train(model, 5)
        assert steps_on(out) == [0, 2, 4]  # a kill here loses nothing
        kept = copy.deepcopy(model.state_dict())
        train(model, 3, first=5)
    assert (out / "result.nc").exists()

    model = NanoGPT()
    model.load_state_dict(kept)  # at step 5
    observer = attnlab.observe(model, probe=PROBE, every=2, out=out, **FEW)
    assert observer.history.steps == [0, 2, 4, 6, 8]
    with pytest.raises(InputError, match=r"out: holds steps 0 to 8 .* observer.step\(n\) before"):
        observer.__enter__()
    observer.step(5)
    assert observer.history.steps == [0, 2, 4]
    assert steps_on(out) == [0, 2, 4]
    assert sorted(p.name for p in (out / "rolled-back" / "1").iterdir()) == [
        "step-6.safetensors",
        "step-8.safetensors",
    ]
    with observer:
        train(model, 5, first=5)
    found, expected = observer.result(), undivided.result()
    assert found.step.values.tolist() == expected.step.values.tolist() == [0, 2, 4, 6, 8, 10]
    for name in ("entropy", "attention_speed", "sink_mass", "qk_stable_rank", "heavy_overlap"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, err_msg=name)
    again = attnlab.load(out / "result.nc")
    np.testing.assert_array_equal(again.entropy, found.entropy)


def test_the_learning_rate_of_a_training_that_goes_on(tmp_path):
    """Known where it goes on from a step that was measured, and unknown else."""
    for resumed, known in ((4, True), (5, False)):
        out = tmp_path / str(resumed)
        model = NanoGPT()
        with attnlab.observe(model, probe=PROBE, every=2, out=out, **FEW):
            train(model, 4)
        later = attnlab.observe(model, probe=PROBE, every=2, out=out, **FEW)
        later.step(resumed)
        train(model, 4, after=later.step, first=resumed)
        result = later.result()
        if known:
            np.testing.assert_allclose(result.learning_rate_sum, [0, 0.2, 0.4, 0.6, 0.8])
        else:
            assert "learning_rate_sum" not in result.coords


def test_live_goes_on_too(tmp_path):
    model = NanoGPT().train()
    for n in range(2):
        observer = attnlab.observe(model, live=True, every=2, out=tmp_path / "o", **FEW)
        observer.step(4 * n)
        train(model, 4, after=observer.step, first=4 * n)
        observer.finish(4 * (n + 1))
    assert observer.history.steps == [0, 2, 4, 6]


def test_layers_of_a_folder_are_compared_by_name(tmp_path, monkeypatch):
    """An encoder's and a decoder's layers, in other groups than they were kept in."""
    model, inputs = small_model("t5"), {"input_ids": PROBE, "decoder_input_ids": PROBE}
    for step in range(3):
        observer = attnlab.observe(model, probe=inputs, every=1, out=tmp_path / "o", **FEW)
        observer.step(step)
        monkeypatch.setattr(statistics, "BUDGET_BYTES", 2**16)  # each layer for itself
    assert (observer.result()["attention_speed"][:2] == 0).all()


def test_a_folder_draws_no_random_numbers(tmp_path):
    """In a process of its own: importing JAX draws from numpy's generator, the first time."""
    code = (
        "import sys, random, numpy, torch, attnlab\n"
        "model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)\n"
        "def drawn(): return random.getstate(), str(numpy.random.get_state()), torch.rand(1)\n"
        "torch.manual_seed(0); before = drawn(); torch.manual_seed(0)\n"
        "ids = torch.ones(2, 16, 8)\n"
        "attnlab.observe(model, probe=(ids,), out=sys.argv[1], every=1).step(0)\n"
        "print(before == drawn())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "o"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True"


def test_another_observation_in_the_folder_is_refused(tmp_path):
    out = tmp_path / "observed"
    model = NanoGPT()
    attnlab.observe(model, probe=PROBE, out=out, **FEW).step(0)
    for other in ({"probe": tokens(2, seed=8)}, {"rows": 16}, {"min_keys": 9}):
        with pytest.raises(InputError, match="out: .* holds another observation"):
            attnlab.observe(model, out=out, **({"probe": PROBE} | FEW | other))
    with pytest.raises(InputError, match="out: .* is not a folder; give another path"):
        attnlab.observe(model, probe=PROBE, out=next((out / "steps").iterdir()), **FEW)
    with pytest.raises(InputError, match="out: the folder .* does not exist"):
        attnlab.observe(model, probe=PROBE, out=tmp_path / "a" / "b", **FEW)


def test_a_damaged_file_or_a_full_disk_does_not_end_it(tmp_path, monkeypatch):
    from attnlab.observing import trajectory

    out = tmp_path / "observed"
    model = NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, every=1, out=out, **FEW)
    for n in range(3):
        observer.step(n)
    path = out / "steps" / "step-1.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.warns(UserWarning, match="goes on without step 1"):
        later = attnlab.observe(model, probe=PROBE, every=1, out=out, **FEW)
    assert later.history.steps == [0, 2]

    def full(*_, **__):
        raise OSError(28, "No space left on device", "somewhere")

    later.step(3)
    monkeypatch.setattr(trajectory, "write_checkpoint", full)
    with pytest.warns(UserWarning, match="step 4: not written to .*No space left"):
        assert later.step(4)
    assert later.history.steps == [0, 2, 3, 4]


# -- what cannot be done -------------------------------------------------------------------------


def test_partitioned_weights_are_refused_with_words():
    model = NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, **FEW)
    next(model.parameters()).ds_id = 0
    for live in (False, True):
        options = {"live": True} if live else {"probe": PROBE}
        with pytest.raises(InputError, match="model: its weights are partitioned by DeepSpeed"):
            attnlab.observe(model, **options, **FEW)
    with pytest.raises(InputError, match="ZeRO-3"):
        observer.step(0)
