"""Tasks by their laws; models against PyTorch; the learner against both."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import Batches, Record, Simulation, Steps, simulate
from attnlab.files.errors import InputError
from attnlab.papers.causal_structure import runs, theory
from attnlab.papers.causal_structure.model import Disentangled, Reduced
from attnlab.papers.causal_structure.task import Forest, TwoParents

KEY = jax.random.key(0)
HALF = Forest(graph="half", length=8, stickiness=0.3)


@cache
def drawn(task, size):
    @jax.jit
    def draw():
        data = task.draw(KEY)
        batch = task.batch(data, KEY, 0, size)
        return data, batch, task.references(data, batch)

    return draw()


@pytest.mark.parametrize("graph", ["chain", "pairs", "random", "half"])
def test_graphs_are_forests(graph):
    parents = np.asarray(Forest(graph=graph, length=20).draw(KEY)["parents"])
    assert parents.shape == (19,) and (parents < np.arange(19)).all() and (parents >= -1).all()
    if graph == "chain":
        assert parents.tolist() == [*range(-1, 18)]
    if graph == "pairs":
        assert parents[:4].tolist() == [-1, 0, -1, 2]


def test_a_sequence_follows_its_chain():
    """Pairs of parent and child have the joint law of the theory, pairs of others do not."""
    data, batch, _ = drawn(HALF, 20000)
    parents, tokens = np.asarray(data["parents"]), np.asarray(batch.inputs)
    pi = theory.sample_chains(3, 1.0, 20000, stickiness=0.3)
    wanted = theory.joint_law(pi, 0, 1).mean(0)
    for child in np.flatnonzero(parents >= 0):
        joint = np.zeros((3, 3))
        np.add.at(joint, (tokens[:, parents[child]], tokens[:, child]), 1 / len(tokens))
        np.testing.assert_allclose(joint, wanted, atol=0.015)
    joint = np.zeros((3, 3))
    np.add.at(joint, (tokens[:, 0], tokens[:, -1]), 1 / len(tokens))
    np.testing.assert_allclose(joint, 1 / 9, atol=0.015)  # the test token is uniform
    np.testing.assert_allclose(np.asarray(batch.target).mean(0), 1 / 3, atol=0.01)


def test_references_are_the_theorys():
    data, batch, _ = drawn(HALF, 20000)
    logs = replace(HALF, concentration=0.5).references(data, batch)
    of = theory.Sample(np.asarray(batch.inputs), np.asarray(batch.target))
    for name, released in (("counts", False), ("released", True)):
        law = theory.count_predictor(of, data["parents"], 0.5, released=released)
        np.testing.assert_allclose(np.exp(logs[name]), law, rtol=1e-5)


def test_two_parents():
    task = TwoParents(3, 8, 1.0)
    assert task.parents.tolist() == [[0, 0], [0, 1], [1, 2], [1, 3], [2, 4], [2, 5], [3, 6], [3, 7]]
    _, batch, logs = drawn(task, 500)
    assert batch.inputs.shape == (500, 8)
    losses = {name: -(batch.target * of).sum(-1).mean() for name, of in logs.items()}
    assert losses["counts"] < np.log(3)
    first = np.asarray(batch.inputs)[0]
    n = sum(
        np.eye(3)[first[i + 1]]
        for i in range(7)
        if (first[task.parents[i]] == first[task.parents[-1]]).all()
    )
    np.testing.assert_allclose(np.exp(logs["counts"][0]), (n + 1) / (np.sum(n) + 3), rtol=1e-5)


def random_params(model, task):
    start = model.init(KEY, task, {})
    keys = jax.random.split(KEY, len(start))
    return {
        name: jax.random.normal(key, of.shape)
        for key, (name, of) in zip(keys, start.items(), strict=True)
    }


def test_the_full_model_is_its_torch_twin():
    torch = pytest.importorskip("torch")
    task, model = Forest(length=6), Disentangled(heads=(2, 1))
    _, batch, _ = drawn(task, 5)
    params = random_params(model, task)
    outputs, seen = jax.jit(model.apply)(params, batch.inputs)
    A1, A2, W = (torch.tensor(np.asarray(params[name])) for name in ("first", "second", "output"))
    tokens = torch.tensor(np.asarray(batch.inputs)).long()
    position = torch.eye(6).expand(5, 6, 6)
    h = torch.cat([torch.nn.functional.one_hot(tokens, 3).float(), position], -1)
    mask = torch.ones(6, 6).triu(1).bool()
    maps = []
    for A in (A1, A2):
        read = [h]
        for head in A:
            scores = (h @ head @ h.transpose(1, 2)).masked_fill(mask, float("-inf"))
            maps.append(scores.softmax(-1))
            read.append(maps[-1] @ h)
        h = torch.cat(read, -1)
    assert h.shape[-1] == 9 * 3 * 2
    np.testing.assert_allclose(outputs, (h @ W)[:, -1].numpy(), atol=1e-4)
    for head in range(2):
        np.testing.assert_allclose(seen["first_attention"][head], maps[head].mean(0), atol=1e-5)


def test_the_reduced_model_is_its_torch_twin():
    torch = pytest.importorskip("torch")
    task, model = Forest(length=6), Reduced(eps=0.1)
    _, batch, _ = drawn(task, 5)
    params = random_params(model, task)
    A1, A2 = (torch.tensor(np.asarray(params[name]), requires_grad=True) for name in params)
    e = torch.nn.functional.one_hot(torch.tensor(np.asarray(batch.inputs)).long(), 3).float()
    first = A1.masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf")).softmax(-1)
    z = first @ e
    a = torch.einsum("bs,sr,bir->bi", e[:, -1], A2, z).softmax(-1)
    f = torch.einsum("bi,bis->bs", a, e)
    loss = -(torch.tensor(np.asarray(batch.target)) * torch.log((f + 0.1) / 1.3)).sum(-1).mean()
    loss.backward()
    loss_and_grad = jax.value_and_grad(lambda of: model.loss(of, batch, "cross_entropy"))
    value, gradient = jax.jit(loss_and_grad)(params)
    assert float(value) == pytest.approx(loss.item(), rel=1e-5)
    for name, twin in (("first", A1), ("second", A2)):
        np.testing.assert_allclose(gradient[name], twin.grad.numpy(), atol=1e-6)


def test_the_full_model_moves_its_output_first():
    task, model = Forest(length=6), Disentangled()
    _, batch, _ = drawn(task, 5)
    start = model.init(KEY, task, {})
    gradient = jax.jit(jax.grad(lambda of: model.loss(of, batch, "cross_entropy")))(start)
    assert not jnp.any(gradient["first"]) and not jnp.any(gradient["second"])
    assert jnp.abs(gradient["output"]).max() > 1e-3


def test_stage_one_finds_the_tree_and_stage_two_leaves_it():
    run = runs.stages(Forest(graph="random", length=6), steps=20, second=10, seeds=2, batch=256)
    found = simulate(run, progress=False)
    measured = runs.measured(found)
    assert (measured["recovery"].isel(step=-1) == 1).all()
    still = found["parameters.first"]
    np.testing.assert_array_equal(still.sel(step=20), still.sel(step=30))
    assert (measured["diagonal"].isel(step=-1) > 1).all()


def test_settings_are_checked():
    for wrong in (
        lambda: Forest(graph="ring"),
        lambda: Forest(stickiness=1.0),
        lambda: Forest(concentration=0),
        lambda: TwoParents(concentration=0),
        lambda: Reduced(eps=0),
        lambda: Disentangled(heads=(0, 1)),
        lambda: Disentangled(scale=-1),
    ):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="stage 1"):
        import attnlab

        other = Simulation(
            Forest(),
            Reduced(),
            motion=Steps(2),
            gradient=Batches(4),
            learning_rate=1.0,
            record=Record(("loss",)),
        )
        attnlab.predict(other, theory="causal-kernel")
