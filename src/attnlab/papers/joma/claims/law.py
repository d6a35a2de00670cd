"""Claim 2: a linear activation and stationary gradients; Delta, the erf law, winner takes all."""

from dataclasses import replace

import numpy as np

from attnlab import formulas
from attnlab.auditing import Measurement, claim
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, AT_MOST, EQUAL

from .. import theory
from ..model import Joint
from ..predict import SMALL
from .runs import PAIRS, implied, in_play, in_training, one_query, premise, trained

DELTA = theory.delta(PAIRS)[0]
BLOW_UP = theory.blow_up_time(DELTA)
# Past the blow-up, where the gradient that arrives has long changed.
EXP = replace(PAIRS, steps=2.0 * BLOW_UP, model=Joint(attention="exp", scale=0.0))


@claim(EQUAL, "JoMA, claim 2; re-derived", PAIRS, (one_query,), tolerance=1e-12)
def joma_delta(s: Case) -> Measurement:
    r"""$\Delta_l = \mathbb{E}[g \mid l,m] \mathbb{P}(l \mid m)$ is discriminancy times frequency;
    common and distinct tokens are its two ends.

    Compare discriminancy 0 of tokens that all labels have alike, and 1 of those that one label has,
    with classes of one common and three distinct tokens each. The tolerance is rounding.
    """
    found = theory.discriminancy(s)[0]
    roles = formulas.token_roles(s)
    common = np.asarray(roles.common)
    lengths = np.linalg.norm(theory.delta(s)[0], axis=0)
    return Measurement(
        Check("discriminancy of common tokens", 0.0, found[common], relative=False),
        Check("of distinct tokens", 1.0, found[~common]),
        number=float(lengths.max() / lengths[~common].min()),
    )


@claim(
    EQUAL,
    "JoMA, claim 2; re-derived; several hidden units are ours",
    EXP,
    (one_query,),
    tolerance=1e-7,
)
def joma_erf(s: Case) -> Measurement:
    r"""$v_l(t) = \sqrt{2} \operatorname{erf}^{-1}\left(\sqrt{2/\pi} \Delta_l t\right)$ while
    gradients are stationary, up to $t^* = \sqrt{\pi/2}/\max_l \lvert \Delta_l \rvert$.

    Compare the erf law with |Delta| over hidden units, and its end t*, with its equation, solved,
    and with the flow of Joint with cross entropy and exp attention. The tolerance is the solver's
    near a singularity; in training it is a tenth.
    """
    t = np.array([0.3, 0.6, 0.9]) * BLOW_UP
    flow = theory.reduced_joint_flow(
        formulas.Setting.of(s, eta_y=1.0, eta_z=1.0),
        t,
        attention="exp",
        stationary=True,
        rtol=1e-11,
        atol=1e-13,
    )
    law = theory.erf_law(DELTA, t)
    run = trained(s)
    times = run["time"].values
    before = (times > 0) & (times < BLOW_UP)
    v = in_play(run["mlp_weights"], s)[before]
    said = theory.erf_law(DELTA, times[before]).weights
    off = np.abs(v - said).max((-2, -1)) / np.abs(v).max((-2, -1))
    change = implied(s)["gradient_change"].values[before]
    part = times[before] / BLOW_UP
    good = part[off <= SMALL][-1]
    return Measurement(
        Check("the law and its equation", flow.weights, law.weights, relative=False),
        in_training("error of v up to t*", 0.0, off.max(), AT_MOST, tolerance=SMALL),
        premise("change of the incoming gradient up to t*", SMALL, change.max()),
        number=BLOW_UP,
        training_number=float(good),
        note=f"with cross entropy the gradient has changed by {np.interp(0.5, part, change):.2f} "
        f"at t*/2 and by {change.max():.2f} at t*, where v is finite; the law is right to a tenth "
        f"up to {good:.2f} t*",
    )


@claim(ABOVE, "JoMA, claim 2; re-derived", EXP, (one_query,))
def joma_winner(s: Case) -> Measurement:
    r"""Winner takes all: at $t^*$ one token has all attention, the others are frozen at $v_l =
    \sqrt{2} \operatorname{erf}^{-1}(\Delta_l/\Delta_{\max})$.

    Check a share above 0.99 for the largest |Delta|, and |v| of the others by frozen_weights: the
    erf law at (1 - 1e-12) t*, and the flow of Joint with cross entropy at 2 t*. All attention is
    read as 0.99.
    """
    close = theory.erf_law(DELTA, BLOW_UP * (1 - 1e-12))
    share = formulas.attention_weights(s, close.logits[None])
    frozen = theory.frozen_weights(DELTA)
    length = np.linalg.norm(close.weights, axis=0)
    finite = np.isfinite(frozen)
    run = trained(s)
    top = run["attention"].max("token").values
    change = float(implied(s)["gradient_change"].values[-1])
    return Measurement(
        Check("share of each class's winner at t*", 0.99, share.max(1), ABOVE),
        Check("where the others freeze", frozen[finite], length[finite], EQUAL, tolerance=1e-6),
        Check("share of each class's winner at 2 t*", 0.99, top[-1], ABOVE, training=True),
        premise("change of the incoming gradient", SMALL, change),
        number=float(np.where(finite, frozen, 0.0).max()),
        training_number=float(top[-1].mean()),
    )
