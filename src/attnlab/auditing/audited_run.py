"""audit(): compare a trained run with what theories predict of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab import formulas, measures
from attnlab.auditing.catalogue import examine_all, require_general
from attnlab.auditing.claims import Claim, Finding
from attnlab.auditing.clocks import Clock, clocks_of
from attnlab.auditing.document import audit_document, hypothesis_document, number
from attnlab.auditing.runs import recorded_at
from attnlab.files.errors import InputError
from attnlab.formulas import momentum_steps
from attnlab.shelf import single
from attnlab.simulation import Batches, Flow, Simulation, Steps, as_simulation, simulate
from attnlab.simulation.settings import settings_of
from attnlab.tasks.base import Task
from attnlab.tasks.sequences import Classes
from attnlab.theory.facts import Case, case_of
from attnlab.theory.prediction import assumptions, predict
from attnlab.theory.relation import Hypothesis
from attnlab.theory.theory import ClassTheory, Theory, as_theory, theories_about

# Attention of every class at every record, in float64: about 100 MB.
LARGEST = 10**5
HORIZON = 100.0  # in units of the transition: far enough for attention to have slowed down for good
KINDS = ("z_error", "attention_error")
# Settings with which a run is as it is given, and not the flow until after the transition.
OF_STEPS = {"motion", "gradient", "length", "training_set"} | {
    name for kind in (Steps, Batches) for name in settings_of(kind)
}
WHEN = {"record", "every", "geometric", "at"}


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditedRun(Case):
    """A case with its training and what theories predict: the input of an audit.

    simulation: the run as a value. simulated: its result. predicted: what each theory predicts, by
    its name, aligned with the result. silent: why a theory predicts nothing, by its name.
    """

    simulation: Simulation
    theories: tuple[ClassTheory, ...]
    simulated: xr.Dataset
    predicted: Mapping[str, xr.Dataset]
    silent: Mapping[str, str]

    @property
    def transition(self) -> tuple[float, float] | None:
        """Start and end of the transition that the theories expect, in the run's own time."""
        return transition_of(self.simulation, self.theories)


def transition_of(
    simulation: Simulation, theories: Sequence[ClassTheory]
) -> tuple[float, float] | None:
    """Return the earliest start and latest end of the transitions that theories expect, if any."""
    case = case_of(simulation, simulation.sets[0], simulation.eta_y, simulation.eta_z)
    spans = [span for of in theories if (span := of.transition(case)) is not None]
    if not spans:
        return None
    found = min(first for first, _ in spans), max(last for _, last in spans)
    first, last = np.asarray(momentum_steps(found, momentum=simulation.momentum)).tolist()
    return first, last


def simulation_of(
    given: Simulation | Task | Classes, theories: Sequence[Theory] | None = None, **settings: Any
) -> tuple[Simulation, tuple[ClassTheory, ...]]:
    """Return the run that is audited, and the theories: by default those that cover it.

    Of classes alone, it is the flow in float64, until long after the predicted transition.
    """
    chosen = {name: value for name, value in settings.items() if value is not None}
    as_given = isinstance(given, (Simulation, Task)) or bool(OF_STEPS & chosen.keys())
    flow = {"motion": Flow(), "dtype": "float64", **chosen}
    simulation = as_simulation(given, **(settings if as_given else flow))
    _check(simulation)
    covering = _covering(simulation, theories)
    if not as_given:
        transition = transition_of(simulation, covering)
        if "time" not in chosen and transition is not None:
            horizon = HORIZON * transition[1]
            if not (np.isfinite(horizon) and horizon > 1e-2):
                words = f"{horizon:g} at {simulation.eta_y:g}; give a time"
                raise InputError(f"eta_y: 100 times the transition is {words}")
            simulation = as_simulation(simulation, time=horizon)
        if not WHEN & chosen.keys():
            if simulation.last <= 1e-2:
                raise InputError(f"time: expected a time above 0.01, got {simulation.last:g}")
            exactly = [] if transition is None else [transition[1]]
            simulation = as_simulation(simulation, at=recorded_at(simulation.last, exactly))
    what = simulation.record.what
    if what is not None:
        needed = tuple(dict.fromkeys((*what, "attention", "logits")))
        simulation = as_simulation(simulation, what=needed)
    return simulation, covering


def _covering(simulation: Simulation, theories: Sequence[Theory] | None) -> tuple[ClassTheory, ...]:
    """Return the theories of sequence classes among those given, or among all that cover a run."""
    if theories is None:
        return tuple(of for of in theories_about(simulation) if isinstance(of, ClassTheory))
    chosen = tuple(of for of in theories if isinstance(of, ClassTheory))
    for of in theories:
        if of not in chosen:
            raise InputError(f"theories: {of.name} is not a ClassTheory; compare it with predict()")
    return chosen


def _check(simulation: Simulation) -> None:
    """Refuse what is more than one run, or too large, or has nothing to compare."""
    if isinstance(simulation.classes, tuple):
        raise InputError("classes: an audit takes one set of classes; give one at a time")
    for name in ("eta_y", "eta_z"):
        rate = getattr(simulation, name)
        if isinstance(rate, xr.DataArray):
            raise InputError(f"{name}: an audit takes one pair of learning rates; give one number")
        if not isinstance(rate, float) or not rate > 0:
            raise InputError(f"{name}: expected a finite number above 0, got {rate}")
    # what single precision cannot hold takes as long as the bounds on work allow, for no answer
    replace(simulation, dtype="float32")
    (classes,) = simulation.sets
    if len(classes) < 2:
        raise InputError("classes: the theory compares classes; give at least 2")
    if len(classes) * classes.vocab_size > LARGEST:
        raise InputError(
            f"classes: {len(classes)} classes x {classes.vocab_size} tokens is more than an audit "
            f"holds ({LARGEST:,}); take fewer, or use attnlab simulate"
        )


def try_out(simulation: Simulation, theories: Sequence[ClassTheory]) -> AuditedRun:
    """Predict with every theory, and train; a theory that has no answer is silent.

    A run that all of them refuse is refused.
    """
    predicted, silent, refused = {}, {}, []
    for of in theories:
        try:
            of.check(simulation)
        except InputError as problem:
            refused.append(problem)
    if refused and len(refused) == len(theories):
        raise refused[0]
    for of in theories:
        try:
            predicted[of.name] = predict(simulation, theory=of)
        except (InputError, RuntimeError) as problem:
            silent[of.name] = str(problem)
        except Exception as problem:
            if type(of).__module__.startswith("attnlab."):
                raise
            silent[of.name] = f"{type(problem).__name__}: {problem}"  # of a paper from elsewhere
    case = case_of(simulation, simulation.sets[0], simulation.eta_y, simulation.eta_z)
    return AuditedRun(
        **{of.name: getattr(case, of.name) for of in fields(Case)},
        simulation=simulation,
        theories=tuple(theories),
        simulated=simulate(simulation, progress=False),
        predicted=predicted,
        silent=silent,
    )


class Commentary(Protocol):
    """Comments of a paper on an audited run.

    signs_claimed: whether each token gains (+1) or loses (-1) by the paper's statements, along
    (query, token); 0 where it says nothing. assumptions: what the paper asks for, each with its
    value. sentences: what was found, in words.
    """

    @property
    def signs_claimed(self) -> NDArray[np.int64]: ...
    @property
    def assumptions(self) -> tuple[Hypothesis, ...]: ...
    @property
    def sentences(self) -> list[str]: ...
    def document(self) -> dict[str, Any]: ...


@dataclass(frozen=True, eq=False)
class Audit:
    """Comparison of theories with the training of a simulation.

    run: the simulation with its result and the predictions. assumptions: what is asked for, each
    with its value. errors: those of each theory (`errors_of`). fates: a Dataset over
    (query, token) with `role` (1 distinct, 2 common), `claimed` (+1 gains, -1 loses, 0 no paper
    speaks), and the logits at the end, `predicted` along `theory` and `simulated`. snap: a Dataset
    over sequence_class with the snap time, `predicted` along `theory` and `simulated`; nan where
    attention never moved or is not quiet by the end. clocks: the same and when attention is
    fastest, of each class, with bounds (`attnlab.auditing.clocks`). commentary: what all this comes
    to by each paper that comments on it; printed, it is in words. findings: of each claim that was
    asked for.
    """

    run: AuditedRun
    assumptions: tuple[Hypothesis, ...]
    errors: xr.Dataset
    fates: xr.Dataset
    snap: xr.Dataset
    clocks: Mapping[str, tuple[Clock, ...]]
    commentary: Mapping[str, Commentary]
    findings: tuple[Finding, ...]

    def document(self) -> dict[str, Any]:
        """All of it as plain data: what `attnlab audit CLASSES --json` prints."""
        run, classes = self.run, self.run.classes
        return audit_document(
            self.findings,
            run={
                "classes": classes.origin,
                "simulation": run.simulation.spec,
                "eta_y": run.eta_y,
                "eta_z": run.eta_z,
                run.simulation.clock: run.simulation.last,
                "assumptions": [hypothesis_document(of) for of in self.assumptions],
                "errors": errors_document(self.errors),
                "silent": dict(run.silent),
                "fates": self.rows(),
                "transition": run.transition and [number(time) for time in run.transition],
                "snap": [
                    {
                        "sequence_class": n,
                        "next": classes.token_name(int(classes.next_token[n])),
                        **_cells(self.snap.isel(sequence_class=n)),
                        # the end of the run, where attention still moves then
                        "at_least": {
                            name: moment.at
                            for name, moment in (
                                *clock.predicted.items(),
                                ("training", clock.simulated),
                            )
                            if moment.sign == ">="
                        },
                    }
                    for n, clock in enumerate(self.clocks["snap"])
                ],
                "commentary": {name: of.document() for name, of in self.commentary.items()},
            },
        )

    def rows(self) -> list[dict[str, Any]]:
        """One entry per query and token that the query can see, largest movement first."""
        classes, fates = self.run.classes, self.fates
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
    simulation: Simulation | Task | Classes,
    *,
    claims: Sequence[Claim] = (),
    theories: Sequence[Theory | str] | None = None,
    tell: Callable[[str], None] = lambda name: None,
    **settings: Any,
) -> Audit:
    """Compare theories, and claims, with the training of a run on sequence classes.

    Parameters
    ----------
    simulation : Simulation, Sequences, SequenceClasses or str
        A `Simulation`, or its task. Classes alone are trained by the flow in float64 for 100 times
        the predicted transition, unless settings of steps are given. One set of classes and one
        pair of learning rates. Of several seeds the mean is compared.
    claims : sequence of Claim, optional
        Claims to examine on it: your own, or those of the catalogue (`select`), which then train
        the joint flow at these learning rates.
    theories : sequence of ClassTheory or str, optional
        Theories by name, or any `ClassTheory`; by default those of all papers that cover the run.
    tell : callable, optional
        Called with the name of each piece of work before its turn.
    **settings
        Settings of the simulation, as in `simulate`.

    Returns
    -------
    Audit
        Assumptions, the errors of each theory, the fates of tokens, the clocks.

    Examples
    --------
    >>> import attnlab
    >>> found = attnlab.audit("syn-small", gradient="population", eta_y=10.0, eta_z=0.1)
    >>> found.errors.theory.values.tolist()
    ['printed', 'corrected', 'sgd']
    """
    require_general(claims)
    named = None if theories is None else [as_theory(of) for of in theories]
    chosen, covering = simulation_of(simulation, named, **settings)
    tell("training")
    run = try_out(chosen, covering)
    tokens, clocks = _tokens(run), clocks_of(run)
    commentary: dict[str, Commentary] = {}  # of each paper that has something to say
    for paper, offer in single("commentary"):
        if (words := offer.load()(run, tokens, clocks)) is not None:
            commentary[paper.name] = words
    claimed = [of.signs_claimed for of in commentary.values()]
    return Audit(
        run=run,
        assumptions=_assumptions(run, commentary),
        errors=errors_of(run),
        fates=tokens.assign(
            claimed=(("query", "token"), claimed[0] if claimed else 0 * tokens["role"].values)
        ),
        snap=_snap(run),
        clocks=clocks,
        commentary=commentary,
        findings=tuple(examine_all(claims, case=run, tell=tell)),
    )


def _assumptions(run: AuditedRun, commentary: Mapping[str, Commentary]) -> tuple[Hypothesis, ...]:
    """Return what papers that comment ask for, then what only the theories at hand do."""
    asked = [part for of in commentary.values() for part in of.assumptions]
    asked += [part for of in run.theories for part in assumptions(of, run)]
    once: dict[tuple[str, str], Hypothesis] = {}
    for part in asked:
        once.setdefault((part.source, part.says), part)
    return tuple(once.values())


def _tokens(run: AuditedRun) -> xr.Dataset:
    def last(dataset: xr.Dataset) -> xr.DataArray:
        end = dataset["attention_logits"].isel({run.simulation.clock: -1})
        return end.mean("seed").isel(token=run.classes.in_play)

    where = {"query": run.classes.queries, "token": run.classes.in_play}
    return _beside(run, last, where).assign(role=(tuple(where), seen_roles(run)))


def _snap(run: AuditedRun) -> xr.Dataset:
    def snap(dataset: xr.Dataset) -> xr.DataArray:
        return measures.snap_time(dataset).mean("seed", skipna=False)

    return _beside(run, snap, {"sequence_class": np.arange(run.K)})


def _beside(
    run: AuditedRun, read: Callable[[xr.Dataset], xr.DataArray], where: dict[str, Any]
) -> xr.Dataset:
    """Return what each theory's dataset gives, along `theory` (nan where it is silent), and from
    the training."""
    simulated = read(run.simulated)
    values = np.full((len(run.theories), *simulated.shape), np.nan)
    for i, of in enumerate(run.theories):
        if of.name in run.predicted:
            values[i] = read(run.predicted[of.name]).values
    return xr.Dataset(
        {
            "predicted": (("theory", *where), values),
            "simulated": (tuple(where), simulated.values.astype(np.float64)),
        },
        {"theory": [of.name for of in run.theories], **where},
    )


def _cells(found: xr.Dataset) -> dict[str, Any]:
    """Return predictions by theory, and the simulated value, as plain numbers."""
    predicted = zip(found["theory"].values.tolist(), found["predicted"].values, strict=True)
    return {
        "predicted": {name: number(float(value)) for name, value in predicted},
        "simulated": number(float(found["simulated"])),
    }


def errors_of(run: AuditedRun) -> xr.Dataset:
    """Return the errors of each theory along (theory, at): at the transition and at the end.

    `z_error` is the largest error in z, relative to the largest |z| of training; `attention_error`
    the largest one in attention. nan where a theory is silent or nothing has moved. `time` says
    when: for the predicted transition, if the run gets there, the nearest record, which is that
    time itself where the audit chose the records.
    `leans_on` is what a level uses and the next does not.
    """
    clock = run.simulation.clock
    times = run.simulated[clock].values.astype(np.float64)
    places = {}
    if run.transition is not None and times[-1] >= (t0 := run.transition[1]):
        places["transition"] = int(abs(times[1:] - t0).argmin()) + 1
    places["end"] = times.size - 1
    there = list(places.values())
    trained = run.simulated.isel({clock: there}).mean("seed")
    largest = abs(trained["attention_logits"]).max(("query", "token"))
    errors = np.full((len(KINDS), len(run.theories), len(there)), np.nan)
    for i, of in enumerate(run.theories):
        if of.name not in run.predicted:
            continue
        predicted = run.predicted[of.name].isel({clock: there}).isel(seed=0)
        z = abs(predicted["attention_logits"] - trained["attention_logits"])
        attention = abs(predicted["attention"] - trained["attention"])
        errors[0, i] = z.max(("query", "token")) / largest.where(largest > 0)
        errors[1, i] = attention.max(("sequence_class", "token"))
    return xr.Dataset(
        {kind: (("theory", "at"), values) for kind, values in zip(KINDS, errors, strict=True)},
        {
            "theory": [of.name for of in run.theories],
            "leans_on": ("theory", [of.leans_on for of in run.theories]),
            "at": list(places),
            "time": ("at", times[there]),
        },
    )


def costs(errors: xr.Dataset) -> list[str]:
    """Sentences: what each level leans on, and the error in z with it and without."""
    levels = errors["z_error"].isel(theory=np.flatnonzero(errors["leans_on"] != ""))
    when = [f"at the {at}" for at in levels["at"].values]
    words = []
    for i, leaning in enumerate(levels["leans_on"].values):
        here, following = levels.values[i], levels.values[i + 1 : i + 2]
        if np.isnan(here).any() or np.isnan(following).any():
            continue
        if following.size:
            each = [f"from {a:.2g} to {b:.2g}" for a, b in zip(here, following[0], strict=True)]
            words.append(f"Without {leaning} the error in z goes {_at(each, when)}.")
        else:
            words.append(f"What is left, {_at([f'{a:.2g}' for a in here], when)}, is {leaning}.")
    return words


def _at(found: list[str], when: list[str]) -> str:
    return " and ".join(f"{what} {at}" for what, at in zip(found, when, strict=True))


def errors_document(errors: xr.Dataset) -> dict[str, Any]:
    """Return the errors of each theory, and what each level costs, as plain data for JSON."""
    return {
        "at": errors["at"].values.tolist(),
        "time": errors["time"].values.tolist(),
        "theories": [
            {
                "theory": name,
                "leans_on": str(errors["leans_on"].values[i]),
                **{kind: [number(of) for of in errors[kind].values[i].tolist()] for kind in KINDS},
            }
            for i, name in enumerate(errors["theory"].values.tolist())
        ],
        "costs": costs(errors),
    }


def seen_roles(case: Case) -> NDArray[np.int64]:
    """Return 1 where the query sees a distinct token, 2 for a common one, 0 for an unseen one."""
    common = formulas.token_roles(case).common
    roles = np.zeros((case.classes.queries.size, case.P.shape[1]), dtype=np.int64)
    for n, row in enumerate(case.psi):
        seen = case.P[n] > 0
        roles[row, seen] = np.where(common[seen], 2, 1)
    return roles


def agreement(claimed: ArrayLike, simulated: ArrayLike) -> NDArray[np.int64]:
    """Return 1 where training does what is claimed, -1 where it does the opposite.

    0 if unknown: nothing is claimed, or z has not moved (or is not a number).
    """
    return np.nan_to_num(np.sign(claimed) * np.sign(simulated)).astype(np.int64)
