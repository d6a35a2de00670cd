"""What ten seeds of one layer showed, read from the shipped file."""

import csv

import numpy as np
import pytest

from attnlab.papers.active_dormant import runs


@pytest.fixture(scope="module")
def measured():
    """Values by run and column, (seed, step)."""
    rows = list(csv.DictReader(runs.MEASURED.read_text().splitlines()))
    found = {}
    for name, run in runs.RUNS.items():
        of = [row for row in rows if row["run"] == name]
        shape = len(run.seeds), len(run.record_steps)
        assert [int(row["step"]) for row in of] == run.record_steps.tolist() * shape[0]
        found[name] = {
            column: np.array([float(row[column]) for row in of]).reshape(shape)
            for column in runs.COLUMNS
        }
    return found


def test_softmax_is_dormant_where_the_head_is_not_needed(measured):
    """Sinks at other tokens than triggers, by seed from weak to complete; drained values."""
    of, last = measured["softmax"], {name: x[:, -1] for name, x in measured["softmax"].items()}
    assert (last["sink_at_triggers"] < 0.001).all() and (last["previous_at_triggers"] > 0.9).all()
    assert 0.5 < last["sink_at_others"].mean() < 0.85 and (last["sink_at_others"] > 0.04).all()
    assert (last["sink_at_others"] > 0.9).sum() >= 1 and (last["sink_at_others"] < 0.5).sum() >= 1
    assert (last["drain"] < 0.9).all() and last["drain"].mean() < 0.4
    assert (last["peak"] < 1.1).all()  # one layer has no residual peak
    size = of["first_value"]
    assert (size.argmax(1) > 0).all() and (size.max(1) > 1.3 * size[:, [0, -1]].T).all()  # a hump
    spread = of["sink_logit_spread"] / of["sink_logit"]
    assert np.median(spread[:, -1]) < np.median(spread[:, 3])  # the sink logits concentrate


def test_relu_and_no_start_token_have_no_sink_and_learn_as_well(measured):
    for name in ("relu", "bare"):
        last = {column: x[:, -1] for column, x in measured[name].items()}
        assert (last["sink_at_others"] < 0.05).all()
        assert last["copy_risk"].mean() < 0.02 and last["bigram_kl"].mean() < 0.015
    assert measured["relu"]["peak"][:, -1].max() > 3  # by seed: a peak can stand without a sink
    assert measured["relu"]["peak"][:, -1].min() < 1.2
