"""The theory of the paper: from a case to its formulas."""

from attnlab.theory import ClassTheory, Hypothesis
from attnlab.theory.relation import much_greater

from .theory import early_push


class Early(ClassTheory):
    """The decoder has learnt nothing yet: outputs are near 1/M."""

    name = "own-paper-early"

    def assumptions(self, case):
        """Ask for eta_Y t << M, at the end of the run."""
        room = case.M / (case.eta_y * case.steps)
        return (Hypothesis("Own Paper", "eta_Y t << M: M/(eta_Y t)", room, much_greater(10), 1),)

    def predict(self, case, t):
        z = case.eta_y * case.eta_z * t[:, None, None] ** 2 / 2 * early_push(case)
        return {"attention_logits": (("time", "query", "token"), z)}
