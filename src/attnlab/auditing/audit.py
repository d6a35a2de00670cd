"""audit(): the theories on a simulation, beside its training: assumptions, ladder, fates, snap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import xarray as xr

from attnlab import measures
from attnlab.auditing.built_in import examine_all, require_general
from attnlab.auditing.claim import Claim, Finding
from attnlab.auditing.clocks import Clock, clocks_of
from attnlab.auditing.commentary import Commentary, comment
from attnlab.auditing.document import audit_document, hypothesis_document, number
from attnlab.auditing.ladder import ladder_document, ladder_of
from attnlab.auditing.tokens import agreement, seen_roles
from attnlab.auditing.trial import Trial, simulation_of, try_out
from attnlab.dynamics import Engine, Simulation
from attnlab.dynamics.simulation import Classes, Fields
from attnlab.theory.answers import assumptions
from attnlab.theory.hypothesis import Hypothesis
from attnlab.theory.named import as_theory
from attnlab.theory.theory import Theory


@dataclass(frozen=True, eq=False)
class Audit:
    """Comparison of theories with the training of a simulation.

    trial: the simulation with its result and the predictions. assumptions: what is asked for, each
    with its value. ladder: errors of each theory (`attnlab.auditing.ladder`). fates: a Dataset over
    (query, token) with `role` (1 distinct, 2 common), `claimed` (+1 gains, -1 loses, 0 no paper
    speaks), and the logits at the end, `predicted` along `theory` and `simulated`. snap: a Dataset
    over sequence_class with the snap time, `predicted` along `theory` and `simulated`; nan where
    attention never moved or is not quiet by the end. clocks: the same and when attention is
    fastest, of each class, with bounds (`attnlab.auditing.clocks`). commentary: what all this comes
    to by each paper that comments on it; printed, it is in words. findings: of each claim that was
    asked for.
    """

    trial: Trial
    assumptions: tuple[Hypothesis, ...]
    ladder: xr.Dataset
    fates: xr.Dataset
    snap: xr.Dataset
    clocks: Mapping[str, tuple[Clock, ...]]
    commentary: Mapping[str, Commentary]
    findings: tuple[Finding, ...]

    def document(self) -> dict[str, Any]:
        """All of it as plain data: what `attnlab audit CLASSES --json` prints."""
        trial, classes = self.trial, self.trial.classes
        return audit_document(
            self.findings,
            trial={
                "classes": classes.origin,
                "simulation": trial.simulation.spec,
                "eta_y": trial.eta_y,
                "eta_z": trial.eta_z,
                trial.simulation.clock: trial.simulation.steps,
                "assumptions": [hypothesis_document(of) for of in self.assumptions],
                "ladder": ladder_document(self.ladder),
                "silent": dict(trial.silent),
                "fates": self.rows(),
                "transition": trial.transition and [number(time) for time in trial.transition],
                "snap": [
                    {
                        "sequence_class": n,
                        "next": classes.token_name(int(classes.next_token[n])),
                        **_cells(self.snap.isel(sequence_class=n)),
                        "at_least": _still_moving(clock),
                    }
                    for n, clock in enumerate(self.clocks["snap"])
                ],
                "commentary": {name: of.document() for name, of in self.commentary.items()},
            },
        )

    def rows(self) -> list[dict[str, Any]]:
        """One entry per query and token that the query can see, largest movement first."""
        classes, fates = self.trial.classes, self.fates
        rows = []
        for q, j in np.argwhere(fates["role"].values != 0):
            cell = fates.isel(query=q, token=j)
            claimed, simulated = int(cell["claimed"]), float(cell["simulated"])
            rows.append(
                {
                    "query": classes.token_name(int(cell["query"])),
                    "token": classes.token_name(int(cell["token"])),
                    "role": "common" if int(cell["role"]) == 2 else "distinct",
                    "claimed": {1: "gains", -1: "loses", 0: "no claim"}[claimed],
                    **_cells(cell),
                    "as_claimed": {1: True, -1: False, 0: None}[int(agreement(claimed, simulated))],
                }
            )
        return sorted(rows, key=lambda row: -abs(row["simulated"]))


def audit(
    simulation: Simulation | Classes, engine: Engine | None = None, *, claims: Sequence[Claim] = (),
    theories: Sequence[Theory | str] | None = None, tell: Callable[[str], None] = lambda name: None,
    **fields: Unpack[Fields],
) -> Audit:  # fmt: skip
    """Hold theories, and claims, against the training of a simulation.

    Parameters
    ----------
    simulation : Simulation, SequenceClasses or str
        A `Simulation`, or its classes: of classes alone, the flow in float64 for 100 times the
        predicted transition. One set of classes and one pair of rates. Of several seeds, what is
        simulated is the mean.
    engine : Engine, optional
        As in `simulate`.
    claims : sequence of Claim, optional
        What to examine on it: claims of your own, or of the catalogue (`select`), which then train
        the joint flow at these rates.
    theories : sequence of Theory or str, optional
        Theories by name, or any `Theory`; by default those of the shelf that speak of the run.
    tell : callable, optional
        Called with the name of each piece of work before its turn.
    **fields
        As in `simulate`.

    Returns
    -------
    Audit
        What was found: assumptions, the ladder, the fates of tokens, the clocks.

    Examples
    --------
    >>> import attnlab
    >>> found = attnlab.audit("syn-small", attnlab.Limit(), eta_y=10.0, eta_z=0.1, steps=100)
    >>> found.ladder.theory.values.tolist()
    ['printed', 'corrected', 'sgd']
    """
    require_general(claims)
    named = None if theories is None else [as_theory(of) for of in theories]
    chosen, spoken = simulation_of(simulation, engine, named, **fields)
    tell("training")
    trial = try_out(chosen, spoken)
    tokens, clocks = _tokens(trial), clocks_of(trial)
    commentary = comment(trial, tokens, clocks)
    claimed = [of.signs_claimed for of in commentary.values()]
    return Audit(
        trial=trial,
        assumptions=_assumptions(trial, commentary),
        ladder=ladder_of(trial),
        fates=tokens.assign(
            claimed=(("query", "token"), claimed[0] if claimed else 0 * tokens["role"].values)
        ),
        snap=_snap(trial),
        clocks=clocks,
        commentary=commentary,
        findings=tuple(examine_all(claims, case=trial, tell=tell)),
    )


def _assumptions(trial: Trial, commentary: Mapping[str, Commentary]) -> tuple[Hypothesis, ...]:
    """Return what papers that comment ask for, then what only the theories at hand do."""
    asked = [part for of in commentary.values() for part in of.assumptions]
    asked += [part for of in trial.theories for part in assumptions(of, trial)]
    once: dict[tuple[str, str], Hypothesis] = {}
    for part in asked:
        once.setdefault((part.source, part.says), part)
    return tuple(once.values())


def _tokens(trial: Trial) -> xr.Dataset:
    def last(dataset: xr.Dataset) -> xr.DataArray:
        end = dataset["attention_logits"].isel({trial.simulation.clock: -1})
        return end.mean("seed").isel(token=trial.classes.in_play)

    where = {"query": trial.classes.queries, "token": trial.classes.in_play}
    return _beside(trial, last, where).assign(role=(tuple(where), seen_roles(trial)))


def _snap(trial: Trial) -> xr.Dataset:
    def snap(dataset: xr.Dataset) -> xr.DataArray:
        return measures.snap_time(dataset).mean("seed", skipna=False)

    return _beside(trial, snap, {"sequence_class": np.arange(trial.K)})


def _beside(
    trial: Trial, read: Callable[[xr.Dataset], xr.DataArray], where: dict[str, Any]
) -> xr.Dataset:
    """Return what each theory's dataset gives, along `theory` (nan where it is silent), and from
    the training."""
    simulated = read(trial.simulated)
    values = np.full((len(trial.theories), *simulated.shape), np.nan)
    for i, of in enumerate(trial.theories):
        if of.name in trial.predicted:
            values[i] = read(trial.predicted[of.name]).values
    return xr.Dataset(
        {
            "predicted": (("theory", *where), values),
            "simulated": (tuple(where), simulated.values.astype(np.float64)),
        },
        {"theory": [of.name for of in trial.theories], **where},
    )


def _still_moving(clock: Clock) -> dict[str, float]:
    """The end of the run, by the name of each theory after which attention still moves there."""
    moments = {**clock.predicted, "training": clock.simulated}
    return {name: moment.at for name, moment in moments.items() if moment.sign == ">="}


def _cells(found: xr.Dataset) -> dict[str, Any]:
    """Return predictions by theory, and the simulated value, as plain numbers."""
    predicted = zip(found["theory"].values.tolist(), found["predicted"].values, strict=True)
    return {
        "predicted": {name: number(float(value)) for name, value in predicted},
        "simulated": number(float(found["simulated"])),
    }
