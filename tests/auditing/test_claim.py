"""A claim is a documented function with a decorator."""

from dataclasses import replace
from runpy import run_path
from types import ModuleType

from attnlab.auditing import Measurement, OnRecord, Verdict, claim
from attnlab.auditing.claims import claims_in
from attnlab.theory.relation import BELOW, Check


@claim(BELOW, sources=("here", "there"), code=["h"], number="{:.1f} of it")
def one_below_two(case):
    r"""$1 \le 2$,
    always.

    Compare 2 with 1.
    Only the order counts.
    """
    return Measurement(Check("one", 2.0, 1.0), number=0.5)


def test_a_decorated_function_is_a_claim():
    assert one_below_two.id == "one-below-two"
    assert one_below_two.sources == ("here", "there")
    assert one_below_two.code == ("h",)
    assert one_below_two.how == "Compare 2 with 1. Only the order counts."
    assert one_below_two.statement == r"$1 \le 2$, always"
    assert one_below_two.plain == "1 <= 2, always"
    assert claim(BELOW, id="x", statement="x", sources="here")(print).sources == ("here",)


def test_texts_of_a_claim_may_stand_in_yaml_beside_its_module(tmp_path):
    (tmp_path / "own.py").write_text("def measure(case):\n    return []\n")
    (tmp_path / "own.yaml").write_text("one:\n  number: '{:.1f} of it'\n  code: [h]\n")
    measure = run_path(str(tmp_path / "own.py"))["measure"]
    one, other = (claim(BELOW, id=id, statement="x")(measure) for id in ("one", "other"))
    assert (one.number, one.code) == ("{:.1f} of it", ("h",))
    assert (other.number, other.code) == ("", ())


def test_claims_of_a_module_are_its_own_in_the_order_of_definition():
    module = ModuleType("made_up")
    module.first = claim(BELOW, id="b", statement="b")(_named(module))
    module.helper = 3
    module.second = claim(BELOW, id="a", statement="a")(_named(module))
    module.imported = one_below_two
    assert [found.id for found in claims_in(module)] == ["b", "a"]


def _named(module):
    def measure(case):
        return Measurement()

    measure.__module__ = module.__name__
    return measure


def test_what_is_on_record_is_plain_data_without_what_is_none():
    kept = OnRecord(None, None, Verdict.PREMISE, 0.25)
    assert kept.entry() == {"training": "premise fails in training", "training_number": 0.25}
    assert OnRecord.read(kept.entry()) == kept
    assert OnRecord.read({}) == OnRecord()


def test_the_test_of_a_claim_stands_with_its_paper_unless_it_says_where():
    inside = replace(one_below_two, paper="joma", test="test_tree.py::test_it")
    assert inside.test_file == "tests/papers/joma/theory/test_tree.py::test_it"
    elsewhere = replace(inside, test="tests/formulas/test_tokens.py::test_it")
    assert elsewhere.test_file == "tests/formulas/test_tokens.py::test_it"
    assert replace(inside, paper="").test_file == "test_tree.py::test_it"
