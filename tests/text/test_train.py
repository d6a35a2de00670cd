"""Training: it learns, it is reproducible, and one run's fate is not another's."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import attnlab
from attnlab.dynamics.optimizers import Optimizer
from attnlab.files.checkpoint import arrays_of, read_checkpoint, tree_of, write_checkpoint
from attnlab.files.errors import InputError
from attnlab.files.folders import LIST
from attnlab.files.netcdf import DamagedFile
from attnlab.text import Corpus, Training, TransformerSpec, program, train
from attnlab.text.cohort import Cohort, frequent_words
from attnlab.text.model import forward
from attnlab.text.streams import cut_streams, window, window_count
from attnlab.text.train import CHECKPOINT, RESULT

SPEC = TransformerSpec(layers=1, heads=2, dim=16, feed_forward=16, context=8)
RULE = Optimizer()
SETTINGS = {
    "batch": 4, "steps": 60, "measure_every": 20, "validation_tokens": 160,
    "progress": False,
}  # fmt: skip


def counting_corpus():
    """A text in which every token follows from the one before."""
    ids = 1 + (np.arange(4000) * 3 % 17).astype(np.int32)
    vocabulary = ("<unk>", *(f"w{i}" for i in range(17)))
    return Corpus("counting", "word", vocabulary, ids[:3000], ids[3000:], "counting")


@pytest.fixture(scope="module")
def result():
    return train(counting_corpus(), SPEC, rates=[0.5, 2.0], seeds=2, **SETTINGS)


def test_it_learns_and_says_so_in_the_schema(result):
    assert dict(result.sizes) == {
        "rate": 2, "seed": 2, "step": 4, "layer": 1, "head": 2, "probe": 2, "query": 8, "key": 8,
        "k": 2,
    }  # fmt: skip
    assert result.validation_loss.isel(step=0).values == pytest.approx(np.log(18), abs=0.2)
    assert (result.validation_loss.isel(step=-1) < 0.5).all()
    assert (result.train_loss.isel(step=-1) < result.train_loss.isel(step=1)).all()
    assert np.isnan(result.train_loss.isel(step=0)).all()
    np.testing.assert_allclose(result.perplexity, np.exp(result.validation_loss))
    np.testing.assert_allclose(result.attention.sum("key"), 1, rtol=1e-5)
    assert (result.attention.where(result.key > result["query"], 0) == 0).all()
    assert (result.diverged_step == -1).all()
    assert result.probe_word.values[0, 0] == f"w{result.probe_token.values[0, 0] - 1}"
    spec = json.loads(result.attrs["spec"])
    assert spec["corpus"]["digest"] == "counting"
    assert spec["model"]["dim"] == 16
    assert (result.isel(rate=0).validation_loss != result.isel(rate=1).validation_loss)[:, -1].all()


def test_what_is_measured_is_the_models_own_loss(result):
    """At the start, from the parameters that a seed gives."""
    from quickly import quickly  # not where `KILLED` imports this file

    corpus = counting_corpus()
    params = jax.tree.map(lambda leaf: np.asarray(leaf)[1], advanced(0).params)  # seed 1
    held = cut_streams(corpus.validation, 10, SPEC.context, "validation")
    losses, masses, even = [], [], []
    for index in range(2):
        tokens, targets = window(jnp.asarray(held), index, SPEC.context)
        logits, maps = quickly(forward, static_argnums=1)(params, SPEC, tokens)
        losses.append(optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean())
        frequent = frequent_words(corpus)[np.asarray(tokens)]  # sequence, key
        masses.append((np.asarray(maps)[0] * frequent[:, None, None]).sum(-1).mean((0, 2)))
        even.append([row[: t + 1].mean() for row in frequent for t in range(SPEC.context)])
    found = result.sel(rate=0.5, seed=1, step=0)
    assert float(np.mean(losses)) == pytest.approx(float(found.validation_loss), rel=1e-5)
    np.testing.assert_allclose(found.frequent_mass.isel(layer=0), np.mean(masses, 0), rtol=1e-5)
    assert float(result.frequent_share) == pytest.approx(np.mean(even), rel=1e-5)


RATES, SEEDS = jnp.asarray([0.5, 0.5, 2.0, 2.0]), jnp.asarray([0, 1, 0, 1], jnp.uint32)


def advanced(count, rule=RULE):
    """All runs in one vectorised program, as an accelerator takes them."""
    streams = jnp.asarray(cut_streams(counting_corpus().train, 4, SPEC.context, "training"))
    state = program.begin(SPEC, rule, 18, RATES, SEEDS)
    return program.advance(
        SPEC, rule, 0.5, None, state, RATES, SEEDS, streams, np.int32(0), np.int32(count)
    )


def test_runs_together_are_runs_alone(result):
    alone = result.train_loss.isel(step=1).values.ravel()
    np.testing.assert_allclose(np.asarray(advanced(20).loss_sum) / 20, alone, rtol=1e-4)


def test_a_step_is_rate_times_a_clipped_gradient():
    moved = jax.tree.map(lambda a, b: np.asarray(a - b), advanced(1).params, advanced(0).params)
    norms = np.sqrt(sum((leaf**2).reshape(4, -1).sum(1) for leaf in jax.tree.leaves(moved)))
    np.testing.assert_allclose(norms, RATES * 0.5, rtol=1e-4)  # the first gradients are longer


def test_rows_of_the_words_read_are_the_whole_embedding():
    """Momentum, however small, makes the program pass over the whole table."""
    rows, whole = (advanced(2, rule).params for rule in (RULE, Optimizer(momentum=1e-30)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), rows, whole)
    unread = 0  # <unk>
    np.testing.assert_array_equal(
        rows["embedding"][:, unread], advanced(0).params["embedding"][:, unread]
    )


def test_moments_are_forgotten_after_each_pass():
    """Passes of 5 steps: after 7, the memory is that of 2 steps from where 5 had led."""
    corpus = counting_corpus()
    corpus = replace(corpus, train=corpus.train[: 4 * (5 * SPEC.context + 1)], digest="short")
    plan = Training(
        corpus, SPEC, rates=(0.01,), seeds=(3,), steps=7, batch=4, optimizer="adam",
        reset_moments=True,
    )  # fmt: skip
    whole, parts, kept = (
        Cohort(of, corpus) for of in (plan, plan, replace(plan, reset_moments=False))
    )
    assert whole.pass_steps == 5
    whole.advance(7)
    for count in (3, 2, 1, 1):
        parts.advance(count)
    kept.advance(7)
    of_run = jnp.asarray([0.01]), jnp.asarray([3], jnp.uint32)
    rule, streams = plan.optimizer, whole.train

    def steps(state, first, count):
        return program.advance(
            SPEC, rule, plan.clip, None, state, *of_run, streams, np.int32(first), np.int32(count)
        )

    five = steps(program.begin(SPEC, rule, 18, *of_run), 0, 5)
    fresh = jax.vmap(rule.transform(0.01).init)(five.params)
    by_hand = arrays_of(steps(five._replace(memory=fresh), 5, 2))
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(array, by_hand[name], err_msg=name)
        np.testing.assert_array_equal(array, parts.arrays()[name], err_msg=name)
    assert np.abs(kept.arrays()[".params['decoder']"] - by_hand[".params['decoder']"]).max() > 1e-4


def test_frequent_words_are_half_of_the_text():
    corpus = counting_corpus()
    ids = np.repeat([5, 2, 9, 1], [400, 300, 200, 100]).astype(np.int32)
    frequent = frequent_words(replace(corpus, train=ids))
    assert np.flatnonzero(frequent).tolist() == [2, 5]  # 40 % are not yet half
    assert 8 <= frequent_words(corpus).sum() <= 9  # of 17 that are as frequent


def test_bfloat16_learns_the_same(result):
    low = train(
        counting_corpus(), SPEC, rates=[0.5, 2.0], seeds=2, precision="bfloat16", **SETTINGS
    )
    np.testing.assert_allclose(low.train_loss[..., 1], result.train_loss[..., 1], rtol=1e-2)
    assert (low.validation_loss.isel(step=-1) < 0.5).all()
    assert (low.validation_loss.isel(step=1) != result.validation_loss.isel(step=1)).all()


def test_ctrl_c_keeps_where_it_stands(result, tmp_path, keyboard):
    settings = {**SETTINGS, "rates": [0.5, 2.0], "seeds": 2}
    interrupted = {**settings, "progress": keyboard.press_after(0.1)}
    with pytest.raises(KeyboardInterrupt, match=r"stopped at step (\d+) of 60; the same settings"):
        train(counting_corpus(), SPEC, out=tmp_path / "run", **interrupted)
    assert 6 < read_checkpoint(tmp_path / "run" / CHECKPOINT).step < 60
    went_on = train(counting_corpus(), SPEC, out=tmp_path / "run", **settings)
    assert went_on.drop_attrs().equals(result.drop_attrs())
    with pytest.raises(KeyboardInterrupt, match="nothing is kept without a folder"):
        train(counting_corpus(), SPEC, **interrupted)


def test_a_damaged_result_is_made_again_from_the_checkpoint(result, tmp_path):
    settings = {**SETTINGS, "rates": [0.5, 2.0], "seeds": 2, "out": tmp_path / "run"}
    train(counting_corpus(), SPEC, **settings)
    (tmp_path / "run" / RESULT).write_bytes(b"cut")
    again = train(counting_corpus(), SPEC, **settings)
    assert again.drop_attrs().equals(result.drop_attrs())
    assert attnlab.load(tmp_path / "run" / RESULT).drop_attrs().equals(result.drop_attrs())


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
    both = train(counting_corpus(), SPEC, rates=[0.5, 1e38], seeds=2, **SETTINGS)
    fine, lost = both.sel(rate=0.5), both.sel(rate=1e38)
    np.testing.assert_array_equal(fine.validation_loss, result.validation_loss.sel(rate=0.5))
    assert (fine.diverged_step == -1).all()
    assert ((lost.diverged_step >= 1) & (lost.diverged_step < 20)).all()
    assert np.isfinite(lost.validation_loss.isel(step=0)).all()
    assert np.isnan(lost.validation_loss.isel(step=slice(1, None))).all()
    assert np.isnan(lost.snap_step).all()


# With no more installed than a bare accelerator machine has, and safetensors for checkpoints.
KILLED = """
import sys, time
for name in ("scipy.stats", "diffrax", "matplotlib", "h5netcdf", "h5py", "yaml", "typer", "rich",
             "jinja2", "torch", "tokenizers", "datasets"):
    sys.modules[name] = None
sys.path.insert(0, {tests!r})
from test_train import SETTINGS, SPEC, counting_corpus
from attnlab.text import train

def hang(fraction):
    if fraction > 0.3:  # after the first record
        print("hanging", flush=True)
        time.sleep(600)

settings = SETTINGS | {{"progress": hang, "out": {out!r}, "checkpoint_seconds": 0}}
train(counting_corpus(), SPEC, rates=[0.5, 2.0], seeds=2, **settings)
"""


def test_killed_and_gone_on_is_bit_identical(result, tmp_path):
    out = tmp_path / "run"
    code = KILLED.format(tests=os.path.dirname(__file__), out=str(out))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"hanging\n"
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    reached = read_checkpoint(out / CHECKPOINT).step
    assert 0 < reached < 60
    assert not (out / RESULT).exists()

    begun = []
    settings = SETTINGS | {"progress": begun.append}
    resumed = train(counting_corpus(), SPEC, rates=[0.5, 2.0], seeds=2, out=out, **settings)
    assert begun[0] == pytest.approx(reached / 60)
    for name in result.variables:
        np.testing.assert_array_equal(resumed[name], result[name], err_msg=str(name))
    assert sorted(path.name for path in out.iterdir()) == [LIST, CHECKPOINT, RESULT]

    again = train(counting_corpus(), SPEC, rates=[0.5, 2.0], seeds=2, out=out, **SETTINGS)
    assert again.attrs == resumed.attrs  # read, not trained
    # nor anew because it is from before there was a choice of activation
    kept = read_checkpoint(out / CHECKPOINT)
    spec = {name: of for name, of in kept.spec.items() if name != "reset_moments"}
    del spec["model"]["activation"]
    write_checkpoint(out / CHECKPOINT, replace(kept, spec=spec))
    old = train(counting_corpus(), SPEC, rates=[0.5, 2.0], seeds=2, out=out, **SETTINGS)
    assert old.attrs == resumed.attrs


def test_an_optimisers_memory_is_part_of_a_checkpoint():
    memory = (
        Optimizer("adam").transform(0.1).init({"weights": jnp.ones((2, 3)), "deep": [jnp.ones(4)]})
    )
    changed = jax.tree.map(lambda leaf: leaf + 1, memory)
    arrays = arrays_of(changed)
    assert len(arrays) == len(jax.tree.leaves(memory)) == 5
    again = tree_of(arrays, like=memory)
    assert jax.tree.structure(again) == jax.tree.structure(memory)
    jax.tree.map(np.testing.assert_array_equal, again, changed)


def test_another_training_or_a_damaged_file_is_refused(tmp_path):
    out = tmp_path / "run"
    settings = SETTINGS | {"steps": 20, "rates": 0.5, "out": out}
    train(counting_corpus(), SPEC, **settings)
    with pytest.raises(ValueError, match=r"out: .* another training \(rates: \[0.5\] there"):
        train(counting_corpus(), SPEC, **(settings | {"rates": 1.0}))
    path = out / CHECKPOINT
    whole = path.read_bytes()
    (out / RESULT).unlink()
    for damaged in (whole[:-10], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile, match="checkpoint.safetensors: damaged"):
            train(counting_corpus(), SPEC, **settings)


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    out = tmp_path / "run"
    settings = SETTINGS | {"steps": 20, "rates": 0.5, "out": out}
    train(counting_corpus(), SPEC, **settings)
    (out / RESULT).unlink()
    whole = read_checkpoint(path := out / CHECKPOINT)
    for name in (".params['embedding']", "record/validation_loss"):
        rest = {other: whole.arrays[other] for other in whole.arrays if other != name}
        longer = {**rest, name: whole.arrays[name][..., None]}
        for arrays, found in ((rest, "missing"), (longer, "of shape")):
            write_checkpoint(path, replace(whole, arrays=arrays))
            with pytest.raises(ValueError, match=re.escape(f"of attnlab ({name} is {found}")):
                train(counting_corpus(), SPEC, **settings)
    older = {**whole.spec, "numerics": {**whole.spec["numerics"], "text": 0}}
    write_checkpoint(path, replace(whole, spec=older))
    with pytest.raises(ValueError, match=r"another training \(numerics.text: 0 there, 1 here\)"):
        train(counting_corpus(), SPEC, **settings)
    write_checkpoint(path, replace(whole, step=21))
    with pytest.raises(DamagedFile, match="at step 21 of 20"):
        train(counting_corpus(), SPEC, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 400}, "corpus: the training part has 3,000 tokens, fewer than one batch of 400"),
        ({"steps": 0}, "steps: expected a whole number of at least 1"),
        ({"rates": [1, -1]}, "rates: expected positive"),
        ({"rates": [1, 1]}, "rates: .* has one twice"),
        ({"seeds": 0}, "seeds: expected at least 1"),
        ({"probes": 1000}, "probes: 1000 x 8 tokens are more"),
        ({"precision": "low"}, "precision: expected one of"),
        ({"clip": 0}, "clip: expected a positive"),
        ({"optimizer": "lion"}, "optimizer: expected one of"),
        ({"validation_tokens": -1}, "validation_tokens: expected a positive"),
        ({"out": "absent/run"}, "out: the folder absent does not exist"),
    ],
)
def test_bad_settings_are_refused_before_the_work(settings, message):
    begun = time.thread_time()
    with pytest.raises(ValueError, match=message):
        train(counting_corpus(), SPEC, **settings)
    assert time.thread_time() - begun < 2


@pytest.mark.parametrize("name", [RESULT, CHECKPOINT])
def test_a_planted_link_is_refused_and_its_target_stays(tmp_path, name):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "victim")
    with pytest.raises(InputError, match=f"{name}: is a link.*; remove the link"):
        train(counting_corpus(), SPEC, out=tmp_path / "run", **SETTINGS)
    assert (tmp_path / "victim").read_text() == "mine"
