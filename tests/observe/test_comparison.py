"""Two observations side by side: heads are found again after a permutation."""

import json

import numpy as np
import pytest
from commands import call as call  # a fixture
from made_by_hand import COPIES, MADE, MadeByHand

import attnlab
from attnlab.files.errors import InputError
from attnlab.observing import compare
from attnlab.observing.comparison import comparison_text


@pytest.fixture(scope="module")
def result():
    model = MadeByHand()
    model.sharp.data.fill_(20.0)
    observer = attnlab.observe(model, probe=COPIES, every=1, alert=False, repeated=True)
    observer.step(0)
    observer.step(1)
    return observer.result()


def test_heads_are_matched_by_what_they_do(result):
    order = [3, 0, 6, 1, 5, 2, 4]
    other = result.isel(head=order).assign_coords(head=range(len(order)))
    other["relative_entropy"] = other["relative_entropy"] * 0.97
    found = compare(result, other)
    head = found["head"].transpose("pair", "side").values
    assert [order[second] for _, second in head] == [first for first, _ in head]
    assert (found["role"].isel(side=0) == list(MADE)).all()
    assert (found["role_onset"] == 0).all()
    entropy = found.sel(statistic="relative_entropy")
    wanted = -0.03 * result["relative_entropy"].isel(step=-1, layer=0)
    np.testing.assert_allclose(entropy["difference"], wanted)
    error = result["relative_entropy_sequence_se"].isel(step=-1, layer=0)
    np.testing.assert_allclose(entropy["difference_error"], np.sqrt(2) * error)
    text = comparison_text(found, ("seed 0", "seed | 1"))
    assert "7 of 7 matched heads have the same role." in text
    assert "| induction | 1 | 1 | step 0 | step 0 |" in text


def test_heads_without_a_counterpart_are_counted(result):
    found = compare(result, result.isel(head=[0, 4]))
    assert found.sizes["pair"] == 2 and found.attrs["unmatched"] == [5, 0]
    assert set(found["role"].values.ravel()) == {"sink", "induction"}
    by_number = compare(result, result.isel(head=[1, 4]), match="number")
    assert by_number["head"].values.tolist() == [[1, 4], [1, 4]]
    assert not by_number["difference"].any()
    with pytest.raises(InputError, match="match: expected"):
        compare(result, result, match="names")


@pytest.mark.slow
def test_the_command_compares_two_files(result, tmp_path, call):
    for name in ("a.nc", "b.nc"):
        attnlab.save(result, tmp_path / name)
    verb = ("observe", "compare", "a.nc", "b.nc")
    code, printed, _ = call(*verb, "--html", "page.html", cwd=tmp_path)
    assert code == 0 and "7 of 7 matched heads have the same role" in printed
    assert "<h1>a and b</h1>" in (tmp_path / "page.html").read_text()
    document = json.loads(call(*verb, "--json", cwd=tmp_path)[1])
    assert document["unmatched"] == [0, 0] and len(document["distance"]) == 7
