"""What is kept is named after the version of its numbers, which golden numbers guard."""

import json

import golden
import pytest

from attnlab.files import numerics as module
from attnlab.files.numerics import NUMERICS, numerics

# Of the size of what is compared: sums may be added up in another order elsewhere.
IN_FLOAT32, IN_FLOAT64 = 1e-4, 1e-8
RECORDED = json.loads(golden.PATH.read_text())


def test_every_folder_with_a_version_has_golden_numbers():
    assert set(golden.MAKERS) == set(NUMERICS) == set(RECORDED)


@pytest.mark.slow
@pytest.mark.parametrize("folder", NUMERICS)
def test_a_folder_makes_the_numbers_of_its_version(folder):
    recorded = RECORDED[folder]
    what_to_do = (
        f"raise the version of {folder!r} in src/attnlab/files/numerics.py, say there what is "
        f"different, and record: ./lab python tests/support/golden.py {folder}"
    )
    assert recorded["version"] == NUMERICS[folder], f"not yet recorded; {what_to_do}"
    found = golden.MAKERS[folder]()
    changed = []
    for name in sorted(found.keys() | recorded["numbers"].keys()):
        expected, here = recorded["numbers"].get(name, [0, 0]), found.get(name, [0, 0])
        near = IN_FLOAT32 if "float32" in name else IN_FLOAT64
        if here != pytest.approx(expected, rel=0, abs=near * expected[0]):
            changed.append(f"{name}: {expected} recorded, {here} found")
    assert not changed, (
        f"attnlab.{folder} makes other numbers than those that sweeps have kept:\n"
        + "\n".join(changed)
        + f"\nIf they are meant to be others, {what_to_do}.\nWhere only a library is another, or "
        "the golden numbers themselves are computed otherwise, record without a new version."
    )


def test_a_key_has_versions_of_folders_and_of_libraries(monkeypatch):
    found = numerics("tasks", "theory")
    assert found["tasks"] == NUMERICS["tasks"]
    assert "simulation" not in found
    assert "numpy" in found
    monkeypatch.setitem(module.NUMERICS, "tasks", NUMERICS["tasks"] + 1)
    assert numerics("tasks", "theory") != found
