"""attnlab reproduce and attnlab cite, as a person would use them."""

import json
import shutil
import subprocess
import sys

import pytest

import attnlab
from attnlab.figures import recipe_folder


def attnlab_command(*arguments, cwd):
    command = [sys.executable, "-c", "from attnlab.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with recipes of one's own: fig8 on a small vocabulary."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(recipe_folder(), folder / "mine")
    path = folder / "mine" / "fig8.yaml"
    text = path.read_text()
    text = text.replace(
        "num_classes=10,distinct=10,common_prob=0.1,vocab_size=1000",
        "num_classes=2,distinct=2,common_prob=0.1,vocab_size=50",
    )
    text = text.replace("steps: 1000", "steps: 50").replace("records: 401", "records: 11")
    text = text.replace("largest_gap: [0.32, 0.33]", "largest_gap: [0.1, 1]")
    text = text.replace("last_gap: [0.05, 0.06]", "last_gap: [0, 0.1]")
    text = text.replace("training_error: [0, 0.002]", "training_error: [0, 0.1]")
    text = text.replace("training_error: [0, 0.001]", "training_error: [0, 0.1]")
    path.write_text(text)
    return folder


def test_some_parts_are_made_then_reused_and_told(place):
    asked = ("reproduce", "fig8", "report", "--recipes", "mine", "--out", "results")
    first = attnlab_command(*asked, cwd=place)
    assert first.returncode == 0, first.stderr
    assert "fig8" in first.stdout
    assert "reproduced" in first.stdout
    assert "1 left" in first.stderr
    out = place / "results"
    made = {path.name for path in (out / "fig8").iterdir()}
    assert {"fig8.png", "fig8.pdf", "fig8.csv", "fig8.nc"} <= made
    report = (out / "report.html").read_text()
    assert "Figure 8" in report
    assert "Not made yet: fig2" in report

    second = attnlab_command(*asked, "--json", cwd=place)
    assert second.returncode == 0, second.stderr
    assert second.stderr == ""
    document = json.loads(second.stdout)
    (part,) = document["parts"]
    assert part["reused"] is True
    assert part["name"] == "fig8"
    assert part["outcome"] == "reproduced"
    assert document["report"] == "results/report.html"
    assert all((place / name).exists() for name in part["files"])

    recipe = place / "mine" / "fig8.yaml"
    recipe.write_text(recipe.read_text().replace("largest_gap: [0.1, 1]", "largest_gap: [7, 8]"))
    third = attnlab_command(*asked, "--json", cwd=place)
    assert third.returncode == 1
    (part,) = json.loads(third.stdout)["parts"]
    assert part["reused"] is False
    assert list(part["unexpected"]) == ["largest_gap"]

    cited = attnlab_command("cite", "results/fig8/fig8.nc", cwd=place)
    assert cited.returncode == 0, cited.stderr
    for text in ("@inproceedings{tian2023scan", f"{{{attnlab.__version__}}}", "vocab_size=50"):
        assert text in cited.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "fig66"], "'fig66' is not a part; did you mean 'fig6'?"),
        (["reproduce", "reprot"], "did you mean 'report'?"),
        (["reproduce", "fig6", "--seeds", "0"], "seeds: expected at least 1"),
        (["reproduce", "fig6", "--recipes", "nowhere"], "nowhere/fig6.yaml: no such file"),
        (["reproduce", "fig9", "--out", "file"], "out: file is not a folder"),
        (["cite", "file"], "file: damaged result file"),
        (["cite", "nothing.nc"], "nothing.nc"),
    ],
)
def test_bad_input_is_one_message_and_nothing_written(arguments, message, tmp_path):
    (tmp_path / "file").write_text("x")
    done = attnlab_command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_cite_needs_no_run(tmp_path):
    done = attnlab_command("cite", cwd=tmp_path)
    assert done.returncode == 0
    assert "Scan and Snap" in done.stdout
    document = json.loads(attnlab_command("cite", "--json", cwd=tmp_path).stdout)
    assert document["run"] is None
    assert len(document["bibtex"]) == 2
