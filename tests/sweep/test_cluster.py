"""Ray, for real: two nodes in this test, a worker killed in the middle, and the same results."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_text_sweep
import xarray as xr
from tiny_sweep import in_groups, tiny

from attnlab.sweeping import Ray, Stopped, open_sweep, run_in
from attnlab.sweeping import cluster as module
from attnlab.sweeping.driver import run_plan
from attnlab.sweeping.executor import attempt
from attnlab.sweeping.store import Folder, Memory
from torture.process import start
from torture.verbs import VERBS, prepare, wrong_end

ray = pytest.importorskip("ray", reason="the extra 'cluster' is not installed")

PLAN = in_groups(tiny())


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core each; one says that it has a GPU, which is all that Ray looks at."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 2**27},
    )
    made.add_node(num_cpus=1, num_gpus=1, object_store_memory=2**27)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def test_two_nodes_and_a_killed_worker_give_what_one_process_gives(tmp_path, cluster, monkeypatch):
    plan = tiny_text_sweep.plan()  # whose text has to reach the workers
    marks, out = tmp_path / "marks", tmp_path / "out"
    marks.mkdir()
    victim = plan.groups[1].key

    def task(group, expected):  # inside the test, so that Ray sends it along
        node = ray.get_runtime_context().get_node_id()
        (marks / f"{node}-{group.key}").touch()
        if group.key == victim and not (marks / "killed").exists():
            (marks / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return attempt(group, expected=expected)

    monkeypatch.setattr(module, "_task", task)
    local = tiny_text_sweep.here()  # first, since workers then read what it has compiled
    ran = run_in(out, plan, executor=Ray(address=cluster.address))
    assert (ran.computed, ran.index.failed_runs) == (4, 0)
    assert (marks / "killed").exists()
    assert len({path.name.partition("-")[0] for path in marks.iterdir()} - {"killed"}) == 2
    xr.testing.assert_identical(open_sweep(out).load().drop_attrs(), local)  # bit for bit
    assert {entry["state"] for entry in Folder(out).ledger.read()[0]} == {"running", "done"}
    assert not ray.is_initialized()


def test_a_task_sees_its_own_gpu_and_does_not_take_all_of_its_memory(
    tmp_path, cluster, monkeypatch
):
    mark = tmp_path / "seen"
    real = module._task

    def task(group, expected):
        outcome = real(group, expected)
        names = ("CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE")
        mark.write_text(" ".join(os.environ[name] for name in names))
        return outcome

    monkeypatch.setattr(module, "_task", task)
    executor = Ray(cluster.address, cpus=0, gpus=0.5)
    index = run_plan(in_groups(tiny(), 16), Memory(), executor=executor).index
    assert index.failed_runs == 0
    assert mark.read_text() == "0 false"


def test_a_worker_with_other_numerics_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(module, "numerics", lambda *folders: {"jax": "of the driver"})
    index = run_plan(in_groups(tiny(), 16), Memory(), executor=Ray(cluster.address)).index
    assert "this worker's installation makes other numbers" in index.groups[0].cause
    assert "{'jax': 'of the driver'}" in index.groups[0].cause


def test_a_ray_that_does_not_start_is_no_traceback(tmp_path, monkeypatch):
    def init(**given):
        raise Exception("The current node timed out during startup.\nMore of it.")

    absent = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setattr(module, "_import_ray", lambda: absent)
    with pytest.raises(Stopped) as caught:
        run_in(tmp_path, PLAN, executor=Ray())
    assert str(caught.value) == (
        f"{tmp_path}: Ray did not start (The current node timed out during startup.); executor "
        f"local needs none: 0 of {len(PLAN.groups)} groups are kept; put that right and run the "
        "same command again"
    )


def test_what_ray_is_not_given():
    with pytest.raises(ValueError, match="cpus_per_task, gpus_per_task: expected 0 or more"):
        Ray(cpus=0)


@pytest.mark.parametrize(
    ("when", "kind"),
    [("gcs_server", signal.SIGTERM), ("raylet", signal.SIGTERM), ("ray::", signal.SIGINT)],
)
def test_a_signal_ends_ray_and_all_that_it_has_started(tmp_path, when, kind):
    """While Ray starts, and while it is at work: its agents outlive a raylet that is killed."""
    prepare(tmp_path)
    process = start(VERBS["sweep, Ray"].words(tmp_path, tmp_path), tmp_path, cold=True)

    def words():
        found = (Path(f"/proc/{one}/cmdline") for one in process.family.members())
        return [one.read_bytes() for one in found if one.exists()]

    try:
        until = time.monotonic() + 300
        while not any(when.encode() in one for one in words()):
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(process.pid, kind)
        ended = process.wait(seconds=60)
        assert ended is not None and not wrong_end(ended, (130,))
        assert not process.family.members()
    finally:
        process.family.kill()
