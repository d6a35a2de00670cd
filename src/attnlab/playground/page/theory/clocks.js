/**
 * The clocks of the theory: the growth h of the decoder (Lemma 6), gamma and its reduced time
 * (Lemma 9, Eq. 128), the transition times t_0' and t_0, and momentum in plain steps (ours).
 * Time t counts batch-1 steps; a class that is drawn with probability p is seen p t times.
 */

/** M h after a number of visits: the root of exp(x) - 1 + (M - 1) x = M eta_Y visits (Eq. 45). */
export function scaledGrowth(visits, M, etaY) {
  const a = M - 1, c = M * etaY * visits
  if (c === 0) return 0
  // both bounds are above the root, from where Newton's method comes down to it
  let x = Math.min(c / M, Math.log1p(c))
  for (let i = 0; i < 60; i++) {
    const step = (Math.expm1(x) + a * x - c) / (a + Math.exp(x))
    x -= step
    if (Math.abs(step) <= 1e-15 * x) break
  }
  return x
}

/** gamma(t) = (M - 1)^2 h / (M - 1 + exp(M h)) for a class of probability p. */
export function gamma(t, p, M, etaY) {
  const x = scaledGrowth(t * p, M, etaY)
  return (((M - 1) ** 2 / M) * x) / (M - 1 + Math.exp(x))
}

/** Gamma(t), eta_Z times the integral of gamma, with K classes drawn alike (Eq. 128). */
export function reducedTime(t, K, M, etaY, etaZ) {
  const growth = ((M - 1) / M) * scaledGrowth(t / K, M, etaY)
  return ((etaZ / etaY) * K * growth ** 2) / 2
}

/** t_0' = ln M / (p eta_Y) and t_0 = 2 (1 + omega_1) t_0' (Lemma 9), in plain steps. */
export function transitionTimes(p, M, etaY) {
  const a = M - 1
  // the larger zero of exp(x) = (M - 1) x, from above (Lemma 8)
  let x = 2 * Math.log(a) + 2
  for (let i = 0; i < 60; i++) x -= (x - Math.log(a * x)) / (1 - 1 / x)
  const omega1 = (Math.log(x) + Math.log1p(-1 / M)) / Math.log(M)
  const t0Prime = Math.log(M) / (p * etaY)
  return { t0Prime, t0: 2 * (1 + omega1) * t0Prime }
}

/** How many plain steps t steps with momentum amount to, for a gradient that stays the same. */
export function momentumTime(t, mu) {
  return (t - (mu * (1 - mu ** t)) / (1 - mu)) / (1 - mu)
}

/** The inverse of `momentumTime`. */
export function momentumSteps(t, mu) {
  if (mu === 0) return t
  const a = mu / (1 - mu)
  let s = t * (1 - mu) + a
  for (let i = 0; i < 80; i++) {
    const step = (momentumTime(s, mu) - t) / ((1 + a * Math.log(mu) * mu ** s) / (1 - mu))
    s -= step
    if (Math.abs(step) <= 1e-14 * Math.max(s, 1)) break
  }
  return Math.max(s, 0)
}
