"""Runs, the words about them, the frames that travel, and the code that makes them again."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import xarray as xr

from attnlab import load, measures, simulate, theory
from attnlab.cli.app import main
from attnlab.data import syn_small
from attnlab.playground import code, story
from attnlab.playground.frames import class_frames, predicted, shown_tokens, traces
from attnlab.playground.prediction import predict
from attnlab.playground.presets import PRESETS
from attnlab.playground.run import Cancelled, Run, run, table
from attnlab.playground.setting import Setting
from attnlab.playground.user_data import written

FIG2 = PRESETS["fig2"].state.a
OWN = Setting(written=written(syn_small()), seed=7, steps=50)  # the program of FIG2 serves it too
EXTENDED = Setting(residual=True, heads=2, init="uniform", steps=20)


def test_a_run_is_what_simulate_gives() -> None:
    done = run(FIG2)
    direct = simulate(FIG2.sequence_classes, FIG2.engine, **FIG2.arguments(), progress=False)
    xr.testing.assert_equal(done.result, direct.isel(seed=0, drop=True))
    assert run(FIG2) is done


class Soon(Event):
    """Set when it has been asked for a few times."""

    asked = 0

    def is_set(self) -> bool:
        self.asked += 1
        return self.asked > 3


def test_a_run_that_nobody_waits_for_ends_and_is_not_kept() -> None:
    setting = FIG2.turned("seed", 9)
    soon = Soon()
    with pytest.raises(Cancelled):
        run(setting, stop=soon)
    assert soon.asked == 4, "it went on"
    assert run(setting) is run(setting)


def test_frames_hold_the_numbers_of_the_run_and_of_the_theory() -> None:
    done, path = run(FIG2), predict(FIG2).path
    assert path is not None
    support = done.classes.support(1)
    np.testing.assert_array_equal(shown_tokens([done], sequence_class=1, head=0), support)
    frames = class_frames(done, support, sequence_class=1, head=0)
    assert frames.note == ""
    assert frames.facts["token"] == [str(token) for token in support]
    assert frames.facts["common"] == [True] * 10 + [False] * 10
    of_class = done.result["attention"].isel(sequence_class=1, token=support)
    np.testing.assert_array_equal(frames.attention, of_class.values)
    claimed = predicted(done, path, support, sequence_class=1)
    np.testing.assert_allclose(claimed[0], done.classes.probabilities(1))
    assert claimed[-1, -1] > 4 * claimed[0, -1]
    assert frames.facts["claimed"] == ["nothing"] * 10 + ["it gains"] * 10
    assert frames.facts["actual"][-1].startswith("it gained (z by +")
    entropy = measures.entropy(done.result).mean("sequence_class")
    np.testing.assert_allclose(traces(done.result)["entropy"], entropy, rtol=1e-6)  # in float32
    assert traces(path)["entropy"][0] == pytest.approx(entropy.values[0], rel=1e-6)


def test_the_prediction_is_eq_10_at_the_steps_that_momentum_makes() -> None:
    prediction = predict(FIG2)
    classes = FIG2.sequence_classes
    plain = theory.momentum_time(run(FIG2).moments[-1], momentum=0.9)
    flow = theory.attention_flow(
        classes.probs[:, classes.in_play], plain, psi=classes.query_index, M=34, eta_y=2.0,
        eta_z=5.0,
    )  # fmt: skip
    assert prediction.path is not None
    z = prediction.path["attention_logits"].isel(step=-1, token=classes.in_play)
    np.testing.assert_allclose(z, flow.logits, atol=1e-7)
    assert "with SGD's decoder" in prediction.note
    t0 = theory.transition_times(K=2, M=34, eta_y=2.0).t0
    assert theory.momentum_time(prediction.t0, momentum=0.9) == pytest.approx(float(t0))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (PRESETS["fig5"].state.a, "Adam"),
        (PRESETS["heads"].state.a, "one head"),
        (Setting(eta_y=0.0), "decoder"),
    ],
)
def test_where_the_theory_does_not_speak_it_says_why(setting: Setting, words: str) -> None:
    assert predict(setting).path is None
    assert words in predict(setting).note


def steered(attention: list[list[float]]) -> xr.Dataset:
    """A result of one class of tokens 0 (common) to 2, and a second class, at steps 0, 1, 2, ..."""
    of_class = np.array(attention)
    both = np.stack([of_class, of_class[:, [0, 1, 2]]], axis=1)
    full = np.zeros((len(of_class), 2, 5))
    full[:, 0, :3] = both[:, 0]
    full[:, 1, [0, 3, 4]] = both[:, 1]
    return xr.Dataset(
        {
            "attention": (("step", "sequence_class", "token"), full),
            "probability": (("sequence_class", "token"), full[0]),
        },
        {"step": np.arange(len(of_class)), "token": np.arange(5), "sequence_class": [0, 1]},
    )


def test_the_story_follows_from_measures() -> None:
    path = [[0.5, 0.25, 0.25], [0.4, 0.35, 0.25], [0.2, 0.6, 0.2], [0.2, 0.7, 0.1],
            [0.2, 0.701, 0.099], [0.2, 0.702, 0.098]]  # fmt: skip
    told = story.tell(steered(path), syn_small(), first=0)
    assert told[0] == "Before training, attention follows P(l|n): 50 % on common tokens."
    assert told[1] == (
        "Common tokens are being suppressed: 40 %, from 50 %. No token stands out in class 0."
    )
    assert told[2] == (
        "Distinct tokens compete; common tokens keep 20 %. "
        "Token 1 is winning in class 0: 60 %, from 25 %."
    )
    assert told[4].startswith(
        "Attention is frozen: its speed is 0.4 % of its peak. Token 1 has won"
    )
    assert "gaining attention" in story.tell(steered(path[::-1]), syn_small(), first=0)[3]
    still = story.tell(steered([path[0]] * 3), syn_small(), first=0)
    assert still[1].startswith("Attention does not move")
    assert "Token 19 has won in class 0" in story.tell(run(FIG2).result, syn_small(), first=0)[-1]


def test_several_heads_are_told_apart() -> None:
    done = run(EXTENDED)
    assert done.result.sizes["head"] == 2
    tokens = done.classes.support(0)
    one, two = (class_frames(done, tokens, sequence_class=0, head=h).attention for h in (0, 1))
    assert one.shape == two.shape and not np.allclose(one[-1], two[-1])
    assert len(story.tell(done.head(1), done.classes, first=0)) == done.moments.size


def test_the_table_has_a_row_for_each_moment_class_and_token() -> None:
    done = run(OWN)
    frame = table(done)
    assert len(frame) == done.moments.size * done.classes.num_nonzeros
    row = frame.iloc[-1]
    at = {"step": row["step"], "sequence_class": row["sequence_class"], "token": row["token"]}
    assert row["attention"] == done.result["attention"].sel(at)
    query = done.classes.query[int(row["sequence_class"])]
    z = done.result["attention_logits"].sel(step=row["step"], query=query, token=row["token"])
    assert row["attention_logits"] == z


@pytest.mark.parametrize("setting", [FIG2, OWN, EXTENDED])
def test_the_python_on_show_gives_the_numbers_on_the_screen(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if own := code.classes_file(setting):
        (tmp_path / code.FILE).write_text(own)
    names: dict[str, xr.Dataset] = {}
    exec(code.python(setting), names)
    same_numbers(names["result"].isel(seed=0, drop=True), run(setting))


@pytest.mark.parametrize("setting", [OWN, EXTENDED])
def test_the_command_line_on_show_gives_the_numbers_on_the_screen(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if own := code.classes_file(setting):
        (tmp_path / code.FILE).write_text(own)
    monkeypatch.setattr(sys, "argv", shlex.split(code.command_line(setting)))
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    same_numbers(load(tmp_path / "run.nc").isel(seed=0, drop=True), run(setting))


def same_numbers(result: xr.Dataset, shown: Run) -> None:
    xr.testing.assert_equal(result["attention"], shown.result["attention"])
    xr.testing.assert_equal(result["loss"], shown.result["loss"])


def test_a_text_without_distinct_words_is_not_said_to_have_some() -> None:
    shown = run(PRESETS["fig7"].state.a)
    told = story.tell(shown.head(0), shown.classes, first=1)
    assert any("Common tokens compete" in words for words in told)
    assert not any("Distinct" in words for words in told)
    assert "Common token class is winning in class 1" in told[-1]
