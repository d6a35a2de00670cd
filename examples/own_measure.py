"""A measure of your own, the margin of attention, on results and recorded during a training."""

from dataclasses import dataclass

import xarray as xr

import attnlab
from attnlab.measures import maps


def margin(weights):
    """Return the weight of the strongest key minus that of the second, for each row."""
    top = maps.top_mass(weights, (1, 2))  # mass of the strongest key, and of the two strongest
    return 2 * top[..., 0] - top[..., 1]


# on any result: training, a prediction, a loaded file
classes = "recipes/classes-two-words.yaml"
run = attnlab.Simulation(classes, motion=attnlab.Flow(1e4), eta_y=10.0, eta_z=1.0)
results = {"training": attnlab.simulate(run), "theory": attnlab.predict(run, theory="sgd")}
for name, result in results.items():
    margins = xr.apply_ufunc(margin, result["attention"], input_core_dims=[["token"]])
    start, end = margins.isel(seed=0, sequence_class=0, time=[0, -1]).values
    print(f"{name}: {start:.2f} at the start, {end:.2f} at the end")


# recorded while a transformer trains
@dataclass(frozen=True)
class Measured(attnlab.Transformer):
    """A Transformer that also records the margin."""

    @property
    def dims(self):
        return {**super().dims, "margin": ("layer", "head")}

    def apply(self, params, inputs, *, key=None):
        outputs, captured = super().apply(params, inputs, key=key)
        rows = margin(captured["attention"])  # layer, sequence, head, query
        return outputs, {**captured, "margin": rows[..., 1:].mean((1, 3))}  # query 0 sees one key


chains = attnlab.Simulation(
    attnlab.MarkovChains(length=16),
    Measured(layers=2, dim=8),
    motion=attnlab.Steps(100, optimizer="adam"),
    gradient=attnlab.Batches(32),
    learning_rate=0.01,
    record=attnlab.Record(every=50, what=("margin", "loss")),
)
trained = attnlab.simulate(chains)
for layer in trained["layer"].values:
    values = trained["margin"].isel(seed=0, layer=layer, head=0).values
    print(f"layer {layer}:", *(f"{value:.2f}" for value in values))
