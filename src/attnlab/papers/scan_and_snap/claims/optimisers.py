"""Sections 8 and 9: statements about Adam, and about spurious tokens in small training sets.

The studies `optimizers` and `spurious` (docs/studies/) go further; here is what decides a verdict.
"""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.auditing import Measurement, claim
from attnlab.auditing.fit import listed
from attnlab.formulas.checks import FloatArray
from attnlab.simulation import simulate
from attnlab.tasks.classes import symmetric
from attnlab.theory import Case, Check
from attnlab.theory.relation import BELOW

from .. import cases, theory
from ..cases import SYN_SMALL
from . import in_training

ADAM_RATES = (0.1, 0.5, 1.0)
ADAM_STEPS = 100
FAVOURITES = 4
# Many common tokens, of which a few short sequences show only some.
LENGTH, SEEDS = 8, 8
MANY_COMMON = Case(
    symmetric(num_classes=2, common=40, distinct=5, common_mass=0.5), 1.0, 5.0, 200.0, LENGTH
)
FEW, MANY = 8, 128
PRIOR = 1.0


@claim(BELOW, "Section 8, Fig. 5 (the paper leaves Adam for future work)", SYN_SMALL)
def adam_subsets(s: Case) -> Measurement:
    """With Adam, different learning rates focus on different subsets of distinct tokens.

    Check that favourites, the four most attended distinct tokens of a class, differ more between
    two rates than between two seeds of one rate, at T = 128 and three rates as in Fig. 5. Only the
    order counts; nothing is claimed on paper.
    """
    distinct = formulas.token_roles(s).distinct
    losing = int((theory.sign_fates(s)[distinct] < 0).sum())
    eta = xr.DataArray(list(ADAM_RATES), dims="rate")
    result = simulate(
        s.classes,
        eta_y=eta,
        eta_z=eta,
        steps=ADAM_STEPS,
        optimizer="adam",
        seeds=SEEDS,
        what="attention",
        at=(ADAM_STEPS,),
        progress=False,
    )
    end = result["attention"].isel(step=-1, token=s.classes.in_play)
    attention = end.transpose("rate", "seed", "sequence_class", "token").values
    ranks = np.argsort(np.argsort(-np.where(distinct, attention, -1.0), axis=-1), axis=-1)
    favourites = (ranks < FAVOURITES).astype(float)
    # Favourites that two runs have in common: (rate, seed, rate, seed), mean over classes.
    shared = np.einsum("rsnl,qtnl->rsqt", favourites, favourites) / s.K
    rates, seeds = range(len(ADAM_RATES)), range(SEEDS)
    within = [np.mean([shared[r, i, r, j] for i in seeds for j in seeds if i != j]) for r in rates]
    against = "two rates against two seeds of one rate"
    between = [shared[r, :, q, :].mean() for r in rates for q in rates if r < q]
    return Measurement(
        in_training(f"favourites in common: {against}", float(min(within)), between),
        training_number=float(max(between)),
        note=f"of the {FAVOURITES} most attended distinct tokens of a class, after {ADAM_STEPS} "
        f"steps, {SEEDS} seeds, rates {ADAM_RATES}: two seeds share {listed(within, '.2f')} at "
        f"each rate; rates 1 and 2, 1 and 3, 2 and 3 share {listed(between, '.2f')}. On paper "
        f"nothing is said of rates: of sign descent only that {losing} of {int(distinct.sum())} "
        "distinct tokens, the frequent ones, lose at first",
    )


@claim(BELOW, "Section 9", MANY_COMMON)
def spurious_tokens(s: Case) -> Measurement:
    """Much data or prior knowledge suppresses common tokens that seem distinct in little.

    Check that fewer common tokens gain under Eq. 10 on the token frequencies of a larger training
    set, and that attention to common tokens that training showed, beyond that of ever new data,
    falls: 8, 128 sequences, a prior. Only the order counts.
    """
    common = formulas.token_roles(s).common
    rng = np.random.default_rng(0)

    def share_gaining(sequences: int) -> float:
        """Return the share of common tokens that Eq. 10 on a training set's frequencies lifts."""
        shares = []
        for _ in range(50):
            counts = [rng.multinomial(sequences * (LENGTH - 1) // s.K, p) for p in s.P]
            seen = np.array(counts, dtype=float)
            drawn = seen.any(0)
            P, rest = seen[:, drawn] / seen.sum(1, keepdims=True), np.zeros((1, drawn.sum()))
            velocity = theory.attention_velocity(formulas.Setting(P, M=s.M), rest)[0]
            shares.append((velocity[common[drawn]] > 0).sum() / common.sum())
        return float(np.mean(shares))

    def trained(sequences: int | None, prior: float = 0.0) -> tuple[FloatArray, FloatArray]:
        """Return z(end) - z(0) and the mean attention of common tokens: (seed, token)."""
        tokens = s.classes.in_play[common]
        start = np.zeros(s.M)
        start[tokens] = -prior
        result = cases.train_steps(
            s,
            int(s.steps),
            length=LENGTH,
            training_set=sequences,
            batch_size=min(sequences or MANY, MANY),
            seeds=SEEDS,
            init=start,
            what=("attention", "logits"),
            dtype="float32",
        ).isel(step=-1, token=tokens)
        moved = result["attention_logits"].isel(query=0).values + prior
        return moved, result["attention"].mean("sequence_class").values

    def excess(seen: NDArray[np.bool_], attention: FloatArray, unlimited: FloatArray) -> float:
        """Attention to the tokens that training showed, beyond that of ever new data."""
        return float(((attention - unlimited.mean(0)) * seen).sum(-1).mean())

    few, many = share_gaining(FEW), share_gaining(MANY)
    unlimited = trained(None)[1]
    moved_small, small = trained(FEW)
    moved_large, large = trained(MANY)
    # from z(0) = 0 no move is too small for a float: what has not moved was never drawn
    in_small, in_large = moved_small != 0, moved_large != 0
    of_few, of_many = excess(in_small, small, unlimited), excess(in_large, large, unlimited)
    seen = "excess attention to common tokens seen"
    with_prior = excess(in_small, trained(FEW, PRIOR)[1], trained(None, PRIOR)[1])
    return Measurement(
        Check("share of common tokens that gain, larger training set", few, many, BELOW),
        in_training(f"{seen}, larger training set", of_few, of_many, BELOW),
        in_training("the same on few sequences, with a prior", of_few, with_prior, BELOW),
        number=few / many,
        training_number=of_few / of_many,
        note="one setting: T = 8, 40 common tokens with half of the mass. Over the seven settings "
        "of ./lab reproduce studies/spurious the excess falls in all; attention to common tokens "
        "that gained rises in one, where they gain from ever new sequences too",
    )
