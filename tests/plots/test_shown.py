"""Choice of classes and tokens in a drawing, and the note on those left out."""

import numpy as np
import pytest
import xarray as xr

from attnlab import plots, simulate
from attnlab.files.errors import InputError
from attnlab.plots.attention import MOST_CLASSES, MOST_WORDS, frames, heading, spread


def result(*, classes=8, words=30, named=True, runs=1):
    """Each class has one word of its own; all others are shared. Query and next words follow."""
    tokens = [f"w{i}" for i in range(words)] + ["was"] + [f"n{i}" for i in range(classes)]
    p = np.zeros((classes, len(tokens)))
    p[:, classes:words] = np.linspace(2, 1, words - classes)
    p[np.arange(classes), np.arange(classes)] = 3
    p /= p.sum(1, keepdims=True)
    names = {
        "token": tokens,
        "token_id": ("token", np.arange(len(tokens))),
        "query_name": ("sequence_class", ["was"] * classes),
        "next_name": ("sequence_class", tokens[-classes:]),
    }
    attention = np.broadcast_to(p, (runs, 2, *p.shape))
    return xr.Dataset(
        {
            "attention": (("seed", "step", "sequence_class", "token"), attention),
            "probability": (("sequence_class", "token"), p),
        },
        {
            "seed": range(runs),
            "step": [0, 1],
            "token": range(len(tokens)),
            "sequence_class": range(classes),
            "query_token": ("sequence_class", [words] * classes),
            "next_token": ("sequence_class", words + 1 + np.arange(classes)),
            **(names if named else {}),
        },
    )


def test_a_drawing_names_what_it_leaves_out():
    shown = frames(result(runs=3))
    assert dict(shown.sizes) == {"step": 2, "sequence_class": MOST_CLASSES, "token": MOST_WORDS}
    assert shown.attrs["left_out"] == (
        f"1 of 3 runs (seed = 0), {MOST_CLASSES} of 8 classes, {MOST_WORDS} of 30 tokens"
    )
    assert {"w6", "w7"}.isdisjoint(shown["word"].values)  # words of classes that are not shown
    small = frames(result(classes=2, words=5))
    assert small.attrs["left_out"] == "" and small.sizes["token"] == 5


def test_classes_and_tokens_are_chosen_by_number_or_name():
    shown = frames(result(), classes=["n7", 0], tokens=["w3", 29])
    assert shown["label"].values.tolist() == ["was → n7", "was → n0"]
    assert shown["word"].values.tolist() == ["w3", "w29"]
    assert shown["common"].values.tolist() == [False, True]
    assert shown.attrs["left_out"] == "2 of 8 classes, 2 of 30 tokens"
    assert frames(result(), classes="was → n2")["sequence_class"].values.tolist() == [2]
    by_number = frames(result(named=False), classes=3, tokens=[4, 5])
    assert by_number["label"].values.tolist() == ["token 30 → token 34"]
    assert by_number["word"].values.tolist() == ["4", "5"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"tokens": "w333"}, "tokens: 'w333' is not in the result; did you mean 'w3"),
        ({"classes": "m7"}, "classes: 'm7' is not in the result; did you mean 'n7'?"),
        ({"classes": 8}, "classes: 8 is not in the result; they are numbered from 0 to 7"),
        ({"tokens": []}, "tokens: expected at least one, got none"),
    ],
)
def test_what_is_not_there_is_refused_with_the_nearest_name(chosen, message):
    with pytest.raises(InputError) as refused:
        plots.bars(result(), **chosen)
    assert str(refused.value).startswith(message)


def test_drawings_say_what_is_left_out_and_write_words():
    figure = plots.bars(result(), classes=["n1", "n2"], tokens=["w1", "w2", "w20"])
    last = figure.axes[-1]
    assert [text.get_text() for text in last.get_xticklabels()] == ["w1", "w2", "w20"]
    assert figure.get_supxlabel() == "contextual token\n2 of 8 classes, 3 of 30 tokens"
    assert "6 of 8 classes" in plots.heatmap(result()).get_supxlabel()
    pair = result(), result()
    assert "5 tokens that move furthest" in plots.compare(*pair, classes=0).get_supxlabel()
    of_three = plots.compare(*pair, classes=0, tokens=["w0", "w20", "w21"])
    assert len(of_three.axes[0].lines) == 6
    entropy = result().assign(entropy=result()["attention"].max("token"))
    assert plots.curves(entropy, classes="n3").get_supxlabel() == "1 of 8 classes"


def test_a_word_may_look_like_a_formula():
    odd = result(classes=1, words=3).assign_coords(token=["$a$", "$", "b_", "was", "n0"])
    plots.bars(odd).canvas.draw()


def test_a_heading_has_what_the_result_says():
    assert heading(result(), "Attention") == "Attention during training"
    told = heading(result().assign_attrs(spec='{"eta_y": 1.0, "eta_z": 2.0}'), "Entropy")
    assert told == r"Entropy during training: $\eta_Y$ = 1, $\eta_Z$ = 2"
    trained = simulate("syn-small", steps=1, eta_y=2.0)
    assert heading(trained, "Attention") == (
        r"Attention while syn-small is learnt: $\eta_Y$ = 2, $\eta_Z$ = 1"
    )


def test_moments_are_spread_in_ratio():
    assert spread(np.array([0, 1, 2, 4, 8, 16]), 4) == [0, 1, 3, 5]
    assert spread(np.array([0]), 4) == [0]
