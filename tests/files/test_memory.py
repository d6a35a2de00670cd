"""The memory of this machine, and sizes in words."""

import math

import pytest

from attnlab.files.memory import _limits, machine_memory, size_words


def test_the_machine_has_memory_and_a_container_limits_it(tmp_path):
    assert 2**20 < machine_memory() < 2**60
    (tmp_path / "memory" / "box").mkdir(parents=True)
    (tmp_path / "box" / "inner").mkdir(parents=True)
    (tmp_path / "memory" / "box" / "memory.limit_in_bytes").write_text("7000\n")
    (tmp_path / "box" / "memory.max").write_text("5000\n")
    (tmp_path / "box" / "inner" / "memory.max").write_text("max\n")
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory:/box\n3:cpu:/box\n0::/box/inner\n")
    assert list(_limits(membership, tmp_path)) == [7000, 5000]
    assert list(_limits(tmp_path / "absent", tmp_path)) == []


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.9, "1 kB"),
        (24.7e9, "24.7 GB"),
        (3_200_000_000_000, "3.2 TB"),
        (10**400, "over 1000 YB"),
        (math.inf, "over 1000 YB"),
    ],
)
def test_sizes_in_words(count, words):
    assert size_words(count) == words
