"""Theory beside measurement, on a text of four announced bigrams."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import ttest_1samp
from small_text import announced_text

from attnlab.files.errors import InputError
from attnlab.formulas import Setting
from attnlab.observing import classes
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.agreement import SCORES, THEORY
from attnlab.papers.scan_and_snap.expectation import expectation, permutation_test

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
    flow = theory.attention_flow(Setting(found, eta_y=10.0, eta_z=1.0), 1000.0)
    z = np.zeros((len(found), found.vocab_size))
    z[:, found.in_play] = flow.logits[found.query_index]
    share = found.prior[:, None] * found.probs
    mean = (share * z).sum(0) / np.maximum(share.sum(0), 1e-300)
    gain = np.zeros(len(NAMES))
    gain[[NAMES.index(name) for name in found.names]] = mean
    return gain


@pytest.mark.parametrize(("sign", "said"), [(1, "Yes, in part"), (-1, "No: they rank the other")])
def test_gains_as_expected_are_found_and_their_opposite_too(sign, said):
    found = expectation(observed(sign * expected_gain()), TEXT, names=NAMES, **CHOICE)
    mean, p = found.correlation[THEORY]
    assert sign * mean > 0.999 and p < 0.05
    assert set(found.correlation) == set(SCORES) and found.sequences == 8
    told = " ".join(found.in_words())
    assert said in told and "over 8 sequences" in told
    assert (found.gained == found.expected) is (sign > 0)


def test_gains_by_chance_are_not_taken_for_more():
    gain = np.random.default_rng(1).normal(size=len(NAMES))
    mean, p = expectation(observed(gain), TEXT, names=NAMES, **CHOICE).correlation[THEORY]
    assert abs(mean) < 0.6 and p > 0.05


@pytest.mark.slow
def test_a_score_by_chance_is_rejected_as_often_as_the_level_says():
    """Sequences share tokens and what the model gives them: an interval over sequences excludes 0
    in a third of such cases, of more sequences in more, the permutation in one of twenty."""
    rng = np.random.default_rng(0)
    trials, sequences, tokens, rejected, by_interval = 400, 8, 40, 0, 0
    for trial in range(trials):
        of_model, score = rng.normal(size=(2, tokens))
        gained = of_model + 0.3 * rng.normal(size=(sequences, tokens))
        gained[rng.random(gained.shape) < 0.3] = np.nan  # a sequence has some of them
        _, p = permutation_test(list(gained), score, permutations=199, seed=trial)
        rejected += p < 0.05
        alone = [permutation_test([g], score, permutations=1)[0] for g in gained]
        by_interval += ttest_1samp(alone, 0).pvalue < 0.05
    assert abs(rejected / trials - 0.05) < 3.5 * np.sqrt(0.05 * 0.95 / trials)
    assert by_interval / trials > 0.3


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="two steps"):
        expectation(xr.Dataset(), TEXT)
    elsewhere = observed(np.zeros(len(NAMES)))
    elsewhere["token"] = elsewhere["token"] + 1000
    with pytest.raises(InputError, match="no sequence of the probe"):
        expectation(elsewhere, TEXT, names=NAMES, **CHOICE)
