"""predict(): the dataset that simulate() would give, as far as a theory predicts it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from made_papers import make_paper

import attnlab
from attnlab import (
    Extended,
    Flow,
    MarkovChains,
    Optimizer,
    Piecewise,
    Record,
    SequenceClasses,
    Simulation,
    Transformer,
)
from attnlab.files.errors import InputError
from attnlab.formulas import Setting
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.papers.scan_and_snap.predict import Corrected
from attnlab.shelf import VARIABLE, offered
from attnlab.simulation import as_simulation
from attnlab.tasks.classes import single_common
from attnlab.theory import ClassTheory, Theory, as_theory, theories_about
from attnlab.theory.facts import case_of

WEAK = single_common(num_classes=2, distinct=3, common_prob=0.3, vocab_size=1000)
POPULATION = {"gradient": "population", "steps": 5}
WORDS = SequenceClasses(
    [{0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}],
    [3, 3],
    [4, 5],
    vocab_size=6,
    names=["the", "ball", "cup", "won", "goal", "prize"],
)
SIMULATIONS = {
    "flow": as_simulation(WEAK, time=1e3, eta_y=0.9, eta_z=0.03, dtype="float64"),
    "rates": as_simulation(
        WEAK, gradient="population", eta_y=[0.5, 1.0], eta_z=[0.1, 0.2, 0.3], seeds=2, steps=9
    ),
    "momentum": as_simulation("syn-small", length=16, batch_size=4, seeds=[3, 7], steps=20),
    "words": as_simulation(WORDS, **POPULATION),
    "start": as_simulation(WORDS, **POPULATION, init=[0.0, 0.1, 0.2, 0.0, 0.0, 0.3]),
    "uneven": as_simulation(WEAK.with_prior([0.2, 0.8]), **POPULATION),
    "several": as_simulation([WEAK, WEAK.with_prior([0.2, 0.8])], **POPULATION),
    "fixed": as_simulation(WEAK, **POPULATION, eta_z=None),
}
BOTH = ("attention", "attention_logits", "entropy", "distinct_entropy", "common_mass")

LADDER = [as_theory(name) for name in ("printed", "corrected", "sgd")]


@pytest.mark.parametrize("level", [level.name for level in LADDER])
@pytest.mark.parametrize("name", SIMULATIONS)
def test_it_aligns_with_the_simulation(name, level):
    simulation = SIMULATIONS[name]
    measured = attnlab.simulate(simulation, progress=False)
    predicted = attnlab.predict(simulation, theory=level)
    xr.align(measured, predicted, join="exact")
    for variable in BOTH:
        assert predicted[variable].dims == measured[variable].dims
        assert predicted[variable].shape == measured[variable].shape
    for name in measured.coords:
        xr.testing.assert_equal(measured.coords[name], predicted.coords[name])
    xr.testing.assert_equal(measured["probability"], predicted["probability"])
    assert Simulation.of(predicted) == simulation
    clock = simulation.clock
    first = predicted["attention"].isel({clock: 0}) - measured["attention"].isel({clock: 0})
    assert float(abs(first).max()) < 1e-6  # all start where training does


def test_the_default_is_the_last_of_our_theories_that_covers_the_run(tmp_path, monkeypatch):
    """A paper from elsewhere does not change it."""
    code = "from attnlab.papers.scan_and_snap.predict import Printed"
    older = make_paper(tmp_path, year=1900, code={"own": code}, theories={"own": "own:Printed"})
    monkeypatch.setenv(VARIABLE, str(older))
    assert next(iter(offered("theories"))) == "own"
    assert attnlab.predict("syn-small", gradient="population", steps=2).attrs["theory"] == "sgd"


def test_what_each_level_asks_for_is_what_the_page_says():
    """docs/theory-sgd.md: "corrected" drops nothing, "sgd" all but Assumption 1 and Y(0) = 0."""
    run = Simulation("syn-small", motion=Flow(10.0))
    case = case_of(run, run.sets[0], 1.0, 1.0)
    printed, corrected, sgd = ({part.says for part in of.assumptions(case)} for of in LADDER)
    assert printed == corrected
    assert sgd < printed
    dropped = [part for part in LADDER[0].assumptions(case) if part.says not in sgd]
    assert {part.source for part in dropped} == {"Section 3.2", "Assumption 2", "Theorem 1"}
    for words in ("each class appears uniformly", "M >> 100", "eta_Y < 1", "t >> K^2"):
        assert any(words in part.says for part in dropped)
    kept = [part.source for part in LADDER[2].assumptions(case)]
    assert kept == ["Assumption 1(a)", "Assumption 1(b)", "Assumption 1(c)", "Theorem 1"]


def test_each_level_is_nearer_to_training_where_its_assumptions_hold():
    """Two classes inside Assumptions 1 and 2: what each correction is worth, in z at t_0."""
    simulation = SIMULATIONS["flow"]
    t0 = float(attnlab.predict(simulation, theory="corrected")["t0"].max())
    measured = attnlab.simulate(simulation, at=[0.0, t0], progress=False)
    z = measured["attention_logits"].isel(time=-1)
    errors = []
    for level in LADDER:
        predicted = attnlab.predict(simulation, theory=level, at=[0.0, t0])
        apart = predicted["attention_logits"].isel(time=-1) - z
        errors.append(float(abs(apart).max() / abs(z).max()))
    printed, corrected, sgd = errors
    # Theorem 1's decoder, which SGD does not train, moves attention some 36 times too far
    assert sgd < 0.06 and 30 < corrected < 40 < printed


def test_with_momentum_decoder_and_attention_each_have_a_memory():
    """At t_0, where the steps that a constant gradient would take are far off."""
    simulation = as_simulation(
        syn_small(), gradient="population", eta_y=0.3, eta_z=0.01, steps=200, dtype="float64"
    )
    t0 = int(attnlab.predict(simulation, theory="corrected")["t0"].max())
    simulation = replace(simulation, record=Record(at=[0, t0]))
    measured = attnlab.simulate(simulation, progress=False)["attention_logits"].sel(step=t0)
    error = {}
    for level in ("sgd", "corrected"):
        z = attnlab.predict(simulation, theory=level)["attention_logits"].sel(step=t0)
        error[level] = float(abs(z - measured).max() / abs(measured).max())
    assert error["sgd"] < 0.05
    assert error["corrected"] > 1


def test_it_is_the_theory_s_own_formulas():
    predicted = attnlab.predict(SIMULATIONS["flow"], theory="corrected")
    times, tokens = predicted["time"].values, WEAK.in_play
    setting = Setting(WEAK.probs[:, tokens], M=1000, eta_y=0.9, eta_z=0.03)
    flow = theory.attention_flow(setting, times)
    one = predicted.isel(seed=0)
    np.testing.assert_allclose(one["attention_logits"].isel(token=tokens), flow.logits)
    np.testing.assert_allclose(predicted["growth_bound"], flow.growth_bound)
    gamma = theory.gamma(times, K=2, M=1000, eta_y=0.9)
    np.testing.assert_allclose(predicted["gamma"].isel(sequence_class=1), gamma, rtol=1e-9)
    np.testing.assert_allclose(
        predicted["t0"], float(theory.transition_times(K=2, M=1000, eta_y=0.9).t0)
    )


def test_uneven_classes_have_clocks_of_their_own():
    """At first gamma is eta_Y P(n) t for class n, so that z is eta_Y eta_Z t^2/2 times a sum of
    squared shares; with the decoder of SGD it is what training does."""
    classes, t, tokens = WEAK.with_prior([0.1, 0.9]), 1e-3, WEAK.in_play
    early = as_simulation(classes, time=t, eta_y=0.9, eta_z=0.003, dtype="float64")
    predicted = attnlab.predict(early, theory="corrected", at=[0.0, t])
    z = predicted["attention_logits"].isel(time=-1, seed=0, token=tokens)
    at_rest = np.zeros((1, tokens.size))
    speed = theory.attention_velocity(classes, at_rest, weight=classes.prior**2)
    np.testing.assert_allclose(z, 0.9 * 0.003 * t**2 / 2 * speed, rtol=3e-3)  # (1 - 1/M)^2
    longer = as_simulation(classes, time=300.0, eta_y=0.9, eta_z=0.003, dtype="float64")
    trained = attnlab.simulate(longer, progress=False)["attention_logits"].isel(time=-1)
    z = attnlab.predict(longer, theory="sgd")["attention_logits"].isel(time=-1)
    assert float(abs(z - trained).max() / abs(trained).max()) < 0.02


def test_assumptions_come_with_their_values():
    predicted = attnlab.predict(SIMULATIONS["rates"], theory="corrected")
    says = "eta_Y >> eta_Z: their ratio"
    ratio = predicted.sel(assumption=says)
    np.testing.assert_allclose(ratio["assumption_value"], np.outer([0.5, 1.0], [10, 5, 10 / 3]))
    assert not ratio["assumption_holds"].any() and (ratio["assumption_bound"] == 30).all()
    fine = attnlab.predict(SIMULATIONS["flow"], theory="corrected")
    assert fine["assumption_holds"].values.mean() > 0.8
    random = attnlab.predict(WEAK, **POPULATION, init="uniform", theory="corrected")
    start = random.sel(assumption="Y(0) = 0: its entries")
    assert not bool(start["assumption_holds"]) and float(start["assumption_value"]) > 0


def test_words_select():
    predicted = attnlab.predict(SIMULATIONS["words"])
    measured = attnlab.simulate(SIMULATIONS["words"], progress=False)
    for result in (predicted, measured):
        ball = result["attention"].sel(token="ball", sequence_class=0)
        assert float(ball.isel(step=0, seed=0)) == pytest.approx(0.5)
        assert result["query_name"].values.tolist() == ["won", "won"]
        assert result["token_id"].sel(token="cup") == 2


def test_runs_that_the_theory_does_not_cover_are_refused():
    by_group = {"decoder": Optimizer(momentum=0.5), "attention": Optimizer(momentum=0.0)}
    for settings, name in (
        ({"model": Extended(residual=True)}, "model"),
        ({"exact": False}, "model"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"optimizer": by_group}, "optimizer"),
        ({"clip": 1.0}, "clip"),
        ({"eta_z": Piecewise([0, 3], [1.0, 2.0])}, "eta_z"),
        ({"theory": "corected"}, "theory"),
        ({"at": [3.5]}, "at"),
    ):
        with pytest.raises(InputError, match=f"^{name}"):
            attnlab.predict(syn_small(), **POPULATION, **settings)
    with pytest.raises(InputError, match="^weight_decay"):
        attnlab.predict(syn_small(), time=5.0, flow_weight_decay=0.1)
    with pytest.raises(InputError, match="^task: expected sequence classes, got MarkovChains"):
        attnlab.predict(MarkovChains(), model=Transformer(), learning_rate=0.1, theory="sgd")
    alone = SequenceClasses([[1.0, 0.0, 0.0]], [1], [2])
    with pytest.raises(InputError, match="^classes"):
        attnlab.predict(alone, **POPULATION)


def test_a_class_of_yours_is_a_theory():
    class Still(ClassTheory):
        name = "still"

        def assumptions(self, case):
            return ()

        def predict(self, case, t):
            z = np.zeros((t.size, case.classes.queries.size, case.P.shape[1]))
            return {"attention_logits": (("time", "query", "token"), z)}

    predicted = attnlab.predict(SIMULATIONS["rates"], theory=Still())
    assert predicted.attrs["theory"] == "still" and predicted.sizes["assumption"] == 0
    np.testing.assert_allclose(
        predicted["attention"].isel(eta_y=0, eta_z=0, seed=0, step=-1), WEAK.probs
    )
    assert isinstance(Corrected(), Theory)


class Own(ClassTheory):
    """A theory whose answer is changed in one way."""

    name = "own"
    times = ("t0",)

    def __init__(self, change, assumed=()):
        self.change, self.assumed = change, assumed

    def assumptions(self, case):
        return self.assumed

    def predict(self, case, t):
        z = np.zeros((t.size, case.classes.queries.size, case.P.shape[1]))
        return self.change(case, t, {"attention_logits": (("time", "query", "token"), z)})


def with_value(at, value):
    def change(case, t, said):
        said["attention_logits"][1][at] = value
        return said

    return change


def with_variable(name, dims, values):
    return lambda case, t, said: {**said, name: (dims, values(case, t))}


LOGITS = ("time", "query", "token")
SHARES = ("time", "sequence_class", "token")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda case, t, said: {}, "predict: attention_logits is missing; it returned nothing"),
        (lambda case, t, said: None, "predict: expected a mapping .* got NoneType"),
        (with_value(1, np.nan), "attention_logits: not finite from time 1 on; give finite"),
        (with_value((2, 0, 0), np.inf), "attention_logits: not finite from time 2 on; give finite"),
        (
            with_variable("attention_logits", LOGITS, lambda case, t: np.zeros((2, 2))),
            r"attention_logits: expected the shape \(time: 6, query: 2, token: 30\), got \(2, 2\)",
        ),
        (
            with_variable("attention_logits", LOGITS[::-1], lambda case, t: np.zeros((30, 2, 6))),
            r"attention_logits: expected dims \('time', 'query', 'token'\), got",
        ),
        (
            with_variable("attention_logits", LOGITS, lambda case, t: np.zeros((6, 2, 30)) * 1j),
            "attention_logits: expected real numbers, got dtype complex128",
        ),
        (
            lambda case, t, said: {"attention_logits": said["attention_logits"][1]},
            r"attention_logits: expected \(dims, values\), got ndarray",
        ),
        (
            with_variable("attention", SHARES, lambda case, t: np.full((6, 2, 30), 1.0)),
            "attention: expected probabilities that sum to 1 over tokens",
        ),
        (with_variable("entropy", ("time",), lambda case, t: t), "entropy: the name is taken"),
        (
            with_variable("x", ("time", "seed"), lambda case, t: t[:, None]),
            "x: expected dims among",
        ),
        (with_variable("x", ("token",), lambda case, t: t), r"x: expected the shape \(token: 30\)"),
        (
            with_variable("blow_up_time", ("time",), lambda case, t: t),
            "blow_up_time: expected dims",
        ),
        (with_variable("t0", (), lambda case, t: -1.0), "t0: expected times of at least 0, got -1"),
        (with_variable("x\x1b", (), lambda case, t: 1.0), r"'x\\x1b': expected a name of letters"),
        (with_variable("x", None, lambda case, t: 1.0), r"x: expected \(dims, values\), got tuple"),
    ],
)
def test_a_malformed_answer_is_refused_in_words(change, words):
    with pytest.raises(InputError, match=f"^theory 'own': {words}"):
        attnlab.predict(syn_small(), **POPULATION, momentum=0.0, theory=Own(change))


def test_an_answer_that_depends_on_the_rates_in_shape_is_refused():
    def change(case, t, said):
        return said if case.eta_y == 1 else {**said, "x": ((), 1.0)}

    with pytest.raises(InputError, match="'own': answers differ between learning rates"):
        attnlab.predict(syn_small(), **POPULATION, eta_y=[1.0, 2.0], theory=Own(change))


def test_after_a_blow_up_a_theory_may_say_nothing():
    def change(case, t, said):
        return {**with_value(t >= 3, np.nan)(case, t, said), "blow_up_time": ((), 2.5)}

    predicted = attnlab.predict(syn_small(), **POPULATION, momentum=0.0, theory=Own(change))
    assert np.isfinite(predicted["attention"].sel(step=slice(0, 2))).all()


def test_other_faults_of_a_theory():
    def raises(case, t, said):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):  # its author wants the traceback
        attnlab.predict(syn_small(), **POPULATION, theory=Own(raises))
    for assumed in (None, ("t << t_0",)):
        own = Own(lambda case, t, said: said, assumed)
        with pytest.raises(InputError, match="'own': assumptions: expected a tuple of Hypothesis"):
            attnlab.predict(syn_small(), **POPULATION, theory=own)
        with pytest.raises(InputError, match="'own': assumptions: expected a tuple of Hypothesis"):
            attnlab.audit(syn_small(), time=5.0, theories=(own,))
    for wrong in (Own, 3, ["sgd"]):
        with pytest.raises(InputError, match="^theory: expected a name or a Theory object"):
            attnlab.predict(syn_small(), **POPULATION, theory=wrong)
    own = Own(lambda case, t, said: said)
    own.name = None
    with pytest.raises(InputError, match="^theory: Own has no name"):
        attnlab.predict(syn_small(), **POPULATION, theory=own)


def test_a_theory_that_cannot_be_imported_takes_no_other_down(tmp_path, monkeypatch):
    folder = tmp_path / "broken_theory"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "predict.py").write_text("import nothing_of_this_name\n")
    lines = {
        "name": "broken_theory",
        "title": "t",
        "short": "s",
        "authors": "a",
        "year": 2026,
        "question": "q",
        "reading": "printed text",
        "attnlab": ">=0.1",
        "theories": {"broken": "predict:Broken"},
    }
    (folder / "paper.yaml").write_text(json.dumps(lines))
    monkeypatch.setenv("ATTNLAB_PAPERS", str(folder))
    run = as_simulation(syn_small(), **POPULATION)
    with pytest.warns(UserWarning, match="theory 'broken' is left out: .*nothing_of_this_name"):
        found = [theory.name for theory in theories_about(run)]
    assert found == ["printed", "corrected", "sgd"]
