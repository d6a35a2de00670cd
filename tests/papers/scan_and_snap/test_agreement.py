"""Scores and how they are held against a trained model."""

import numpy as np
import pytest
from plain import plain
from scipy.stats import spearmanr, ttest_1samp
from small_text import ANNOUNCED, read_corpus

from attnlab.papers.scan_and_snap import agreement
from attnlab.papers.scan_and_snap.agreement import (
    IDF,
    SCORES,
    TARGETS,
    TOKENS,
    TRAININGS,
    difference,
    in_words,
    measure,
    rank_correlation,
    ranked_tokens,
    recall_at,
    summarise,
)
from attnlab.tasks.text.windows import classes_of, find_windows

ASKED = {"queries": 2, "following": 2, "context": 11, "min_count": 5}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return read_corpus(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def result(corpus):
    return measure(corpus, **ASKED, steps=150, seeds=2, top=3, progress=False)


def test_rank_correlation_is_spearmans():
    draw = np.random.default_rng(0)
    for _ in range(5):
        a, b = draw.integers(6, size=30), draw.normal(size=30)  # with ties
        assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert rank_correlation(np.arange(4), np.ones(4)) == 0


def test_recall_counts_the_targets_largest():
    target = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert recall_at(target, target, top=2) == 1
    assert recall_at(target, -target, top=2) == 0
    assert recall_at(target, np.array([1.0, 0, 2, 0, 0]), top=2) == 0.5
    assert recall_at(target, -target, top=9) == 1  # no more tokens than five


def test_tf_idf_by_hand(corpus):
    windows = find_windows(corpus, **ASKED)
    classes = classes_of(windows)
    P = classes.probs
    rates = {"eta_y": 1.0, "eta_z": 1.0, "steps": 1}
    *_, of_classes, of_windows = agreement.score_all(classes, windows, rates)
    for token, name in enumerate(windows.vocabulary):
        carriers = sum(P[k, token] > 0 for k in range(len(classes)))
        holders = sum(token in row for row in windows.tokens)
        if carriers:
            idf = np.log(len(classes) / carriers), np.log(len(windows) / holders)
            np.testing.assert_allclose(of_classes.weight[:, token], idf[0], err_msg=name)
            np.testing.assert_allclose(of_windows.weight[:, token], idf[1], err_msg=name)
    np.testing.assert_allclose(of_windows.attention, P * of_windows.weight)


def test_eq10_agrees_with_training_where_the_decoder_is_fast(corpus):
    windows = find_windows(corpus, **ASKED)
    classes = classes_of(windows)
    rates = {"eta_y": 2.0, "eta_z": 0.02, "steps": 300}
    predicted = agreement.score_all(classes, windows, rates)[SCORES.index(agreement.THEORY)]
    settings = {"gradient": "population", "what": "logits", "at": (300,), "progress": False}
    run = plain(classes, **rates, **settings).isel(seed=0, step=-1)
    z = run["attention_logits"].values[classes.query_index]
    for k in range(len(classes)):
        own = classes.support(k)
        assert rank_correlation(z[k, own], predicted.weight[k, own]) > 0.85
    np.testing.assert_allclose(predicted.attention.sum(axis=1), 1)


def test_the_words_that_announce_win_as_eq10_says(result):
    mean = result.mean(["seed", "sequence_class"])
    assert result["rank_correlation"].dims == (
        "training",
        "target",
        "tokens",
        "score",
        "seed",
        "sequence_class",
    )
    z = mean["rank_correlation"].sel(target="logits", tokens="all")
    # in the limit a class has 11 words; with windows of 10 the noise of each counts
    assert float(z.sel(training="limit", score="Eq. 10")) > 0.7
    for training in TRAININGS:
        assert float(z.sel(training=training, score="Eq. 10")) > 0.4, training
        assert float(z.sel(training=training, score="TF-IDF of classes")) > 0.3, training
        assert float(z.sel(training=training, score="frequency")) < 0.3, training
    names = result["token_name"].values.tolist()
    one = result.sel(training="windows")
    for k in range(result.sizes["sequence_class"]):
        klass = one.isel(sequence_class=k)
        own = ANNOUNCED[names[int(klass["query_token"])], names[int(klass["next_token"])]]
        gain = klass["attention"] / klass["probability"].where(klass["probability"] > 0)
        assert names[int(gain.argmax("token"))] in own


def test_the_summary_has_means_and_intervals(result):
    found = summarise(result)
    assert found["recall"].shape == (len(TRAININGS), len(TARGETS), len(TOKENS), len(SCORES))
    assert found.attrs["queries"] == 2
    for name in ("rank_correlation", "recall"):
        np.testing.assert_allclose(found[name], result[name].mean(["seed", "sequence_class"]))
        assert (found[f"{name}_low"] <= found[name] + 1e-12).all()
        assert (found[name] <= found[f"{name}_high"] + 1e-12).all()
    assert float(found["rank_correlation_seed_sd"].sel(training="windows").max()) > 0
    text = in_words(result)
    for training_free in ("Eq. 10", "distinct", "inverse document frequency"):
        assert training_free in text
    assert "nan" not in text
    assert "tokens that all classes share, z is below 0 in" in text


def test_intervals_are_students_over_queries(result):
    """Three queries of which the means are known, two classes each."""
    of_class = np.array([0.1, 0.3, 0.2, 0.4, 0.6, 0.8])
    told = result.isel(sequence_class=[0, 1, 2, 3, 0, 1]).copy(deep=True)
    told = told.assign_coords(query_token=("sequence_class", [7, 7, 8, 8, 9, 9]))
    told["rank_correlation"][:] = of_class
    found = summarise(told).isel(training=0, target=0, tokens=0, score=0)
    expected = ttest_1samp([0.2, 0.3, 0.7], 0).confidence_interval(0.95)
    ends = float(found["rank_correlation_low"]), float(found["rank_correlation_high"])
    assert ends == pytest.approx(tuple(expected))
    one = told.isel(sequence_class=[0, 1])
    assert summarise(one)["recall_low"].isnull().all()
    assert "cannot tell" in in_words(one)


def test_differences_are_paired(result):
    """A score that is better by as much for each query is told apart however queries differ."""
    cell = {"training": "windows", "target": "logits", "tokens": "all"}
    told = result.copy(deep=True)
    theory = result["rank_correlation"].sel(score="Eq. 10")
    told["rank_correlation"].loc[{"score": "frequency"}] = theory - 0.1
    mean, half = difference(told, "frequency", "Eq. 10", **cell)
    assert (mean, half) == pytest.approx((-0.1, 0.0), abs=1e-12)


def test_the_most_frequent_tokens_of_a_class(corpus):
    classes = classes_of(find_windows(corpus, **ASKED))
    for k in range(len(classes)):
        every, frequent = ranked_tokens(classes, k)
        assert every.tolist() == classes.support(k).tolist()
        rest = np.setdiff1d(every, frequent)
        assert frequent.size == max(2, round(0.1 * every.size))
        assert classes.probs[k, frequent].min() >= classes.probs[k, rest].max()


@pytest.mark.parametrize(
    ("theory", "idf", "words"),
    [
        ((0.5, 0.5), (0.2, 0.2), "in part an inverse document frequency, less so than it"),
        ((0.2, 0.2), (0.5, 0.5), "in part an inverse document frequency, more so than it"),
        ((0.0, 0.4), (0.2, 0.2), "in part an inverse document frequency, and we cannot tell"),
        ((0.9, 1.6), (-0.3, 0.4), "not clearly an inverse document frequency, less so than"),
    ],
)
@pytest.mark.parametrize("tokens", TOKENS)
def test_the_words_claim_no_more_than_the_intervals(result, theory, idf, words, tokens):
    """theory, idf: the correlation with z for the classes of the two queries."""
    of_query = np.unique(result["query_token"], return_inverse=True)[1]
    told = result.copy(deep=True)
    for name, values in (("Eq. 10", theory), *((name, idf) for name in IDF)):
        place = {"training": "windows", "target": "logits", "tokens": tokens, "score": name}
        told["rank_correlation"].loc[place] = np.array(values)[of_query]
    every, frequent = in_words(told).split("Among the 10 % most frequent")
    assert words in {"all": every, "frequent": frequent}[tokens]


def test_bad_counts_are_refused(corpus):
    for name in ("steps", "seeds", "top"):
        with pytest.raises(ValueError, match=f"{name}: expected at least 1"):
            measure(corpus, **ASKED, **{name: 0})
