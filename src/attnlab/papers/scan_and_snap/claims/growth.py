"""Appendix D.2, D.3: how the decoder grows, h* and h (Lemmas 5 to 7, Remark 2)."""

from typing import Any

import numpy as np
import scipy

from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import slope
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.tasks.classes import SequenceClasses
from attnlab.theory import Case, Check
from attnlab.theory.relation import AT_LEAST, AT_MOST, EQUAL, SETTLES, up_to

from .. import cases, theory
from ..cases import FIG3
from . import in_training


@claim(EQUAL, "Lemma 5, Eqs. 31-33", FIG3, tolerance=1e-11)
def lemma_5(case: Case) -> Measurement:
    r"""If class $n$ is visited at each of $s$ steps, $w_n(s) = (M-1) h^*(s) \zeta_n$ with $h^*(0) =
    0$ and $h^*(s) = h^*(s-1) + \frac{\eta_Y}{(M-1) + \exp(M h^*(s-1))}$.

    Compare all M logits of one class, and the loss of two classes without overlap, with the update
    iterated on all logits and with the simulator's steps. The tolerance is rounding, over 1,000
    steps.
    """
    M, eta_y, steps = 50, 0.7, np.array([1, 10, 100, 1000])
    w, seen = np.zeros(M), {}
    for s in range(1, steps[-1] + 1):
        w = w + eta_y * (np.eye(M)[0] - scipy.special.softmax(w))
        seen[s] = w
    predicted = [theory.class_logits(theory.h_star(s, M=M, eta_y=eta_y), M=M)[0] for s in steps]

    # Training: classes without overlap have orthogonal f_n, so that each row of W learns alone
    # and attention does not move. An expected-gradient step is a visit at the rate eta_Y / K.
    apart = SequenceClasses([{0: 1.0}, {1: 1.0}], [2, 2], [3, 4], vocab_size=M)
    visited = Case(apart, eta_y, 1.0, steps[-1])
    settings: dict[str, Any] = {"gradient": "population", "what": "loss", "at": steps.tolist()}
    loss = cases.train_steps(visited, int(steps[-1]), **settings)["loss"].isel(seed=0).values
    x = M * theory.h_star(steps, M=M, eta_y=eta_y / 2)
    return Measurement(
        Check("w_n after s steps", predicted, [seen[s] for s in steps]),
        in_training("loss after s steps", np.log1p((M - 1) * np.exp(-x)), loss),
    )


def integrate_h(t: FloatArray, *, M: float, eta_y: float) -> FloatArray:
    """h(t) by a stiff solver of Eq. 44, in x = M h."""
    solution = scipy.integrate.solve_ivp(
        lambda _, x: M * eta_y / (M - 1.0 + np.exp(x)),
        (0.0, t[-1]),
        [0.0],
        method="LSODA",
        t_eval=t,
        rtol=1e-12,
        atol=1e-14,
    )
    return np.asarray(solution.y[0] / M)


@claim(EQUAL, "Lemma 6, Eqs. 44, 45", FIG3, tolerance=1e-9)
def lemma_6(s: Case) -> Measurement:
    r"""The solution of $\frac{dh}{dt} = \frac{\eta_Y}{(M-1) + \exp(Mh)}$ with $h(0) = 0$ has
    $\exp(M h(t)) + (M-1) M h(t) = M \eta_Y t + 1$.

    Compare h(t) in closed form, by the Wright omega function, with a stiff solver of Eq. 44 at
    relative tolerance 1e-12. The tolerance is what the solver accumulates over nine decades of t.
    """
    t, sizes = np.geomspace(1e-2, 1e7, 40), np.array([3.0, 30.0, 1e3, 1e6])
    closed = [theory.h(t, M=M, eta_y=0.5) for M in sizes]
    solved = [integrate_h(t, M=M, eta_y=0.5) for M in sizes]
    return Measurement(Check("h(t)", closed, solved))


def _gap(steps: IntArray, *, M: float, eta_y: float) -> FloatArray:
    """h* - h after each number of visits."""
    return np.asarray(theory.h_star(steps, M=M, eta_y=eta_y) - theory.h(steps, M=M, eta_y=eta_y))


@claim(AT_MOST, "Lemma 7", FIG3, tolerance=1e-15)
def lemma_7(s: Case) -> Measurement:
    r"""$0 \le h^*(s) - h(s) \le \frac{2 \eta_Y}{M}$; some $c = \Theta(1)$ gives $h(s+c) \ge h^*(s)
    \ge h(s)$ for $s \le \ln(M)/\eta_Y$; $h^*(s) - h(s) \to 0$ as $s \to +\infty$.

    Compare the bounds, and a gap below 1 % of its peak by s = 10^5, with the recursion of Eq. 33
    less the closed form of h. The tolerance is the rounding of h, which is about 1e-3.
    """
    sizes, rates = np.array([4.0, 100.0, 1000.0]), np.array([0.1, 0.99])
    steps = np.unique(np.geomspace(1, 1e5, 200).astype(int))
    gap = np.array([[_gap(steps, M=M, eta_y=y) for y in rates] for M in sizes])
    M, y = sizes[:, None, None], rates[:, None]
    unit, printed = (theory.h_gap_bound(M=M, eta_y=y, form=of) for of in ("corrected", "printed"))
    early = np.array([theory.h_lead(int(np.log(M) / 0.1), M=M, eta_y=0.1) for M in sizes])
    return Measurement(
        Check("h* >= h", 0.0, gap, AT_LEAST),
        Check("h* - h <= 2 eta_Y/M", printed + 0 * gap, gap, AT_MOST),
        Check("lead in visits at ln M/eta_Y", 1.0, early, up_to(2.0)),
        Check("h* - h at s = 10^5, over its peak", 0.01, gap[..., -1] / gap.max(-1), AT_MOST),
        number=float((gap / unit).max()),
    )


@claim(AT_MOST, "Lemma 7(b), proof", FIG3)
def lemma_7_proof(s: Case) -> Measurement:
    r"""From some $s$ on $h(s+1) - h(s) \le \epsilon + \frac{\ln(1/2)}{M}$ (so that $h^* - h \to
    0$).

    Check whether a small step of h lies below epsilon - ln 2/M, with the largest epsilon that the
    gap allows; the corrected form is the result itself, h* - h -> 0.
    """
    M, eta_y = 1000.0, 0.9
    steps = np.unique(np.geomspace(1, 1e5, 60).astype(int))
    gap = _gap(steps, M=M, eta_y=eta_y)
    ahead = theory.h(steps + 1.0, M=M, eta_y=eta_y) - theory.h(steps, M=M, eta_y=eta_y)
    # The proof supposes h* - h >= epsilon for all s, so that epsilon is at most the gap.
    right, left = float(gap.max()) + np.log(0.5) / M, float(gap[-1] / gap.max())
    return Measurement(
        Check("h(s+1) - h(s) against epsilon + ln(1/2)/M", right, ahead),
        Check("h* - h at s = 10^5, over its peak", 0.01, left, form="corrected"),
        number=M * right,
        note=f"M = 1000, eta_Y = 0.9: the gap is at most {M * gap.max():.3f}/M, so that the right "
        f"side is at most {M * right:.3f}/M, and h rises; that h* - h -> 0 is true",
    )


@claim(SETTLES, "Remark 2", FIG3, tolerance=0.01)
def remark_2(s: Case) -> Measurement:
    r"""If $\eta_Y = O(1)$, a constant $c = O(\ln M)$ gives $h(s) \le h^*(s) \le h(s+c)$ for all $s
    > s_1$.

    Check that the lead c(s) of h* over h, found by inverting h, does not grow with s. An exponent
    of 0.01 would add 2 % in a decade; it is 0.08.
    """
    M, eta_y, steps = 1000.0, 0.99, np.array([10**4, 10**5, 10**6])
    lead = theory.h_lead(steps, M=M, eta_y=eta_y)
    return Measurement(
        Check("exponent of c(s) in s", 0.0, slope(steps[1:], lead[1:]), relative=False),
        number=float(lead[-1]),
        note=f"M = 1000, eta_Y = 0.99: h(s + c) = h*(s) needs c = {lead[0]:.2f}, {lead[1]:.2f}, "
        f"{lead[2]:.2f} at s = 10^4, 10^5, 10^6 (ln M = {np.log(M):.2f}); c grows like (1/2) ln s",
    )
