"""Reading of signs, in words and in numbers."""

import pytest

from attnlab.theory import Check, Hypothesis
from attnlab.theory import relation as r


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        (r.EQUAL, "equality"),
        (r.AT_MOST, "bound (<=)"),
        (r.up_to(3.0), "bound up to a constant (at most 3 times)"),
        (r.up_to(1.0), "bound up to a constant (which is 1)"),
        (r.within(2.0), "asymptotic order (within a factor of 2)"),
        (r.SETTLES, "asymptotic order (a constant that does not grow)"),
        (r.LEADING, "leading order"),
        (r.much_greater(30.0), "much greater (at least 30 times)"),
        (r.much_smaller(10.0), "much smaller (at most 1/10)"),
    ],
)
def test_in_words(relation, words):
    assert str(relation) == words


@pytest.mark.parametrize(
    ("relation", "measured", "holds"),
    [
        (r.up_to(3.0), 2.9, True),
        (r.up_to(3.0), 3.1, False),
        (r.up_to(3.0), 0.0, True),
        (r.within(2.0), 1.9, True),
        (r.within(2.0), 0.51, True),
        (r.within(2.0), 0.49, False),
        (r.within(2.0), -1.0, False),
        (r.much_greater(30.0), 30.0, True),
        (r.much_greater(30.0), 29.9, False),
        (r.much_smaller(10.0), 0.1, True),
        (r.much_smaller(10.0), 0.11, False),
    ],
)
def test_in_numbers(relation, measured, holds):
    check = Check("against 1", 1.0, measured, relation)
    assert check.holds is holds
    hypothesis = Hypothesis("here", "so", measured, relation, 1.0)
    assert hypothesis.holds is holds
    assert hypothesis.needed == pytest.approx(relation.factor)


def test_a_constant_that_grows_is_no_order():
    falling, growing = (
        Check("exponent", 0.0, value, r.SETTLES, relative=False) for value in (-0.1, 0.1)
    )
    assert falling.holds
    assert not growing.holds


def test_a_hypothesis_in_one_line():
    said = str(Hypothesis("Assumption 1(c)", "eta_Y >> eta_Z", 10.0, r.much_greater(30.0), 1.0))
    assert said == (
        "eta_Y >> eta_Z (Assumption 1(c)), read as much greater (at least 30 times): 10, "
        "needs >= 30: does not hold"
    )


def test_a_factor_is_positive():
    with pytest.raises(ValueError, match="factor: expected a number above 0"):
        r.up_to(0.0)
