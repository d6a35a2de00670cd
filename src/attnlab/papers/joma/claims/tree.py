"""Claim 5: hidden binary latents on a tree, HBLT(rho)."""

import numpy as np

from attnlab.auditing import Measurement, claim
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, BELOW, EQUAL, Trained

from .. import theory
from ..classes import LatentTree, hblt
from ..model import Joint
from .runs import in_play, in_training, trained

DEPTH, RHO = 3, 0.8
TREE = LatentTree((2,) * DEPTH, RHO, ((0.9, 0.1), (0.3, 0.7)))
LEAVES = Case(hblt(depth=DEPTH, rho=RHO), 1.0, 1.0, 100.0, model=Joint())


@claim(EQUAL, "JoMA, claim 5; re-derived", LEAVES, tolerance=1e-12)
def joma_tree(s: Case) -> Measurement:
    r"""$\mathbb{P}(y_l = 1 \mid y_m = 1) = \frac{1}{2} \cdot \frac{1 + \rho^{2H} - 2 \rho^{L-1}
    \rho_0}{1 - \rho^{L-1} \rho_0}$ on HBLT.

    Compare the formula, for pairs of leaves under one child of the root, with the sum over all
    settings of a tree of 14 latents. The tolerance is rounding.
    """
    both = TREE.enumerate().mean(0)
    H = TREE.heights()
    child = np.arange(TREE.leaves) // (TREE.leaves // TREE.branching[0])
    rho_0 = 1.0 - 2.0 * np.asarray(TREE.on).mean(0)[child]
    inside = (DEPTH > H) & (H > 0)
    means = np.broadcast_to(rho_0[:, None], H.shape)[inside]
    said = theory.tree_co_occurrence(H[inside], depth=DEPTH, rho=RHO, rho_0=means)
    given = both / np.diag(both)[:, None]
    return Measurement(
        Check("P(y_l = 1 | y_m = 1)", said, given[inside]), number=float(given[0, 1])
    )


@claim(ABOVE, "JoMA, claim 5", LEAVES)
def joma_siblings(s: Case) -> Measurement:
    """Siblings co-occur most and are learnt first.

    Check that the query's sibling has the largest co-occurrence by the formula, and so the largest
    z in the flow of Joint on the classes hblt, whose targets are root labels. Only the order
    counts; the premise is equal discriminancy, to one per cent.
    """
    H = np.arange(DEPTH)
    often = theory.tree_co_occurrence(H, depth=DEPTH, rho=RHO)
    z = in_play(trained(s)["attention_logits"], s)[-1, 0]
    sibling, cousins = z[1], z[2:4]
    tells, against = (
        theory.discriminancy(s)[0],
        "discriminancy of the sibling, against its cousins'",
    )
    return Measurement(
        Check("co-occurrence falls with H", often[:-1], often[1:], BELOW),
        in_training("z of the sibling against its cousins", cousins, sibling, ABOVE),
        Trained(against, tells[2:4].max(), tells[1], tolerance=0.01, form="premise"),
        number=float(often[1] / often[2]),
        training_number=float(sibling),
        note=f"labels as targets: the query's sibling tells less of the label (discriminancy "
        f"{tells[1]:.2f}, cousins {tells[2]:.2f}), and its z is {sibling:.2f}, cousins "
        f"{cousins.mean():.2f}: Delta is frequency times discriminancy, and the second decides",
    )
