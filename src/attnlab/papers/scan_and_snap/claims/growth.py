"""Appendix D.2, D.3: how the decoder grows, h* and h (Lemmas 5 to 7, Remark 2)."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlab.auditing.claim import Claim, Measurement, OnRecord
from attnlab.auditing.fit import slope
from attnlab.auditing.verdict import Verdict
from attnlab.data import SequenceClasses
from attnlab.dynamics import Limit, Save, simulate
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.cases import FIG3
from attnlab.theory.case import Case
from attnlab.theory.comparison import Check
from attnlab.theory.relation import AT_LEAST, AT_MOST, EQUAL, SETTLES, up_to


def _lemma_5(case: Case) -> Measurement:
    M, eta_y, steps = 50, 0.7, np.array([1, 10, 100, 1000])
    w, seen = np.zeros(M), {}
    for s in range(1, steps[-1] + 1):
        w = w + eta_y * (np.eye(M)[0] - scipy.special.softmax(w))
        seen[s] = w
    predicted = [theory.class_logits(theory.h_star(s, M=M, eta_y=eta_y), M=M)[0] for s in steps]

    # Training: classes without overlap have orthogonal f_n, so that each row of W learns alone
    # and attention does not move. An expected-gradient step is a visit at the rate eta_Y / K.
    apart = SequenceClasses([{0: 1.0}, {1: 1.0}], [2, 2], [3, 4], vocab_size=M)
    result = simulate(
        apart, Limit(), eta_y=eta_y, eta_z=1.0, steps=int(steps[-1]),
        momentum=0.0, save=Save("loss", at=steps.tolist()), dtype="float64", progress=False,
    )  # fmt: skip
    x = M * theory.h_star(steps, M=M, eta_y=eta_y / 2)
    return Measurement(
        (
            Check("w_n after s steps", predicted, [seen[s] for s in steps]),
            Check(
                "loss after s steps",
                np.log1p((M - 1) * np.exp(-x)),
                result["loss"].isel(seed=0).values,
                training=True,
            ),
        )
    )


lemma_5 = Claim(
    id="lemma-5",
    statement="w_n(s) = (M-1) h*(s) zeta_n, with the recursion of Eq. 33 for h*",
    latex=(
        r"If class $n$ is visited at each of $s$ steps, $w_n(s) = (M-1) h^*(s) \zeta_n$ with "
        r"$h^*(0) = 0$ and $h^*(s) = h^*(s-1) + \frac{\eta_Y}{(M-1) + \exp(M h^*(s-1))}$"
    ),
    source="Lemma 5, Eqs. 31-33",
    relation=EQUAL,
    case=FIG3,
    predicts="all M logits of one class, and the loss of two classes without overlap",
    measures="the update iterated on all logits; the simulator's steps",
    tolerance=1e-11,
    because="rounding, over 1,000 steps",
    code=("h_star", "class_logits"),
    test="tests/theory/test_growth.py::test_h_star_is_the_recursion_of_eq_33_in_any_order",
    figure="fig8",
    recorded=OnRecord(Verdict.EXACT, training=Verdict.EXACT),
    measure=_lemma_5,
)


def integrate_h(t: NDArray[np.float64], *, M: float, eta_y: float) -> NDArray[np.float64]:
    """h(t) by a stiff solver of Eq. 44, in x = M h."""
    solution = scipy.integrate.solve_ivp(
        lambda _, x: M * eta_y / (M - 1.0 + np.exp(x)), (0.0, t[-1]), [0.0],
        method="LSODA", t_eval=t, rtol=1e-12, atol=1e-14,
    )  # fmt: skip
    return np.asarray(solution.y[0] / M)


def _lemma_6(case: Case) -> Measurement:
    t, sizes = np.geomspace(1e-2, 1e7, 40), np.array([3.0, 30.0, 1e3, 1e6])
    return Measurement(
        (
            Check(
                "h(t)",
                [theory.h(t, M=M, eta_y=0.5) for M in sizes],
                [integrate_h(t, M=M, eta_y=0.5) for M in sizes],
            ),
        )
    )


lemma_6 = Claim(
    id="lemma-6",
    statement="h solves exp(M h) + (M-1) M h = M eta_Y t + 1",
    latex=(
        r"The solution of $\frac{dh}{dt} = \frac{\eta_Y}{(M-1) + \exp(Mh)}$ with $h(0) = 0$ has "
        r"$\exp(M h(t)) + (M-1) M h(t) = M \eta_Y t + 1$"
    ),
    source="Lemma 6, Eqs. 44, 45",
    relation=EQUAL,
    case=FIG3,
    predicts="h(t) in closed form, with the Wright omega function",
    measures="a stiff solver of Eq. 44 at relative tolerance 1e-12",
    tolerance=1e-9,
    because="what the solver accumulates over nine decades of t",
    code=("h", "h_inverse"),
    test="tests/theory/test_growth.py::test_h_obeys_its_differential_equation",
    figure="fig8",
    recorded=OnRecord(Verdict.EXACT),
    measure=_lemma_6,
)


def _lemma_7(case: Case) -> Measurement:
    sizes, rates = np.array([4.0, 100.0, 1000.0]), np.array([0.1, 0.99])
    steps = np.unique(np.geomspace(1, 1e5, 200).astype(int))
    gap = np.array(
        [
            [theory.h_star(steps, M=M, eta_y=y) - theory.h(steps, M=M, eta_y=y) for y in rates]
            for M in sizes
        ]
    )
    unit = np.array([[theory.h_gap_bound(M=M, eta_y=y) for y in rates] for M in sizes])[..., None]
    printed = np.array(
        [[theory.h_gap_bound(M=M, eta_y=y, form="printed") for y in rates] for M in sizes]
    )[..., None]
    early = np.array([theory.h_lead(int(np.log(M) / 0.1), M=M, eta_y=0.1) for M in sizes])
    return Measurement(
        (
            Check("h* >= h", 0.0, gap, AT_LEAST),
            Check("h* - h <= 2 eta_Y/M", printed + 0 * gap, gap, AT_MOST),
            Check("lead in visits at ln M/eta_Y", 1.0, early, up_to(2.0)),
            Check("h* - h at s = 10^5, over its peak", 0.01, gap[..., -1] / gap.max(-1), AT_MOST),
        ),
        number=float((gap / unit).max()),
    )


lemma_7 = Claim(
    id="lemma-7",
    statement="0 <= h* - h <= 2 eta_Y/M, h leads by O(1) visits up to ln M/eta_Y, h* - h -> 0",
    latex=(
        r"$0 \le h^*(s) - h(s) \le \frac{2 \eta_Y}{M}$; some $c = \Theta(1)$ gives $h(s+c) \ge "
        r"h^*(s) \ge h(s)$ for $s \le \ln(M)/\eta_Y$; $h^*(s) - h(s) \to 0$ as $s \to +\infty$"
    ),
    source="Lemma 7",
    relation=AT_MOST,
    case=FIG3,
    predicts="the bounds, and a gap below 1 % of its peak by s = 10^5",
    measures="the recursion of Eq. 33 against the closed form of h",
    tolerance=1e-15,
    because="rounding of h, which is about 1e-3",
    code=("h_gap_bound", "h_lead"),
    test="tests/theory/test_growth.py::test_lemma_7_and_its_tighter_bound",
    figure="fig8",
    number="the gap is at most {:.3g} eta_Y/M (so eta_Y/M does, and the proof's cases give it)",
    recorded=OnRecord(Verdict.HOLDS, 0.2094),
    measure=_lemma_7,
)


def _remark_2(case: Case) -> Measurement:
    M, eta_y, steps = 1000.0, 0.99, np.array([10**4, 10**5, 10**6])
    lead = theory.h_lead(steps, M=M, eta_y=eta_y)
    return Measurement(
        (Check("exponent of c(s) in s", 0.0, slope(steps[1:], lead[1:]), relative=False),),
        number=float(lead[-1]),
        note=f"M = 1000, eta_Y = 0.99: h(s + c) = h*(s) needs c = {lead[0]:.2f}, {lead[1]:.2f}, "
        f"{lead[2]:.2f} at s = 10^4, 10^5, 10^6 (ln M = {np.log(M):.2f}); c grows like (1/2) ln s",
    )


remark_2 = Claim(
    id="remark-2",
    statement="A constant c = O(ln M) gives h(s) <= h*(s) <= h(s + c) for all s > s_1",
    latex=(
        r"If $\eta_Y = O(1)$, a constant $c = O(\ln M)$ gives $h(s) \le h^*(s) \le h(s+c)$ for all "
        r"$s > s_1$"
    ),
    source="Remark 2",
    relation=SETTLES,
    case=FIG3,
    predicts="a lead c(s) of h* over h that does not grow with s",
    measures="the lead itself, by inverting h",
    tolerance=0.01,
    because="an exponent of 0.01 adds 2 % in a decade; it is 0.08",
    code=("h_lead",),
    test="tests/theory/test_growth.py::test_remark_2_fails_the_lead_grows_without_bound",
    figure="fig8",
    number="M = 1000, eta_Y = 0.99: c = {:.3g} at s = 10^6 (ln M = 6.91), 1.15 more each decade",
    recorded=OnRecord(Verdict.FAILS, 6.948),
    measure=_remark_2,
)


def _lemma_7_proof(case: Case) -> Measurement:
    M, eta_y = 1000.0, 0.9
    steps = np.unique(np.geomspace(1, 1e5, 60).astype(int))
    gap = theory.h_star(steps, M=M, eta_y=eta_y) - theory.h(steps, M=M, eta_y=eta_y)
    ahead = theory.h(steps + 1.0, M=M, eta_y=eta_y) - theory.h(steps, M=M, eta_y=eta_y)
    # The proof supposes h* - h >= epsilon for all s, so that epsilon is at most the gap.
    right = float(gap.max()) + np.log(0.5) / M
    return Measurement(
        (
            Check("h(s+1) - h(s) against epsilon + ln(1/2)/M", right, ahead),
            Check("h* - h at s = 10^5, over its peak", 0.01, float(gap[-1] / gap.max()),
                  form="corrected"),
        ),
        number=M * right,
        note=f"M = 1000, eta_Y = 0.9: the gap is at most {M * gap.max():.3f}/M, so that the right "
        f"side is at most {M * right:.3f}/M, and h rises; that h* - h -> 0 is true",
    )  # fmt: skip


lemma_7_proof = Claim(
    id="lemma-7-proof",
    statement="From some s on h(s+1) - h(s) <= epsilon + ln(1/2)/M (so that h* - h -> 0)",
    latex=(
        r"From some $s$ on $h(s+1) - h(s) \le \epsilon + \frac{\ln(1/2)}{M}$ (so that $h^* - h \to "
        r"0$)"
    ),
    source="Lemma 7(b), proof",
    relation=AT_MOST,
    case=FIG3,
    predicts="a small step of h below epsilon - ln 2/M; corrected: the result, h* - h -> 0",
    measures="both sides, with the largest epsilon that the gap allows",
    because="a bound",
    code=("h", "h_star"),
    test="tests/theory/test_growth.py::test_lemma_7_and_its_tighter_bound",
    figure="fig8",
    number="the right side is negative, {:.2g}/M, and h rises; the result is true",
    recorded=OnRecord(Verdict.CORRECTED, -0.5188),
    measure=_lemma_7_proof,
)

CLAIMS = (lemma_5, lemma_6, lemma_7, lemma_7_proof, remark_2)
