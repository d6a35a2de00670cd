"""Extreme rates and shapes, against the model written out by brute force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

import numpy as np

from torture.campaign import REFUSED, RIGHT, Campaign, Case, Verdict, bad, refusal

# What cannot fit into any memory, or would never end; by the argument of `simulate`.
TOO_MUCH: tuple[dict[str, Any], ...] = (
    {"model": ("embedded", {"dim": 10**9})},
    {"model": ("extended", {"heads": 10**12})},
    {"length": 2**40},
    {"batch_size": 10**13},
    {"training_set": 10**13},
    {"seeds": 10**12},
    {"seeds": [2**32]},
    {"steps": 10**15, "every": 1},
    {"steps": 10**400},
    {"task": "family:classes=1000000000"},
    {"task": "zipf:vocab=2000000000,classes=1000000"},
)
# By dtype: a difference that is none, and some hundred times the rounding error of one operation.
CLOSE = {"float64": 1e-9, "float32": 1e-4}
NOISE = {"float64": 1e-13, "float32": 1e-5}
DRAWS = 8  # of rounding errors, since one alone may leave a run as it was
CHAOTIC = 1e-2  # a difference by rounding after which nothing can be said


class Extremes(Campaign):
    name, share, cpu_seconds, memory = "extremes", 0.1, 60.0, 2**33

    def cases(self, draw: Random) -> Iterator[Case]:
        while True:
            if draw.random() < 0.1:
                yield Case("sizes", draw.choice(TOO_MUCH))
                continue
            target = draw.choice(("limit", "limit", "sampled", "flow"))
            given = _shape(draw) | _rates(draw, target)
            yield Case(target, given)

    def judge(self, case: Case) -> Verdict:
        from attnlab import Diverged

        if case.target == "sizes":
            return _refused(case.given)
        classes = _classes(case.given)
        try:
            found = _simulated(case.target, case.given, classes)
        except Diverged as problem:
            found = problem.dataset
        except Exception as problem:
            return refusal(problem)
        outcomes, pairs = set(), list(product(case.given["eta_y"], case.given["eta_z"]))
        for eta_y, eta_z in pairs:
            one = found.sel(eta_y=eta_y, eta_z=eta_z, seed=case.given["seed"])
            with np.errstate(all="ignore"):
                expected = _expected(case.target, case.given, classes, eta_y, eta_z)
            verdict = _compare(case.target, one, expected)
            if verdict.outcome == "bad":
                return bad(f"eta_y = {eta_y}, eta_z = {eta_z}: {verdict.words}")
            outcomes.add(verdict)
        return replace(REFUSED if REFUSED in outcomes else RIGHT, tries=len(pairs))


@dataclass(frozen=True)
class Expected:
    """What brute force says: attention and loss at the end, None where they are not finite; what
    rounding may change of them; and the largest parameter on the way."""

    attention: Any = None
    loss: float = np.nan
    spread: float = np.inf
    largest: float = np.inf


def _shape(draw: Random) -> dict[str, Any]:
    """Classes of any shape: few or many tokens, tiny probabilities, priors of nothing."""
    K, M = draw.choice((1, 2, 5)), draw.choice((8, 30))
    rows = []
    for _ in range(K):
        tokens = draw.sample(range(M), draw.choice((1, 1, 2, 5, M)))
        weights = [draw.choice((1.0, draw.random(), 1e-6, 1e-300)) for _ in tokens]
        weights[0] = 1.0
        rows.append(
            {token: weight / sum(weights) for token, weight in zip(tokens, weights, strict=True)}
        )
    prior = [draw.choice((1.0, draw.random(), 1e-12, 0.0)) for _ in range(K)]
    prior[0] = 1.0
    queries = [draw.randrange(draw.choice((1, M))) for _ in range(K)]
    return {
        "vocab": M,
        "rows": [list(row.items()) for row in rows],
        "query": queries,
        "next": draw.sample(range(M), K),
        "prior": [p / sum(prior) for p in prior],
    }


def _rates(draw: Random, target: str) -> dict[str, Any]:
    most, flow = (4, True) if target == "flow" else (30, False)
    rates = [
        sorted({0.0, *(10 ** draw.uniform(-span, span) for span in (2, 2, most))}) for _ in "yz"
    ]
    return {
        "eta_y": rates[0],
        "eta_z": rates[1],
        "steps": 30.0 if flow else draw.choice((1, 5)),
        "momentum": 0.0 if flow else draw.choice((0.0, 0.9)),
        "weight_decay": draw.choice((0.0, 0.0, 1e-3, 10.0)),
        "lump": draw.random() < 0.7,
        "dtype": draw.choice(("float64", "float64", "float32")),
        "start": draw.choice((0.0, 1.0, 30.0, 700.0)),
        "length": draw.choice((2, 3, 2**17)),
        "batch_size": draw.choice((1, 100)),
        "seed": draw.randrange(2**32),
    }


def _classes(given: dict[str, Any]) -> Any:
    from attnlab import SequenceClasses

    rows = [{int(token): weight for token, weight in row} for row in given["rows"]]
    return SequenceClasses(
        probs=rows,
        query=given["query"],
        next_token=given["next"],
        prior=given["prior"],
        vocab_size=given["vocab"],
    )


def _start(given: dict[str, Any], classes: Any) -> np.ndarray:
    """Logits z(0), query by token."""
    draw = np.random.default_rng(given["seed"])
    shape = (classes.queries.size, classes.vocab_size)
    return given["start"] * draw.uniform(-1, 1, shape)


def _simulated(target: str, given: dict[str, Any], classes: Any) -> Any:
    import attnlab

    last, decay = given["steps"], given["weight_decay"]
    sampled, length = target == "sampled", given["length"]
    optimizer = attnlab.Optimizer("sgd", given["momentum"], weight_decay=decay)
    return attnlab.simulate(
        attnlab.Sequences(classes, length=length if sampled else np.inf, lump=given["lump"]),
        motion=(
            attnlab.Flow(last, weight_decay=decay)
            if target == "flow"
            else attnlab.Steps(last, optimizer)
        ),
        gradient=attnlab.Batches(given["batch_size"]) if sampled else attnlab.Population(),
        eta_y=given["eta_y"],
        eta_z=given["eta_z"],
        init=_start(given, classes),
        seeds=[given["seed"]],
        record=attnlab.Record(("attention", "loss"), at=[0, last]),
        dtype=given["dtype"],
        progress=False,
    )


def _expected(
    target: str, given: dict[str, Any], classes: Any, eta_y: float, eta_z: float
) -> Expected:
    """By brute force, again with rates and start changed by a little, and some more with every
    sum changed by some hundred times its rounding error.

    The last are needed where terms of a sum cancel: a large rate then makes the rounding error of a
    sum decide the run, whichever way the sum is taken (see docs/guides/torture.md).
    """
    if target == "sampled":  # whose sequences are random
        return Expected()
    runs, largest, noise = [], 0.0, NOISE[given["dtype"]]
    rounding = [0.0, 0.0] + [noise] * DRAWS * (target != "flow")
    for number, relative in enumerate(rounding):
        change = 1 + noise * (number == 1)
        Z = np.zeros((classes.vocab_size,) * 2)
        Z[classes.queries] = _start(given, classes) * change
        rates = np.array([eta_y, eta_z]).reshape(2, 1, 1) * change
        at = np.stack([np.zeros_like(Z), Z])
        if target == "flow":
            end = _flow(given, classes, at, rates)
        else:
            end = _descend(given, classes, at, rates, Rounding(relative, number))
        if end is None or not np.isfinite(end).all():
            return Expected()
        runs.append(_observe(classes, end[0], end[1], Rounding(relative, number))[:2])
        largest = max(largest, float(np.abs(end).max()))
    (attention, loss), *others = runs
    spread = max(
        max(np.abs(attention - other).max(), abs(loss - other_loss) / max(1, abs(loss)))
        for other, other_loss in others
    )
    factor = CLOSE[given["dtype"]] / noise
    return Expected(attention, loss, float(spread) * factor, largest)


class Rounding:
    """Changes sums at random, by a fraction of the sizes of what was added."""

    def __init__(self, relative: float = 0.0, seed: int = 0) -> None:
        self.relative, self.draw = relative, np.random.default_rng(seed)

    def __call__(self, total: np.ndarray, size: np.ndarray) -> np.ndarray:
        return total + self.relative * size * self.draw.uniform(-1, 1, total.shape)


def _observe(
    classes: Any, Y: np.ndarray, Z: np.ndarray, rounded: Rounding | None = None
) -> tuple[np.ndarray, float, np.ndarray]:
    """Eqs. 1 to 3 for T to infinity, class by class: attention, the loss, the descent (Y, Z)."""
    rounded = rounded or Rounding()
    P, M = classes.probs, classes.vocab_size
    loss, attention = 0.0, np.zeros_like(P)
    direction = np.zeros((2, M, M))
    for k, (m, n, prior) in enumerate(
        zip(classes.query, classes.next_token, classes.prior, strict=True)
    ):
        z = np.where(P[k] > 0, np.log(np.where(P[k] > 0, P[k], 1)) + Z[m], -np.inf)
        c = np.exp(z - z.max())
        attention[k] = c = c / c.sum()
        f = rounded(c / np.linalg.norm(c), c / np.linalg.norm(c))
        logits = rounded(f @ Y, f @ np.abs(Y))
        log_alpha = logits - logits.max() - np.log(np.sum(np.exp(logits - logits.max())))
        residual = np.eye(M)[n] - np.exp(log_alpha)
        loss -= prior * log_alpha[n]
        direction[0] += prior * np.outer(f, residual)
        pulled, size = Y @ residual, np.abs(Y) @ np.abs(residual)
        pulled = (pulled - f * (f @ pulled)) / np.linalg.norm(c)
        size = (size + f * (f @ size)) / np.linalg.norm(c)
        direction[1, m] += prior * c * rounded(pulled - c @ pulled, size)
    return attention, float(loss), direction


def _descend(
    given: dict[str, Any], classes: Any, at: np.ndarray, rates: np.ndarray, rounded: Rounding
) -> np.ndarray:
    memory = np.zeros_like(at)
    for _ in range(given["steps"]):
        slope = _observe(classes, at[0], at[1], rounded)[2]
        memory = given["momentum"] * memory + slope - given["weight_decay"] * at
        at = at + rates * memory
    return at


def _flow(
    given: dict[str, Any], classes: Any, at: np.ndarray, rates: np.ndarray
) -> np.ndarray | None:
    from scipy.integrate import solve_ivp

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        now = flat.reshape(at.shape)
        return (rates * (_observe(classes, *now)[2] - given["weight_decay"] * now)).ravel()

    found = solve_ivp(velocity, (0, given["steps"]), at.ravel(), "LSODA", rtol=1e-9, atol=1e-12)
    return found.y[:, -1].reshape(at.shape) if found.success else None


def _compare(target: str, found: Any, expected: Expected) -> Verdict:
    precise = found["attention"].dtype == np.float64
    if "diverged_step" in found and found["diverged_step"] >= 0:
        # a flow that its solver cannot follow has diverged as well
        fair = target == "flow" or expected.largest > (1e150 if precise else 1e18)
        return REFUSED if fair else bad(f"diverged; brute force ends at {expected.largest:.3g}")
    attention, loss = found["attention"].values, found["loss"].values
    if not (np.isfinite(attention).all() and np.isfinite(loss).all()):
        return bad("values that are not finite, and no error")
    if np.abs(attention.sum(-1) - 1).max() > 1e-4 or attention.min() < 0 or loss.min() < 0:
        return bad(f"no probabilities: sums {attention.sum(-1)}, loss {loss}")
    close = max(expected.spread, CLOSE[str(found["attention"].dtype)])
    close = max(close, 1e-4) if target == "flow" else close
    if close > CHAOTIC:
        return RIGHT
    apart = np.abs(attention[-1] - expected.attention).max()
    if apart > close:
        return bad(f"attention is {apart:.3g} from brute force; rounding explains {close:.3g}")
    if abs(loss[-1] - expected.loss) > close * max(1, abs(expected.loss)):
        return bad(f"the loss is {loss[-1]:.9g}, by brute force {expected.loss:.9g}")
    return RIGHT


def _refused(given: dict[str, Any]) -> Verdict:
    """What cannot be done has to be refused, before anything is allocated."""
    import attnlab

    kinds = {"embedded": attnlab.Embedded, "extended": attnlab.Extended}
    asked = {"task": "syn-small", "steps": 10, **given}
    if "model" in given:
        kind, values = given["model"]
        asked["model"] = kinds[kind](**values)
    try:
        attnlab.simulate(asked.pop("task"), eta_y=1.0, eta_z=1.0, progress=False, **asked)
    except Exception as problem:
        return refusal(problem)
    return bad("accepted")
