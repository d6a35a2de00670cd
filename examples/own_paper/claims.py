"""The claims of the paper: documented functions; recorded verdicts are in expected.json."""

from attnlab import Flow, Simulation, predict, simulate
from attnlab.auditing import claim
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, LEADING

from .classes import pair
from .predict import Early
from .theory import early_push

CASE = Case(pair(), eta_y=1.0, eta_z=1.0, steps=0.2)


@claim(LEADING, "Own Paper", CASE, hypotheses=[Early().assumptions], tolerance=0.05, figure="early")
def own_paper_square(case):
    r"""At first $z$ grows as $\eta_Y \eta_Z t^2$.

    Train the flow from zero; compare z at the end, over its largest entry.
    """
    run = Simulation(case.classes, motion=Flow(case.steps), eta_y=case.eta_y, eta_z=case.eta_z)
    found = simulate(run, progress=False), predict(run, theory=Early())
    z, said = (of["attention_logits"].isel(time=-1) for of in found)
    return Check("z at the end", said, z, training=True)


@claim(ABOVE, "Own Paper", CASE)
def own_paper_distinct_first(case):
    """Distinct tokens gain.

    Compare the pushes on distinct tokens with 0, and the negative of that on the common one.
    """
    push = early_push(case)[0]
    return [Check("distinct", 0.0, push[1:]), Check("common", 0.0, -push[:1])]
