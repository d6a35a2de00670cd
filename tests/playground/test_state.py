"""Settings within bounds, controls that give way, links that come back."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from attnlab import Extended, Limit, Sampled, Simulation
from attnlab.data import syn_small
from attnlab.files.errors import InputError
from attnlab.playground.controls import BY_NAME, CONTROLS
from attnlab.playground.presets import PRESETS, opening
from attnlab.playground.setting import MOST, MOST_WRITTEN, Setting
from attnlab.playground.state import MOST_LINKED, State, View, from_query, link, to_query
from attnlab.playground.user_data import from_file, with_probability, written

TWO = """\
vocabulary: [the, votes, was, born, elected]
classes:
  - {query: was, next: born, probs: {the: 1}}
  - {query: was, next: elected, probs: {the: 0.5, votes: 0.5}}
"""


def test_the_default_setting_is_syn_small_and_the_protocol_of_fig_4() -> None:
    setting = Setting()
    np.testing.assert_allclose(setting.sequence_classes.probs, syn_small().probs, rtol=1e-14)
    assert (setting.length, setting.batch_size, setting.momentum) == (128, 128, 0.9)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"classes": 21}, "classes"),
        ({"eta_y": -1.0}, "eta_y"),
        ({"eta_z": float("nan")}, "eta_z"),
        ({"steps": 10**6}, "steps"),
        ({"steps": 20_000, "batch_size": 2048, "classes": 20, "distinct": 40}, "steps"),
        ({"vocab_size": MOST["vocab_size"] + 1}, "vocab_size"),
        ({"written": "x" * (MOST_WRITTEN + 1)}, "classes"),
        ({"batch_size": None}, "batch_size"),
        ({"optimizer": "adam"}, "momentum"),
        ({"flow": True}, "flow"),
        ({"momentum": 1.0}, "momentum"),
        ({"heads": 0}, "heads"),
        ({"heads": 10**400}, "heads"),  # which no float holds
        ({"steps": 10**400}, "steps"),
    ],
)
def test_bounds_are_kept_with_a_message_that_names_the_field(
    given: dict[str, float], names: str
) -> None:
    with pytest.raises(ValueError, match=f"^{names}:"):
        Setting(**given)  # type: ignore[arg-type]


def own(*, classes: int, vocabulary: int, tokens: int) -> str:
    """Classes of one's own that draw the first tokens of a vocabulary, as a setting has them."""
    probs = dict.fromkeys(range(tokens), 1)
    each = [{"query": k, "next": k, "probs": probs} for k in range(classes)]
    return json.dumps({"vocabulary": vocabulary, "normalize": True, "classes": each})


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"classes": 101, "vocabulary": 200, "tokens": 3}, "classes: 101; .* up to 100"),
        ({"classes": 2, "vocabulary": 5001, "tokens": 3}, "vocabulary: 5,001; .* up to 5,000"),
        ({"classes": 20, "vocabulary": 2600, "tokens": 2600}, "probabilities: 52,000; .* 50,000"),
        ({"classes": 99, "vocabulary": 5000, "tokens": 3}, "classes: 495,000 .* up to 320,000"),
    ],
)
def test_classes_of_ones_own_are_bounded_with_the_limit_and_a_remedy(
    sizes: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=f"^{words}.*min-count.*or use attnlab simulate"):
        Setting(written=own(**sizes))


def test_classes_that_are_too_long_for_a_link_have_none() -> None:
    few, many = (
        State(Setting(written=own(classes=4, vocabulary=900, tokens=tokens)))
        for tokens in (100, 600)
    )
    assert link(few) == to_query(few)
    assert link(many) == ""
    assert len(many.a.written or "") < MOST_LINKED < len(to_query(many))


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_control_can_be_turned_to_every_value_on_offer(name: str) -> None:
    start = PRESETS[name].state.a
    for control in CONTROLS:
        assert getattr(start, control.name) in control.offered(start)
        if not control.applies(start):
            continue
        for value in control.offered(start):
            try:
                turned = start.turned(control.name, value)
            except ValueError as error:
                # the bounds may refuse, in words; a combination may not
                assert control.name in (
                    "vocab_size",
                    "queries",
                    "classes",
                    "distinct",
                    "common",
                    "batch_size",
                    "steps",
                    "length",
                    "heads",
                    "init",
                ), error
            else:
                assert getattr(turned, control.name) == value
                assert control.shown(value)


def test_every_field_of_a_run_can_be_turned() -> None:
    assert {field.name for field in fields(Setting)} == {*BY_NAME, "written"}


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_link_brings_a_preset_back(name: str) -> None:
    state = PRESETS[name].state
    assert from_query(f"?{to_query(state)}") == state


def test_a_link_brings_everything_back() -> None:
    setting = Setting(written=from_file("own.yaml", TWO), eta_y=1.37, seed=123456, steps=73)
    state = State(setting, view=View(theory=False, first=1)).with_change("optimizer", "adam")
    assert state.b is not None and state.b.momentum == 0.0
    assert from_query(to_query(state)) == state
    assert from_query("") == State()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "invalid JSON"),
        ("[]", "mapping"),
        ('{"a": {"etay": 1}}', "did you mean 'eta_y'"),
        ('{"a": {"eta_y": "1"}}', "a.*number|eta_y"),
        ('{"a": {"eta_y": 1e9}}', "eta_y"),
        (f'{{"a": {{"heads": 1{"0" * 400}}}}}', "heads"),
        ('{"a": "recipes/fig4.yaml"}', "expected a mapping"),
        ('{"view": "x.yaml"}', "expected a mapping"),
        ('{"b": {"eta_y": 2, "eta_z": 2}, "compare": "eta_y"}', "more than eta_y"),
        ('{"compare": "eta_y"}', "missing"),
        ('{"b": {"eta_y": 2}, "compare": "__class__"}', "not a control"),
        ('{"a": {"written": "{}"}}', "vocabulary"),
    ],
)
def test_a_bad_link_is_refused_in_words(document: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"link: .*({words})"):
        from_query(urlencode({"s": document}))


def test_run_b_follows_run_a_but_for_its_control() -> None:
    state = State().with_change("eta_y", 10.0)
    moved = state.with_setting(state.a.turned("seed", 3))
    assert moved.b == Setting(seed=3, eta_y=10.0)


def test_files_are_data() -> None:
    assert written(Setting(written=from_file("own.yml", TWO)).sequence_classes)
    for name, text, words in (
        ("own.py", TWO, "end in"),
        ("own.yaml", "!!python/object/apply:os.system [ls]", "own.yaml"),
        ("own.json", TWO, "invalid JSON"),
        ("own.yaml", "x" * (5 * MOST_WRITTEN), "characters"),
        ("own.yaml", TWO.replace("votes: 0.5", "votes: 0.6"), "sums to 1.1"),
    ):
        with pytest.raises(ValueError, match=words):
            from_file(name, text)


def test_one_probability_by_hand() -> None:
    classes = syn_small()
    changed = with_probability(classes, sequence_class=1, token=29, probability=0.5)
    assert changed.probs[1, 29] == pytest.approx(0.5)
    assert changed.probs[1].sum() == pytest.approx(1.0)
    was, rest = (np.delete(each.probs[1], 29) for each in (classes, changed))
    np.testing.assert_allclose(rest / rest.sum(), was / was.sum())
    np.testing.assert_array_equal(changed.probs[0], classes.probs[0])
    alone = with_probability(classes, sequence_class=0, token=19, probability=1.0)
    with pytest.raises(ValueError, match="only one"):
        with_probability(alone, sequence_class=0, token=19, probability=0.5)


def test_a_page_opens_on_a_simulation_that_its_controls_can_show() -> None:
    simulation = Simulation("syn-small", Limit(8), eta_y=3.0, steps=50, seeds=[4])
    shown = opening(simulation).a.simulation
    assert replace(shown, save=simulation.save) == simulation
    others: dict[str, dict[str, Any]] = {
        "eta_y": {"eta_y": [1.0, 2.0]},
        "model": {"model": Extended(normalization="rms")},
        "engine": {"engine": Sampled(8, 4, sequences=9)},
        "init": {"init": [0.0] * 34},
    }
    for name, change in others.items():
        with pytest.raises(InputError, match=name):
            opening(replace(simulation, **change))
