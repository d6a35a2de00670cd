"""Ways in by others' trainers, and ways out to trackers."""

import os
import re
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from small_models import NanoGPT, small_model, tokens

import attnlab
from attnlab.files.errors import InputError

FEW = {"min_keys": 8}
PROBE = tokens(2)


def trained(folder, callbacks):
    """Losses of the Trainer of transformers, six steps with dropout."""
    from transformers import Trainer, TrainingArguments

    model = small_model("gpt2").train()
    rows = [{"input_ids": row, "labels": row} for row in tokens(8, seed=4)]
    arguments = TrainingArguments(
        folder,
        max_steps=6,
        per_device_train_batch_size=2,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=1,
        use_cpu=True,
        seed=3,
    )
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=callbacks(model))
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], model


def test_the_trainer_of_transformers(tmp_path):
    pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
    alone, _ = trained(tmp_path, lambda _: [])
    kept = []

    def callbacks(model):
        kept.append(attnlab.observe(model, probe=PROBE, every=4, **FEW))
        return [kept[0].callback()]

    watched, model = trained(tmp_path, callbacks)
    assert watched == alone
    assert kept[0].history.steps == [0, 4, 6]
    assert model.training


def test_lightning_by_either_name(monkeypatch):
    """A stand-in: what it calls is what Lightning's own callbacks are called with."""
    with_callback = ModuleType("pytorch_lightning")
    with_callback.Callback = type("Callback", (), {})
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    model = NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, every=2, **FEW)
    with pytest.raises(InputError, match="needs lightning, which is not installed"):
        observer.lightning()
    monkeypatch.setitem(sys.modules, "pytorch_lightning", with_callback)
    callback = observer.lightning()
    assert isinstance(callback, with_callback.Callback)
    trainer = SimpleNamespace(global_step=0)
    callback.on_train_start(trainer, model)
    for trainer.global_step in (1, 2, 3):
        callback.on_train_batch_end(trainer, model, None, None, 0)
    callback.on_train_end(trainer, model)
    assert observer.history.steps == [0, 2, 3]


class SummaryWriter:
    def __init__(self):
        self.told, self.drawn, self.tables, self.closed = [], [], [], False

    def add_text(self, name, text, step):
        assert not self.closed
        self.tables.append((step, name, text))

    def add_scalar(self, name, value, step):
        self.told.append((step, name, value))

    def add_figure(self, name, figure, step):
        self.drawn.append((step, name, figure.axes[0].images[0].get_array().data))


class Run:
    def __init__(self):
        self.told = []

    def log(self, values):
        step = values.pop("attention/step")
        self.told += [(step, name, value) for name, value in values.items()]


class Mlflow:
    def __init__(self):
        self.told, self.drawn, self.tables = [], [], []

    def log_figure(self, figure, file):
        self.drawn.append(file)

    def log_table(self, frame, file):
        self.tables.append((file, frame))

    def log_metrics(self, values, *, step):
        self.told += [(step, name, value) for name, value in values.items()]


class Function(list):
    def __call__(self, values, step):
        self += [(step, name, value) for name, value in values.items()]

    @property
    def told(self):
        return list(self)


def test_lightning_gets_the_callback_and_its_loggers_the_numbers(monkeypatch):
    with_callback = ModuleType("lightning.pytorch")
    with_callback.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", with_callback)
    model, logger = NanoGPT(), SimpleNamespace(told=[])
    logger.log_metrics = lambda values, step: logger.told.append((step, values))
    logger.experiment, logger.run_id, client = SimpleNamespace(), "7", []  # as that of mlflow
    for name in ("log_figure", "log_table"):
        setattr(logger.experiment, name, lambda run, _, file: client.append((run, file)))
    trainer = SimpleNamespace(callbacks=[], loggers=[logger], global_step=0)
    observer = attnlab.observe(model, probe=PROBE, every=2, **FEW)
    observer.attach(trainer, maps_every=1)
    (callback,) = trainer.callbacks
    callback.on_train_start(trainer, model)
    assert [step for step, _ in logger.told] == observer.history.steps == [0]
    assert "attention/entropy/layer_01" in logger.told[0][1]
    callback.on_train_end(trainer, model)
    files = ["attention/relative_entropy/layer_by_head/0.png", "attention/summary.json"]
    assert client == [("7", file) for file in files]


def test_trackers_get_few_numbers_by_name():
    trackers = [SummaryWriter(), Run(), Mlflow(), Function()]
    model = NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, log=trackers[0], **FEW)
    for tracker in trackers[1:]:
        assert observer.attach(tracker) is observer
    observer.step(0)
    told = [tracker.told for tracker in trackers]
    assert told[0] == told[1] == told[2] == told[3]
    values = {name: value for _, name, value in told[0]}
    assert len([name for name in values if "layer_" in name]) == 10  # five of each layer
    result = observer.result().isel(step=0)
    wanted = float(result.entropy.isel(layer=1).mean())
    assert values["attention/entropy/layer_01"] == pytest.approx(wanted)
    assert values["attention/max_logit/max"] == pytest.approx(float(result.max_logit.max()))
    roles = sum(value for name, value in values.items() if name.startswith("attention/role/"))
    assert roles == (result.head_role >= 0).sum()


def test_the_user_chooses_statistics():
    told, model = Function(), NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, **FEW).attach(told, statistics=["self_mass"])
    observer.step(0)
    of_layers = [name for _, name, _ in told if "/role/" not in name]
    assert of_layers == [
        "attention/self_mass/layer_00",
        "attention/self_mass/layer_01",
        "attention/self_mass/max",
        "attention/alerts",
    ]
    with pytest.raises(InputError, match="statistics: no 'self'; did you mean"):
        observer.attach(told, statistics=["self"])


def test_heat_maps_and_a_last_table_go_to_trackers_that_take_them(monkeypatch):
    package = ModuleType("own")  # as wandb and trackio are
    package.Image, package.Table = np.asarray, lambda dataframe: dataframe
    package.log = lambda values: shown.update(values)
    monkeypatch.setitem(sys.modules, "own", package)
    writer, mlflow, shown, model = SummaryWriter(), Mlflow(), {}, NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, every=1, alert=False, **FEW)
    for tracker in (writer, mlflow, package, Function()):
        observer.attach(tracker, maps_every=2, statistics=["entropy", "max_logit"])
    for step in range(3):
        observer.step(step)
        with torch.no_grad():
            for weights in model.parameters():
                weights.mul_(1.5)
    observer.finish(3)
    assert [step for step, _, _ in writer.drawn] == [0, 2] and len(mlflow.drawn) == 2
    result = observer.result()
    assert writer.drawn[0][2] == pytest.approx(result.relative_entropy.isel(step=0).values)
    assert shown["attention/relative_entropy/layer_by_head"].shape[-1] == 3  # a picture
    (file, frame), table = mlflow.tables[0], shown["attention/summary"]
    assert file == "attention/summary.json" and table.equals(frame)
    assert frame[["layer", "statistic"]].values.tolist() == [
        [layer, name] for layer in (0, 1) for name in ("entropy", "max_logit")
    ]
    of_layer = result.max_logit.sel(layer=1).max("head")
    row = frame.iloc[3]
    assert [row["first"], row["last"]] == pytest.approx(of_layer.values[[0, -1]])
    assert row["highest"] == pytest.approx(float(of_layer.max()))
    assert row["highest at step"] == of_layer.idxmax() == 3
    assert sum(int(n) for one in frame["roles"][::2] for n in re.findall(r"\d+", one)) == int(
        (result.head_role >= 0).sum()
    )
    ((step, name, text),) = writer.tables
    assert (step, name) == (3, "attention/summary") and text.count("max_logit") == 2


def test_a_trainer_logs_attention_beside_its_loss(tmp_path):
    pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
    from transformers import Trainer, TrainerCallback, TrainingArguments

    model = small_model("gpt2").train()
    rows = [{"input_ids": row, "labels": row} for row in tokens(8, seed=4)]
    settings = {"max_steps": 4, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    arguments = TrainingArguments(tmp_path, use_cpu=True, logging_steps=2, **settings)

    class Reporter(TrainerCallback):  # as that of TensorBoard
        def on_train_begin(self, *_, **__):
            self.tb_writer = writer

        def on_train_end(self, *_, **__):
            writer.closed = True

    writer = SummaryWriter()
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[Reporter()])
    observer = attnlab.observe(model, probe=PROBE, every=2, **FEW)
    observer.attach(trainer, maps_every=2)
    trainer.train()
    assert [step for step, _, _ in writer.drawn] == [0, 4]
    assert writer.closed and len(writer.tables) == 1
    name = "attention/entropy/layer_01"
    logged = {one["step"]: one[name] for one in trainer.state.log_history if name in one}
    assert list(logged) == observer.history.steps == [0, 2, 4]
    mean = observer.result().entropy.isel(layer=1).mean("head").values
    assert list(logged.values()) == pytest.approx(mean)


def test_of_replicas_one_is_measured_or_all_together(tmp_path):
    """Two processes of their own: what runs here has threads that no fork would survive."""
    import replicas

    paths = os.pathsep.join(sys.path)
    words = [sys.executable, replicas.__file__, tmp_path]
    ran = [
        subprocess.Popen([*words, str(rank)], env={**os.environ, "PYTHONPATH": paths})
        for rank in range(2)
    ]
    assert [process.wait(timeout=300) for process in ran] == [0, 0]
    steps = torch.load(tmp_path / "steps-False")
    assert steps == [0, 2, 3]
    assert torch.load(tmp_path / "steps-True") == [0, 2]
    model = NanoGPT()
    alone = attnlab.observe(model, probe=PROBE, **FEW)
    alone.step(0)
    found = torch.load(tmp_path / "entropy-False", weights_only=False)
    assert found[0] == pytest.approx(alone.result().entropy.values[0])
    # the first step of both processes, as one batch
    both = torch.cat([tokens(2, seed=0), tokens(2, seed=10)])
    together = attnlab.observe(model, probe=both, **FEW)
    together.step(0)
    found = torch.load(tmp_path / "entropy-True", weights_only=False)
    assert found[0] == pytest.approx(together.result().entropy.values[0], abs=1e-6)
    # sharded weights are whole while the probe runs, and trained as without it
    found = torch.load(tmp_path / "entropy-sharded", weights_only=False)
    assert found[0] == pytest.approx(alone.result().entropy.values[0])
    for name, found in torch.load(tmp_path / "behind-sharded", weights_only=False).items():
        assert found[0] == pytest.approx(alone.result()[name].values[0]), name


def test_without_torch_the_extra_is_named():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import attnlab, attnlab.files.errors\n"
        "try: attnlab.observe(None, probe=None)\n"
        "except attnlab.files.errors.InputError as problem: print(problem)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "needs torch, which is not installed; run" in done.stdout
    assert "-m pip install 'attnlab[observe]'" in done.stdout
