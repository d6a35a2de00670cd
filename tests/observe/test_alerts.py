"""Alerts: warned once, never raised, and sent where the user wants them."""

import warnings

import pytest
import torch
from made_by_hand import COPIES, MadeByHand
from small_models import NanoGPT, tokens

import attnlab
from attnlab.files.errors import InputError
from attnlab.observing import Alerts

PROBE = tokens(2)
FEW = {"min_keys": 8, "every": 1}


def test_each_kind_of_alert_is_a_warning_once():
    model = MadeByHand()
    observer = attnlab.observe(model, probe=COPIES, every=1)
    with pytest.warns(UserWarning, match="layer 0 head 6: the head is dead, its output has 0 of"):
        observer.step(0)
    model.sharp.data.fill_(200.0)
    with pytest.warns(UserWarning) as warned:
        observer.step(1)
    words = sorted(str(one.message) for one in warned)
    assert len(words) == 1
    assert "step 1: layer 0 head 4: the largest logit is 200, above 100" in words[0]
    with warnings.catch_warnings(action="error"):
        observer.step(2)
    assert [one.kind for one in observer.alerts] == ["dead", "logits"]
    found = list(Alerts().found(observer.result()))
    assert sorted(one.words for one in found) == sorted(one.words for one in observer.alerts)


def test_collapse_sinks_and_attention_that_is_not_a_number():
    given = []
    model = MadeByHand()
    observer = attnlab.observe(model, probe=COPIES, every=1, alert=given.append)
    observer.step(0)
    now = observer.result()
    before = now.isel(step=0).assign(
        sink_mass=0 * now.sink_mass.isel(step=0), relative_entropy=1 + 0 * now.entropy.isel(step=0)
    )
    found = {one.kind: one for one in Alerts().found(now, before)}
    assert found["sink"].heads == (0,)
    assert "with 1.00 of the attention on the first key" in found["sink"].words
    assert set(found["entropy"].heads) == {0, 1, 2} and "and 2 more" in found["entropy"].words
    model.sharp.data.fill_(torch.nan)
    observer.step(1)
    assert [(one.kind, one.heads) for one in given] == [("dead", (6,)), ("nan", (4,))]


def test_alerts_can_be_set_and_switched_off():
    model = NanoGPT()
    with warnings.catch_warnings(action="error"):
        attnlab.observe(model, probe=PROBE, alert=False, **FEW).step(0)
    observer = attnlab.observe(model, probe=PROBE, alert=Alerts(logit=1e-3), **FEW)
    with pytest.warns(UserWarning, match="largest logit"):
        observer.step(0)
    logged = []
    observer = attnlab.observe(
        model,
        probe=PROBE,
        alert=Alerts(logit=1e-3, call=id),
        log=lambda *one: logged.append(one),
        **FEW,
    )
    observer.step(0)
    assert logged[0][0]["attention/alerts"] == len(observer.alerts) > 0
    with pytest.raises(InputError, match="alert: logit: expected a number above 0 or None"):
        Alerts(logit=0)
    with pytest.raises(InputError, match="alert: expected Alerts"):
        attnlab.observe(model, probe=PROBE, alert="loud")
