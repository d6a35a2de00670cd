"""What the experiments about JoMA say, at small size."""

import dataclasses

import jax
import numpy as np
import pytest
import xarray as xr
from made_small import make, small

from attnlab.experiments import Standing, experiment
from attnlab.papers.joma import theory
from attnlab.papers.joma.figures import hierarchy, invariants
from attnlab.papers.joma.model import Joint
from attnlab.simulation import simulate


def test_hblt_formula_is_what_all_settings_add_up_to():
    found = make("hblt")
    np.testing.assert_allclose(found["formula"], found["enumerated"], atol=1e-12)
    assert float(found["sampled_error"].max()) < 0.01
    judgement = experiment("hblt").judge(found)
    assert judgement.standing == Standing.HOLDS
    wrong = found.assign(formula=found["formula"] + 0.05 * (found["H"] == 1))
    assert experiment("hblt").judge(wrong).standing == Standing.FAILS


def test_salient_components_are_first_and_entropy_comes_back():
    curves = make("salience")
    assert (curves["entropy"].min("time") < curves["last_entropy"]).all()
    judgement = experiment("salience").judge(curves)
    assert judgement.standing == Standing.CORRECTED
    assert judgement.numbers["claimed_late_ratio_error"] < 1e-2
    ends = [judgement.numbers[f"drawn_entropy_back{end}"] for end in ("_least", "", "_most")]
    assert ends == sorted(ends)
    assert ends[0] < ends[-1]  # a range over draws, not one of them
    rows = experiment("salience").table(curves).rows
    assert rows[0]["claimed_end"] == rows[0]["claimed_limit"] == 1
    backwards = curves.isel(component=slice(None, None, -1))
    backwards["component"] = curves["component"]
    assert experiment("salience").judge(backwards).standing == Standing.FAILS


@pytest.fixture(scope="module")
def erf():
    return make("erf")


def test_the_erf_law_is_one_line_and_ends_at_its_time(erf):
    judgement = experiment("erf").judge(erf)
    assert judgement.standing == Standing.HOLDS
    assert judgement.numbers["collapse_error"] < 1e-6
    assert judgement.numbers["blow_up_over_theory"] == pytest.approx(1, abs=1e-6)
    assert np.isfinite(erf["trained_weight"]).all()
    late = erf.assign(blow_up=1.1)
    assert experiment("erf").judge(late).standing == Standing.FAILS


def test_invariants_are_compared_in_size_and_not_only_in_direction():
    """One cell of each attention, trained; the judgement on made-up means."""
    recipe = small("invariants")
    cells = {kind: invariants._compared(recipe, 1, kind, "linear") for kind in ("softmax", "exp")}
    late = {kind: of.isel(step=slice(2, None)) for kind, of in cells.items()}
    assert float(late["exp"]["error"].max()) < 0.02
    assert float(late["exp"]["total_error"].max()) < 0.02
    softmax = late["softmax"]["error"].mean("seed").isel(step=-1)
    assert softmax.sel(form="moving") < softmax.sel(form="fixed")
    assert float(late["softmax"]["correlation"].min()) > 0.9

    every = {
        "queries": [1, 5],
        "attention": list(invariants.ATTENTIONS),
        "activation": list(invariants.ACTIVATIONS),
    }
    sized = xr.Dataset(
        {"error": 0.01, "correlation": 0.999, "size": 1.0, "total_error": 0.001, "moved": 1.0}
    ).expand_dims({**every, "form": ["fixed", "moving"], "seed": [0, 1], "step": [0, 200, 400]})
    sized = sized.assign_attrs(early=200, blow_up=300.0)
    judge = experiment("invariants").judge
    assert judge(sized).standing == Standing.HOLDS
    softmax = sized["attention"] == "softmax"
    one_draw = sized.assign(error=sized["error"].where(~softmax | (sized["seed"] == 0), 0.6))
    assert judge(one_draw).standing == Standing.PARTLY  # every draw counts, not their mean
    softmax = (sized["attention"] == "softmax") & (sized["form"] == "fixed")
    off = sized.assign(error=sized["error"].where(~softmax, 7.0))
    assert judge(off).standing == Standing.CORRECTED  # a correlation near 1 is not enough
    lost = sized.assign(error=sized["error"].where(sized["attention"] != "exp", 7.0))
    assert judge(lost).standing == Standing.FAILS
    drawn = experiment("invariants").draw(off)
    assert len(drawn.axes) == 6
    assert len(experiment("invariants").table(off).rows) == 24


def test_steps_leave_the_exp_invariant_by_the_sum_of_their_squares():
    """The reason that the table gives for the error of exp attention."""
    T, rate = 0.5, 0.1
    run = simulate(
        "joma-toy",
        gradient="population",
        init="uniform",
        momentum=0.0,
        model=Joint(None, "linear", "exp", T, scale=0.01),
        eta_y=rate,
        eta_z=rate,
        steps=900,
        what="logits",
        every=1,
        dtype="float64",
        progress=False,
    ).isel(seed=0, token=slice(20))
    v, z = run["mlp_weights"].values, run["attention_logits"].isel(query=0).values
    gap = theory.exp_invariant(v, v0=v[0], z0=z[0], temperature=T) - z
    squares = np.cumsum((np.diff(v, axis=0) ** 2).sum(1), axis=0) / (2 * T)
    np.testing.assert_allclose(gap[1:], squares, atol=1e-9)
    assert np.linalg.norm(gap[-1]) > np.linalg.norm(z[-1] - z[0])


def test_seeds_can_be_asked_for():
    recipe = small("invariants")
    assert recipe.with_seeds(9) == dataclasses.replace(recipe, seeds=9)


def test_latents_are_sought_in_the_units_of_their_layer():
    found = make("hierarchy")
    assert found["correlation"].dims == (
        "level",
        "training",
        "latents",
        "children",
        "seed",
        "latent",
    )
    assert ((found["correlation"] <= 1 + 1e-12) | found["correlation"].isnull()).all()
    assert found["correlation"].sel(level="upper").isel(latent=4).isnull().all()  # there are four
    told = found["accuracy"].mean(["latents", "children", "seed"])
    assert float(told.sel(training="trained")) > float(told.sel(training="untrained")) + 0.2


def test_the_first_number_of_the_pair_counts_the_lowest_latents():
    """N_0, whose children are the tokens."""
    recipe = small("hierarchy")
    assert recipe.layers((10, 20), 2, 0).widths == (recipe.labels, 20, 10, recipe.tokens)


def test_a_sequence_lists_each_active_token_once_in_order():
    on = active_tokens()
    for label, text in enumerate(hierarchy._sequences([on])[0]):
        listed = text[:-1][text[:-1] >= 0]
        assert listed.tolist() == np.flatnonzero(on[label]).tolist()
        assert text[-1] == on.shape[1]  # the query


@pytest.mark.slow
def test_units_are_read_at_their_maximum_over_positions():
    """And the positions that fill a sequence up change nothing."""
    recipe = small("hierarchy")
    texts = hierarchy._sequences([active_tokens()])[0][:2]
    learner = hierarchy.TwoLayers(recipe.hierarchies(), recipe.hidden)
    weights = hierarchy._begin(recipe.labels, recipe.tokens, recipe.hidden, jax.random.key(0))
    found = learner.capture({"tokens": texts}, weights, ())
    units = found["lower"], found["upper"]
    for label, text in enumerate(texts):
        alone = text[text >= 0][None]
        for of, layer in zip(units, hierarchy._layers(weights, alone), strict=True):
            np.testing.assert_allclose(of[label], layer[0].max(0), rtol=1e-5, atol=1e-6)
    assert found["correct"].shape == (2,)


def active_tokens():
    recipe = small("hierarchy")
    return recipe.layers(recipe.latents[0], 2, 0).active()[-1]


def test_latents_are_found_only_beyond_what_an_untrained_network_reads():
    """Published values are not enough: an untrained network comes near them."""
    judge = experiment("hierarchy").judge
    found = make("hierarchy")
    published = xr.DataArray([0.97, 0.7], {"level": list(hierarchy.LEVELS)}, "level")
    noise = 0.001 * (-1.0) ** found["seed"]
    met = found.assign(correlation=(published + noise).broadcast_like(found["correlation"]))
    assert judge(met).standing == Standing.FAILS
    untrained = met["training"] != "trained"
    gained = xr.DataArray([0.3, 0.1], {"level": list(hierarchy.LEVELS)}, "level")
    learnt = met.assign(correlation=met["correlation"] - untrained * gained)
    judgement = judge(learnt)
    assert judgement.standing == Standing.HOLDS
    assert judgement.numbers["lower_gain"] == pytest.approx(0.3)
    upper_only = met.assign(
        correlation=met["correlation"] - untrained * gained * (met["level"] == "upper")
    )
    assert judge(upper_only).standing == Standing.PARTLY


def test_the_best_correlation_is_that_of_the_unit_that_follows_a_latent():
    latent = np.array([[0, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]], dtype=bool)
    units = np.stack([-3.0 * latent[:, 0], np.zeros(4), np.arange(4.0)], axis=1)
    best = hierarchy._best_correlation(latent, units)
    assert best[0] == pytest.approx(1)
    either = [abs(np.corrcoef(latent[:, 1], units[:, unit])[0, 1]) for unit in (0, 2)]
    assert best[1] == pytest.approx(max(either))
    assert np.isnan(best[2])  # on for good
