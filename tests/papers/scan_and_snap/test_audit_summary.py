"""The summary of an audit: where the theory is right, where it is silent, which clock is off."""

import json
from dataclasses import replace

import numpy as np
import pytest

import attnlab
from attnlab.auditing.clocks import Clock, Factor, Moment
from attnlab.auditing.document import page
from attnlab.files.markdown import html
from attnlab.files.mathematics import dollars, markdown
from attnlab.tasks.classes import SequenceClasses

# "the" is common; three words of "scored" and three of "elected" follow, then the query.
WORDS = ("the", "kick", "ball", "goal", "law", "party", "vote", "was", "scored", "elected")
CLASSES = SequenceClasses(
    [{0: 0.4, 1: 0.036, 2: 0.2, 3: 0.364}, {0: 0.2, 4: 0.048, 5: 0.267, 6: 0.485}],
    [7, 7],
    [8, 9],
    vocab_size=1000,
    names=[*WORDS, *(f"word {i}" for i in range(990))],
)
# "the" and "a" are common, and of unequal probability
TWO_COMMON = SequenceClasses(
    [{0: 0.3, 1: 0.1, 2: 0.6}, {0: 0.1, 1: 0.3, 3: 0.6}],
    [4, 4],
    [5, 6],
    vocab_size=7,
    names=["the", "a", "goal", "vote", "was", "scored", "elected"],
)


@pytest.fixture(scope="module")
def inside():
    return attnlab.audit(CLASSES, eta_y=0.9, eta_z=0.03)


@pytest.fixture(scope="module")
def outside():
    return attnlab.audit(CLASSES, eta_y=0.25, eta_z=1.0)


def test_inside_all_assumptions_the_theory_is_right(inside):
    found = inside.commentary["scan_and_snap"]
    assert (found.tokens, found.claimed, found.as_claimed) == (7, 7, 7)
    assert found.failing == found.astray == ()
    assert found.signs == {"printed": 7, "corrected": 7, "sgd": 7}
    speaks, behaves, asks, *_ = found.sentences
    assert speaks == "Theorem 2 and Corollary 2 speak of 7 of 7 tokens."
    assert behaves == "In training all 7 of these do what is claimed."
    assert asks == f"All {len(found.asked)} hypotheses of Theorem 1 hold here."


def test_its_clock_is_off_all_the_same(inside):
    """Eq. 10's clock is that of Theorem 1's decoder, which SGD does not train."""
    fastest, snap = inside.commentary["scan_and_snap"].clocks
    assert (fastest.event, snap.event) == ("fastest", "snap")
    for clock in (fastest, snap):
        factors = {name: clock.factor(name).value for name in clock.predicted}
        assert factors["printed"] >= factors["corrected"] > 1.2
        assert factors["sgd"] == pytest.approx(1.0, rel=0.15)  # a record or two
    assert snap.factor("corrected").value > 4
    worst = inside.commentary["scan_and_snap"].clocks[1].sequence_class
    (row,) = [row for row in inside.document()["run"]["snap"] if row["sequence_class"] == worst]
    assert snap.simulated.at == row["simulated"] == float(inside.snap["simulated"][worst])
    told = inside.commentary["scan_and_snap"].sentences[-1]
    assert f"by printed at t = {row['predicted']['printed']:.4g} (" in told
    assert "times too early)" in told
    first, last = inside.run.transition
    assert f"{first:.4g} <= t <= {last:.4g}" in inside.commentary["scan_and_snap"].sentences[-2]


def test_of_what_has_not_moved_nothing_is_told():
    found = attnlab.audit(CLASSES, eta_y=0.9, eta_z=1e-320)  # logits are zero, to the last bit
    summary = found.commentary["scan_and_snap"]
    assert (summary.claimed, summary.as_claimed, summary.moved) == (7, 0, 0)
    assert summary.astray == ()
    told = "For 7 we cannot tell: they have not moved."
    assert summary.sentences[1] == f"In training 0 of these 7 do what is claimed. {told}"
    assert not any("gains and losses" in sentence for sentence in summary.sentences)
    assert {row["as_claimed"] for row in found.rows()} == {None}


def test_outside_it_says_so_and_names_the_words_that_go_astray(outside):
    found = outside.commentary["scan_and_snap"]
    first = found.failing[0]
    assert first.source == "Assumption 1(c)"
    hypotheses = found.sentences[2]
    assert "promise nothing" in hypotheses
    assert "eta_Y >> eta_Z: their ratio (here 0.25, needs >= 30)" in hypotheses
    assert found.as_claimed < found.claimed == 7
    assert len(found.astray) == found.claimed - found.as_claimed
    behaves = found.sentences[1]
    assert f"In training {found.as_claimed} of these 7" in behaves
    rows = {row["token"]: row for row in outside.rows()}
    for told in found.astray:
        word = told.split('"')[1]
        assert word in WORDS
        assert rows[word]["as_claimed"] is False
        assert f"should {rows[word]['claimed'].removesuffix('s')}" in told
    right = sum(row["predicted"]["sgd"] * row["simulated"] > 0 for row in rows.values())
    assert found.signs["sgd"] == right > found.signs["corrected"]


def test_more_than_a_few_words_are_counted(outside):
    many = replace(outside.commentary["scan_and_snap"], astray=tuple("abcde"))
    assert many.sentences[1].endswith("Not so: a; b; c; and 2 more.")


def test_tokens_that_no_theorem_covers_are_counted_with_the_reason():
    found = attnlab.audit(TWO_COMMON, time=1.0, theories=["sgd"]).commentary["scan_and_snap"]
    assert (found.tokens, found.claimed) == (4, 2)
    assert "nothing of 2 common ones: Theorem 2(b) asks for |G_CT| = 1, here 2" in found.unclaimed
    assert "Corollary 2 for P(l|n) = rho_l: mismatch of common tokens (here 0.2" in found.unclaimed
    # the run ends before anything has come: bounds, and no factor
    fastest, snap = found.clocks
    assert snap.simulated == Moment(1.0, ">=")
    assert snap.factor("sgd") is None
    assert "It snaps at t >= 1 in training" in found.sentences[-1]
    assert "by sgd at t >= 1 (we cannot tell)" in found.sentences[-1]
    assert "and the run ends at t = 1" in found.sentences[-2]
    assert fastest.simulated.sign == ">="


def test_it_is_in_the_document_and_on_top_of_the_page(outside):
    document = outside.document()
    told = document["run"]["commentary"]["scan_and_snap"]
    assert told["sentences"] == outside.commentary["scan_and_snap"].sentences
    assert (told["claimed"], told["as_claimed"]) == (
        7,
        outside.commentary["scan_and_snap"].as_claimed,
    )
    assert told["failing"][0]["needed"] == 30.0
    snap = told["clocks"][1]
    assert snap["factor"]["printed"]["value"] == pytest.approx(
        snap["simulated"]["value"] / snap["predicted"]["printed"]["value"]
    )
    json.dumps(document, allow_nan=False)
    shown = page(document, picture=b"picture", caption="drawn <so>")
    places = [
        shown.index(html(markdown(dollars(sentence))).removeprefix("<p>").removesuffix("</p>\n"))
        for sentence in told["sentences"]
    ]
    assert places == sorted(places)
    assert places[-1] < shown.index("data:image/png;base64,cGljdHVyZQ==") < shown.index("Fates of")
    assert 'alt="drawn &lt;so&gt;"' in shown
    assert str(outside.commentary["scan_and_snap"]).splitlines() == told["sentences"]


@pytest.mark.parametrize(
    ("seen", "said", "factor", "words"),
    [
        (Moment(6.0), Moment(2.0), Factor(3.0), "3 times too early"),
        (Moment(2.0), Moment(6.0), Factor(1 / 3), "3 times too late"),
        (Moment(2.0), Moment(2.0), Factor(1.0), "right, to the record"),
        (Moment(6.0, ">="), Moment(2.0), Factor(3.0, ">="), ">= 3 times too early"),
        (Moment(2.0), Moment(6.0, ">="), Factor(1 / 3, "<="), ">= 3 times too late"),
        (Moment(6.0, ">="), Moment(6.0, ">="), None, "None"),
        (Moment(np.nan), Moment(6.0), None, "None"),
    ],
)
def test_how_far_a_clock_is_off(seen, said, factor, words):
    clock = Clock("snap", 0, "born", seen, {"theory": said})
    found = clock.factor("theory")
    assert found == factor
    assert str(found) == words
    assert clock.off == (0.0 if factor is None else pytest.approx(abs(np.log(factor.value))))
