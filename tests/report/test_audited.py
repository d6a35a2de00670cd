"""The audit of the report: all papers, found again until something on record changes."""

from attnlab.auditing import all_claims, examine_all, select
from attnlab.report import audited


def test_it_examines_the_claims_of_every_paper_and_is_found_again(tmp_path, monkeypatch):
    calls, fractions = [], []

    def whole_audit(*, tell):
        calls.append(1)
        tell("lemma-18")
        return examine_all(select(["lemma-18", "joma-tree"])), {}

    monkeypatch.setattr(audited, "whole_audit", whole_audit)
    made = audited.make_audit(out=tmp_path, progress=fractions.append)
    assert fractions == [0.0]
    assert made.headline == (
        "Of 1 claims of Scan and Snap 0 do not hold as printed; of 1 claims of JoMA 0 do not hold "
        "as stated; beside them 0 of other origin were examined; all as recorded."
    )
    assert made.about == (
        "Every claim of Scan and Snap (printed text) and of JoMA (as we know it), predicted, "
        "measured and judged."
    )
    assert (
        "Scan and Snap (1 claims): on paper (algebra and reduced dynamics) 1 holds" in made.summary
    )
    assert "JoMA, as we know it (1 claims)" in made.summary
    document = audited.read_audit(tmp_path)
    assert [claim["id"] for claim in document["claims"]] == ["lemma-18", "joma-tree"]
    assert (tmp_path / "audit" / "audit.html").is_file()
    assert audited.make_audit(out=tmp_path).reused
    assert len(calls) == 1 < len(all_claims())
