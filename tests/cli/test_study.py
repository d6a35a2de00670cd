"""attnlab study, as a person would use it."""

import json
import shutil

import pytest

from attnlab.figures import recipe_folder


def test_a_study_is_made_then_reused_and_told(tmp_path, call):
    shutil.copytree(recipe_folder(), tmp_path / "mine")
    path = tmp_path / "mine" / "study-residual.yaml"
    text = path.read_text().replace("steps: 300", "steps: 40")
    path.write_text(text.replace("own_with: [1, 1]", "own_with: [2, 3]"))
    asked = ("study", "residual", "--recipes", "mine", "--out", "results", "--seeds", "4")
    code, out, err = call(*asked, cwd=tmp_path)
    assert code == 1, err
    assert "own_with = 1 is outside its regression bounds, 2 to 3" in out
    assert "0 left" in err
    made = {file.name for file in (tmp_path / "results" / "residual").iterdir()}
    assert {"residual.png", "residual.pdf", "residual.csv", "residual.nc", "part.json"} <= made

    code, out, err = call(*asked, "--json", cwd=tmp_path)
    assert (code, err) == (1, "")
    (part,) = json.loads(out)["parts"]
    assert part["reused"] is True
    assert part["out_of_bounds"]["own_with"] == part["numbers"]["own_with"] == 1
    assert part["numbers"]["own_with_error"] == 0
    assert part["summary"].count("±") > 3


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
