"""Theory beside measurement, on a text of four announced bigrams."""

import numpy as np
import pytest
import xarray as xr
from small_text import announced_text

from attnlab.files.errors import InputError
from attnlab.observe import classes, expectation
from attnlab.text import scores
from attnlab.text.agreement import SCORES, THEORY

WORDS = announced_text(300)
NAMES = tuple(dict.fromkeys(WORDS))
TEXT = np.array([NAMES.index(word) for word in WORDS])
CHOICE = {"queries": 2, "following": 2, "context": 11, "min_count": 3}


def observed(gain):
    """Eight sequences of the text, and attention received that grew by exp(gain of the token)."""
    tokens = TEXT[: 8 * 60].reshape(8, 60)
    start = np.random.default_rng(0).uniform(0.01, 0.1, tokens.shape)
    # every occurrence of a token in a sequence starts alike, so that its gain is exact
    start = np.stack([start[0][row] for row in tokens])
    return xr.Dataset(
        {
            "received_start": (("sequence", "key"), start),
            "received_end": (("sequence", "key"), start * np.exp(gain[tokens])),
        },
        {"token": (("sequence", "key"), tokens)},
    )


def expected_gain():
    """What Eq. 10 says of each id, over the classes that have the token."""
    found = classes(TEXT, names=NAMES, **CHOICE)
    z = scores.eq10(found, eta_y=10.0, eta_z=1.0, steps=1000).weight
    share = found.prior[:, None] * found.probs
    mean = (share * z).sum(0) / np.maximum(share.sum(0), 1e-300)
    gain = np.zeros(len(NAMES))
    gain[[NAMES.index(name) for name in found.names]] = mean
    return gain


def test_classes_are_those_of_the_bigrams_by_name():
    found = classes(TEXT.reshape(60, -1), names=NAMES, **CHOICE)
    pairs = {
        (found.names[m], found.names[n]) for m, n in zip(found.query, found.next_token, strict=True)
    }
    assert pairs == {("the", "cat"), ("the", "dog"), ("a", "ship"), ("a", "train")}
    by_number = classes(TEXT, **CHOICE)
    assert f"token {NAMES.index('cat')}" in by_number.names


def test_no_window_goes_over_the_end_of_a_sequence():
    sentences = TEXT.reshape(-1, 12)[:, ::-1].copy()  # next word and query begin each sequence
    with pytest.raises(InputError, match="0 of the 2 queries"):
        classes(sentences, names=NAMES, **CHOICE)


@pytest.mark.parametrize(("sign", "said"), [(1, "Yes, in part"), (-1, "No: they rank the other")])
def test_gains_as_expected_are_found_and_their_opposite_too(sign, said):
    found = expectation(observed(sign * expected_gain()), TEXT, names=NAMES, **CHOICE)
    mean, low, high = found.correlation[THEORY]
    assert sign * mean > 0.999 and low <= mean <= high
    assert set(found.correlation) == set(SCORES) and found.sequences == 8
    told = " ".join(found.in_words())
    assert said in told and "over 8 sequences" in told
    assert (found.gained == found.expected) is (sign > 0)


def test_gains_by_chance_are_not_taken_for_more():
    gain = np.random.default_rng(1).normal(size=len(NAMES))
    mean, low, high = expectation(observed(gain), TEXT, names=NAMES, **CHOICE).correlation[THEORY]
    assert abs(mean) < 0.6 and low < high


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="two steps"):
        expectation(xr.Dataset(), TEXT)
    with pytest.raises(InputError, match="token ids"):
        classes(np.zeros((2, 3)))
    with pytest.raises(InputError, match="names: 2 names"):
        classes(TEXT, names=("a", "b"))
    elsewhere = observed(np.zeros(len(NAMES)))
    elsewhere["token"] = elsewhere["token"] + 1000
    with pytest.raises(InputError, match="no sequence of the probe"):
        expectation(elsewhere, TEXT, names=NAMES, **CHOICE)
