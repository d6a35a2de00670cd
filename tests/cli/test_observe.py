"""attnlab observe: a model, its checkpoints and their lint from the command line."""

import json
import os
import re
import shutil
import sys
from unittest import mock

import numpy as np
import pytest

import attnlab
from attnlab.cli import app

pytest.importorskip("transformers")
pytestmark = pytest.mark.torch
SIZE = ["--sequences", "2", "--length", "24", "--min-keys", "8"]


def attnlab_observe(*arguments):
    with mock.patch.object(sys, "argv", ["attnlab", "observe", *map(str, arguments)]):
        said = []
        with mock.patch.object(app, "_say", said.append), pytest.raises(SystemExit) as stop:
            app.main()
    return stop.value.code, said


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three checkpoints of a Trainer with a tokenizer, and a text."""
    import torch
    from small_models import small_model
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    torch.set_num_threads(1)  # small tensors: threads would wait for each other
    folder = tmp_path_factory.mktemp("observe")
    words = {"<unk>": 0, **{f"w{i}": i for i in range(1, 97)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    for seed, step in enumerate((0, 10, 20)):
        model = small_model("gpt_neox", seed=seed)
        model.save_pretrained(folder / "out" / f"checkpoint-{step}")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(
        folder / "out" / "checkpoint-0"
    )
    (folder / "text.txt").write_text(" ".join(f"w{i * 7 % 97}" for i in range(200)))
    return folder


def test_a_model_as_a_table_a_document_and_a_file(place, capsys):
    asked = ["model", place / "out" / "checkpoint-0", "--text", place / "text.txt", *SIZE]
    assert attnlab_observe(*asked, "--out", place / "a.nc") == (0, [])
    printed = capsys.readouterr().out
    assert "2 layers, 4 heads, 2 x 24 tokens" in printed
    for word in ("layer", "entropy", "sink", "previous", f"wrote {place / 'a.nc'}"):
        assert word in printed
    assert attnlab_observe(*asked, "--json") == (0, [])
    document = json.loads(capsys.readouterr().out)
    assert document["probe"] == [2, 24]
    assert len(document["heads"]) == 8
    found = attnlab.load(place / "a.nc")
    assert document["heads"][5]["entropy"] == float(found.entropy.sel(layer=1, head=1))
    assert document["heads"][0]["module"] == "layers.0.attention"
    assert 0 < document["heads"][0]["retained_mass"]["oracle"]["0.5"] <= 1


def test_checkpoints_and_their_lint(place, tmp_path, capsys):
    asked = ["--text", place / "text.txt", "--tokenizer", place / "out" / "checkpoint-0", *SIZE]
    where = place / "out"
    assert attnlab_observe("checkpoints", where, *asked, "--out", tmp_path / "seen") == (0, [])
    printed = capsys.readouterr().out
    assert f"{where}: 3 steps from 0 to 20" in printed
    assert "snap" in printed
    assert attnlab.load(tmp_path / "seen" / "result.nc").sizes["step"] == 3
    assert attnlab_observe("lint", where) == (0, [])
    assert "3 checkpoints from 0 to 20: nothing wrong" in capsys.readouterr().out

    broken = tmp_path / "out"
    shutil.copytree(where, broken)
    shutil.copy(where / "checkpoint-20" / "model.safetensors", broken / "checkpoint-10")
    assert attnlab_observe("lint", broken) == (1, [])
    printed = capsys.readouterr().out
    assert "step 10 holds the weights of the last step, 20" in printed
    assert attnlab_observe("lint", broken, "--json") == (1, [])
    assert json.loads(capsys.readouterr().out)["unusable"] == [10]
    assert attnlab_observe("checkpoints", broken, *asked, "--json") == (0, [])
    document = json.loads(capsys.readouterr().out)
    assert document["steps"] == [0, 20]
    assert document["lint"]["faults"][0]["kind"] == "final"
    assert [row["snap_step"] for row in document["heads"]] == [None] * 8


def test_numbers_that_are_not_finite_are_reported(place, tmp_path, capsys):
    import torch
    from small_models import small_model

    asked = ["--tokenizer", place / "out" / "checkpoint-0", "--text", place / "text.txt", *SIZE]
    shutil.copytree(place / "out" / "checkpoint-10", tmp_path / "checkpoint-10")
    model = small_model("gpt_neox", seed=7)
    with torch.no_grad():  # finite weights, whose products are not
        model.gpt_neox.layers[0].attention.query_key_value.weight.mul_(1e38)
    model.save_pretrained(tmp_path / "checkpoint-20")
    capsys.readouterr()
    assert attnlab_observe("checkpoints", tmp_path, *asked, "--json") == (0, [])
    document = json.loads(capsys.readouterr().out)
    assert document["heads"] == []
    assert list(document["not_finite"]) == ["20"]
    assert attnlab_observe("checkpoints", tmp_path, *asked) == (0, [])
    printed = capsys.readouterr().out
    assert "no head of the last step has attention that is a finite number" in printed
    assert "step 20: attention is not a finite number in layers.0.attention" in printed
    out = tmp_path / "x.nc"
    for value in (1e38, float("nan")):
        with torch.no_grad():
            model.gpt_neox.layers[1].attention.query_key_value.weight[0, 0] = value
        model.save_pretrained(tmp_path / "checkpoint-20")
        code, said = attnlab_observe("model", tmp_path / "checkpoint-20", *asked, "--out", out)
        assert code == 2 and "not" in said[0] and "finite number" in said[0]
        assert not out.exists()


def test_a_tokenizer_that_cannot_read_the_text(place, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(place / "out" / "checkpoint-0", model)
    document = json.loads((model / "tokenizer.json").read_text())
    document["model"]["vocab"] = {"w1": 0}
    (model / "tokenizer.json").write_text(json.dumps(document))
    code, said = attnlab_observe("model", model, "--text", place / "text.txt", *SIZE)
    assert code == 2 and "tokenizer: that of" in said[0] and "cannot read the text" in said[0]
    growing = {"type": "Replace", "pattern": {"String": "w"}, "content": "w" * 10}
    document["normalizer"] = {"type": "Sequence", "normalizers": [growing] * 12}
    (model / "tokenizer.json").write_text(json.dumps(document))
    code, said = attnlab_observe("model", model, "--text", place / "text.txt", *SIZE)
    assert code == 2 and "can make a text more than 64 times longer" in said[0]
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (model / name).unlink(missing_ok=True)
        os.mkfifo(model / name)  # transformers would wait for it
        code, said = attnlab_observe("model", model, "--text", place / "text.txt", *SIZE)
        assert code == 2 and f"{name}: not a file but a named pipe" in said[0]
        (model / name).unlink()


def test_bad_input_is_one_message(place, tmp_path):
    model, text = place / "out" / "checkpoint-10", place / "text.txt"
    (tmp_path / "empty.txt").write_text(" ")
    cases = {
        ("lint", tmp_path / "nowhere"): "no such folder",
        ("model", model, "--text", text): "tokenizer: .* has none",
        ("model", tmp_path, "--text", text): "no model in it",
        ("model", tmp_path / "nowhere", "--text", text): "nowhere: no such folder",
        ("lint", place / "out", "--pattern", r"late(\d+)"): "pattern: .* fits none of checkpoint-0",
        ("model", model, "--text", tmp_path / "empty.txt"): "empty; give a file with text",
        ("model", model, "--text", text, "--device", "tpu"): "device: 'tpu' is not here",
        ("model", model, "--text", text, "--length", "0"): "length: expected a whole number",
        ("model", model, "--text", text, "--out", tmp_path / "a.csv"): "should end in .nc",
    }
    for words, message in cases.items():
        code, said = attnlab_observe(*words)
        assert code == 2
        assert len(said) == 1
        assert re.search(message, said[0]), said


def test_a_page_beside_the_numbers_and_of_a_saved_dataset(place, capsys):
    text = place / "bigrams.txt"  # five words, each before one of four others, amid the rest
    draw = np.random.default_rng(0).integers
    said = [(draw(40, 60), draw(40, 60), q, 10 + 4 * q + draw(4)) for q in draw(1, 6, 500)]
    text.write_text(" ".join(f"w{i}" for sentence in said for i in sentence))
    asked = ["checkpoints", place / "out", "--text", text, *SIZE]
    page, folder = place / "page.html", place / "for-page"
    assert attnlab_observe(*asked, "--out", folder, "--html", page) == (0, [])
    assert f"wrote {page}" in capsys.readouterr().out
    assert attnlab_observe("report", folder / "result.nc") == (0, [])
    printed = capsys.readouterr().out
    assert "measured 3 times from step 0 to 20: 8 heads in 2 layers" in printed
    assert (folder / "result.html").read_text() == page.read_text()
    assert "3 checkpoints were read and hashed: no two have the same weights" in page.read_text()
    code, said = attnlab_observe("report", folder / "result.nc", "--html", place / "page.txt")
    assert code == 2 and ".html" in said[0]
    assert "Are the tokens that gained attention in the first layer those" in page.read_text()
    # a file without what a text said: by the probe's own tokens, of which there are too few
    found = attnlab.load(folder / "result.nc")
    del found.attrs["theory"]
    attnlab.save(found, place / "alone.nc")
    assert attnlab_observe("report", place / "alone.nc") == (0, [])
    assert "What theory expects is left out: " in (place / "alone.html").read_text()
    asked[:2] = ["model", place / "out" / "checkpoint-0"]
    assert attnlab_observe(*asked, "--html", page) == (0, [])
    assert "the theory expects these tokens to gain attention" in page.read_text()
