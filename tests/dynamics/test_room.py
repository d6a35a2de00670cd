"""What does not fit is refused before it is allocated."""

import pytest

from attnlab import Embedded, Extended, Flow, Limit, Sampled, Save, simulate
from attnlab.data import SequenceClasses, from_preset, zipf

MANY = 10**12


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": Embedded(10**9)}, "dim"),
        ({"model": Embedded(10**30)}, "dim"),
        ({"model": Extended(heads=MANY), "save": Save("loss")}, "heads"),
        ({"engine": Sampled(128, MANY)}, "batch_size"),
        ({"engine": Sampled(128, 128, MANY)}, "sequences"),
        ({"engine": Sampled(2**31 - 1, 10**6), "model": Extended(position="learned")}, "length"),
        ({"engine": Limit(MANY)}, "batch_size"),
        ({"seeds": 10**11}, "seeds"),
        ({"seeds": 10**40}, "seeds"),
        ({"eta_y": [1.0] * 10**5, "eta_z": [1.0] * 10**6}, "eta_y, eta_z"),
        ({"steps": 2**31 - 1, "seeds": 1000, "save": Save(every=1)}, "every"),
        ({"engine": Flow(), "steps": 1e30, "save": Save(every=1)}, "every"),
        ({"save": Save(geometric=10**15)}, "geometric"),
        ({"classes": SequenceClasses([{0: 1.0}], query=[1], next_token=[2], vocab_size=10**6),
          "seeds": 10**5}, "save"),
        ({"classes": [zipf(2 * 10**5, 2000, queries=2000)] * 100, "save": Save("loss")}, "classes"),
    ],
)  # fmt: skip
def test_a_run_that_does_not_fit_names_what_asks_for_it(change, field):
    given = {"classes": "syn-small", "eta_y": 1.0, "eta_z": 1.0, "steps": 10, **change}
    with pytest.raises(ValueError, match=f"^{field}: would need .*; this machine has .*B"):
        simulate(given.pop("classes"), **given)


@pytest.mark.parametrize("steps", [1e400, float("nan"), 1e30, "many"])
def test_steps_that_cannot_be_counted_are_refused(steps):
    with pytest.raises(ValueError, match="^steps: expected"):
        simulate("syn-small", eta_y=1.0, eta_z=1.0, steps=steps)


def test_times_and_rates_beyond_the_numbers_are_refused():
    with pytest.raises(ValueError, match="^steps: expected a positive time, finite in float32"):
        simulate("syn-small", Flow(), eta_y=1.0, eta_z=1.0, steps=1e39)
    with pytest.raises(ValueError, match="^eta_z: expected numbers .* finite in float32"):
        simulate("syn-small", eta_y=1.0, eta_z=1e39, steps=1)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (f"zipf:vocab={MANY},classes=10", "zipf: vocab"),
        (f"zipf:vocab=1000,classes={MANY}", "zipf: classes"),
        ("zipf:vocab=20000000,classes=1000000,common=10000", "zipf: classes, common"),
        (f"random:vocab={MANY},classes=2", "random: vocab"),
        ("random:vocab=3000000,classes=10000,overlap=1", "random: classes, vocab"),
        (f"family:common={MANY}", "family: common"),
        ("family:classes=1000000,distinct=100000", "family: classes"),
        ("syn-medium:num_last=100000,next_per_last=100000", "syn-medium: num_last, next_per_last"),
        (f"single-common:vocab_size={MANY}", "single-common: vocab_size"),
        (f"local-common:local={MANY}", "local-common: local"),
    ],
)
def test_classes_that_do_not_fit_are_refused(text, field):
    with pytest.raises(ValueError, match=f"^{field}: would need .*; this machine has "):
        from_preset(text)
