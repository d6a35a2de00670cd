"""attnlab sweep, as a person would use it."""

import json

import pytest

import attnlab

# the program of tests/support/tiny_sweep.py, which the other tests of sweeps compile too
RECIPE = """\
task: single-common:num_classes=2,distinct=2,vocab_size=20
grid:
  common_prob: [0.1, 0.2]
  eta_z: [0.5, 1]
ratio: 2
gradient: population
motion: {name: steps, steps: 10, optimizer: {name: sgd, momentum: 0}}
seeds: 2
record: {what: [attention, loss, statistics], every: 5}
"""
DIVERGING = RECIPE.replace("[0.5, 1]", "[1, 1e38]").replace(
    "steps: 10, optimizer: {name: sgd, momentum: 0}", "steps: 40"
)


@pytest.fixture
def sweep(tmp_path, call):
    """attnlab sweep, in a folder with a recipe; gives (exit code, out, err)."""
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return lambda *arguments: call("sweep", *arguments, cwd=tmp_path)


def test_plan_run_status_and_resume(sweep, tmp_path):
    code, out, err = sweep("mine.yaml", "--dry-run")
    assert (code, err) == (0, "")
    assert "4 cells x 2 seeds = 8 runs in 1 groups, 1 compilations" in out
    assert not (tmp_path / "out").exists()
    code, out, _ = sweep("mine.yaml", "--dry-run", "--json", "--memory-budget", "1K")
    assert code == 0
    assert json.loads(out)["groups"] == 8

    code, out, err = sweep("mine.yaml", "--out", "out", "--plot", "out.png")
    assert code == 0, err
    assert "wrote out.png" in out
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert "8 of 8 runs in out (1 groups computed, 0 there already" in out
    assert (tmp_path / "out" / "table.csv").read_text().count("\n") == 5
    assert attnlab.open_sweep(tmp_path / "out").sizes["common_prob"] == 2

    code, out, err = sweep("status", "out")
    assert (code, err) == (0, "")
    assert "out: complete; 1 of 1 groups done, 0 running, 0 waiting, 0 failed; 8 of 8 runs" in out
    code, out, _ = sweep("status", "out", "--json")
    assert json.loads(out)["complete"] is True
    with open(tmp_path / "out" / "table.csv", "a") as file:
        file.write("0.3,1,2,0\n")
    code, out, _ = sweep("status", "out")
    assert "out/table.csv: damaged (not what was written); run the same `attnlab sweep`" in out

    code, out, err = sweep("mine.yaml", "--out", "out", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["kept"], document["computed"], document["failed_runs"]) == (1, 0, 0)
    assert "damaged" not in sweep("status", "out")[1]


def test_a_diverged_run_gives_exit_code_3_and_its_cause(sweep, tmp_path):
    (tmp_path / "wild.yaml").write_text(DIVERGING)
    code, out, _ = sweep("wild.yaml", "--out", "out")
    assert code == 3
    assert "4 of 8 runs in out" in out
    assert "4 runs failed:" in out
    assert "became non-finite at step" in out
    code, out, _ = sweep("wild.yaml", "--out", "out", "--json")  # found again, and still failed
    assert code == 3
    assert json.loads(out)["kept"] == 1
    code, out, _ = sweep("status", "out", "--json")
    found = json.loads(out)
    assert (found["complete"], found["failed_runs"]) == (True, 4)
    rows = (tmp_path / "out" / "table.csv").read_text().splitlines()
    assert [row.split(",")[2:4] for row in rows[1:]] == [["2", "0"], ["0", "2"]] * 2


def test_a_sweep_that_cannot_write_is_one_message(sweep, tmp_path):
    code, _, err = sweep("mine.yaml", "--out", "out/deeper")
    assert code == 0
    (tmp_path / "out" / "deeper" / "ledger.jsonl").unlink()
    (tmp_path / "out" / "deeper" / "ledger.jsonl").mkdir()
    for path in (tmp_path / "out" / "deeper" / "groups").iterdir():
        path.unlink()
    code, out, err = sweep("mine.yaml", "--out", "out/deeper")
    assert (code, out) == (1, "")
    assert "attnlab: out/deeper: Is a directory: 0 of 1 groups are kept" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine.yaml"], "out: missing; name the directory"),
        (["nothing.yaml", "--out", "x"], "nothing.yaml: no such file"),
        (["mine.yaml", "x"], "name the directory with --out"),
        (["mine.yaml", "--out", "mine.yaml"], "out: mine.yaml is not a folder"),
        (["mine.yaml", "--out", "x", "--executor", "slurm"], "executor: expected local or ray"),
        (["mine.yaml", "--out", "x", "--workers", "-1"], "workers: expected 0"),
        *(
            (["mine.yaml", "--dry-run", "--memory-budget", size], "memory_budget: expected 512M")
            for size in (
                "much",
                "0",
                "-1",
                "nan",
                "inf",
                "1e400G",
                "1" + "0" * 400,
                "",
                "G",
                "1.2.3",
            )
        ),
        (["mine.yaml", "--executor", "ray", "--cpus-per-task", "nan"], "cpus_per_task, gpus_per"),
        (["mine.yaml", "--gpus-per-task", "inf"], "cpus_per_task, gpus_per_task: expected"),
        (["status"], "status: name the directory of a sweep"),
        (["status", "nowhere"], "nowhere: not the directory of a sweep"),
    ],
)
def test_bad_input_is_one_message_and_nothing_written(arguments, message, sweep, tmp_path):
    code, out, err = sweep(*arguments)
    assert code == 2
    assert message in err
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_file_of_classes_is_not_a_recipe(tmp_path, call):
    code, out, err = call("sweep", "recipes/classes-two-words.yaml", "--dry-run", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert "these are sequence classes, not a recipe; a recipe names their file, task: FILE" in err
