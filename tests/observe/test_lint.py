"""The lint finds what is wrong with a trajectory's files, and nothing where nothing is."""

import json
import os
import re

import pytest
import torch
from safetensors.torch import save_file

from attnlab.observing.checkpoints import find_checkpoints, lint

STEPS = (0, 100, 200, 300, 400, 500)


def weights(step, dtype=torch.float32):
    """A walk: each step is some way from the one before."""
    torch.manual_seed(0)
    walk = torch.randn(len(STEPS), 40, 30).cumsum(0)
    i = STEPS.index(step)
    return {"a.weight": walk[i].to(dtype), "b.bias": walk[i, 0].clone().to(dtype)}


def write(place, step, tensors, **config):
    folder = place / f"checkpoint-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    about = {"model_type": "gpt_neox", "hidden_size": 30, "transformers_version": str(step)}
    (folder / "config.json").write_text(json.dumps(about | config))


@pytest.fixture
def place(tmp_path):
    for step in STEPS:
        write(tmp_path, step, weights(step))
    return tmp_path


def faults(place):
    found = lint(find_checkpoints(place))
    return [(fault.kind, fault.steps) for fault in found.faults], found


def test_a_sound_trajectory_has_no_faults(place):
    told, found = faults(place)
    assert told == []
    assert found.steps == STEPS
    assert found.unusable == found.breaks == ()


def test_steps_with_the_same_weights(place):
    write(place, 300, weights(100))
    told, found = faults(place)
    assert told == [("identical", (100, 300))]
    assert found.unusable == (100, 300)  # which of them is right, nobody knows
    assert found.faults[0].words == "steps 100, 300 hold the same weights"


def test_a_step_with_the_weights_of_the_last(place):
    write(place, 200, weights(500))
    told, found = faults(place)
    assert told == [("final", (200,))]
    assert found.unusable == (200,)
    write(place, 200, weights(500, torch.bfloat16))  # rounded, so that no byte is the same
    told, _ = faults(place)
    assert ("final", (200,)) in told


def test_the_end_of_a_training_that_stood_still(place):
    write(place, 400, weights(500))
    told, found = faults(place)
    assert told == [("final", (400,))]
    assert found.unusable == (400,)


def test_a_change_of_configuration_or_dtype(place):
    write(place, 300, weights(300), rope_theta=5.0)
    told, found = faults(place)
    assert told == [("config", (200, 300)), ("config", (300, 400))]
    assert found.breaks == (300, 400)
    assert "rope_theta None -> 5.0" in found.faults[0].words
    for step in (300, 400, 500):
        write(place, step, weights(step, torch.float16))
    told, found = faults(place)
    assert told == [("dtype", (200, 300))]
    assert "float32 -> float16" in found.faults[0].words
    write(place, 500, weights(500, torch.float16) | {"c": torch.zeros(1, dtype=torch.float16)})
    assert ("tensors", (400, 500)) in faults(place)[0]


def test_weights_that_are_not_finite_are_a_fault(place):
    wrong = weights(200)
    wrong["b.bias"][3] = float("nan")
    write(place, 200, wrong)
    told, found = faults(place)
    assert told == [("nan", (200,))]
    assert found.faults[0].words == "step 200: not finite numbers in b.bias"


def test_files_that_cannot_be_read(place):
    whole = (place / "checkpoint-200" / "model.safetensors").read_bytes()
    (place / "checkpoint-200" / "model.safetensors").write_bytes(whole[:-100])
    (place / "checkpoint-300" / "model.safetensors").unlink()
    told, found = faults(place)
    assert told == [("unreadable", (200,)), ("unreadable", (300,))]
    assert "damaged" in found.faults[0].words
    assert "no weights in it" in found.faults[1].words
    json.dumps(found.document(), allow_nan=False)
    for content in (b'{"hidden_size": ', b"[]", b"\xff"):
        (place / "checkpoint-400" / "config.json").write_bytes(content)
        assert ("unreadable", (400,)) in faults(place)[0]


def test_a_tensor_of_more_entries_than_float32_can_count(tmp_path):
    large = torch.zeros(2**24 + 4, dtype=torch.float8_e4m3fn)
    for step in STEPS[:2]:
        write(tmp_path, step, {"a": large})
    assert faults(tmp_path)[0] == [("final", (0,))]


def test_pickles_are_not_read(place, tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (place / "checkpoint-200" / "model.safetensors").unlink()
    grown = torch.nn.Parameter(torch.ones(2))
    wide = torch.zeros(1).expand(10**9)
    for content in (
        weights(200),
        {"a": Evil()},
        {0: grown},
        {"a": grown},
        {"a": wide},
        {"a": torch.eye(2).to_sparse()},
        {"a": torch.empty(2, device="meta")},
        [1],
        b"",
        None,
    ):
        torch.save(content, place / "checkpoint-200" / "pytorch_model.bin")
        told, found = faults(place)
        assert told == [("unreadable", (200,))]
        assert "pytorch_model.bin is not read: it is a pickle" in found.faults[0].words
    (place / "checkpoint-200" / "pytorch_model.bin").unlink()
    os.mkfifo(place / "checkpoint-200" / "pytorch_model.bin")
    assert faults(place)[0] == [("unreadable", (200,))]
    assert not (tmp_path / "ran").exists()


def refused(place, step=200):
    """The words about a step that cannot be read; nothing else is wrong with the others."""
    told, found = faults(place)
    assert told == [("unreadable", (step,))]
    return found.faults[0].words


def test_links_and_indices_that_leave_the_folder_are_refused(place, tmp_path):
    folder = place / "checkpoint-200"
    weight_file = folder / "model.safetensors"
    weight_file.unlink()
    os.mkfifo(weight_file)  # which would be waited for without end
    assert "not a file but a named pipe" in refused(place)
    weight_file.unlink()
    save_file(weights(200), tmp_path / "elsewhere.safetensors")
    weight_file.symlink_to(tmp_path / "elsewhere.safetensors")
    assert "outside of the folder" in refused(place)
    weight_file.unlink()
    index = folder / "model.safetensors.index.json"
    for name in (str(tmp_path / "elsewhere.safetensors"), "../../elsewhere.safetensors", "..", ""):
        index.write_text(json.dumps({"weight_map": {"a.weight": name, "b.bias": name}}))
        assert "is not the name of a file in this folder" in refused(place)
    for content in (
        "",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {"a": 5}}',
        "7",
        "[" * 9999,
    ):
        index.write_text(content)
        assert re.search("not a JSON object|weight_map: expected", refused(place))
    index.write_text(json.dumps({"weight_map": {"a.weight": "part.safetensors"}}))
    (tmp_path / "elsewhere.safetensors").rename(folder / "part.safetensors")
    assert faults(place)[0] == []
    index.unlink()
    save_file(weights(200), folder / "again.safetensors")  # which of the two is meant?
    assert "is in another file of the folder" in refused(place)


def test_configurations_too_large_or_too_deep_are_refused(place):
    config = place / "checkpoint-200" / "config.json"
    for depth in (150, 900, 100_000):
        config.write_text('{"a": ' + "[" * depth + "]" * depth + "}")
        assert re.search("nested deeper|not a JSON object", refused(place))
    config.write_text(
        json.dumps({"model_type": "x" * 10**6, "y" * 10**6: 5, "z": list(range(999))})
    )
    assert all(len(fault.words) < 500 for fault in faults(place)[1].faults)
