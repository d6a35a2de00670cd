"""Presets: the figures and theorems of the paper as states, each with what to look for."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from attnlab.audit import cases
from attnlab.data import SequenceClasses
from attnlab.data.class_files import format_classes
from attnlab.dynamics import Simulation
from attnlab.files.errors import InputError
from attnlab.playground.setting import Setting
from attnlab.playground.state import State, View
from attnlab.playground.user_data import written
from attnlab.prediction.case import Case


@dataclass(frozen=True)
class Preset:
    """A state of the playground and the sentences that go with it."""

    name: str
    title: str
    look: str
    state: State


def _preset(
    name: str, title: str, look: str, *, b: tuple[str, Any] | None = None, **a: Any
) -> Preset:
    state = State(Setting(**a), view=View(guide=name))
    return Preset(name, title, look, state if b is None else state.with_change(*b))


# Plain gradient descent on the expected loss, T to infinity: what the theorems speak of.
PLAIN: dict[str, Any] = {"length": None, "batch_size": None, "momentum": 0.0}
FLOW: dict[str, Any] = {**PLAIN, "flow": True}
# Section 6: one query, one common token, equal classes; K and M of Fig. 3.
SECTION_6: dict[str, Any] = {
    "classes": 10, "queries": 1, "common": 1, "overlap": 0.1, "vocab_size": 1000,
}  # fmt: skip
SYN_MEDIUM: dict[str, Any] = {"classes": 6, "queries": 3, "init": "uniform"}


# attnlab text classes builtin --queries 2 --next 2 --min-count 40 --out text.json
TEXT = json.dumps(json.loads(resources.files(__package__).joinpath("text.json").read_bytes()))


def _by_hand(case: Case) -> str:
    return format_classes(case.classes)


_ALL = (
    _preset(
        "fig2", "Fig. 2: the four stages",
        "Press play. Attention starts on what is frequent; common tokens (orange) are suppressed; "
        "the most frequent distinct token (blue) wins; then everything freezes while the loss "
        "still falls.",
        eta_y=2.0, eta_z=5.0, steps=200,
    ),
    _preset(
        "fig3", "Fig. 3: the growth factor and η_Y",
        "A larger η_Y (B) gets through its transition earlier. The theory says that the smaller "
        "one ends with more growth; look at the logits of the likeliest token to see whether "
        "training agrees.",
        **SECTION_6, **FLOW, eta_y=0.5, eta_z=0.5, steps=1000, b=("eta_y", 5.0),
    ),
    _preset(
        "fig4", "Fig. 4: SGD on Syn-Small",
        "Attention becomes sparse and settles on the largest P(l|n). With η_Y = 10 (B) it gets "
        "there faster and ends less sparse: compare the two entropies.",
        b=("eta_y", 10.0),
    ),
    _preset(
        "fig5", "Fig. 5: Adam",
        "With Adam the winners are no longer the most frequent tokens: the rate decides which "
        "distinct tokens attention settles on. Turn both rates to 0.1, then to 1.",
        optimizer="adam", momentum=0.0, eta_y=0.5, eta_z=0.5,
    ),
    _preset(
        "fig6", "Fig. 6: sparsity and the rates",
        "Syn-Medium from a random start. A larger η_Y / η_Z (B) leaves attention denser: its "
        "entropy stays higher.",
        **SYN_MEDIUM, eta_y=2.0, eta_z=2.0, b=("eta_y", 20.0),
    ),
    _preset(
        "fig7", "Figs. 7 and 10: the words of a text",
        "What stands before “the same”, “the class”, “a string” and “a function” in Python's "
        "documentation. Hardly a word is distinct; those that tell one ending from the others "
        "gain, such as “class” before “the class”. (The figures themselves train transformers: "
        "attnlab text train.)",
        written=TEXT, length=35, eta_y=2.0, eta_z=2.0, steps=500,
    ),
    _preset(
        "fig8", "Fig. 8: steps against continuous time",
        "A takes steps, B flows. The decoder's growth h* in steps stays close to the smooth h, "
        "so that the loss of both falls alike.",
        **SECTION_6, **PLAIN, eta_y=2.0, eta_z=0.5, steps=1000, b=("flow", True),
    ),
    _preset(
        "fig9", "Fig. 9: both rates together",
        "Turn both rates up by the same factor: attention takes the same path, only faster, so "
        "that the value reached at t₀ stays the same.",
        **SECTION_6, **FLOW, eta_y=1.0, eta_z=0.5, steps=1000,
    ),
    _preset(
        "fig11", "Fig. 11: recall and the ratio of the rates",
        "How many distinct tokens stand out? With a smaller η_Y / η_Z (A) a few are far ahead; "
        "with a larger one (B) they stay closer together.",
        **SYN_MEDIUM, eta_y=1.0, eta_z=1.0, b=("eta_y", 10.0),
    ),
    _preset(
        "fig12", "Fig. 12: recall and η_Z",
        "A larger η_Z (B) gives sparser attention: fewer distinct tokens hold more of it.",
        **SYN_MEDIUM, eta_y=5.0, eta_z=0.5, b=("eta_z", 3.0),
    ),
    _preset(
        "lemma2", "Lemma 2: long sequences",
        "A has 16 tokens to a sequence, B infinitely many. Short sequences make the path noisy; "
        "the direction is the same.",
        length=16, eta_y=2.0, eta_z=5.0, b=("length", None),
    ),
    _preset(
        "theorem1", "Theorem 1: what the decoder sends back",
        "The gradient that reaches attention grows at first and then fades as the decoder gets "
        "things right: the loss falls like 1/t, and attention slows down with it.",
        **FLOW, eta_y=1.0, eta_z=1.0, steps=1e6,
    ),
    _preset(
        "theorem2", "Theorem 2: distinct gain, common loses",
        "Hover over a token: the theorem says that distinct tokens gain and the one common token "
        "loses, and here they do.",
        classes=2, queries=1, common=1, distinct=3, overlap=0.3, vocab_size=1000, **FLOW,
        eta_y=1.0, eta_z=0.1, steps=1e6,
    ),
    _preset(
        "theorem2-not", "Theorem 2: a distinct logit that falls",
        "Two unequal classes with one distinct token each. Under Eq. 10 both distinct logits rise; "
        "in training one falls below 0, while attention to it rises: the common logit falls "
        "faster. A smaller eta_Z puts it off. Hover to see claim and outcome.",
        written=_by_hand(cases.UNEVEN), **FLOW, eta_y=1.0, eta_z=0.1, steps=1e7,
    ),
    _preset(
        "corollary2", "Corollary 2: all common tokens lose",
        "Symmetric classes with two common tokens: both lose.",
        classes=2, queries=1, common=2, distinct=1, overlap=0.4, vocab_size=1000, **FLOW,
        eta_y=1.0, eta_z=0.1, steps=1e7,
    ),
    _preset(
        "corollary2-not", "A common token that gains",
        "Two common tokens, one of unequal probability. The theorem is about one common token and "
        "the corollary about symmetric classes; this one gains.",
        written=_by_hand(cases.LOPSIDED), **FLOW, eta_y=1.0, eta_z=0.1, steps=1e7,
    ),
    _preset(
        "theorem3", "Theorem 3: the frequent get ahead",
        "In A distinct tokens differ in frequency, and the most frequent one runs away from the "
        "others. In B (ramp 1) all are equal and stay equal.",
        **PLAIN, eta_y=10.0, eta_z=5.0, steps=200, b=("ramp", 1.0),
    ),
    _preset(
        "theorem4", "Theorem 4: scan, then snap",
        "Up to t₀ attention scans; after it, it snaps: growth turns logarithmic and looks frozen. "
        "Training snaps later than t₀, here at about twice that time.",
        **SECTION_6, **FLOW, eta_y=1.0, eta_z=1.0, steps=1e4,
    ),
    _preset(
        "residual", "Section 7: a residual connection",
        "B adds the query to what the decoder sees. It then needs attention less, and common "
        "tokens keep most of theirs.",
        eta_y=2.0, eta_z=5.0, b=("residual", True),
    ),
    _preset(
        "heads", "Sections 3 and 5: several heads",
        "Four heads from different random starts. Choose the head to show: do they settle on the "
        "same tokens?",
        init="uniform", heads=4, eta_y=2.0, eta_z=5.0,
    ),
)  # fmt: skip
PRESETS = {preset.name: preset for preset in _ALL}
DEFAULT = PRESETS["fig2"]


def beginning(classes: SequenceClasses) -> State:
    """The state of a page that opens on given classes."""
    return State(replace(DEFAULT.state.a, written=written(classes)))


def opening(simulation: Simulation) -> State:
    """The state of a page that opens on a simulation, if its controls can show it."""
    spec = simulation.spec
    engine, model, optimizer = spec["engine"], spec["model"], spec["optimizer"]
    for name, kind in (("classes", dict), ("eta_y", float), ("eta_z", float), ("init", str)):
        if not isinstance(spec[name], kind):
            raise InputError(f"{name}: the playground shows one run, from a start with a name")
    setting = Setting(
        written=written(simulation.sets[0]), eta_y=spec["eta_y"], eta_z=spec["eta_z"],
        steps=spec["steps"], init=spec["init"], length=engine.get("length"),
        batch_size=engine.get("batch_size"), flow=engine["name"] == "flow",
        optimizer=optimizer["name"], momentum=optimizer["momentum"],
        residual=model.get("residual", False), heads=model.get("heads", 1), seed=spec["seeds"][0],
    )  # fmt: skip
    for name in ("engine", "model", "optimizer"):
        if setting.simulation.spec[name] != spec[name]:
            raise InputError(f"{name}: the playground has no control for {spec[name]}")
    return State(setting)


def guide(state: State) -> Preset | None:
    """The preset that a state started from, if any."""
    return PRESETS.get(state.view.guide)
