"""Roles of heads whose queries and keys are made by hand, and when roles form."""

import numpy as np
import pytest
import torch
from made_by_hand import COPIES, MADE, MadeByHand

import attnlab
from attnlab.observing import in_words
from attnlab.observing.roles import ROLES


@pytest.fixture(scope="module")
def result():
    model = MadeByHand()
    observer = attnlab.observe(model, probe=COPIES, every=1, repeated=True)
    for step, model.sharp.data in enumerate(torch.tensor([0.0, 0.5, 1.0, 20.0, 20.0])):
        observer.step(step)
    return observer.result()


def test_each_head_has_the_role_it_was_made_for(result):
    names = list(ROLES)
    assert [names[role] for role in result.head_role.values[0]] == list(MADE)
    score = result.role_score.isel(step=-1, layer=0)
    for head, name in enumerate(MADE):
        assert score.sel(role=name)[head] > 0.9, name
    assert score.sel(role="position-only")[[0, 1, 2, 5]].values == pytest.approx(1.0)
    assert score.sel(role="position-only")[4] < 0.5  # by tokens
    assert score.sel(role="local").values[[1, 2]].min() > 0.9


def test_the_step_at_which_induction_forms(result):
    onset = result.role_onset.sel(role="induction").values[0]
    assert onset[4] == 3 and np.isnan(onset[[0, 1, 2, 5]]).all()
    low, high = (result[f"role_onset_{end}"].sel(role="induction")[0, 4] for end in ("low", "high"))
    assert low == 2 and high == 3
    told = " ".join(in_words(result))
    assert "1 head induction (layer 0 head 4)" in told
    assert "role induction formed first in layer 0 head 4, at step 3 (between 2 and 3" in told
    assert "rose most between steps 2 and 3" in told


def test_one_sequence_says_nothing_about_positions_alone():
    model = MadeByHand()
    observer = attnlab.observe(model, probe=COPIES[:1])
    observer.step(0)
    assert observer.result().position_only.isnull().all()
