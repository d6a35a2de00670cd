"""The models against PyTorch: the minimal one and its variants, and the transformer."""

import jax
import numpy as np
import pytest

from attnlab.files.errors import InputError
from attnlab.models.losses import LOSSES
from attnlab.papers.statistical_induction import runs, theory
from attnlab.papers.statistical_induction.model import MinimalInduction

torch = pytest.importorskip("torch")
F = torch.nn.functional
T, K = 7, 3


@pytest.fixture(scope="module")
def tokens():
    rng = np.random.default_rng(0)
    return theory.sample(rng, theory.dirichlet(rng, 4, K), T + 1)


def as_torch(tree):
    return jax.tree.map(lambda x: torch.tensor(np.asarray(x), dtype=torch.float64), tree)


def minimal_twin(W, v, x, first):
    """Scores of all pairs, as the equations have them."""
    e = F.one_hot(x, K).double()
    lag = torch.arange(T)[:, None] - torch.arange(T)
    scores, seen = v[lag.clamp(min=0)], lag >= 0
    if first == "linear":
        weights = scores * seen
    else:
        masked = scores if first == "released" else scores.masked_fill(~seen, -torch.inf)
        weights = masked.softmax(-1)
    z = weights @ e
    return ((e @ W @ z.transpose(1, 2)) * seen) @ e


def loss_of(model, params, x, y):
    outputs, _ = model.apply(params, x)
    return LOSSES["cross_entropy"](outputs, y).mean()


@pytest.mark.parametrize("first", ["softmax", "linear", "released"])
def test_the_minimal_model_equals_its_twin(tokens, first):
    rng = np.random.default_rng(1)
    params = {"first": rng.normal(size=T), "second": rng.normal(size=(K, K))}
    x, y = tokens[:, :-1], tokens[:, 1:]
    model = MinimalInduction(first=first)
    with jax.enable_x64(True):
        loss, slopes = jax.jit(jax.value_and_grad(lambda p: loss_of(model, p, x, y)))(params)
    v, W = (of.requires_grad_() for of in as_torch((params["first"], params["second"])))
    twin = minimal_twin(W, v, torch.tensor(x), first)
    expected = F.cross_entropy(twin.reshape(-1, K), torch.tensor(y).reshape(-1))
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-12)
    np.testing.assert_allclose(slopes["first"], v.grad, atol=1e-12)
    np.testing.assert_allclose(slopes["second"], W.grad, atol=1e-12)
    if first != "released":
        by_formula = theory.gradient(
            x, y, params["second"], params["first"], linear=first == "linear"
        )
        np.testing.assert_allclose(by_formula.first, v.grad, atol=1e-12)
        np.testing.assert_allclose(by_formula.second, W.grad, atol=1e-12)


def transformer_twin(p, x, layers=2, eps=1e-5):
    """Two layers of attention with a learnt vector for each distance, normed before each."""
    h = p["embedding"]["tokens"][x]
    d, n = h.shape[-1], x.shape[1]
    lag = torch.arange(n)[:, None] - torch.arange(n)
    for layer in range(layers):
        normed = F.layer_norm(h, (d,), p["norm"]["attention"]["gain"][layer], eps=eps)
        q, k, v = (normed @ p["attention"]["qkv"][layer]).split(d, -1)
        r = p["positions"]["vectors"][layer][lag.clamp(min=0)]
        scores = (q @ k.transpose(1, 2) + torch.einsum("bid,ijd->bij", q, r)) / d**0.5
        weights = scores.masked_fill(lag < 0, -torch.inf).softmax(-1)
        h = h + weights @ v @ p["attention"]["out"][layer]
    return F.layer_norm(h, (d,), p["norm"]["final"]["gain"], eps=eps) @ p["decoder"]["weights"].T


def test_the_transformer_equals_its_twin(tokens):
    task, x = runs.chains(K, T), tokens[:, :-1]
    model = runs.transformer(task, steps=1).model
    with jax.enable_x64(True):
        start = model.init(jax.random.key(0), task, {})
        params = jax.tree.map(lambda a: 10.0 * a if a.std() > 0 else a, start)
        found = jax.jit(lambda p: model.apply(p, x)[0])(params)
    np.testing.assert_allclose(
        found, transformer_twin(as_torch(params), torch.tensor(x)), atol=1e-6
    )


def test_an_unknown_first_layer_is_refused():
    with pytest.raises(InputError, match="first: expected one of"):
        MinimalInduction(first="hard")
