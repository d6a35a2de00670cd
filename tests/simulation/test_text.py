"""Runs on text: what they measure, and what is peculiar to them among runs."""

import json
import re
from dataclasses import replace
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quickly import quickly
from small_text import counting_corpus, counting_run, read_corpus, write_text

from attnlab import Diverged, Interrupted, MarkovChains, Optimizer, Simulation, simulate
from attnlab.files.checkpoint import read_checkpoint, write_checkpoint
from attnlab.files.errors import InputError
from attnlab.files.netcdf import DamagedFile
from attnlab.models import text_transformer
from attnlab.simulation import text_run
from attnlab.simulation.groups import Stepping
from attnlab.simulation.text import TOP, weight_statistics
from attnlab.simulation.text import head_statistics as eager_statistics
from attnlab.simulation.trainer import CHECKPOINT, RESULT
from attnlab.tasks.text import Source, Text
from attnlab.tasks.text.task import cut_streams, window, window_count

RUN = counting_run()
head_statistics = quickly(eager_statistics)


def maps_of(rng, *shape):
    """Return random causal attention weights (..., query, key)."""
    length = shape[-1]
    weights = rng.gamma(0.5, size=shape) * np.tril(np.ones((length, length)))
    return weights / weights.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def result():
    return simulate(RUN, progress=False)


@pytest.mark.slow
def test_it_learns_and_its_result_is_labelled(result):
    assert dict(result.sizes) == {
        "learning_rate": 2,
        "seed": 2,
        "step": 4,
        "layer": 1,
        "head": 2,
        "probe": 2,
        "query": 8,
        "key": 8,
        "k": 2,
    }
    assert result.validation_loss.isel(step=0).values == pytest.approx(np.log(18), abs=0.2)
    assert (result.validation_loss.isel(step=-1) < 0.5).all()
    assert (result.train_loss.isel(step=-1) < result.train_loss.isel(step=1)).all()
    assert np.isnan(result.train_loss.isel(step=0)).all()
    np.testing.assert_allclose(result.perplexity, np.exp(result.validation_loss))
    np.testing.assert_allclose(result.attention.sum("key"), 1, rtol=1e-5)
    assert (result.attention.where(result.key > result["query"], 0) == 0).all()
    assert "diverged_step" not in result
    assert result.probe_word.values[0, 0] == f"w{result.probe_token.values[0, 0] - 1}"
    spec = json.loads(result.attrs["spec"])
    assert spec["task"]["corpus"]["digest"] == "counting"
    assert spec["model"]["dim"] == 16
    slow, fast = (result.validation_loss.isel(learning_rate=i, step=-1) for i in (0, 1))
    assert (slow != fast).all()


def parameters(run):
    """Return the parameters at the last step of a run of one learning rate and seed, by group."""
    last = run.record_steps[-1]
    found = simulate(run, what="parameters", at=(last,), progress=False)
    groups: dict = {}
    for name, values in found.data_vars.items():
        if str(name).startswith("parameters."):
            *path, array = str(name).split(".")[1:]
            inner = reduce(lambda group, word: group.setdefault(word, {}), path, groups)
            inner[array] = values.values[0, 0]
    return groups


def test_losses_and_masses_are_those_of_the_model(result):
    """At the start, from the parameters that a seed gives."""
    run = counting_run(learning_rate=0.5, seeds=(1,))
    params = parameters(replace(run, record=replace(run.record, every=None, at=(0.0,))))
    corpus, T, frequent_words = counting_corpus(), 8, run.task.frequent_words()
    held = cut_streams(corpus.validation, 10, T, "validation")
    losses, masses, even = [], [], []
    for index in range(2):
        tokens, targets = window(jnp.asarray(held), index, T)
        logits, captured = run.model.apply(params, tokens)
        losses.append(optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean())
        frequent = frequent_words[np.asarray(tokens)]  # sequence, key
        maps = np.asarray(captured["attention"])[0]  # sequence, head, query, key
        masses.append((maps * frequent[:, None, None]).sum(-1).mean((0, 2)))
        even.append([row[: t + 1].mean() for row in frequent for t in range(T)])
    found = result.sel(learning_rate=0.5, seed=1, step=0)
    assert float(np.mean(losses)) == pytest.approx(float(found.validation_loss), rel=1e-5)
    np.testing.assert_allclose(found.frequent_mass.isel(layer=0), np.mean(masses, 0), rtol=1e-5)
    assert float(result.frequent_share) == pytest.approx(np.mean(even), rel=1e-5)


@pytest.mark.slow
def test_moments_are_reset_after_each_pass():
    """With passes of 5 steps, steps 6 and 7 are the first two of a run from where 5 had led."""
    corpus = counting_corpus()
    corpus = replace(corpus, train=corpus.train[: 4 * (5 * 8 + 1)], digest="short")
    whole = text_run(
        corpus,
        length=8,
        heads=2,
        dim=16,
        mlp=16,
        batch_size=4,
        steps=7,
        seeds=(3,),
        dropout=0.0,
        learning_rate=0.01,
        optimizer="adam",
        reset_moments=True,
        validation_tokens=160,
    )
    assert whole.learner.pass_steps(whole) == 5
    five = parameters(replace(whole, motion=replace(whole.motion, steps=5)))
    two = replace(whole, motion=replace(whole.motion, steps=2), init=five)
    kept = replace(whole, motion=replace(whole.motion, reset_moments=False))
    found, by_hand, others = (parameters(run) for run in (whole, two, kept))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), found, by_hand)
    assert np.abs(found["decoder"]["weights"] - others["decoder"]["weights"]).max() > 1e-4


def test_frequent_words_are_half_of_the_text():
    corpus = counting_corpus()
    ids = np.repeat([5, 2, 9, 1], [400, 300, 200, 100]).astype(np.int32)
    frequent = Text(replace(corpus, train=ids)).frequent_words()
    assert np.flatnonzero(frequent).tolist() == [2, 5]  # 40 % are not yet half
    assert 8 <= Text(corpus).frequent_words().sum() <= 9  # of 17 that are as frequent


def test_streams_are_contiguous_and_begin_again():
    streams = cut_streams(np.arange(103, dtype=np.int32), 4, 8, "training")
    assert streams.shape == (4, 25)
    assert window_count(streams, 8) == 3
    windows = [window(jnp.asarray(streams), index, 8) for index in range(4)]
    for tokens, targets in windows:
        np.testing.assert_array_equal(targets, tokens + 1)
    np.testing.assert_array_equal(windows[1][0][:, 0], windows[0][1][:, -1])
    np.testing.assert_array_equal(windows[3][0], windows[0][0])


def test_a_diverged_run_does_not_stop_the_others(result):
    with pytest.raises(Diverged) as problem:
        simulate(RUN, learning_rate=[0.5, 1e38], progress=False)
    both = problem.value.dataset
    fine, lost = both.sel(learning_rate=0.5), both.sel(learning_rate=1e38)
    np.testing.assert_array_equal(
        fine.validation_loss, result.validation_loss.sel(learning_rate=0.5)
    )
    assert (fine.diverged_step == -1).all()
    assert ((lost.diverged_step >= 1) & (lost.diverged_step < 20)).all()
    assert np.isfinite(lost.validation_loss.isel(step=0)).all()
    assert np.isnan(lost.validation_loss.isel(step=slice(1, None))).all()
    assert np.isnan(lost.snap_step).all()


@pytest.mark.parametrize("reached", [1, 21])
def test_a_stopped_run_keeps_its_records_and_goes_on(
    result, tmp_path, keyboard, monkeypatch, reached
):
    real, pressed = Stepping.advance, []

    def advance(group, target):
        arrived = real(group, target)
        if group.step >= reached and not pressed:
            pressed.append(True)
            keyboard.press()
        return arrived

    with monkeypatch.context() as patched:
        patched.setattr(Stepping, "advance", advance)
        with pytest.raises(Interrupted, match="of 60; the same settings go on") as stopped:
            simulate(RUN, out=tmp_path / "run", progress=False)
    kept = stopped.value.dataset
    assert ("attention_speed" in kept) is (kept.sizes["step"] > 1)
    went_on = simulate(RUN, out=tmp_path / "run", progress=False)
    for name in result.variables:
        np.testing.assert_array_equal(went_on[name], result[name], err_msg=str(name))


@pytest.mark.slow
def test_a_damaged_checkpoint_or_one_of_another_version_is_refused(tmp_path):
    out = tmp_path / "run"
    run = counting_run(steps=20, learning_rate=0.5, seeds=1)
    simulate(run, out=out, progress=False)
    (out / RESULT).unlink()
    path = out / CHECKPOINT
    whole, content = read_checkpoint(path), path.read_bytes()
    name = "0/state/.params['embedding']['tokens']"
    rest = {other: whole.arrays[other] for other in whole.arrays if other != name}
    longer = {**rest, name: whole.arrays[name][..., None]}
    for arrays, found in ((rest, "missing"), (longer, "of shape")):
        write_checkpoint(path, replace(whole, arrays=arrays))
        with pytest.raises(InputError, match=re.escape(f"{name[2:]} is {found}")):
            simulate(run, out=out, progress=False)
    older = {**whole.spec, "numbers": 0}
    write_checkpoint(path, replace(whole, spec=older))
    with pytest.raises(InputError, match=r"another run \(numbers: 0 there, 1 here\)"):
        simulate(run, out=out, progress=False)
    for damaged in (content[:-10], content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile, match="checkpoint.safetensors: damaged"):
            simulate(run, out=out, progress=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 400}, "corpus: the training part has 3,000 tokens, fewer than one batch"),
        ({"steps": 0}, "steps: expected a whole number of at least 1"),
        ({"learning_rate": [1, -1]}, "learning_rate: expected numbers of at least 0"),
        ({"seeds": 0}, "seeds: expected at least 1"),
        ({"probes": 1000}, "probes: 1000 x 8 tokens are more"),
        ({"precision": "low"}, "precision: expected one of"),
        ({"clip": 0}, "clip: expected a positive"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"validation_tokens": -1}, "validation_tokens: expected a whole number of at least 1"),
        ({"length": 1}, "length: expected a whole number of at least 2"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        simulate(counting_run(**settings), progress=False)


# -- the value ------------------------------------------------------------------------------------


def test_runs_are_equal_by_the_content_of_their_text(tmp_path):
    run = text_run("builtin", learning_rate=[1, 2], seeds=2, optimizer="sgd")
    same = text_run(Source("builtin"), learning_rate=(1.0, 2.0), seeds=(0, 1), clip=0.5)
    assert run == same and hash(run) == hash(same)
    assert run != text_run("builtin", learning_rate=[1, 2], seeds=2, steps=3)
    assert set(run.optimizers.values()) == {Optimizer(momentum=0.0)}
    assert counting_run() == RUN
    corpus = read_corpus(tmp_path)
    assert text_run(corpus).task.text is corpus
    assert text_run(corpus) == text_run(str(write_text(tmp_path)))


def test_a_document_gives_the_run_back():
    run = text_run(
        Source("builtin", vocab_size=300),
        learning_rate=(1, 2),
        seeds=(4, 2),
        beta_2=0.9,
        optimizer="adam",
        precision="default",
        every="doubling",
        reset_moments=True,
    )
    assert Simulation.from_document(run.to_document()) == run
    with pytest.raises(InputError, match="model.layrs: unknown key; did you mean 'layers'"):
        Simulation.from_document(
            {"task": {"name": "text"}, "model": {"name": "transformer", "layrs": 2}}
        )
    with pytest.raises(InputError, match="counting was made in memory"):
        RUN.to_document()


def test_a_result_carries_its_run(tmp_path):
    run = text_run(
        read_corpus(tmp_path),
        length=8,
        heads=2,
        dim=16,
        mlp=16,
        learning_rate=0.5,
        steps=4,
        every=2,
        batch_size=4,
        validation_tokens=160,
    )
    result = simulate(run, progress=False)
    assert "learning_rate" not in result.dims
    assert Simulation.of(result) == run
    (tmp_path / "text.txt").write_text("other words " * 500)
    with pytest.raises(InputError, match="is another text than it was"):
        assert Simulation.of(result).task.text


# -- statistics -----------------------------------------------------------------------------------


def test_statistics_are_means_over_queries():
    maps = maps_of(np.random.default_rng(0), 2, 3, 2, 7, 7)  # layer, sequence, head, query, key
    found = {name: np.asarray(value) for name, value in head_statistics(jnp.asarray(maps)).items()}
    for layer in range(2):
        for head in range(2):
            rows = [maps[layer, b, head, t, : t + 1] for b in range(3) for t in range(7)]
            entropies = np.array([-(row[row > 0] * np.log(row[row > 0])).sum() for row in rows])
            seen = np.array([len(row) for row in rows])
            several = seen > 1
            assert found["entropy"][layer, head] == pytest.approx(entropies.mean(), rel=1e-5)
            relative = (entropies[several] / np.log(seen[several])).mean()
            assert found["relative_entropy"][layer, head] == pytest.approx(relative, rel=1e-5)
            tokens = np.exp(entropies).mean()
            assert found["effective_tokens"][layer, head] == pytest.approx(tokens, rel=1e-5)
            for i, k in enumerate(TOP):
                mass = np.mean([np.sort(row)[::-1][:k].sum() for row in rows])
                assert found["top_mass"][layer, head, i] == pytest.approx(mass, rel=1e-5)


def test_certainty_and_indifference():
    certain = jnp.eye(6)[None, None, None]
    even = jnp.asarray(np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None])[None, None, None]
    assert float(head_statistics(certain)["entropy"].item()) == 0
    assert float(head_statistics(certain)["top_mass"][0, 0, 0]) == 1
    assert float(head_statistics(even)["relative_entropy"].item()) == pytest.approx(1)
    assert float(head_statistics(even)["effective_tokens"].item()) == pytest.approx(3.5)


def test_stable_ranks_of_a_model_are_of_its_matrices_head_by_head():
    model = text_transformer(layers=2, heads=2, dim=8, mlp=6)
    params = model.init(jax.random.key(0), MarkovChains(5, 8), {})
    found = quickly(weight_statistics, static_argnums=1)(params, 2)
    assert found["mlp_stable_rank"].shape == (2,)
    assert found["qk_stable_rank"].shape == (2, 2)

    def rank(matrix):
        return (matrix**2).sum() / np.linalg.norm(matrix, 2) ** 2

    for layer in range(2):
        up = np.asarray(params["mlp"]["up"][layer], np.float64)
        qkv = np.asarray(params["attention"]["qkv"][layer], np.float64)
        assert float(found["mlp_stable_rank"][layer]) == pytest.approx(rank(up), rel=1e-4)
        for head in range(2):
            own = slice(4 * head, 4 * head + 4)
            q, k = qkv[:, :8][:, own], qkv[:, 8:16][:, own]
            assert float(found["qk_stable_rank"][layer, head]) == pytest.approx(
                rank(q @ k.T), rel=1e-4
            )
