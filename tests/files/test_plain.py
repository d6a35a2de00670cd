"""Plain text of LaTeX."""

import pytest

from attnlab.files.errors import InputError
from attnlab.files.plain import plain


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"no formula, 5 \$", "no formula, 5 $"),
        (r"$\dot z_{ml} < 0$ for a token $l$", "dz_ml/dt < 0 for a token l"),
        (r"$\dot Y = \eta_Y f_n^\top f_{n'}$", "dY/dt = eta_Y f_n^T f_n'"),
        (r"$t \to +\infty$", "t -> infinity"),
        (r"$\lvert \lambda_1(E) \rvert \le \frac{1}{K}$", "|lambda_1(E)| <= 1/K"),
        (r"$\lVert W \rVert_F^2/\lVert W \rVert_2^2$", "|W|_F^2/|W|_2^2"),
        (r"$\frac{1}{4} \ln(C_0 + 4 \Gamma(t))$", "(1/4) ln(C_0 + 4 Gamma(t))"),
        (r"$\frac{K \ln M}{\eta_Y t}$", "K ln M/(eta_Y t)"),
        (r"$\frac{(1+\omega_1) \ln M}{M}$", "(1+omega_1) ln M/M"),
        (r"$\sqrt{\frac{\ln(2/\delta)}{2(T-1)}}$", "sqrt(ln(2/delta)/(2(T-1)))"),
        (r"$\ln \frac{2}{\delta}$", "ln(2/delta)"),
        (r"$\frac{6}{\sqrt M}$", "6/sqrt(M)"),
        (r"$e^{2 f_{nl_0}^2(0) B_n}$", "exp(2 f_nl0^2(0) B_n)"),
        (r"$M^{-0.99} + \rho^{2H} + \rho^{L-1}$", "M^-0.99 + rho^(2H) + rho^(L-1)"),
        (r"$h^*(s) - h(s)$", "h*(s) - h(s)"),
        (r"$\bar w_n \sim \bar N$", "w-bar_n ~ N-bar"),
        (r"$\frac{\Delta}{\bar N}$", "Delta/N-bar"),
        (r"$\mathbb{P}(l \mid m,n)$", "P(l|m,n)"),
        (r"$\mathbb{I}(\psi(n) = \psi(n'))$", "1[psi(n) = psi(n')]"),
        (r"$r_{l/l' \mid n}(t) := f_{nl}^2 - 1$", "r_{l/l'|n}(t) := f_nl^2 - 1"),
        (r"$P^\perp_{X^\top b_T}$", "P^perp_{X^T b_T}"),
        (r"$\sum_{n' \ne n} \beta_{nn'}$", "sum_{n' != n} beta_nn'"),
        (r"$\left\lceil \sqrt{N \ln(1/\delta)} \right\rceil$", "ceil(sqrt(N ln(1/delta)))"),
        (r"$\operatorname{erf}^{-1}\left(\sqrt{2/\pi} t\right)$", "erf^-1(sqrt(2/pi) t)"),
        (r"$(\mu - v) \circ \exp(v^2/2)$", "(mu - v) * exp(v^2/2)"),
    ],
)
def test_formulas_are_readable_on_a_terminal(latex, expected):
    assert plain(latex) == expected


@pytest.mark.parametrize(
    ("latex", "message"),
    [
        (r"$\foo x$", r"unknown LaTeX command \\foo in"),
        (r"$\frac{1$", "braces do not match"),
        (r"$a}$", "braces do not match"),
        (r"$x^$", "a part of 'x\\^' is missing"),
        (r"costs $5", "a dollar stands alone"),
    ],
)
def test_what_is_not_known_is_refused(latex, message):
    with pytest.raises(InputError, match=message):
        plain(latex)
