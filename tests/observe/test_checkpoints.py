"""Checkpoints are found as Trainers and publishers leave them, in the order of their steps."""

import json

import pytest

from attnlab.files.errors import InputError
from attnlab.observing import checkpoints
from attnlab.observing.checkpoints import find_checkpoints


def model_at(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt_neox"}))
    return folder


def cached(cache, repository, revisions):
    """A repository as huggingface_hub leaves it in its cache."""
    place = cache / f"models--{repository.replace('/', '--')}"
    for i, revision in enumerate(revisions):
        commit = f"{i:040x}"
        model_at(place / "snapshots" / commit)
        ref = place / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(commit)
    return place


def steps(*args, **kwargs):
    return [checkpoint.step for checkpoint in find_checkpoints(*args, **kwargs)]


def test_of_a_trainer(tmp_path):
    for step in (1000, 500, 2000):
        model_at(tmp_path / "out" / f"checkpoint-{step}")
    (tmp_path / "out" / "runs").mkdir()
    assert steps(tmp_path / "out") == [500, 1000, 2000]
    (tmp_path / "out" / "config.json").write_text("{}")  # the final model beside them
    found = find_checkpoints(str(tmp_path / "out"))
    assert [c.name for c in found] == ["checkpoint-500", "checkpoint-1000", "checkpoint-2000"]
    assert steps(tmp_path / "out" / "checkpoint-500") == [500]


def test_of_the_cache_with_revisions(tmp_path):
    revisions = ["main", "step0", "step143000", "step1", "step1000", "step512"]
    pythia = cached(tmp_path, "EleutherAI/pythia-70m", revisions)
    assert steps(pythia) == [0, 1, 512, 1000, 143000]  # main is none of them
    assert steps(tmp_path) == [0, 1, 512, 1000, 143000]
    olmo = cached(tmp_path / "b", "allenai/OLMo-1B", ["step1000-tokens4B", "step20000-tokens84B"])
    assert steps(olmo) == [1000, 20000]
    (tmp_path / "b" / "models--allenai--OLMo-1B" / "refs" / "step5").write_text("f" * 40)
    assert steps(olmo) == [1000, 20000]  # a revision whose files are not there


def test_of_stages_one_is_named(tmp_path):
    names = [
        "stage1-step1000-tokens5B",
        "stage1-step2000-tokens9B",
        "stage2-ingredient1-step1000-tokens5B",
    ]
    olmo = cached(tmp_path, "allenai/OLMo-2", names)
    with pytest.raises(InputError, match=r"several stages \(stage1, stage2-ingredient1\)"):
        find_checkpoints(olmo)
    assert steps(olmo, pattern=r"stage1-step(\d+)") == [1000, 2000]


def test_of_one_repository_for_each_point(tmp_path):
    for name in ("0k", "20k", "2000k", "100k"):
        cached(tmp_path, f"google/multiberts-seed_0-step_{name}", ["main"])
    assert steps(tmp_path) == [0, 20_000, 100_000, 2_000_000]
    assert steps(f"{tmp_path}/models--google--multiberts-seed_0-step_*k") == steps(tmp_path)
    cached(tmp_path, "google/multiberts-seed_1-step_20k", ["main"])
    with pytest.raises(InputError, match="are both of step 20000; give a pattern"):
        find_checkpoints(tmp_path)
    assert steps(tmp_path, pattern=r"seed_1-step_(\d+)k") == [20]


def test_a_letter_that_begins_a_word_is_not_a_unit(tmp_path):
    for name in ("step100merged", "step2M"):
        model_at(tmp_path / name)
    assert steps(tmp_path) == [100, 2_000_000]


def test_of_a_list_and_a_pattern(tmp_path):
    folders = [model_at(tmp_path / name) for name in ("early3", "late10", "other")]
    assert steps(folders, pattern=r"(?:early|late)(\d+)") == [3, 10]


@pytest.mark.parametrize(
    "pattern, message",
    [
        (None, "whose names have no step"),
        ("step(", "is not a regular expression"),
        ("a{99999999999}()", "is not a regular expression"),
        ("(" * 900 + ")" * 900, "longer than 1000 characters"),
        ("step", "has no group for the step"),
        ("(a)", "gives the step 'a'"),
        ("a(x)?", "gives the step None"),
    ],
)
def test_unreadable_names_and_patterns_are_refused(tmp_path, pattern, message):
    model_at(tmp_path / "a")
    with pytest.raises(InputError, match=message):
        find_checkpoints(tmp_path, pattern=pattern)
    with pytest.raises(InputError, match="no such folder; give"):
        find_checkpoints(tmp_path / "nowhere")


def test_a_pattern_that_takes_exponential_time_is_given_up(tmp_path, monkeypatch):
    model_at(tmp_path / ("a" * 60))
    monkeypatch.setattr(checkpoints, "PATTERN_SECONDS", 0.5)
    with pytest.raises(InputError, match=r"pattern: .* is not done with 1 names after 0.5 seconds"):
        find_checkpoints(tmp_path, pattern=r"(a|aa)+(\d)")


def test_a_glob_is_bounded(tmp_path, monkeypatch):
    for name in ("step1", "step2", "step3"):
        model_at(tmp_path / name)
    with pytest.raises(InputError, match=r"'\.\.' after a wildcard"):
        find_checkpoints(f"{tmp_path}/*" + "/../*" * 40)
    monkeypatch.setattr(checkpoints, "MOST_FOUND", 2)
    with pytest.raises(InputError, match="finds more than 2; give a narrower"):
        find_checkpoints(f"{tmp_path}/*")


@pytest.mark.parametrize("name", ["step9223372036854775808", "step10000000000000000k"])
def test_steps_beyond_int64_are_refused(tmp_path, name):
    model_at(tmp_path / name)
    with pytest.raises(InputError, match=r"gives the step \d+; expected 0 to 2\^63 - 1"):
        find_checkpoints(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"../../../elsewhere", b"..", b"/elsewhere", b"\x00\xff", b"a" * 5000, b"a b"]
)
def test_refs_without_a_commit_are_refused(tmp_path, content):
    pythia = cached(tmp_path / "hub", "EleutherAI/pythia-70m", ["step0"])
    model_at(tmp_path / "elsewhere")
    (pythia / "refs" / ".DS_Store").write_bytes(content)  # nothing of Hugging Face's
    assert steps(pythia) == [0]
    (pythia / "refs" / "step1").write_bytes(content)
    with pytest.raises(InputError, match=r"refs/step1: (damaged|larger than)"):
        find_checkpoints(pythia)


def test_links_to_folders_elsewhere(tmp_path):
    pythia = cached(tmp_path / "hub", "EleutherAI/pythia-70m", ["step0"])
    elsewhere = model_at(tmp_path / "elsewhere" / "step5")
    (pythia / "snapshots" / "abc").symlink_to(elsewhere)
    (pythia / "refs" / "step5").write_text("abc")
    with pytest.raises(InputError, match="elsewhere/step5, outside of .*; refused"):
        find_checkpoints(pythia)
    model_at(tmp_path / "out" / "checkpoint-1")
    (tmp_path / "out" / "checkpoint-2").symlink_to("checkpoint-1")  # a Trainer may
    assert steps(tmp_path / "out") == [1, 2]
    (tmp_path / "out" / "step5").symlink_to(elsewhere)
    with pytest.raises(InputError, match="elsewhere/step5, outside of .*; refused"):
        find_checkpoints(tmp_path / "out")
    assert steps(f"{tmp_path}/out/step*") == [5]  # named by the user
