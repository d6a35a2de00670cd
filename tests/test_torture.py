"""The campaign: a little of each part finds nothing, and what is broken is found."""

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import broken_campaign
import forked_verb
import numpy as np
import pytest

from torture import extremes, mutate
from torture.campaign import Campaign, Case, case_from, clean_words, written
from torture.parsers import Parser, Parsers

ROOT = Path(__file__).resolve().parents[1]
# A kill of a sweep and a disk that a simulation fills among them. Half an hour of it runs each
# night, with signals to every verb; here tests of the command line send those.
SHORT = (
    "parsers:100",
    "checkpoints:8",
    "damage:50",
    "kills:1",
    "disks:1",
    "extremes:5",
    "outputs:6",
    "theories:30",
    "twins:2",
    "--seed",
    "2631",
)


def run(*command, **more):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **more},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_little_of_each_part(tmp_path):
    kept = tmp_path / "kept"
    done = run("-m", "torture", *SHORT, "--minutes", "1e3", "--json", "--out", kept)
    assert done.returncode == 0, done.stderr
    assert not kept.exists()
    total = Counter()
    for counts in json.loads(done.stdout).values():
        total.update({name: n for name, n in counts.items() if name != "kept"})
    assert total["bad"] == 0
    assert total["right"] + total["refused"] >= 200
    assert total["refused"] > 33


@pytest.mark.slow
def test_what_is_broken_is_found(tmp_path):
    done = run(broken_campaign.__file__, tmp_path / "cells")
    found = json.loads(done.stdout)
    outcomes = {name: outcome for name, (outcome, _) in found.items()}
    assert list(outcomes) == list(broken_campaign.WAYS)
    good = {"right": "right", "refused": "refused", "right again": "right"}
    assert outcomes == dict.fromkeys(outcomes, "bad") | good
    words = {name: words for name, (_, words) in found.items()}
    assert "without naming" in words["no name"]
    assert "control characters" in words["escape"]
    assert words["codec"].startswith("UnicodeDecodeError")
    assert words["key"] == "KeyError: 'steps'"
    assert words["memory"].startswith("MemoryError")
    assert words["judge"] == "LookupError: what was left"
    assert words["abort"].endswith("SIGABRT")
    assert "of processor time" in words["spin"]
    assert "nothing happened" in words["sleep"]


@pytest.mark.slow
def test_a_forked_verb_is_like_a_new_one(tmp_path):
    done = run(forked_verb.__file__, tmp_path)
    found = json.loads(done.stdout)
    assert found["forked"] == found["cold"]
    assert (found["cold"]["code"], found["cold"]["stopped"]) == (0, 130)


class Fuzz(Parsers):
    """Fuzzes one parser of this file."""

    def __init__(self, folder, read, again=lambda value: value):
        Campaign.__init__(self, folder)
        seed = {"steps": 10, "rates": [0.5, 1.0], "name": "x", "about": {"on": True}}
        self.take({"recipe": Parser((json.dumps(seed).encode(),), ".json", read, again)})

    def problems(self):
        for case in islice(self.cases(Random(0)), 300):
            verdict = self.judge(case)
            if verdict.outcome == "bad":
                yield verdict.words.partition(":")[0], verdict.words


def test_a_parser_that_lets_things_pass_is_found(tmp_path):
    def lax(path):
        document = json.loads(path.read_text())
        return {"steps": document["steps"], "rates": document["rates"]}

    problems = dict(Fuzz(tmp_path, lax).problems())
    assert "accepted, though changed" in problems
    assert "a change was ignored" in problems
    assert {"KeyError", "TypeError", "JSONDecodeError"} <= problems.keys()

    def strict(path):
        raise ValueError(f"{path}: no")

    with pytest.raises(ValueError, match="no"):  # what is fuzzed was accepted before
        Fuzz(tmp_path, strict)


def test_mutations_are_what_they_say():
    document = {"a": {"b": [1, 2.5, True], "c": "word"}, "d": 3}
    seen = set()
    for number in range(500):
        made = mutate.mutate(document, Random(number), may=("a.c *",))
        seen.add(made.words)
        assert not (made.words.startswith("a.c ") and made.must)
        text = mutate.as_text(made.document, ".json")
        if not made.words.endswith("deep"):
            again = json.loads(text)
            assert json.dumps(again) != json.dumps(document) or made.words.endswith("extreme")
    assert {"a.b.0 not-finite", "a unknown", "d bool", ". null", "a.b.2 number"} <= seen
    assert document == {"a": {"b": [1, 2.5, True], "c": "word"}, "d": 3}


def test_a_case_can_be_written_down():
    case = Case("classes.yaml", {"seed": 1}, bytes(range(256)))
    assert case_from(json.loads(json.dumps(written(case)))) == case


def test_clean_words():
    assert clean_words("attnlab: recipe.yaml: steps: missing").outcome == "refused"
    for words in ("", "steps", "Traceback (most recent call last):\n  x: y", "a: " + "x" * 5000):
        assert clean_words(words).outcome == "bad"


def test_a_number_that_is_wrong_is_found(monkeypatch):
    rows = [[(0, 0.25), (1, 0.75)], [(0, 0.5), (2, 0.5)]]
    given = {
        "vocab": 8,
        "rows": rows,
        "query": [3, 3],
        "next": [4, 5],
        "prior": [0.5, 0.5],
        "eta_y": [0.5],
        "eta_z": [1.0],
        "steps": 5,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "lump": False,
        "dtype": "float64",
        "start": 1.0,
        "length": 2,
        "batch_size": 1,
        "seed": 0,
    }
    case = Case("limit", given)
    campaign = extremes.Extremes(Path())
    assert campaign.judge(case).outcome == "right"
    descend = extremes._descend
    monkeypatch.setattr(
        extremes,
        "_descend",
        lambda given, classes, at, rates, rounded: descend(
            given, classes, at, rates * np.array([1.0, 1 + 1e-6]).reshape(2, 1, 1), rounded
        ),
    )
    assert "from brute force" in campaign.judge(case).words


def test_a_sum_that_cancels_is_left_to_rounding():
    """Attention is on one token but for 1e-300, so that the slope of its logit is zero but for the
    rounding error of a difference, which a rate of 4e20 makes larger than the logits."""
    given = {
        "vocab": 8,
        "rows": [[(7, 1.0), (2, 1e-300)], [(0, 1.0)]],
        "query": [6, 7],
        "next": [1, 3],
        "prior": [0.5, 0.5],
        "eta_y": [0.1],
        "eta_z": [3.976519007503364e20],
        "steps": 5,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "lump": True,
        "dtype": "float32",
        "start": 30.0,
        "length": 2,
        "batch_size": 1,
        "seed": 3694674699,
    }
    assert extremes.Extremes(Path()).judge(Case("limit", given)).outcome == "right"
