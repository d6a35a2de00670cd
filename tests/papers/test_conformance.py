"""Our own papers fulfil what `attnlab check-paper` asks of any paper.

Figures that the paper's own tests make from their tiny recipes are not made again. The tests of the
audit find all verdicts, so one is enough here. What needs a process of its own has one for all
papers.
"""

from pathlib import Path
from unittest import SkipTest

import pytest

from attnlab.authoring import requirements
from attnlab.authoring.conformance import theory_alone, travels
from attnlab.shelf import paper

pytestmark = pytest.mark.slow

OWN = (
    "scan_and_snap",
    "max_margin",
    "joma",
    "polarisation",
    "linear_icl",
    "causal_structure",
    "active_dormant",
    "statistical_induction",
    "studies",
)
ONE = ("lemma-1",)  # the claim whose verdict is found again
# requirements that do not apply to a paper; any other that finds nothing to check fails
NOTHING = {
    "studies: claims have id, source and docstring",
    "studies: every claim has a recorded verdict",
}
TOGETHER = {"theory imports no simulator": theory_alone, "values reach worker processes": travels}


def _asked(name):
    tests = "".join(path.read_text() for path in (Path(__file__).parent / name).glob("test_*.py"))
    made = {
        f"figure on a tiny recipe: {figure}"
        for figure in paper(name).figures
        if f'make("{figure}"' in tests or f'make("{name}/{figure}"' in tests
    }
    asked = [of for of in requirements(name, verdicts=ONE) if of.id not in {*made, *TOGETHER}]
    return [pytest.param(of, id=f"{name}: {of}") for of in asked]


@pytest.mark.parametrize("requirement", [one for name in OWN for one in _asked(name)])
def test_our_papers_fulfil_what_is_asked(requirement, request):
    try:
        requirement()
    except SkipTest:
        if request.node.callspec.id not in NOTHING:
            raise AssertionError(f"{requirement}: there is nothing to check") from None
        raise


@pytest.mark.parametrize("check", TOGETHER.values(), ids=list(TOGETHER))
def test_in_a_process_of_their_own(check):
    assert check(*map(paper, OWN))
