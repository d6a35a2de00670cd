"""The picture of a training on text: which heads it shows, and how it writes their words."""

import json
import warnings

import numpy as np
import pytest
import xarray as xr

from attnlab.plots import style, training

WORDS = ["[/b]", "$a$", "注意", "the"]


def trained(*, tokens="word", probe=WORDS, layers=2, heads=2):
    """A result on a text with two learning rates: head 2 of the first layer is the sparsest."""
    runs, steps = (2, 1), 3  # rates and seeds
    attention = np.tril(np.full((len(probe), len(probe)), 0.25))
    entropy = np.ones((*runs, steps, layers, heads))
    entropy[..., 0, -1] = 0.5
    each = ("learning_rate", "seed", "step")
    shape = (*runs, steps, layers, heads, 1, *attention.shape)
    return xr.Dataset(
        {
            "validation_loss": (each, np.broadcast_to([[[2.0]], [[1.0]]], (*runs, steps))),
            "entropy": ((*each, "layer", "head"), entropy),
            "effective_tokens": ((*each, "layer", "head"), np.exp(entropy)),
            "diverged_step": (("learning_rate", "seed"), np.full(runs, -1)),
            "attention": (
                (*each, "layer", "head", "probe", "query", "key"),
                np.broadcast_to(attention, shape) * np.arange(1, heads + 1)[:, None, None, None],
            ),
        },
        {
            "learning_rate": [1.0, 3.0],
            "seed": [0],
            "step": [0, 10, 20],
            "layer": range(layers),
            "head": range(heads),
            "probe": [0],
            "query": range(len(probe)),
            "key": range(len(probe)),
            "probe_word": (("probe", "key"), [probe]),
            "probe_token": (("probe", "key"), [list(range(len(probe)))]),
        },
        {"spec": json.dumps({"task": {"corpus": {"tokens": tokens}}})},
    )


def test_each_layer_shows_its_sparsest_head_and_names_it():
    found = training.data(trained())
    assert found.attrs["learning_rate"] == 3.0  # of the lower loss
    assert found["sparsest"].values.tolist() == [1, 0]
    assert found["attention"].dims == ("moment", "layer", "query", "key")
    np.testing.assert_allclose(found["attention"].isel(moment=0, query=0, key=0), [0.5, 0.25])
    above, below = training.draw(found).subfigs
    assert [ax.get_ylabel() for ax in below.axes if ax.get_ylabel().startswith("layer")] == [
        "layer 1, head 2: query",
        "layer 2, head 1: query",
    ]
    (legend,) = above.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["learning rate 1", "learning rate 3", "head 1", "head 2"]
    panels = {ax.get_title(): ax for ax in above.axes}
    assert {"layer 1: effective tokens", "layer 2: effective tokens"} <= panels.keys()
    lines = panels["layer 1: entropy of attention (nats)"].lines
    looks = {(str(line.get_color()), line.get_linestyle()) for line in lines}
    assert len(looks) == 4  # a colour for each rate, dashes for each head


def test_every_head_has_dashes_of_its_own():
    heads = map(training._dashes_of, range(16))
    looks = {(str(head["linestyle"]), head["marker"]) for head in heads}
    assert len(looks) == 16


@pytest.mark.parametrize("families", [["DejaVu Sans"], None], ids=["one font", "as installed"])
def test_words_of_any_script_are_drawn_without_a_warning(families, monkeypatch):
    if families:
        monkeypatch.setattr(style, "fonts", lambda: families)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = training.draw(training.data(trained(layers=1, heads=1)))
        figure.canvas.draw()
    labels = [text.get_text() for text in figure.subfigs[1].axes[0].get_xticklabels()]
    assert [labels[i] for i in (0, 1, 3)] == ["[/b]", "$a$", "the"]
    if families:
        assert labels[2] == 2 * style.MISSING


def test_byte_pairs_are_written_as_text():
    pytest.importorskip("tokenizers")
    found = training.data(trained(tokens="bpe", probe=["Ġ[", "Ċ", "Ã©", "æ"]))
    shown = style.visible(found["word"].values, ["DejaVu Sans"])
    assert shown == ["␣[", "↵", "é", style.MISSING]  # the last is a part of a letter
