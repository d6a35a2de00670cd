"""The audit of the report: the claims of all papers, found again."""

from attnlab.auditing import examine_all, select
from attnlab.report import audited


def test_it_examines_the_claims_of_every_paper_and_is_found_again(tmp_path, monkeypatch):
    asked, fractions = [], []

    def whole(tell):
        for name in ("lemma-18", "joma-tree"):
            asked.append(name)
            tell(name)
        return examine_all(select(["lemma-18", "joma-tree"])), {}

    monkeypatch.setattr(audited, "whole_audit", whole)
    monkeypatch.setattr(audited, "amount", lambda: 2)
    made = audited.make_audit(out=tmp_path, progress=fractions.append)
    assert fractions == [0.0, 0.5]
    assert made.headline == (
        "Of 1 claims of Scan and Snap 0 do not hold as printed; besides, 1 of other origin were "
        "examined; all as recorded."
    )
    assert "Scan and Snap (1 claims): on paper (algebra and reduced dynamics) 1 holds" in (
        made.summary
    )
    assert "JoMA, as we know it (1 claims)" in made.summary
    document = audited.read_audit(tmp_path)
    assert [claim["id"] for claim in document["claims"]] == ["lemma-18", "joma-tree"]
    page = (tmp_path / "audit" / "audit.html").read_text()
    assert "<title>Scan and Snap and JoMA, audited</title>" in page
    assert audited.make_audit(out=tmp_path).reused
    assert asked == ["lemma-18", "joma-tree"]
