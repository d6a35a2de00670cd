"""The summary of the paper, where it says something that the paper does not."""

import numpy as np
import scipy

from attnlab import formulas, measures
from attnlab.auditing import Measurement, claim
from attnlab.auditing.runs import ratios, trained
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, BELOW, Trained

from .. import cases, theory
from ..cases import SYN_SMALL, WEAK
from ..hypotheses import WEAKLY_CORRELATED


@claim(ABOVE, "summary, Key Results and Mechanism 2", WEAK, WEAKLY_CORRELATED)
def summary_frequency(s: Case) -> Measurement:
    """Among distinct tokens, lower-frequency tokens gain attention faster.

    Compare the rarer token with the more frequent one: velocities under Eq. 10 at the start (they
    go as f_nl^2), and gains in the joint flow. Only the order counts.
    """
    n, high, low = cases.most_and_least_frequent(s)
    velocity = theory.attention_velocity(s, np.zeros((1, s.P.shape[1])))
    fast, slow = velocity[s.psi[n], high], velocity[s.psi[n], low]
    _, z = cases.training_path(s)
    end = z[-1, s.psi[n]]
    gain = float(end[low] / end[high])
    return Measurement(
        Check("velocity of the rarest over the most frequent", 1.0, float(slow / fast), ABOVE),
        Trained("gain of the rarest over the most frequent, training", 1.0, gain, ABOVE),
        number=float(fast / slow),
        training_number=float(end[high] / end[low]),
        note=f"P(l|n) = {s.P[n, high]:.3f} against {s.P[n, low]:.3f}: velocities {fast:.2e} and "
        f"{slow:.2e} (times eta_Z gamma), in the ratio of P(l|n)^2",
    )


@claim(BELOW, "summary, Mechanism 1", WEAK)
def summary_theorem_2b(s: Case) -> Measurement:
    r"""If $\lvert G_{CT} \rvert = 1$ then $\dot z_{l} < 0$, whether or not the query has a distinct
    token.

    Check that the logit falls for every query, where one query has a class of the common token
    alone; the corrected form has Theorem 2(b)'s condition. Only the sign counts.
    """
    # Query 0 has one class, which holds nothing but the common token.
    P, psi = np.array([[1.0, 0.0], [0.2, 0.8]]), np.array([0, 1])
    setting = formulas.Setting(P, psi=psi, M=s.M)
    velocity = theory.attention_velocity(setting, np.zeros((2, 2)))[:, 0]
    owners = formulas.token_roles(P).distinct.any(1)
    where_owned = "dz/dt where a class of the query owns a distinct token"
    return Measurement(
        Check("dz/dt of the common token", 0.0, velocity, BELOW),
        Check(where_owned, [0.0], velocity[owners], BELOW, form="corrected"),
        number=float(velocity.max()),
        note="P(.|0) = (1, 0) with its own query, P(.|1) = (0.2, 0.8): the common token of query 0 "
        f"moves at {velocity[0]:.1g}, that of query 1 at {velocity[1]:.2g}",
    )


@claim(BELOW, "summary, Mechanism 1, break condition", SYN_SMALL)
def summary_slow_decoder(s: Case) -> Measurement:
    r"""If the decoder does not learn faster ($\eta_Y \ll \eta_Z$) scanning would not emerge.

    Check that common tokens hardly lose, and that there is no order, in the joint flow on Syn-Small
    at eta_Y/eta_Z = 0.01, against 10. A tenth of the loss, or a rank correlation below 0.9, would
    support it.
    """
    run = trained(s.classes, ratios(0.01, 10.0, eta_y=s.eta_y), s.steps)
    mass = measures.common_mass(run).isel(sequence_class=0)
    fall = 1.0 - (mass.isel(time=-1) / mass.isel(time=0)).values
    tokens = np.flatnonzero(formulas.token_roles(s).distinct[0])
    z = cases.logits(s, run.isel(time=-1))[0, s.psi[0], tokens]
    B = [
        float(cases.eq_10(s.at(eta_z=s.eta_y / ratio), np.array([1e6])).growth_bound[0, 0])
        for ratio in (0.01, 10.0)
    ]
    falls = "fall of the common mass at eta_Y/eta_Z = 0.01 against 10, training"
    ordered = float(scipy.stats.spearmanr(s.P[0, tokens], z).statistic)
    return Measurement(
        Trained(falls, 0.1 * fall[1], fall[0], BELOW),
        Trained("distinct tokens out of order at 0.01, training", 0.9, ordered, BELOW),
        # Eq. 10 has no place for a slow decoder: its path depends on the rates through time.
        Check("B_n at eta_Y/eta_Z = 0.01 against 10, Eq. 10", B[1], B[0], BELOW),
        number=B[0] / B[1],
        training_number=float(fall[0] / fall[1]),
        note=f"the common mass falls by {fall[0]:.0%} at ratio 0.01, by {fall[1]:.0%} at 10; "
        f"the order of distinct tokens is kept (rank correlation {ordered:.2f})",
    )
