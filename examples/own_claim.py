"""A claim of your own: common words lose a quarter of their attention.

    python examples/own_claim.py

examines it on the classes of a file, on paper (the theory "sgd") and in training.
docs/guides/own_paper.md explains it.
"""

import attnlab
from attnlab.auditing import Measurement, claim
from attnlab.papers.scan_and_snap.cases import transition_time
from attnlab.papers.scan_and_snap.hypotheses import distinct_tokens, single_query
from attnlab.theory import Check, Hypothesis
from attnlab.theory.relation import AT_LEAST, AT_MOST


def long_enough(case):
    """A hypothesis of ours: the run goes on for 10 t_0 at least."""
    times = case.steps / transition_time(case)
    return (Hypothesis("own_claim.py", "the run lasts 10 t_0", times, AT_LEAST, 10),)


@claim(
    "common-words-lose",
    source="examples/own_claim.py",
    statement="Common words keep at most three quarters of the attention that they start with",
    relation=AT_MOST,
    tolerance=0.02,
    hypotheses=(single_query, distinct_tokens, long_enough),
    number="{:.3g} is left",
    training_number="{:.3g} is left",
)
def common_words_lose(trial):
    """Compare three quarters, a round number, with the share of attention to common tokens that is
    left at the end, in each class, by the theory "sgd" and in training.
    """
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


if __name__ == "__main__":
    classes = attnlab.classes_from("recipes/classes-two-words.yaml")
    for steps in (100.0, 1e4):
        (found,) = attnlab.audit(classes, steps=steps, claims=[common_words_lose]).findings
        print(f"{found.claim.id} at time {steps:g} by the theory: {found.verdict}; {found.number}")
        print(f"{found.claim.id} at time {steps:g} in training: {found.training}; "
              f"{found.training_number}")  # fmt: skip
