"""Own theories that answer badly: without logits, misshapen, not finite, or with an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from torture.campaign import RIGHT, Campaign, Case, Verdict, bad, refusal
from torture.mutate import HOSTILE_TEXT

VALUES = ("nan", "inf", "-inf", "1e300", "-1e300", "0")
KINDS = (
    "value",
    "missing",
    "nothing",
    "kind",
    "dims",
    "shape",
    "dtype",
    "extra",
    "attention",
    "blow-up",
    "raises",
    "assumptions",
    "name",
    "rates",
)
DIMS = ("time", "query", "token", "sequence_class", "seed", "step", "eta_y", "mine", "assumption")
ERRORS = (KeyError, ValueError, ZeroDivisionError, RuntimeError, MemoryError, AttributeError)
# Changes after which an answer still is one.
MAY_PASS = {"value", "extra", "blow-up", "rates", "dims", "dtype", "shape"}


class Theories(Campaign):
    """A theory whose answer is changed in one place, asked by `predict` or by `audit`."""

    name, share, cpu_seconds = "theories", 0.1, 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import attnlab

        self.run = attnlab.Simulation(
            "syn-small", motion=attnlab.Steps(5), gradient="population", eta_y=[1.0, 2.0]
        )

    def cases(self, draw: Random) -> Iterator[Case]:
        while True:
            given = {"kind": draw.choice(KINDS), "seed": draw.randrange(10**9)}
            yield Case("audit" if draw.random() < 0.02 else "predict", given)

    def judge(self, case: Case) -> Verdict:
        import attnlab

        theory, raised = _theory(case.given["kind"], Random(case.given["seed"]))
        try:
            if case.target == "audit":
                attnlab.audit("syn-small", steps=5.0, theories=(theory,))
                return RIGHT  # which says what a theory that is silent is silent about
            found = attnlab.predict(self.run, theory=theory)
        except Exception as problem:
            if problem in raised:
                return RIGHT  # its author's own, as it is
            return refusal(problem)
        if case.given["kind"] not in MAY_PASS:
            return bad("accepted")
        until = found["blow_up_time"].min() if "blow_up_time" in found else np.inf
        attention = found["attention"].where(found["step"] < until, drop=True)
        if not attention.size:
            return RIGHT  # there is no time before its blow-up
        if not np.isfinite(attention).all() or np.abs(attention.sum("token") - 1).max() > 1e-6:
            return bad("accepted, and attention is no probability")
        return RIGHT


def _theory(kind: str, draw: Random) -> tuple[Any, list[Exception]]:
    """Return a theory that is wrong in one way, and what it raises itself."""
    from attnlab.theory import ClassTheory

    raised: list[Exception] = []

    class Own(ClassTheory):
        name = "own"

        def assumptions(self, case: Any) -> Any:
            if kind == "assumptions":
                return draw.choice((None, 3, "x", ["x"], ({},), lambda: None))
            return ()

        def predict(self, case: Any, t: Any) -> Any:
            z = np.zeros((t.size, case.classes.queries.size, case.P.shape[1]))
            said: dict[Any, Any] = {"attention_logits": (("time", "query", "token"), z)}
            if kind == "raises":
                raised.append(draw.choice(ERRORS)(draw.choice(HOSTILE_TEXT)))
                raise raised[-1]
            if kind == "rates" and case.eta_y == 1:
                return said
            return CHANGES[kind](said, case, t, draw) if kind in CHANGES else said

    if kind == "name":
        Own.name = draw.choice((None, 3, b"x", ["x"]))  # type: ignore[assignment]
    return Own(), raised


Change = Callable[[dict[Any, Any], Any, Any, Random], Mapping[Any, Any] | Any]


def _value(said: Any, case: Any, t: Any, draw: Random) -> Any:
    z = said["attention_logits"][1]
    z[tuple(draw.randrange(size) for size in z.shape)] = float(draw.choice(VALUES))
    return said


def _kind(said: Any, case: Any, t: Any, draw: Random) -> Any:
    dims, z = said["attention_logits"]
    wrong: tuple[Any, ...] = (
        z,
        dims,
        (dims,),
        (dims, z, {}),
        None,
        "z",
        (None, z),
        (dims, None),
        (dims, lambda: z),
    )
    return {"attention_logits": draw.choice(wrong)}


def _dims(said: Any, case: Any, t: Any, draw: Random) -> Any:
    z = said["attention_logits"][1]
    return {"attention_logits": (tuple(draw.choices(DIMS, k=draw.choice((0, 1, 2, 3, 4)))), z)}


def _shape(said: Any, case: Any, t: Any, draw: Random) -> Any:
    dims, z = said["attention_logits"]
    shape = [max(0, size + draw.choice((-1, 0, 0, 1))) for size in z.shape]
    return {"attention_logits": (dims, np.zeros(shape[: draw.choice((1, 2, 3, 3, 3))]))}


def _dtype(said: Any, case: Any, t: Any, draw: Random) -> Any:
    dims, z = said["attention_logits"]
    return {"attention_logits": (dims, z.astype(draw.choice(["O", "U", "c16", "f2", "i8", "?"])))}


def _extra(said: Any, case: Any, t: Any, draw: Random) -> Any:
    names = ("entropy", "step", "eta_y", "x", "time", 3, None, "attention", "t0", *HOSTILE_TEXT)
    dims = tuple(draw.choices(DIMS, k=draw.choice((0, 1, 2))))
    shape = [draw.choice((t.size, case.P.shape[1], case.P.shape[0], 3)) for _ in dims]
    return {**said, draw.choice(names): (dims, np.full(shape, float(draw.choice(VALUES))))}


def _attention(said: Any, case: Any, t: Any, draw: Random) -> Any:
    shares = np.broadcast_to(case.P, (t.size, *case.P.shape)).copy()
    shares[draw.randrange(t.size), 0, 0] += draw.choice((1e-3, -2.0, np.nan, np.inf))
    return {**said, "attention": (("time", "sequence_class", "token"), shares)}


def _blow_up(said: Any, case: Any, t: Any, draw: Random) -> Any:
    at = draw.choice((2.5, 0.0, -1.0, np.nan, np.inf, 1e300))
    said["attention_logits"][1][t >= 2.5] = np.nan
    dims = draw.choice(((), (), ("time",), ("query",)))
    return {**said, "blow_up_time": (dims, at if not dims else np.full(3, at))}


CHANGES: dict[str, Change] = {
    "value": _value,
    "kind": _kind,
    "dims": _dims,
    "shape": _shape,
    "dtype": _dtype,
    "extra": _extra,
    "attention": _attention,
    "blow-up": _blow_up,
    "rates": _extra,
    "missing": lambda said, case, t, draw: draw.choice(({}, {"logits": (("time",), t)})),
    "nothing": lambda said, case, t, draw: draw.choice((None, 3, [], "x", iter(()), t)),
}
