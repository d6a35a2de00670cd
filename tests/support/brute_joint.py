"""JoMA's model in plain loops: an MLP over attention, its loss and its gradient flow."""

import numpy as np
from scipy.integrate import solve_ivp
from scipy.stats import norm

from attnlab.formulas import Setting

PHI = {
    "linear": (lambda h: h, lambda h: 1.0 + 0.0 * h),
    "relu": (lambda h: np.maximum(h, 0.0), lambda h: 1.0 * (h > 0)),
    "gelu": (lambda h: h * norm.cdf(h), lambda h: norm.cdf(h) + h * norm.pdf(h)),
}


class Brute:
    def __init__(
        self,
        P,
        *,
        psi=None,
        target=None,
        weight=None,
        attention="softmax",
        activation="linear",
        temperature=1.0,
    ):
        self.P, (self.K, self.L) = np.asarray(P), np.shape(P)
        self.psi = [0] * self.K if psi is None else psi
        self.target = list(range(self.K)) if target is None else target
        self.weight = [1 / self.K] * self.K if weight is None else weight
        self.kind, self.T = attention, temperature
        self.phi, self.slope = PHI[activation]
        self.model = {"attention": attention, "activation": activation, "temperature": temperature}

    def setting(self, *, eta_w=None, eta_z=None):
        """The same, as the formulas take it."""
        return Setting(
            self.P, psi=self.psi, prior=self.weight, target=self.target, eta_y=eta_w, eta_z=eta_z
        )

    def attend(self, n, z):
        """b of class n, and db/dz."""
        x = self.P[n]
        if self.kind == "linear":
            return z * x / self.T, np.diag(x) / self.T
        b = np.exp(z / self.T) * x
        if self.kind == "exp":
            return b, np.diag(b) / self.T
        b = b / b.sum()
        return b, (np.diag(b) - np.outer(b, b)) / self.T

    def loss(self, v, r, z, V=None):
        total = 0.0
        for n in range(self.K):
            b, _ = self.attend(n, z[self.psi[n]])
            out = self.phi(v @ b + r[:, self.psi[n]])
            out = out if V is None else out @ V
            total += self.weight[n] * (np.log(np.exp(out).sum()) - out[self.target[n]])
        return total

    def slopes(self, v, r, z):
        """Minus the slope of the loss for v, r and z, without an upper layer."""
        dv, dr, dz = np.zeros_like(v), np.zeros_like(r), np.zeros_like(z)
        for n in range(self.K):
            m = self.psi[n]
            b, turn = self.attend(n, z[m])
            before = v @ b + r[:, m]
            out = np.exp(self.phi(before) - self.phi(before).max())
            g = (np.arange(len(v)) == self.target[n]) - out / out.sum()
            felt = self.weight[n] * g * self.slope(before)
            dv += np.outer(felt, b)
            dr[:, m] += felt
            dz[m] += turn.T @ (v.T @ felt)
        return dv, dr, dz

    def flow(self, t, *, eta_w, eta_z, v0=None, z0=None, rtol=1e-9, atol=1e-12):
        """v, r and z at time t, or along t where that is an array."""
        J, Q = max(self.target) + 1, max(self.psi) + 1
        v0 = np.zeros((J, self.L)) if v0 is None else v0
        z0 = np.full((Q, self.L), self.T if self.kind == "linear" else 0.0) if z0 is None else z0
        cuts = np.cumsum([J * self.L, J * Q])

        def unpack(state):
            v, r, z = np.split(state, cuts)
            return v.reshape(J, self.L), r.reshape(J, Q), z.reshape(Q, self.L)

        def velocity(_, state):
            dv, dr, dz = self.slopes(*unpack(state))
            return np.concatenate([eta_w * dv.ravel(), eta_w * dr.ravel(), eta_z * dz.ravel()])

        start = np.concatenate([v0.ravel(), np.zeros(J * Q), z0.ravel()])
        times = np.atleast_1d(t)
        done = solve_ivp(
            velocity, (0, times[-1]), start, t_eval=times, method="LSODA", rtol=rtol, atol=atol
        )
        path = [unpack(state) for state in done.y.T]
        return path[-1] if np.ndim(t) == 0 else tuple(map(np.array, zip(*path, strict=True)))
