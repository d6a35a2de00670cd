"""attnlab study, as a person would use it."""

import json
import shutil

import pytest

from attnlab.files.shipped import recipe_folder


def test_a_study_is_made_then_reused_and_told(tmp_path, call):
    shutil.copytree(recipe_folder(), tmp_path / "mine")
    path = tmp_path / "mine" / "study-residual.yaml"
    text = path.read_text()
    for old, new in (
        ("steps: 300", "steps: 40"),
        ("queries: [2, 4]", "queries: [2]"),
        ("unused: [0, 1000, 10000]", "unused: [0]"),
        ("  mostly own: {everywhere: 1, within: 1, across: 1, own: 20}\n", ""),
        ("across_quoted_0.3: [0.98, 1]", "across_quoted_0.3: [2, 3]"),
    ):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    asked = ("study", "residual", "--recipes", "mine", "--out", "results", "--seeds", "4")
    code, out, err = call(*asked, cwd=tmp_path)
    assert code == 1, err
    assert "across_quoted_0.3 = 1 is outside its regression bounds, 2 to 3" in out
    assert "of its seeds agree in" in out or "take more (--seeds)" in out
    assert "0 left" in err
    made = {file.name for file in (tmp_path / "results" / "residual").iterdir()}
    assert {"residual.png", "residual.pdf", "residual.csv", "residual.nc", "part.json"} <= made

    code, out, err = call(*asked, "--json", cwd=tmp_path)
    assert (code, err) == (1, "")
    (part,) = json.loads(out)["parts"]
    assert part["reused"] is True
    found = part["numbers"]["across_quoted_0.3"]
    assert part["out_of_bounds"]["across_quoted_0.3"] == found == 1
    assert [half["across_quoted_0.3"] for half in part["halves"]] == [1, 1]
    assert part["summary"].count(" of ") > 8  # counts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study", "lenght"], "'lenght' is not a part; did you mean 'length'?"),
        (["study", "length", "--seeds", "1"], "seeds: two halves with an error need"),
        (["study", "length", "--recipes", "nowhere"], "study-length.yaml: no such file"),
        (["study", "length", "--out", "file"], "out: file is not a folder"),
    ],
)
def test_bad_input_is_one_message_and_nothing_written(arguments, message, tmp_path, call):
    (tmp_path / "file").write_text("x")
    code, out, err = call(*arguments, cwd=tmp_path)
    assert code == 2
    assert message in err
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
