"""The full model, from zero. Its runs take minutes: numbers on file, 10 seeds (`evidence.py`)."""

from __future__ import annotations

from functools import partial

import numpy as np

from attnlab.auditing import Measurement, claim
from attnlab.experiments import mean, published
from attnlab.theory import Trained
from attnlab.theory.relation import ABOVE, AT_MOST, BELOW

from ..evidence import EVIDENCE
from .gradient import PAPER, Found, even

TESTS = "tests/papers/causal_structure/test_model.py::"
FILED = "tests/papers/causal_structure/test_claims.py::test_numbers_on_file_are_of_their_runs"
RELEASED = "Causal structure, released code"
filed_claim = partial(
    claim, sources=PAPER, runs={}, code=("count_predictor",), test=FILED, figure="layers"
)


@filed_claim(
    AT_MOST,
    id="causal-counts",
    tolerance=0.0,
    hypotheses=(even("full"),),
    in_parts=True,
    training_number="excess {:.4f} nats after 4,000 steps, 0.102 at the start",
)
def counts(found: Found) -> Measurement:
    r"""The loss comes to that of the count predictor, for many steps and $T \to \infty$.

    That is not quite Bayes: roots and stationarity say a little about pi. Check that at most a
    tenth of the excess at the start is left after 4,000 steps, and that nothing is, within two
    errors: chain, S = 3, T = 10, batch 256, 10 seeds on file.
    """
    of = EVIDENCE.read("full")
    end = mean(of["excess"].isel(step=-1).values)
    start = mean(of["excess"].isel(step=0).values)
    last = mean((of["excess"].isel(step=-1) - of["excess"].isel(step=-5)).values)
    gap = mean(of["released_gap"].isel(step=-1).values)
    return Measurement(
        Trained("excess, against a tenth of the start", start.value / 10, end.value),
        Trained("less two errors", 0.0, end.value - 2 * end.error),
        training_number=end.value,
        note=f"start {start}, end {end}; over the last quarter {last}; the released line lies "
        f"{gap} too high",
    )


@filed_claim(
    ABOVE,
    id="causal-order",
    sources="here",
    ours=True,
    code=("first_gradient",),
    test=TESTS + "test_the_full_model_moves_its_output_first",
    training_number="attention to the parent {:.3f} when recovery is 1, at step 500",
)
def order(found: Found) -> Measurement:
    """From zero W moves first; the parent is the argmax long before it has the mass.

    Check that attention has not moved after one step, since the gradient of A_1 and A_2 is 0 at W =
    0, and that at the first record at which all 10 seeds on file recover the tree the parent has
    less than half of the attention that it has in the end.
    """
    of = EVIDENCE.read("full")
    recovered = (of["recovery"] == 1).all("seed")
    step = int(of["step"].values[recovered.values.argmax()])
    att = of["parent_attention"]
    moved = abs(att.sel(step=1) - att.sel(step=0)).values
    path = "; ".join(
        f"step {at}: {mean(att.sel(step=at).values)}" for at in (500, 1000, 2000, 4000)
    )
    share = att.sel(step=step).values / att.isel(step=-1).values
    early = mean(of["recovery"].sel(step=50).values)
    return Measurement(
        Trained("movement in one step", 1e-6, moved, AT_MOST),
        Trained("share of the mass at recovery", 0.5, share, BELOW),
        training_number=float(att.sel(step=step).mean()),
        note=f"all seeds recover at step {step}; at step 50 {early}; {path}",
    )


@filed_claim(
    BELOW,
    id="causal-blocks",
    in_parts=True,
    code=("leading_gradient",),
    training_number="tokens against tokens in A_1 have {:.2f} of the size of positions",
)
def blocks(found: Found) -> Measurement:
    """The full model puts weight into the predicted blocks alone.

    Compare mean sizes of the blocks of A_1 (queries x keys) with that of positions x positions, key
    before query, after 4,000 steps: at most a tenth (ours); 10 seeds on file.
    """
    of = EVIDENCE.read("full").isel(step=-1)
    names = ("position_token", "token_position", "token_token")
    ratio = {name: (of[name] / of["position_position"]).values for name in names}
    notes = [f"{name} {mean(of[name].values)}" for name in (*names, "position_position")]
    return Measurement(
        *(Trained(name, 0.1, each) for name, each in ratio.items()),
        training_number=float(ratio["token_token"].mean()),
        note="; ".join(notes),
    )


@filed_claim(
    AT_MOST,
    id="causal-recovery",
    sources=RELEASED,
    tolerance=0.0,
    figure="graphs",
    training_number="attention to the parent {:.3f}, mean over 20 graphs; published 0.837",
)
def recovery(found: Found) -> Measurement:
    """On random forests most attention goes to the parent, though recovery is not complete.

    Compare attention to the parent on 20 random forests (S = 3, T = 20, alpha = 0.1; 16,384 steps
    of batch 1,024, on file) with the released values of 20 others: means within two standard errors
    of their difference, and some edge not recovered.
    """
    of = EVIDENCE.read("graphs").isel(step=-1)
    ours = mean(of["parent_attention"].values)
    released = mean([1 - row["missing"] for row in published(__file__, "graphs")])
    apart = abs(ours.value - released.value) / np.hypot(ours.error, released.error)
    found_edges = mean(of["recovery"].values)
    return Measurement(
        Trained("means apart, in standard errors", 2.0, apart),
        Trained("recovered edges, over all", 1.0, found_edges.value, BELOW),
        training_number=ours.value,
        note=f"attention {ours}, sd {of['parent_attention'].std(ddof=1):.3f}; released {released}; "
        f"recovery {found_edges}, complete in {int((of['recovery'] == 1).sum())} of 20",
    )


@filed_claim(
    ABOVE,
    id="causal-two-parents",
    figure="graphs",
    training_number="each head gives {:.2f} of its attention to its own parent",
)
def two_parents(found: Found) -> Measurement:
    """With two parents, two heads find one parent each.

    Check at the published size (S = 5, T = 32, alpha = 0.1, AdamW, 65,536 steps; 10 seeds on file)
    that one head gives more than 1/2 of its attention to the farther parent and the other to the
    nearer one, and each less than 0.1 to the parent of the other. The note has the loss against the
    count predictors of both parents and of the nearer one.
    """
    of = EVIDENCE.read("two_parents").isel(step=-1)
    att = of["attention"].values  # seed head parent
    swapped = att[:, 0, 0] < att[:, 1, 0]  # the second head reads the farther parent
    att[swapped] = att[swapped, ::-1]
    own, other = np.diagonal(att, axis1=1, axis2=2), np.diagonal(att[:, ::-1], axis1=1, axis2=2)
    one = of.isel(head=0, parent=0)
    counts, single = (mean(one[f"{name}_excess"].values) for name in ("counts", "one_parent"))
    return Measurement(
        Trained("to the own parent", 0.5, own),
        Trained("to the other parent", 0.1, other, BELOW),
        training_number=float(own.mean()),
        note=f"farther parent {mean(own[:, 0])}, nearer {mean(own[:, 1])}; loss above the count "
        f"predictor {counts}, above one parent's {single}",
    )
