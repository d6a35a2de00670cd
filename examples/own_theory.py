"""A theory of your own: how attention moves before the decoder has learnt anything.

    python examples/own_theory.py

While all outputs are near 1/M, Y grows as eta_Y t sum_n P(n) f_n (e_n - 1/M)^T. Lemma 1 with this
Y gives z = eta_Y eta_Z t^2/2 times a constant. It is predicted, drawn beside training (early.png)
and audited beside the ladder. docs/guides/own_theory.md explains it.
"""

import numpy as np

import attnlab
from attnlab.formulas import logit_gradient, unit_attention
from attnlab.papers.scan_and_snap.theory import transition_times
from attnlab.theory import LADDER, Hypothesis
from attnlab.theory.relation import much_greater


class Early(attnlab.Theory):
    name = "early"

    def assumptions(self, case):
        """t << t_0', at the end of the run."""
        t0_prime, _ = transition_times(K=case.K, M=case.M, eta_y=case.eta_y)
        times = float(t0_prime) / case.steps
        return (Hypothesis("own_theory.py", "t << t_0': t_0'/t", times, much_greater(10), 1),)

    def predict(self, case, t):
        rows = np.zeros((case.psi.max() + 1, case.P.shape[1]))  # (query, token)
        f = unit_attention(case, rows)  # (class, token)
        target = case.classes.next_token
        shared = case.prior * ((target[:, None] == target) - 1.0 / case.M)
        push = case.prior[:, None] * logit_gradient(f, shared @ f)  # Lemma 1, per eta_Y eta_Z t
        np.add.at(rows, case.psi, push)
        z = case.eta_y * case.eta_z * t[:, None, None] ** 2 / 2 * rows
        return {"attention_logits": (("time", "query", "token"), z)}


if __name__ == "__main__":
    t0_prime, _ = transition_times(K=2, M=34, eta_y=1.0)
    simulation = attnlab.Simulation(
        "syn-small", attnlab.Flow(), steps=float(t0_prime), dtype="float64"
    )
    simulated = attnlab.simulate(simulation, progress=False)
    predicted = attnlab.predict(simulation, theory=Early())
    attnlab.plots.compare(simulated, predicted).savefig("early.png")
    for part in (0.01, 0.1, 1.0):
        found = attnlab.audit(simulation, steps=part * t0_prime, theories=(*LADDER, Early()))
        errors = found.ladder["z_error"].sel(at="end")
        told = "  ".join(f"{name} {error:.2g}" for name, error in errors.to_series().items())
        (asked,) = [of for of in found.assumptions if of.source == "own_theory.py"]
        print(f"error in z at {part:g} t_0':  {told}  (t << t_0': {asked.holds})")
