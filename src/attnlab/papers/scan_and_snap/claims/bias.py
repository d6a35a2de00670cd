"""Sections 1, 5 and 6 in words: what attention favours, that it slows down, and the rates."""

from itertools import pairwise
from typing import Any

import numpy as np
import scipy

from attnlab import formulas, measures
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed, slope
from attnlab.auditing.runs import TRAINED_RATIOS, holds_from, trained
from attnlab.formulas.checks import FloatArray
from attnlab.simulation import simulate
from attnlab.theory import Case, Check
from attnlab.theory.relation import ABOVE, AT_MOST, BELOW, EQUAL, SETTLES, Trained, within

from .. import cases, theory
from ..cases import FIG3, LATE, SLOWER, SYN_SMALL, TURNING, TURNS, UNEVEN, WEAK
from ..hypotheses import (
    ALONG_EQ_10,
    ASSUMPTION_1,
    FAST,
    ONE_COMMON,
    RATES_CHANGED,
    rate_window,
    single_common_token,
    single_query,
)
from . import by_path, falling, on_both_paths
from .attention import TIMES


@claim(
    ABOVE, "Sections 1, 5 (frequency bias, token scanning)", SYN_SMALL, ASSUMPTION_1, general=True
)
def frequency_bias(s: Case) -> Measurement:
    """Attention favours the tokens that co-occur often, and drops the rare ones first.

    Compare the order of P(l|n) with that of the logits of distinct tokens, by Eq. 10 and in the
    joint flow on Syn-Small, eta_Y/eta_Z = 30. Only the order counts.
    """
    n, _, _ = cases.most_and_least_frequent(s)
    tokens = cases.by_frequency(s, n)
    # an order needs unequal probabilities
    tokens = tokens[np.append(True, np.diff(s.P[n, tokens]) > 0)]
    rising, share = {}, {}
    for name, path in cases.both_paths(s).items():
        rising[name] = np.diff(path[-1, s.psi[n], tokens])
        c = formulas.attention_weights(s, path)[:, n]
        rarest = c[:, tokens[0]] / c[:, tokens[-1]]
        share[name] = float(rarest[-1] / rarest[0])
    return Measurement(*on_both_paths("z rises with P(l|n)", 0.0, rising), **by_path(share))


def _dominant_attention(s: Case, z: FloatArray) -> FloatArray:
    """Attention to each class's most frequent distinct token, (..., K); z is (..., Q, L)."""
    top = np.where(formulas.token_roles(s).distinct, s.P, 0.0).argmax(axis=1)
    return np.asarray(formulas.attention_weights(s, z)[..., np.arange(s.K), top])


@claim(ABOVE, "Abstract, Section 5", UNEVEN, ONE_COMMON)
def distinct_attention(s: Case) -> Measurement:
    """Over training distinct tokens gain attention (of each class the dominant one).

    Check that attention to the most frequent distinct token of each class rises, along Eq. 10 to t
    = 10^7 and in the joint flow to 10^10 (net gain: to 10^20). Only the sign counts.
    """
    times, z = cases.training_path(s)
    paths = cases.both_paths(s, TIMES)
    gained = {name: np.diff(_dominant_attention(s, of), axis=0) for name, of in paths.items()}
    gains = np.diff(_dominant_attention(s, cases.logits(s, cases.at_ratios(s))), axis=1)
    attention = _dominant_attention(s, z)[:, 0]
    late = cases.at_ratios(LATE)
    rare = _dominant_attention(LATE, cases.logits(LATE, late))[..., 1]
    turns = [cases.first_turn(late["time"].values, path) for path in rare]
    above_start = f"attention at t = {LATE.steps:.0e} above the start, where it turns, training"
    fast = TRAINED_RATIOS.index(FAST)
    turned = {r: turn for r, turn in zip(TRAINED_RATIOS, turns, strict=True) if np.isfinite(turn)}
    return Measurement(
        *on_both_paths("gain of attention between records", 0.0, gained),
        Trained(above_start, rare[:, 0], rare[:, -1]),
        number=float(_dominant_attention(s, cases.eq_10(s, TIMES[-1:]).logits)[0, 0]),
        training_number=float(attention[-1]),
        note=f"{s.classes.origin}: attention to token 1 goes from {attention[0]:.3f} to "
        f"{attention[-1]:.3f} by t = {times[-1]:.0e} while its logit ends at {z[-1, 0, 1]:+.4f}, "
        f"because the common token's falls faster. It can fall, much later: {LATE.classes.origin}, "
        f"attention to token 2 rises from {rare[fast, 0]:.3f} to {rare[fast].max():.3f}, at t = "
        f"{turns[fast]:.1e}, and is {rare[fast, -1]:.3f} at {LATE.steps:.0e}; for eta_Y/eta_Z = "
        f"{listed(turned, 'g')} it turns at t = {listed(turned.values(), '.1e')}",
        holds_from=holds_from([bool((gain > 0).all()) for gain in gains]),
    )


@claim(BELOW, "Abstract, Section 1; Section 5 after Theorem 2", WEAK, ONE_COMMON)
def discriminative_bias(s: Case) -> Measurement:
    """A common token loses attention (for several it "can be a bit involved").

    Check that attention to the common token falls, along Eq. 10 to t = 10^7 and in the joint flow
    to t = 10^10. Only the sign counts.
    """
    common = int(np.flatnonzero(formulas.token_roles(s).common)[0])
    weights = {
        name: formulas.attention_weights(s, path)[:, 0, common]
        for name, path in cases.both_paths(s, TIMES).items()
    }
    kept = {name: float(c[-1] / s.P[0, common]) for name, c in weights.items()}
    return Measurement(*falling("attention to the common token", weights), **by_path(kept))


# The draw on which the criterion is tried: pairs of classes of one query with three common tokens
# and a distinct one each, both rows uniform on the simplex, kept where Assumption 2 holds.
PAIRS = 200


def random_pairs(M: int) -> FloatArray:
    """Draw `PAIRS` pairs of classes that share three tokens, (pair, class, token), seed 27."""
    rng = np.random.default_rng(27)
    pairs: list[FloatArray] = []
    while len(pairs) < PAIRS:
        rows = rng.dirichlet(np.ones(4), 2)
        P = np.hstack([rows[:, :3], np.diag(rows[:, 3])])
        if theory.assumption_2(theory.correlation(P), M=M).holds:
            pairs.append(P)
    return np.array(pairs)


@claim(
    EQUAL,
    'Section 5, "the condition can be a bit involved"',
    TURNING,
    (*ALONG_EQ_10, single_query),
    ours=True,
)
def several_common_tokens(s: Case) -> Measurement:
    r"""$K = 2$ equally frequent classes of one query: the first move of a common token $l$ is a
    loss iff $f_1^\top f_2 < \frac{2 f_{1l} f_{2l}}{f_{1l}^2 + f_{2l}^2}$ at the start.

    Compare the sign of dz/dt at the start by the criterion with Eq. 10's velocity at t = 0, and
    with z in the joint flow at t = 0.01 (200 random pairs); nothing is said about the end. Only the
    sign counts.
    """
    rest = np.zeros((1, 5))
    pairs = random_pairs(s.M)
    rates: Any = {"eta_y": s.eta_y, "eta_z": s.eta_z}
    predicted = np.sign([theory.common_token_margin(P)[:3] for P in pairs])
    settings = [formulas.Setting(P, M=s.M, **rates) for P in pairs]
    first = [theory.attention_velocity(of, rest)[0, :3] for of in settings]
    end = [theory.attention_flow(of, s.steps).logits[0, :3] for of in settings]
    trained = simulate(
        [cases.two_by_hand(P.tolist(), s.M) for P in pairs],
        **rates,
        time=s.steps,
        what="logits",
        at=[0.0, 1e-2, s.steps],
        dtype="float64",
        progress=False,
    )["attention_logits"].isel(seed=0, query=0, token=slice(3))
    first_trained, end_trained = trained.isel(time=1).values, trained.isel(time=2).values
    signs = np.sign(first_trained)
    turned, turned_trained = (int((np.sign(z) != predicted).sum()) for z in (end, end_trained))
    _, z = cases.training_path(s)
    return Measurement(
        Check(f"sign of dz/dt at t = 0, {PAIRS} random pairs", predicted, np.sign(first)),
        Trained(f"sign of z at t = 0.01, {PAIRS} random pairs, training", predicted, signs),
        number=float(turned),
        training_number=float(turned_trained),
        note=f"the criterion is about the first move. {s.classes.origin}: token 1 is "
        f"{theory.common_token_margin(s)[1]:.3f} above the border, rises to z = "
        f"{z[:, 0, 1].max():+.1e} in training and ends at {z[-1, 0, 1]:+.4f} at t = {s.steps:.0e}. "
        f"Of {predicted.size} common tokens of {PAIRS} random pairs (uniform on the simplex, "
        f"within Assumption 2, seed 27) {turned} have the other sign by then under Eq. 10, "
        f"{turned_trained} in training",
    )


@claim(ABOVE, "Abstract, Sections 1, 6", SYN_SMALL, ASSUMPTION_1)
def no_winner_takes_all(s: Case) -> Measurement:
    """Attention "will not collapse to one-hot": it slows down and looks frozen.

    Check that the effective number of distinct tokens stays above 2, and changes about
    logarithmically in time, by Eq. 10 to 10^12 and in training to 10^6. At 2 nearly one token would
    be left; an exponent below 0.05 is logarithmic to the eye.
    """
    times = np.geomspace(1.0, 1e12, 40)
    path = cases.as_dataset(s, times, cases.eq_10(s, times).logits)
    run = cases.at_ratios(s).sel(ratio=FAST)
    left, exponents = {}, {}
    for name, result in (("Eq. 10", path), ("training", run)):
        entropy = cases.mean_entropy(result)
        left[name] = float(np.exp(entropy[-1]))
        decades = [entropy.interp(time=result["time"][-1] / 10.0**i) for i in (2, 1, 0)]
        moved = [float(abs(later - sooner)) for sooner, later in pairwise(decades)]
        exponents[name] = slope([1.0, 10.0], moved)
    settles: dict[str, Any] = {"relation": SETTLES, "relative": False, "tolerance": 0.05}
    return Measurement(
        *on_both_paths("effective distinct tokens at the end", 2.0, left),
        *on_both_paths("exponent in t of what a decade moves", 0.0, exponents, **settles),
        **by_path(left),
        note="at finite t: by Theorems 3 and 4 B_n goes to infinity, so that the limit is one-hot",
    )


@claim(
    SETTLES,
    "Theorem 4 (scanning, snapping)",
    WEAK,
    (*ASSUMPTION_1, single_query, single_common_token),
)
def scan_and_snap(s: Case) -> Measurement:
    r"""$\chi_{l_0}(t)$ of the dominant token grows (sub-)linearly up to $t_0'$, as $O(\ln t)$ from
    $t_0$ on.

    Check that chi, under Eq. 10 and in the joint flow to t = 10^10, is at most linear in t up to
    t_0', and that from t_0 on an e-fold of t adds a bounded amount. Both are judged by exponents.
    """
    t0_prime, t0 = theory.transition_times(**cases.clock(s))
    times, path = cases.training_path(s)
    _, high, _ = cases.most_and_least_frequent(s)
    quicker, fastest, powers, exponents = {}, {}, {}, {}
    for name, z in (("Eq. 10", cases.eq_10(s, times).logits), ("training", path)):
        chi = theory.growth_factor(z[:, 0, high])
        early = (times > 0) & (times <= t0_prime)
        powers[name] = (np.diff(np.log(chi[early])) / np.diff(np.log(times[early]))).max()
        # From t_0 on, at times between the records as well: d chi/d ln t.
        late = np.geomspace(t0, times[-1], 1000)
        spline = scipy.interpolate.CubicSpline(np.log(times[1:]), chi[1:])
        per_fold = spline.derivative()(np.log(late))
        quicker[name] = float(per_fold.max() / per_fold[0])
        fastest[name] = float(late[per_fold.argmax()])
        last = late >= times[-1] / 10.0
        exponents[name] = slope(late[last], per_fold[last])
    late_growth = "exponent of chi's growth per e-fold of t, last decade"
    done = float(path[times == t0, 0, high].item() / path[-1, 0, high])
    return Measurement(
        *on_both_paths("exponent of chi in t up to t_0'", 1.0, powers, AT_MOST),
        *on_both_paths(late_growth, 0.0, exponents, relative=False),
        **by_path(quicker),
        note=f"two classes, eta_Y/eta_Z = {s.eta_y / s.eta_z:.3g}: in training an e-fold of t adds "
        f"most at t = {fastest['training']:.1e}; by t_0 = {t0:.3g} the dominant logit has made "
        f"{done:.1%} of its way to t = {times[-1]:.0e}: t_0 is not where it slows down",
    )


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
        Trained(falls, entropy[:-1, -1], entropy[1:, -1], BELOW),
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
        Trained(rises, entropy[:-1], entropy[1:], ABOVE),
        number=float(B[-1, 0] / B[0, 0]),
        training_number=turns[max(TURNS)],
        note=f"eta_Z = {s.eta_z:g}: a larger eta_Y is denser from the ratio "
        f"{listed(turns.values(), '.2g')} on, at eta_Z t = {listed(turns, '.0e')} (Syn-Small: "
        f"{small:.2g} at 10^6), and sparser below. Under Eq. 10 the order holds from eta_Y t/K = "
        f"{theory.density_threshold(K=1, M=s.M, eta_y=1.0):.1f} on",
        holds_from=turns[max(TURNS)],
    )
