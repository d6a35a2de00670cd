"""What the studies find, at small size: each judgement's direction, from real runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from made_small import small

from attnlab import formulas
from attnlab.experiments import Standing, experiment, on_halves, recipe_for
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.papers.studies.figures import heads, optimizers, overlap, positions, residual
from attnlab.shelf import offered, paper, recipe_file
from attnlab.simulation import simulate
from attnlab.tasks.classes import classes_from, random

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs"


def make(name):
    """The data and the judgement of a tiny study; it must also be drawn."""
    study, heard = experiment(name), []
    data = study.data(small(name), progress=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == pytest.approx(1.0)
    figure = study.draw(data)
    figure.canvas.draw()
    assert all(ax.get_xlabel() for ax in figure.axes)
    judgement = study.judge(data)
    assert judgement.standing in set(Standing)
    for text in (judgement.headline, judgement.summary, judgement.alt):
        assert text.endswith((".", ".)"))
        assert "nan" not in text
    for number in judgement.numbers:
        if not number.endswith("_error"):
            assert np.isfinite(judgement.numbers[number]), number
    for half in on_halves(study.judge, data):
        assert half.keys() == judgement.numbers.keys()
    return data, judgement.numbers


@pytest.mark.parametrize("name", paper("studies").figures)
def test_every_study_has_its_recipe_and_its_page(name):
    recipe = recipe_for(name)
    assert recipe.minutes <= 2
    assert recipe.seeds >= 12  # errors over fewer come out too small
    assert recipe.about.endswith(".")
    text = recipe_file(name).read_text()
    assert text.startswith("# Study: ")
    assert f"./lab reproduce studies/{name}" in text
    assert f"docs/studies/{name}.md" in text
    page = (DOCS / "studies" / f"{name}.md").read_text()
    assert f"./lab reproduce studies/{name}" in page
    assert f"../images/studies/{name}.png" in page
    assert (DOCS / "images" / "studies" / f"{name}.png").is_file()
    for number in recipe.regression_bounds:
        assert f"`{number}`" in page
    with pytest.raises(ValueError, match="seeds: two halves with an error need at least 4"):
        replace(recipe, seeds=3)


def test_length_deviates_as_the_bias_of_the_norm_does_and_more_with_more_outputs():
    runs, numbers = make("length")
    # T* grows as M^(1 - rho), not as M; with a slow attention the theory has its size too
    rho = float(runs["overlap"][0])
    assert numbers["exponent_of_outputs_rho_40"] == pytest.approx(1 - rho, abs=0.12)
    assert numbers["over_theory_rho_40"] == pytest.approx(1.0, abs=0.05)
    assert -1.25 < numbers["slope"] < -0.7
    assert 0.5 < numbers["over_bias_syn_small_0"] < 1.5
    # never-used outputs change M alone: the bias stays, the distance from the limit grows
    assert numbers["growth_with_outputs_syn_small"] > 1.3
    assert runs["outputs"].isel(classes=0).values.tolist() == [34, 1034]
    rarest = runs["distinct"].isel(classes=0, unused=0, rank=0).mean("seed")
    assert rarest.sel(length=32) < 0 < runs["distinct_limit"].isel(classes=0, unused=0, rank=0)
    bias = runs["bias"].isel(classes=0)
    assert float(bias.sel(length=32) / bias.sel(length=256)) == pytest.approx(255 / 31)
    assert experiment("length").judge(runs).standing == Standing.OPEN


def test_optimizers_adam_favours_what_sgd_does_not():
    runs, numbers = make("optimizers")
    assert numbers["sharpening_sgd_1"] > 5 * numbers["sharpening_sgd_1_error"]
    # with Adam the smaller rate turns it further
    assert numbers["sharpening_adam_0.03"] < 1.2 * numbers["sharpening_adam_0.1"] < 0
    assert numbers["straight_sgd_1"] > 0.97 > 0.93 > numbers["straight_adam_0.03"]
    assert (np.diff(runs["by_epsilon"].mean("seed").squeeze().values) > 0).all()
    assert 0.01 < numbers["crossing_K2_0.03"] < 5
    # the law: inside its conditions, and outside each of them
    assert numbers["law_inside"] > 0.98 > numbers["law_one_query"]
    assert numbers["law_outside"] == 0
    recipe = small("optimizers")
    more = recipe_for("optimizers").choices["momentum"]
    with pytest.raises(ValueError, match="choices: expected as many etas"):
        replace(recipe, choices={**recipe.choices, "momentum": more})


def test_what_is_compared_at_a_loss_is_interpolated_in_it():
    at_loss = optimizers.at_loss
    loss = np.exp(-np.array([[[0.0, 1.0, 3.0], [0.0, 2.0, 2.5]]]))  # (rate, seed, step)
    z = -2.0 * np.log(loss)[..., None, None] + 5.0
    runs = xr.Dataset(
        {
            "loss": (("rate", "seed", "step"), loss),
            "attention_logits": (("rate", "seed", "step", "query", "token"), z),
        }
    )
    np.testing.assert_allclose(at_loss(runs, np.exp(-1.7)), 3.4)
    for target in (0.01, 1.0):  # not reached, and not after the start
        with pytest.raises(ValueError, match=f"comes down to after its start, got {target:g}"):
            at_loss(runs, target)


def test_overlap_single_common_tokens_grow_and_all_together_lose():
    tokens, numbers = make("overlap")
    assert numbers["gaining_1"] > 0.05 > numbers["gaining_20"]
    assert numbers["total_fell_1"] == numbers["total_fell_20"] == 1
    assert numbers["right_K2"] > 0.8
    z = tokens["joint"].sel(num_classes=2, concentration=1.0, ratio=1)
    assert numbers["always_loses_K2"] == pytest.approx(float((z < 0).sum() / z.count()))
    assert numbers["right_K2_clear"] >= numbers["right_K2"]
    # those that gain are nearly distinct
    assert numbers["balance_of_gaining"] < 0.5 * numbers["balance_of_losing"]
    # for K = 2 the sign of Eq. 10's velocity is that of the criterion
    classes = random(30, 2, overlap=0.5, concentration=1.0, seed=1)
    margin = theory.common_token_margin(classes.probs[:, classes.in_play])
    draw = tokens.sel(num_classes=2, seed=1, overlap=0.5, concentration=1.0)
    predicted = draw["predicted"].dropna("token")
    np.testing.assert_array_equal(
        np.sign(predicted), np.sign(margin[predicted["token"].values.astype(int)])
    )
    for wrong, message in (
        ({"quoted": 2.0}, "quoted: expected one of the concentrations"),
        ({"num_classes": (3,)}, "num_classes: the criterion is for 2"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(recipe_for("overlap"), **wrong)


def test_overlap_some_that_grow_are_no_contradiction():
    """Only attention that does not leave the common tokens as a whole contradicts the paper."""
    rng = np.random.default_rng(0)
    draws = dict(num_classes=[2, 4], overlap=[0.5], concentration=[1.0], seed=range(4))
    shape = tuple(len(values) for values in draws.values())
    values = rng.uniform(0.1, 0.9, (*shape, 5))
    z = xr.DataArray(rng.normal(size=(*shape, 2, 5)), dims=(*draws, "ratio", "token"))
    tokens = xr.Dataset(
        {
            "joint": z,
            "reduced": z.isel(ratio=0, concentration=0),
            "predicted": ((*draws, "token"), values - 0.5),
            "balance": ((*draws, "token"), values),
            "correlation": (tuple(draws), values[..., 0]),
            "change": ((*draws, "ratio"), np.full((*shape, 2), -0.1)),
        },
        {**draws, "ratio": [1.0, 30.0]},
        {"quoted": 1.0, "clear": 0.1, "weak": 0.5},
    )
    assert overlap.judge(tokens).standing == Standing.PARTLY
    assert overlap.judge(tokens.assign(change=-tokens["change"])).standing == Standing.FAILS
    assert overlap.judge(tokens.assign(joint=-abs(z))).standing == Standing.HOLDS


def test_positions_a_bias_is_a_shorter_sequence():
    runs, numbers = make("positions")
    contrast = runs["contrast"].mean("seed")
    biased, short = contrast.sel(how="biased"), contrast.sel(how="short")
    # without a slope both are the same thing, up to the draw of the sequences
    assert float(biased[0]) == pytest.approx(float(short[0]), rel=0.2)
    assert biased[1] > 1.1 * biased[0]
    assert short[1] > 1.1 * short[0]
    assert numbers["winner_steepest"] == 1
    assert numbers["learned_spread"] < 0.02
    assert positions.positions_that_count(0.0, 64) == 63


def test_heads_keep_their_favourites():
    runs, numbers = make("heads")
    for ratio in ("1", "0.1"):
        assert numbers[f"kept_alone_{ratio}"] == numbers[f"kept_concatenate_{ratio}"] == 1
        assert numbers[f"kept_average_{ratio}"] > 0.6
    assert numbers["covered_alone"] == numbers["covered_start"] > 1
    # heads of one decoder grow less where it learns fast, and more where it does not
    assert numbers["growth_concatenate_1"] < 0.7
    assert numbers["growth_average_0.1"] > 1
    # the headline has the range over ratios, not the first of them
    lost = (runs["combine"] == "average") & (runs["ratio"] == 0.1)
    headline = heads.judge(runs.assign(kept=runs["kept"].where(~lost, 0.0))).headline
    assert f"averaged in 0 to {numbers['kept_average_1_hits']:.0f} of 24" in headline
    np.testing.assert_allclose(heads.by_chance(2, np.array([1, 2])), [1, 1.5])
    assert (runs["covered"].sel(heads=1) == 1).all()
    assert runs["kept"].sel(heads=1).count() == runs["kept"].sel(heads=1, head=0).size


def test_a_start_is_a_change_of_the_classes():
    classes = syn_small()
    shape = (classes.queries.size, classes.vocab_size)
    start = np.random.default_rng(0).normal(scale=0.5, size=shape)
    settings = {
        "gradient": "population",
        "steps": 100,
        "momentum": 0.0,
        "what": "logits",
        "at": (100,),
        "progress": False,
    }
    tilted = simulate(heads.tilted(classes, start), **settings)
    given = simulate(classes, init=start, **settings)
    z = tilted["attention_logits"].values + start
    np.testing.assert_allclose(z, given["attention_logits"].values, atol=1e-5)
    assert np.abs(z - start).max() > 0.1


def test_spurious_attention_falls_with_the_training_set():
    settings = small("spurious").settings
    assert len(recipe_for("spurious").settings) == 7
    runs, numbers = make("spurious")
    # the headline has the range over all settings, not the most favourable of them
    judgement = experiment("spurious").judge(runs)
    for what in ("excess_left", "spurious_left", "with_prior"):
        found = [numbers[f"{what}_{key}"] for key in ("t_8", "common_mass_0_8")]
        assert f"{min(found):.2g} to {max(found):.2g}" in judgement.headline
    # where common tokens gain from ever new data as well, more data do not suppress them
    assert numbers["spurious_left_common_mass_0_8"] > 1 > numbers["spurious_left_t_8"]
    assert judgement.standing == Standing.PARTLY
    assert experiment("spurious").judge(runs.isel(setting=[0])).standing == Standing.HOLDS
    classes = classes_from(settings["common mass 0.8"].classes)
    endless = simulate(
        classes,
        gradient="population",
        eta_z=5.0,
        steps=300,
        momentum=0.0,
        what="logits",
        at=(300,),
        progress=False,
    )
    assert (endless["attention_logits"].isel(token=classes.common_tokens()) < 0).all()
    runs = runs.isel(setting=0)
    assert numbers["slope_seen"] < -2 * numbers["slope_seen_error"]
    assert numbers["spurious_smallest"] > numbers["spurious_largest"]
    assert numbers["attention_with_prior"] < 0.7
    # a prior lowers the start, and with it all attention to common tokens
    assert (runs["common"].sel(prior=2) < runs["common"].sel(prior=0)).all()
    # few sequences of 7 contextual tokens do not show all common tokens
    assert numbers["unseen_part_4"] > 0.5 > 0.1 > numbers["unseen_part_64"]
    classes = classes_from(settings["T = 8"].classes)
    missed = (1 - classes.probs[0, classes.common_tokens()]) ** (4 * 7)
    assert float(runs["unseen"].sel(sequences=4).mean()) == pytest.approx(missed.mean(), abs=0.08)
    beyond = runs["common"] - runs["common"].sel(sequences=0)
    np.testing.assert_allclose(runs["excess"].sum("part"), beyond, atol=1e-5)
    with pytest.raises(ValueError, match="priors: expected 0 first, got 1"):
        replace(recipe_for("spurious"), priors=(1.0, 2.0))


def test_residual_makes_roles_local_where_probabilities_are_alike():
    runs, numbers = make("residual")
    assert numbers["across_quoted_0.3"] > 0.95 > numbers["across_quoted_1"]
    assert numbers["across_near_1"] > numbers["across_quoted_1"]  # more outputs
    assert numbers["across_without_residual"] < 0.7
    assert numbers["within_quoted_0.3"] == numbers["within_near_0.3"] == 0
    assert runs["outputs"].values.ravel().tolist() == [42, 1042]
    assert "± 0" not in residual.judge(runs).summary  # counts instead
    lowest = (int(numbers[f"across_lowest_cell_{what}"]) for what in ("hits", "total"))
    assert "the fewest, {} of {}, at jitter".format(*lowest) in residual.judge(runs).headline
    outcomes = [
        residual.judge(runs.assign(gaining=gaining)).standing
        for gaining in (runs["gaining"], runs["pairs"] + 0 * runs["gaining"], 0 * runs["gaining"])
    ]
    assert outcomes == [Standing.PARTLY, Standing.HOLDS, Standing.FAILS]

    classes, kind = residual.kinds_of_tokens(small("residual").tokens["even"], 2, 2, 0.3, 0)
    roles = formulas.token_roles(classes.probs[:, classes.in_play])
    assert set(kind[roles.common]) == {"everywhere", "within", "across"}
    local = theory.local_roles(classes)
    assert set(kind[local.distinct.any(0)]) == {"across", "own"}
    with pytest.raises(ValueError, match="tokens.few: expected a number for each of"):
        replace(recipe_for("residual"), tokens={"few": {"own": 3}})


def test_one_token_takes_all_without_the_norm_only():
    runs = make("norm")[0]
    top = runs["top"].isel(time=-1)
    free = top.sel(norm="none")
    assert (free.sel(ratio=1) > 0.9).all()
    assert (free.sel(ratio=10) < free.sel(ratio=1)).all()  # a fast decoder hides it
    assert (top.sel(norm="l2") < 0.9).all()
    assert (runs["late"] > 0).all()  # neither has stopped
    with pytest.raises(ValueError, match="records: expected at least"):
        replace(small("norm"), records=1)


def test_the_best_score_wins_with_a_fixed_decoder_and_frequency_with_a_fast_one():
    runs = make("frequency")[0]
    right = runs["right"].sel(norm="none").mean("seed")
    fixed, fast = right.isel(ratio=0), right.isel(ratio=-1)
    assert (fixed.sel(rule="score") > fixed.sel(rule="frequency")).all()
    assert (fast.sel(rule="frequency") > fast.sel(rule="score")).all()
    with pytest.raises(ValueError, match="ratios: expected rising numbers from 0"):
        replace(small("frequency"), ratios=(1.0, 2.0))


def test_every_theory_that_admits_a_run_predicts_it():
    runs = make("together")[0]
    errors = runs["error"]
    asked = [name for name in offered("theories") if name in runs["theory"]]
    assert {"sgd", "polarisation-class", "joma-moving"} <= set(asked)
    for name in asked:  # each is about one of the models
        assert int(errors.sel(theory=name).notnull().all("seed").sum()) == 1
    np.testing.assert_allclose(errors.sel(theory="nothing moves"), 1.0)
    moving = errors.sel(model="mlp", theory="joma-moving")
    assert (moving < errors.sel(model="mlp", theory="joma-stationary")).all()
