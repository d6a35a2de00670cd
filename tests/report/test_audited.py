"""The audit of the report: all sources, found again."""

from attnlab.auditing import claims_of, examine_all, select
from attnlab.report import audited


def test_it_examines_the_claims_of_every_source_and_is_found_again(tmp_path, monkeypatch):
    asked, fractions = [], []

    def examine(claims, *, tell):
        asked.extend(claim.id for claim in claims)
        tell(claims[0].id)
        return examine_all(select(["joma-tree"]))

    monkeypatch.setattr(
        audited, "whole_audit", lambda tell: (examine_all(select(["lemma-18"])), {})
    )
    monkeypatch.setattr(audited, "examine_all", examine)
    made = audited.make_audit(out=tmp_path, progress=fractions.append)
    assert asked == [claim.id for claim in claims_of("joma")]
    assert fractions == [0.0]
    assert made.headline == (
        "Of 1 claims of Scan and Snap 0 do not hold as printed; beside them 1 of other origin were "
        "examined; all as recorded."
    )
    assert "The paper (1 claims): on paper (algebra and reduced dynamics) 1 holds" in made.summary
    assert "JoMA, as we read it (1 claims)" in made.summary
    document = audited.read_audit(tmp_path)
    assert [claim["id"] for claim in document["claims"]] == ["lemma-18", "joma-tree"]
    page = (tmp_path / "audit" / "audit.html").read_text()
    assert "<title>Scan and Snap and JoMA, audited</title>" in page
    assert audited.make_audit(out=tmp_path).reused
    assert len(asked) == len(claims_of("joma"))
