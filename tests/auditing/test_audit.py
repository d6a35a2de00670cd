"""The audit of a simulation: theories beside training (files: tests/cli/test_audit.py)."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import attnlab
from attnlab import Flow, Population, Simulation, Steps, formulas
from attnlab.auditing import AuditedRun, Measurement, Verdict, audit, claim, select
from attnlab.auditing.audited_run import Audit, costs, seen_roles, simulation_of
from attnlab.auditing.document import page
from attnlab.files.errors import InputError
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.audit_summary import claimed_fates
from attnlab.papers.scan_and_snap.cases import SYMMETRIC, TURNING
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.papers.scan_and_snap.hypotheses import single_query
from attnlab.tasks.classes import SequenceClasses, single_common
from attnlab.theory import as_theory
from attnlab.theory.relation import BELOW, Check


@pytest.fixture(scope="module")
def small():
    return attnlab.audit(syn_small(), eta_y=10.0, eta_z=1.0)


@pytest.mark.slow
def test_syn_small(small):
    missed = {assumption.source for assumption in small.assumptions if not assumption.holds}
    assert missed >= {"Assumption 1(c)", "Assumption 2"}
    fates = small.fates
    predicted = fates["predicted"].sel(theory="corrected")
    assert predicted.dims == fates["simulated"].dims == ("query", "token")
    distinct = fates["role"].values == 1
    assert np.all(fates["claimed"].values[distinct] == 1)
    assert np.all(fates["simulated"].values[distinct] > 0)
    # Ten common tokens: Theorem 2 is silent, every theory and training agree that they lose.
    common = fates["role"].values == 2
    assert np.all(fates["claimed"].values[common] == 0)
    assert np.all(fates["predicted"].values[:, common] < 0)
    assert np.all(fates["simulated"].values[common] < 0)
    t0_prime, t0 = small.run.transition
    assert t0_prime < t0 < small.run.steps
    assert all(clock.simulated.at > t0 for clock in small.clocks["snap"])


def test_what_is_predicted_and_simulated_is_what_predict_and_simulate_say(small):
    simulation = small.run.simulation
    simulated = attnlab.simulate(simulation, progress=False)
    xr.testing.assert_equal(small.run.simulated, simulated)
    for of in map(as_theory, ("printed", "corrected", "sgd")):
        predicted = attnlab.predict(simulation, theory=of)
        xr.testing.assert_equal(small.run.predicted[of.name], predicted)
        end = predicted["attention_logits"].isel(seed=0, time=-1, token=small.run.classes.in_play)
        np.testing.assert_array_equal(small.fates["predicted"].sel(theory=of.name), end)
    t0 = small.run.predicted["corrected"]["t0"]
    np.testing.assert_allclose(small.run.transition[1], t0)


def test_rows_name_tokens_and_lead_with_the_largest(small):
    rows = small.rows()
    assert len(rows) == 40  # each query sees 10 common and 10 distinct tokens
    moved = [abs(row["simulated"]) for row in rows]
    assert moved == sorted(moved, reverse=True)
    assert {row["as_claimed"] for row in rows if row["role"] == "distinct"} == {True}
    json.dumps(small.document(), allow_nan=False)


def test_each_level_of_the_theory_is_nearer_at_t0(small):
    errors = small.errors
    assert errors["theory"].values.tolist() == ["printed", "corrected", "sgd"]
    assert errors["at"].values.tolist() == ["transition", "end"]
    t0 = small.run.transition[1]
    np.testing.assert_array_equal(errors["time"], [t0, small.run.steps])
    for kind in ("z_error", "attention_error"):
        assert np.all(errors[kind].sel(at="transition").diff("theory") < 0)
    # by hand, at the end
    run, where = small.run, {"seed": 0, "time": -1}
    trained = run.simulated.isel(where)
    said = run.predicted["sgd"].isel(where)
    apart = abs(said["attention_logits"] - trained["attention_logits"]).max()
    by_hand = float(apart / abs(trained["attention_logits"]).max())
    assert float(errors["z_error"].sel(theory="sgd", at="end")) == pytest.approx(by_hand)
    gap = float(abs(said["attention"] - trained["attention"]).max())
    assert float(errors["attention_error"].sel(theory="sgd", at="end")) == pytest.approx(gap)


def test_costs_compare_neighbouring_levels_only():
    levels = xr.Dataset(
        {"z_error": (("theory", "at"), [[4.0, 3.0], [2.0, 1.0], [0.5, 0.25], [9.0, 9.0]])},
        {
            "theory": ["a", "b", "c", "no level"],
            "at": ["transition", "end"],
            "leans_on": ("theory", ["x", "y", "z", ""]),
        },
    )
    assert costs(levels) == [
        "Without x the error in z goes from 4 to 2 at the transition and from 3 to 1 at the end.",
        "Without y the error in z goes from 2 to 0.5 at the transition and from 1 to 0.25 at the "
        "end.",
        "What is left, 0.5 at the transition and 0.25 at the end, is z.",
    ]
    # without b nothing is known of what x and y cost, each by itself
    silent = levels.where(levels["theory"] != "b")
    assert costs(silent) == ["What is left, 0.5 at the transition and 0.25 at the end, is z."]


def test_corollary_2_speaks_where_theorem_2_is_silent():
    for case, fate in ((SYMMETRIC, -1), (TURNING, 0)):
        assert np.all(claimed_fates(case)[seen_roles(case) == 2] == fate)


def test_training_is_shown_even_where_eq_10_cannot_be_solved(monkeypatch):
    def refuse(*args, **kwargs):
        raise InputError("E must leave I + E invertible")

    monkeypatch.setattr(theory, "attention_flow", refuse)
    found = audit(syn_small(), eta_y=10.0, eta_z=1.0)
    assert found.run.silent == dict.fromkeys(
        ("printed", "corrected"), "E must leave I + E invertible"
    )
    assert np.isnan(found.fates["predicted"].sel(theory=["printed", "corrected"])).all()
    assert np.isfinite(found.fates["predicted"].sel(theory="sgd")).all()
    assert np.isfinite(found.fates["simulated"]).all()
    json.dumps(found.document(), allow_nan=False)
    assert "printed says nothing here: E must leave" in page(found.document())


def test_steps_with_momentum_are_the_simulations_own():
    """One value: an audit of steps has their clock, and t_0 is given in them."""
    simulation = Simulation(
        "syn-small",
        motion=Steps(300),
        gradient=Population(),
        learning_rate=0.1,
        seeds=2,
        dtype="float64",
    )
    found = audit(simulation, theories=["sgd"])
    assert found.run.simulation == simulation
    by_name = audit("syn-small", gradient="population", steps=300, theories=["sgd"]).run
    assert (by_name.simulation.clock, by_name.simulation.dtype) == ("step", "float32")
    assert found.run.simulated.sizes["step"] == 101
    plain = theory.transition_times(K=2, M=34, eta_y=0.1).t0
    assert found.run.transition[1] == pytest.approx(
        float(formulas.momentum_steps(plain, momentum=0.9))
    )
    assert found.errors["theory"].values.tolist() == ["sgd"]
    assert found.errors["z_error"].max() < 0.3
    assert found.document()["run"]["step"] == 300


def test_of_classes_alone_it_is_the_flow_for_100_t0():
    simulation, theories = simulation_of("syn-small")
    assert [of.name for of in theories] == ["printed", "corrected", "sgd"]
    assert simulation.clock == "time" and simulation.task.infinite
    assert simulation.dtype == "float64"
    assert simulation.last == pytest.approx(
        100 * float(theory.transition_times(K=2, M=34, eta_y=1.0).t0)
    )
    assert simulation_of(simulation)[0] == simulation


@claim(BELOW)
def common_lose(run):
    """Common tokens lose.

    Check that z of the common tokens is below 0 at the end, where there is a run to read.
    """
    assert isinstance(run, AuditedRun)
    common = formulas.token_roles(run).common
    z = run.simulated["attention_logits"].isel(seed=0, time=-1, token=run.classes.in_play)
    z = z.values[:, common].max()
    return Measurement(
        Check("largest z of a common token", 0.0, z, training=True), training_number=float(z)
    )


def test_a_user_s_claim_needs_only_a_measurement():
    asks = replace(common_lose, id="asks", hypotheses=(single_query,))
    found = audit(syn_small(), claims=[common_lose, asks], eta_y=10.0)
    held, outside = found.findings
    assert (held.verdict, held.training) == (None, Verdict.HOLDS)
    assert held.training_number.startswith("-")
    assert held.as_recorded
    assert outside.training is Verdict.OUTSIDE  # two queries
    document = found.document()
    assert [claim["id"] for claim in document["claims"]] == ["common-lose", "asks"]
    assert "Claims of yours" in page(document)
    with pytest.raises(InputError, match="give it to attnlab.audit"):
        common_lose.examine()


def test_claims_of_the_catalogue_are_examined_where_they_can_be():
    found = audit(syn_small(), claims=select(["lemma-4"]), theories=["sgd"])
    (finding,) = found.findings
    assert finding.claim.id == "lemma-4"
    assert not finding.as_recorded
    assert "recorded:" not in page(found.document())  # what is on record is of other classes
    with pytest.raises(InputError, match="built-in classes only"):
        audit(syn_small(), claims=select(["lemma-6"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eta_y": 0.0}, "eta_y: expected a finite number above 0"),
        ({"eta_z": np.nan}, "eta_z: expected numbers of at least 0 that are finite"),
        ({"eta_z": [1.0, 2.0]}, "eta_z: an audit takes one pair of learning rates"),
        ({"eta_z": None, "motion": Flow()}, "eta_z: expected a finite number above 0, got None"),
        ({"time": -1.0}, "time: expected a positive number"),
        ({"time": 1e-3}, "time: expected a time above 0.01"),
        ({"eta_y": 1e10}, "give a time"),
        ({"optimizer": "adam", "gradient": "population"}, "gradient descent alone"),
        ({"theories": ["sdg"]}, "did you mean 'sgd'"),
    ],
)
def test_bad_input_is_named(changes, message):
    with pytest.raises(InputError, match=message):
        audit(syn_small(), **{"eta_y": 1.0, "eta_z": 1.0, **changes})


def test_what_is_too_large_or_too_small_is_refused():
    with pytest.raises(ValueError, match="use attnlab simulate"):
        audit(single_common(num_classes=2, vocab_size=10**6))
    alone = SequenceClasses([{0: 1.0}], [1], [2], vocab_size=9)
    with pytest.raises(ValueError, match="at least 2"):
        audit(alone)
    with pytest.raises(ValueError, match="one set of classes"):
        audit(["syn-small", "syn-small"])


def test_the_folder_is_the_function():
    assert attnlab.auditing.Audit is Audit
    assert attnlab.auditing.audit is audit
