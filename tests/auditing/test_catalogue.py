"""The catalogue is complete, and what it points at is there."""

import ast
import importlib
import os
import re
import string
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab import formulas
from attnlab.auditing import Verdict, all_claims, claims_of, examine_all, select
from attnlab.auditing.catalogue import audited_papers, expected_entries, find, readable
from attnlab.auditing.document import audit_document, in_markdown
from attnlab.files.errors import InputError
from attnlab.files.mathematics import dollars, typeset
from attnlab.measures import positions
from attnlab.shelf import offered, shelf
from tests.support.made_papers import make_paper

ROOT = Path(__file__).parents[2]
CLAIMS = all_claims()


def names_of_code():
    """Names of formulas and measures, and of each paper's theory, tasks, models and learners."""
    names = {*formulas.__all__, *vars(positions)}
    for paper in audited_papers():
        names |= set(importlib.import_module(f"{paper.package}.theory").__all__)
        for module in ("task", "model", "learner"):
            if (paper.folder / f"{module}.py").exists():
                names |= set(vars(importlib.import_module(f"{paper.package}.{module}")))
    return names


NAMES = names_of_code()


def test_every_claim_has_one_paper():
    ids = [claim.id for claim in CLAIMS]
    assert len(ids) == len(set(ids))
    assert sum((claims_of(paper.name) for paper in audited_papers()), ()) == CLAIMS
    for paper in audited_papers():
        assert {claim.paper for claim in claims_of(paper.name)} == {paper.name}
        titles = [part.section for part in paper.claims]
        assert list(dict.fromkeys(claim.section for claim in claims_of(paper.name))) == titles
    with pytest.raises(InputError, match="paper: 'jama' is not known; did you mean 'joma'"):
        claims_of("jama")


def test_what_is_on_record_is_of_claims_that_there_are():
    for paper in shelf().papers:
        assert list(paper.expected["claims"]) == [claim.id for claim in claims_of(paper.name)]


def test_what_others_say_is_never_counted_as_the_papers():
    elsewhere = ("poster", "slides", "summary", "Scan and Snap")
    for claim in CLAIMS:
        by_the_paper = not claim.ours and not claim.sources[0].startswith(elsewhere)
        own = claim.paper == "scan_and_snap"
        assert (claim.origin == "Scan and Snap") == (own and by_the_paper), claim.id


def test_a_claim_is_typeset_or_has_no_formula():
    for claim in CLAIMS:
        words = "".join(claim.statement.split("$")[::2])
        assert not re.search(r"[_^\\<>=|]|eta|gamma", words), f"{claim.id}: {words}"
        if "$" in claim.statement:
            assert "<math>" in typeset(claim.statement), claim.id
            assert "|" not in claim.statement, "a bar would end the cell of a table"
        else:  # what has signs has a formula
            assert "$" not in dollars(claim.statement), claim.id


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_what_a_claim_points_at_exists(claim):
    assert claim.code
    assert set(claim.code) <= NAMES
    file, _, test = claim.test_file.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert claim.figure is None or f"{claim.paper}/{claim.figure}" in offered("figures")


DONE = "Check|Compare|Count|Fit|Measure|Solve|Take|Train"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_complete(claim):
    for text in (claim.statement, *claim.sources, claim.how):
        assert text.strip()
    # a sentence says what is done; one before it may say why
    assert re.search(rf"(?:^|[.:] )({DONE}|{DONE.lower()}) ", claim.how)
    assert claim.how.endswith((".", '".'))
    # an unknown command is an error, and nothing of LaTeX is left
    assert not re.search(r"[\\$]", claim.plain), claim.plain
    assert claim.reading in ("printed text", "as we know it", "ours")
    assert claim.tolerance >= 0
    recorded = claim.recorded
    for number, sentence in (
        (recorded.number, claim.number),
        (recorded.training_number, claim.training_number),
    ):
        fields = [field for _, field, _, _ in string.Formatter().parse(sentence) if field == ""]
        assert (number is None) == (not fields)
        assert len(sentence) <= 100
    if recorded.training_number is not None:
        assert recorded.training is not None
    if recorded.verdict is Verdict.EXACT:
        assert claim.quote(recorded.number)


def test_select_keeps_order_and_names_the_nearest():
    assert [claim.id for claim in select(["theorem-2", "lemma-1"])] == ["lemma-1", "theorem-2"]
    assert [claim.id for claim in select(["joma-tree"], paper="joma")] == ["joma-tree"]
    assert select([]) == ()
    with pytest.raises(InputError, match="did you mean theorem-3"):
        select(["theorm-3"])
    with pytest.raises(InputError, match="claim: 'theorem-2' is not of joma"):
        select(["theorem-2"], paper="joma")
    with pytest.raises(InputError, match="did you mean theorem-2"):
        select(["Theorm-2"])


def test_a_name_that_is_like_no_claim_gets_no_suggestion():
    with pytest.raises(InputError) as refused:
        select(["foo"])
    assert str(refused.value) == (
        "claim: 'foo' is not known; attnlab audit --paper NAME lists a paper's"
    )


IMPORTS = """
import sys
def loaded(): return [name for name in sys.modules if name.startswith("attnlab")]
import attnlab.papers.scan_and_snap.figures.fig6
print(*loaded())
from attnlab.auditing import select
select(["lemma-1"])
print(*loaded())
"""


@pytest.mark.slow
def test_a_figure_builds_no_case_and_a_claim_of_one_paper_imports_no_later_one():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    by_figure, by_claim = map(str.split, done.stdout.splitlines())
    assert not {m for m in by_figure if ".claims" in m or m.endswith(".cases")}
    assert "attnlab.papers.scan_and_snap.claims.model" in by_claim
    assert not {m for m in by_claim if m.startswith("attnlab.papers.joma.claims")}
    assert "attnlab.papers.scan_and_snap.claims.growth" not in by_claim


def test_a_paper_that_cannot_be_imported_does_not_affect_others(tmp_path, monkeypatch):
    folder = tmp_path / "broken_paper"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "claims.py").write_text("import there_is_no_such_module\n")
    (folder / "paper.yaml").write_text(
        "name: broken_paper\ntitle: B\nshort: B\nauthors: A\nyear: 2000\nquestion: Q\n"
        'reading: ours\nattnlab: ">=0.1"\nclaims:\n  - {section: S, modules: [claims]}\n'
    )
    monkeypatch.setenv("ATTNLAB_PAPERS", str(folder))
    assert all_claims() == CLAIMS
    assert [claim.id for claim in select(["lemma-1"])] == ["lemma-1"]
    papers, faults = readable()
    assert {"scan_and_snap", "joma"} <= {paper.name for paper in papers}
    assert len(faults) == 1
    assert "there_is_no_such_module" in faults[0]
    with pytest.raises(InputError, match="there_is_no_such_module"):
        readable(["broken_paper"])
    with pytest.raises(InputError, match="no-such-claim.*there_is_no_such_module"):
        select(["no-such-claim"])


CLAIMS_OF_TWO = """
from attnlab.auditing import claim
from attnlab.theory import Check
from attnlab.theory.relation import EQUAL

@claim(EQUAL, sources="Eq. 1", runs={})
def sound(found):
    \"\"\"One is one.\"\"\"
    return Check("one", 1.0, 1.0)

@claim(EQUAL, sources="Eq. 2", runs={})
def unsound(found):
    \"\"\"One is none.\"\"\"
    return Check("one", 1.0, 1.0 / 0)
"""


def add_paper(monkeypatch, parent, name, code):
    """Put a paper on the shelf whose claims are this code, in front of those that are there."""
    section = {"section": "All", "modules": ["claims"]}
    expected = {"claims": {name: {"verdict": "exact"} for name in ("sound", "unsound")}}
    parts = {"code": {"claims": code}, "expected": expected, "claims": [section]}
    folders = [make_paper(parent, name, **parts), *filter(None, [os.environ.get("ATTNLAB_PAPERS")])]
    monkeypatch.setenv("ATTNLAB_PAPERS", os.pathsep.join(map(str, folders)))


def test_a_claim_that_raises_does_not_end_the_others(tmp_path, monkeypatch):
    add_paper(monkeypatch, tmp_path, "raising", CLAIMS_OF_TWO)
    first, second = findings = examine_all(claims_of("raising"))
    assert (first.verdict, first.as_recorded, first.failure) == (Verdict.EXACT, True, "")
    assert (second.verdict, second.as_recorded) == (None, False)
    failure = "in paper raising: claims.py:14: ZeroDivisionError: float division by zero"
    assert second.failure == failure
    assert failure in in_markdown(audit_document(findings)).replace("\\", "")
    assert expected_entries("raising", findings)["unsound"] == {"verdict": "exact"}
    with pytest.raises(ZeroDivisionError) as raised:  # alone, it has its whole traceback
        examine_all(select(["unsound"]))
    assert raised.value.__notes__ == [failure]


def test_a_claim_of_a_broken_paper_does_not_end_the_others(tmp_path, monkeypatch):
    add_paper(monkeypatch, tmp_path, "broken_claims", "import no_such_module")
    found, faults = find(["unsound", "lemma-1"])
    assert [claim.id for claim in found] == ["lemma-1"]
    (fault,) = faults
    assert "claim: unsound: paper broken_claims: claims cannot be imported: claims.py:1:" in fault
    with pytest.raises(InputError, match="no_such_module"):
        select(["unsound", "lemma-1"])
    with pytest.raises(InputError, match="is not known"):
        find(["unsound", "lemma-one"])
