"""Mathematics in texts: what is LaTeX becomes MathML, and what is not is refused."""

from xml.etree import ElementTree

import pytest

from attnlab.files.errors import InputError
from attnlab.files.mathematics import dollars, markdown, mathml, plain, typeset, typeset_plain


def parts(latex):
    """Tags and texts of a formula, in order."""
    found = ElementTree.fromstring(mathml(latex)).iter()
    return [(part.tag, part.text) for part in found if part.text]


def test_a_formula_is_mathml_that_loads_nothing():
    shown = mathml(r"\dot z_{ml} \le \frac{K \ln M}{\eta_Y}")
    assert shown.startswith("<math>")
    assert "http" not in shown
    texts = [text for _, text in parts(r"\dot z_{ml} \le \frac{K \ln M}{\eta_Y}")]
    assert texts == ["z", "˙", "m", "l", "≤", "K", "ln", "M", "η", "Y"]


def test_names_of_functions_are_upright_and_apart():
    around = [part.tag for part in ElementTree.fromstring(mathml(r"K \ln M"))[0]]
    assert around == ["mi", "mspace", "mi", "mspace", "mi"]
    assert "<mspace" not in mathml(r"\ln(M)")
    assert ("mi", "diag") in parts(r"\operatorname{diag}(b)")


def test_a_prime_follows_its_letter():
    assert "<msup>" not in mathml("t_0' + x'")
    (index,) = ElementTree.fromstring(mathml("E'_{nn'}")).iter("msub")
    assert ["".join(part.itertext()) for part in index] == ["E′", "nn′"]


def test_a_sign_before_a_term_has_no_space():
    assert 'form="prefix"' in mathml(r"T \to +\infty")
    assert 'form="prefix"' not in mathml(r"(a) + b")
    assert ("mo", "≔") in parts("a := b")


@pytest.mark.parametrize(
    ("latex", "message"),
    [
        (r"\nonsense x", r"unknown LaTeX command \\nonsense in"),
        ("x_{a", "braces do not match"),
        ("a}", "braces do not match"),
        (r"\left( x", "is not LaTeX"),
        (r"\frac{1}", "is missing"),
        ("x^2^3", "is not LaTeX"),
    ],
)
def test_what_is_not_latex_is_refused(latex, message):
    with pytest.raises(InputError, match=message):
        mathml(latex)


def test_words_are_escaped_and_a_dollar_can_be_written():
    assert str(typeset(r"<b>5 \$</b> is $x$")) == (
        "&lt;b&gt;5 $&lt;/b&gt; is <math><mrow><mi>x</mi></mrow></math>"
    )
    with pytest.raises(InputError, match="a dollar stands alone"):
        typeset("5 $")


@pytest.mark.parametrize(
    ("plain", "set_"),
    [
        ("eta_Y >> eta_Z: their ratio", r"$\eta_Y \gg \eta_Z$: their ratio"),
        ("from t_0' to t_0", r"from $t_0'$ to $t_0$"),
        ("beta_nn' and E'_ii", r"$\beta_{nn'}$ and $E'_{ii}$"),
        ("below 1e-12 at t = 10^12", r"below $10^{-12}$ at $t = 10^{12}$"),
        ("it is -9.8e-10", r"it is $-9.8 \times 10^{-10}$"),
        ("|lambda_i(E)| >= 6/sqrt(M)", r"$\lvert \lambda_i(E) \rvert \ge 6/\sqrt{M}$"),
        ("f_1.f_2 = 0.3, 0.2 ln M", r"$f_1 \cdot f_2 = 0.3$, 0.2 $\ln M$"),
        ("T -> infinity", r"$T \to \infty$"),
        ("0.7 <= t <= 2.1, 1.5 < 2", r"$0.7 \le t \le 2.1$, 1.5 < 2"),
        ("t* = 12.66 and |p|^2", r"$t^* = 12.66$ and $\lvert p \rvert^2$"),
        ('a word "t_0" for $5', r'a word "t_0" for \$5'),
        (
            "my_beta_Y, common_prob = 0.3, eta-y-denser",
            "my_beta_Y, common_prob = 0.3, eta-y-denser",
        ),
        ("a token of 10 in Fig. 6's runs", "a token of 10 in Fig. 6's runs"),
    ],
)
def test_letters_of_plain_text(plain, set_):
    assert dollars(plain) == set_
    assert typeset_plain(plain)


def test_markdown_keeps_formulas_and_escapes_words():
    assert markdown(r"a_b | <c> (<=) $x_b < y$ \$") == r"a\_b \| \<c> (≤) $x_b < y$ \$"


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
        (r"$x^$", "'x\\^' is not LaTeX"),
        (r"costs $5", "a dollar stands alone"),
    ],
)
def test_what_plain_text_does_not_know_is_refused(latex, message):
    with pytest.raises(InputError, match=message):
        plain(latex)
