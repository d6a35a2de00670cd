"""Section 6 in words: what the learning rates do to attention."""

import numpy as np

from attnlab import measures
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed, slope
from attnlab.auditing.runs import trained
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, BELOW, EQUAL, within

from .. import cases, theory
from ..cases import FIG3, SLOWER, SYN_SMALL, TURNS, WEAK
from ..hypotheses import ASSUMPTION_1, RATES_CHANGED, rate_window, single_common_token, single_query
from . import in_training, on_both_paths

# eta_Y from 30 eta_Z to nearly 1.
ETA_Z = 0.005
ETA_Y = (0.15, 0.2, 0.3, 0.45, 0.65, 0.9)
SLOW = 0.1  # of its peak speed
SNAPPING = (*ASSUMPTION_1, rate_window, single_query, single_common_token)


@claim(
    within(5.0),
    ["Section 6 (a), Theorem 4", "slides"],
    FIG3.at(eta_y=ETA_Y[0], eta_z=ETA_Z),
    SNAPPING,
)
def snap_time(s: Case) -> Measurement:
    r"""Attention snaps at about $t_0 \approx 2K \ln M/\eta_Y$; a larger $\eta_Y$ snaps earlier.

    Compare t_0, and its fall with eta_Y at fixed eta_Z, with the time from which on attention moves
    at less than a tenth of its peak speed, by Eq. 10 and in the joint flow. The paper names no
    threshold: a tenth is ours. t_0 is where gamma's decay begins, and gamma itself is at a tenth by
    2 t_0; a smaller threshold comes later (the note has 2 %).
    """
    rates = tuple((y, s.eta_z) for y in ETA_Y)
    run = trained(s.classes, rates, s.steps)
    times = run["time"].values
    by_eq_10 = [
        cases.as_dataset(at, times, cases.eq_10(at, times).logits)
        for at in (s.at(eta_y=y) for y in ETA_Y)
    ]
    slowed = {
        "training": measures.slowed_time(run, share=SLOW).isel(sequence_class=0).values,
        "Eq. 10": np.array([float(measures.slowed_time(of, share=SLOW)[0]) for of in by_eq_10]),
    }
    snaps = measures.snap_time(run).isel(sequence_class=0).values
    about = 2.0 * s.K * np.log(s.M) / np.array(ETA_Y)
    sooner = {name: slow[1:] for name, slow in slowed.items()}
    later = {name: slow[:-1] for name, slow in slowed.items()}
    ratio = slowed["training"] / about
    return Measurement(
        *on_both_paths("slowed to a tenth, over 2 K ln M/eta_Y", about, slowed),
        *on_both_paths("a larger eta_Y slows earlier", later, sooner, BELOW, tolerance=0.0),
        number=float((slowed["Eq. 10"] / about)[-1]),
        training_number=float(ratio[-1]),
        note="over 2 K ln M/eta_Y, training slows to a tenth of its peak speed at "
        f"{listed(ratio, '.2f')} and to 2 % (a snap) at {listed(snaps / about, '.1f')} for eta_Y = "
        f"{ETA_Y[0]:g} to {ETA_Y[-1]:g}; the first goes as "
        f"eta_Y^{slope(ETA_Y, slowed['training']):.2f}, not eta_Y^-1; t_0 itself is "
        f"{cases.transition_time(s.at(eta_y=ETA_Y[-1])) / about[-1]:.2f} times 2 K ln M/eta_Y",
    )


@claim(ABOVE, ["Section 6 (b), Appendix F (a), Fig. 9", "poster (1)"], SLOWER, RATES_CHANGED)
def both_rates_sparser(s: Case) -> Measurement:
    r"""Scaling up both $\eta_Y$ and $\eta_Z$ gives larger $B_n(t)$ as $t \to +\infty$, hence
    sparser attention.

    Check that B_n rises and entropy falls with a common factor of both rates at fixed t, by Eq. 10
    and in the joint flow at eta_Y/eta_Z = 30. Only the order counts.
    """
    factors = (1.0, 2.0, 4.0, 8.0)
    t = np.array([cases.transition_time(s), 10 * cases.transition_time(s), 1e6])
    faster = [s.at(eta_y=k * s.eta_y, eta_z=k * s.eta_z) for k in factors]
    B = np.array([cases.eq_10(at, t).growth_bound[:, 0] for at in faster])
    same = np.array([cases.eq_10(s, k * t).growth_bound[:, 0] for k in factors])
    run = trained(s.classes, tuple((at.eta_y, at.eta_z) for at in faster), s.steps)
    entropy = cases.mean_entropy(run).sel(time=slice(cases.transition_time(s), None)).values
    slow = cases.mean_entropy(cases.at_ratios(SYN_SMALL).sel(ratio=1.0))
    falls = "entropy falls with both rates at the end, training"
    return Measurement(
        Check("B_n grows with both rates, Eq. 10", B[:-1], B[1:]),
        Check("B_n(t; k eta) = B_n(k t; eta)", same, B, EQUAL, tolerance=1e-7),
        in_training(falls, entropy[:-1, -1], entropy[1:, -1], BELOW),
        number=float(B[-1, 0] / B[0, 0]),
        training_number=float(entropy[-1, -1] - entropy[0, -1]),
        note="it is a rescaling of time, in Eq. 10 and in training; where eta_Y/eta_Z is not large "
        "training turns back: Syn-Small at ratio 1 goes from entropy "
        f"{float(slow.interp(time=1e3)):.4f} at t = 10^3 to {float(slow[-1]):.4f} at 10^6",
    )


@claim(
    BELOW,
    "Section 6 (c), Appendix F (b), Figs. 3, 4, 6",
    WEAK.at(eta_y=0.25, eta_z=0.001),
    RATES_CHANGED,
)
def eta_y_denser(s: Case) -> Measurement:
    r"""At fixed $\eta_Z$, a larger $\eta_Y$ gives smaller $B_n(t)$ for $t \ge t_0$: denser
    attention.

    Check that B_n falls and entropy rises with eta_Y at fixed t and eta_Z, by Eq. 10 and in the
    joint flow from t_0 to 10^10, at ratios from 200 to 990. Only the order counts.
    """
    found = cases.densities(s.classes, eta_z=s.eta_z)
    fast = found.sel(ratio=slice(200.0, None))
    slowest = s.at(eta_y=s.eta_z * float(fast["ratio"][0]))
    fast = fast.sel(time=slice(cases.transition_time(slowest), None))
    ratio, entropy = fast["ratio"].values, fast.values
    t = np.geomspace(fast["time"][0], 1e6, 4)
    B = np.array([cases.eq_10(s.at(eta_y=s.eta_z * r), t).growth_bound[:, 0] for r in ratio])
    rises = "entropy rises as eta_Y grows, t >= t_0, training"
    turns = {clock: cases.turning_ratio(found, clock / s.eta_z) for clock in TURNS}
    small = cases.turning_ratio(cases.densities(SYN_SMALL.classes, eta_z=s.eta_z), 1e6 / s.eta_z)
    return Measurement(
        Check("B_n falls as eta_Y grows, t >= t_0, Eq. 10", B[:-1], B[1:], BELOW),
        in_training(rises, entropy[:-1], entropy[1:], ABOVE),
        number=float(B[-1, 0] / B[0, 0]),
        training_number=turns[max(TURNS)],
        note=f"eta_Z = {s.eta_z:g}: a larger eta_Y is denser from the ratio "
        f"{listed(turns.values(), '.2g')} on, at eta_Z t = {listed(turns, '.0e')} (Syn-Small: "
        f"{small:.2g} at 10^6), and sparser below. Under Eq. 10 the order holds from eta_Y t/K = "
        f"{theory.density_threshold(K=1, M=s.M, eta_y=1.0):.1f} on",
        holds_from=turns[max(TURNS)],
    )
