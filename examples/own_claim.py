"""A claim of your own: common words lose a quarter of their attention.

    python examples/own_claim.py

examines it on the classes of a file, on paper (the theory "sgd") and in training.
docs/guides/own_claim.md explains it.
"""

import attnlab
from attnlab.auditing import Check, Claim, Hypothesis, Measurement
from attnlab.papers.scan_and_snap.hypotheses import distinct_tokens, single_query
from attnlab.theory.relation import AT_LEAST, AT_MOST


def long_enough(case):
    """A hypothesis of ours: the run goes on for 10 t_0 at least."""
    return (Hypothesis("own_claim.py", "the run lasts 10 t_0", case.steps / case.t0, AT_LEAST, 10),)


def share_left(trial):
    """Attention to common tokens at the end, as a share of what it was, in each class."""
    checks, left = [], {}
    for name, run in (("sgd", trial.predicted["sgd"]), ("training", trial.simulated)):
        mass = run["common_mass"].mean("seed")
        left[name] = mass.isel(time=-1, drop=True) / mass.isel(time=0, drop=True)
        checks.append(Check(f"share left, {name}", 0.75, left[name], training=name == "training"))
    return Measurement(
        tuple(checks),
        number=float(left["sgd"].max()),
        training_number=float(left["training"].max()),
    )


CLAIM = Claim(
    id="common-words-lose",
    statement="Common words keep at most three quarters of the attention that they start with",
    source="examples/own_claim.py",
    relation=AT_MOST,
    tolerance=0.02,
    because="three quarters is a round number",
    hypotheses=(single_query, distinct_tokens, long_enough),
    number="{:.3g} is left",
    training_number="{:.3g} is left",
    measure=share_left,
)

if __name__ == "__main__":
    classes = attnlab.classes_from("recipes/classes-two-words.yaml")
    for steps in (100.0, 1e4):
        (found,) = attnlab.audit(classes, steps=steps, claims=[CLAIM]).findings
        print(f"{found.claim.id} at time {steps:g} by the theory: {found.verdict}; {found.number}")
        print(f"{found.claim.id} at time {steps:g} in training: {found.training}; "
              f"{found.training_number}")  # fmt: skip
