"""From one currency of privacy to another, rounded so that no promise is broken.

Every function returns a bound that holds: an ε or a δ is rounded up, a ρ down. Each optimises over a
free parameter whose every value gives a valid bound, so an inexact optimum costs tightness and never
privacy; what remains is the rounding of the formula itself, which is added on the safe side
(`_ROUNDING` times the sum of the magnitudes, for a library whose logarithms err by a few ulp).
Proofs: docs/privacy.md, "Conversions".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache

from dualquery.errors import BudgetError

UNITS = 10**12  # ρ, and pure ε, are kept in whole multiples of 10⁻¹²

_ROUNDING = 2.0**-48  # 32 units in the last place
_STEPS = 200  # more halvings than a double has bits: bisection ends at neighbouring numbers


def units(cost: Fraction) -> int:
    """A cost in whole units, rounded up."""
    return math.ceil(cost * UNITS)


def rho_of(*, epsilon: float, delta: float) -> Fraction:
    """The largest ρ, in whole units of 10⁻¹², for which ρ-zCDP implies (ε, δ)-DP.

    Never overshoots: `epsilon_of(rho_of(epsilon=ε, delta=δ), delta=δ) <= ε`.
    """
    return Fraction(rho_units_of(epsilon=epsilon, delta=delta), UNITS)


@lru_cache(maxsize=256)
def rho_units_of(*, epsilon: float, delta: float) -> int:
    """`rho_of` as a number of units."""
    _require(0 < epsilon < math.inf, "epsilon must be a positive number.")
    affordable, too_much = 0, 1
    while epsilon_of(Fraction(too_much, UNITS), delta=delta) <= epsilon:
        affordable, too_much = too_much, 2 * too_much
    while too_much - affordable > 1:
        middle = (affordable + too_much) // 2
        if epsilon_of(Fraction(middle, UNITS), delta=delta) <= epsilon:
            affordable = middle
        else:
            too_much = middle
    return affordable


def epsilon_of(rho: Fraction | float, *, delta: float) -> float:
    """The smallest ε for which ρ-zCDP implies (ε, δ)-DP (Canonne, Kamath, Steinke 2020, Proposition 12).

    ε = inf over x = α − 1 > 0 of   (1 + x) ρ + (ln(1/δ) − ln(1 + x)) / x − ln(1 + 1/x),
    at the root of                  ρ x² + ln(1 + x) = ln(1/δ).
    """
    cost = _above(rho)
    _require(0 < delta < 1, "delta must lie between 0 and 1.")
    if cost == 0:
        return 0.0
    depth = -math.log(delta)
    x = _root(lambda x: cost * x * x + math.log1p(x) - depth)
    terms = ((1 + x) * cost, depth / x, -math.log1p(x) / x, -math.log1p(1 / x))
    return max(0.0, math.fsum(terms) + _ROUNDING * math.fsum(map(abs, terms)))


def delta_of(rho: Fraction | float, *, epsilon: float) -> float:
    """The smallest δ for which ρ-zCDP implies (ε, δ)-DP (the same proposition).

    ln δ = inf over x = α − 1 > 0 of   x ((1 + x) ρ − ε) − ln(1 + x) − x ln(1 + 1/x),
    at the root of                     (1 + 2x) ρ − ln(1 + 1/x) = ε.
    """
    cost = _above(rho)
    _require(0 <= epsilon < math.inf, "epsilon must be a number of at least 0.")
    if cost == 0:
        return 0.0
    x = _root(lambda x: (1 + 2 * x) * cost - math.log1p(1 / x) - epsilon)
    terms = (x * cost, x * x * cost, -x * epsilon, -math.log1p(x), -x * math.log1p(1 / x))
    return _exp_above(math.fsum(terms) + _ROUNDING * math.fsum(map(abs, terms)))


def advanced_composition(largest: Fraction | float, draws: int, *, delta: float) -> float:
    """ε of k adaptive draws, each ε'-DP: √(2k ln(1/δ)) ε' + k ε' (e^ε' − 1) (Lemma 2.4, Gaboardi et al.)."""
    _require(0 < delta < 1, "delta must lie between 0 and 1.")
    each = _above(largest)
    if each > 700:  # e^ε' would not fit a double, nor any budget
        return math.inf if draws else 0.0
    total = each * (math.sqrt(-2 * draws * math.log(delta)) + draws * math.expm1(each))
    return total * (1 + _ROUNDING)


def gaussian_epsilon(mu_squared: Fraction | float, *, delta: float) -> float:
    """The smallest ε for which a Gaussian of *real* noise with Δ²/σ² = μ² is (ε, δ)-DP.

    This is the exact privacy of continuous noise (Balle and Wang 2018), also of any number of adaptive
    measurements with Σ Δ_i²/σ_i² = μ² (Dong, Roth, Su 2022). It does not apply to discrete noise as it
    stands: `discrete_gaussian_epsilon` does.
    """
    _require(0 < delta < 1, "delta must lie between 0 and 1.")
    mu = math.sqrt(_above(mu_squared)) * (1 + _ROUNDING)
    target = math.log(delta)
    if mu == 0 or _log_gaussian_delta(mu, 0.0) <= target:
        return 0.0
    low, high = 0.0, 1.0
    while _log_gaussian_delta(mu, high) > target:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if _log_gaussian_delta(mu, middle) > target:
            low = middle
        else:
            high = middle
    return high


def tight_gaussian_epsilon(rho: Fraction | float, *, delta: float) -> float:
    """`gaussian_epsilon` of real Gaussian noise that costs ρ in all: μ² = 2ρ. Better than `epsilon_of`."""
    return gaussian_epsilon(2 * rho, delta=delta)


def discrete_gaussian_epsilon(noises: Iterable[tuple[Fraction, Fraction]], *, delta: float) -> float:
    """An ε for measurements of integers by *discrete* Gaussian noise; pairs are (Δ₂², σ²).

    A discrete Gaussian of variance parameter σ² is, up to factors e^±τ on its probabilities, a randomised
    rounding of a real Gaussian of variance σ² − r², with τ = ln((1 + η)/(1 − η)) and
    η = 2 Σ_m exp(−2π² r² m²). Neighbours differ in at most M = ⌊Σ Δ₂²⌋ cells, so that

        μ² = Σ Δ₂² / (σ² − r²)  is (ε, δ)-DP   ⟹   the release is (ε + 2Mτ, e^(Mτ) δ)-DP.

    The best of a few r is taken, and of the conversion from ρ. Proof: docs/privacy.md, "Gaussian releases".
    """
    counted = Counter(noises)
    best = epsilon_of(_mu_squared(counted, Fraction(0)) / 2, delta=delta)
    smallest = min((variance for _, variance in counted), default=Fraction(0))
    cells = math.floor(sum(times * sensitivity for (sensitivity, _), times in counted.items()))
    for rounding in _ROUNDING_VARIANCES:
        distortion = cells * _distortion(rounding)
        if rounding < smallest and distortion < 1:
            real = gaussian_epsilon(_mu_squared(counted, rounding), delta=delta * math.exp(-2 * distortion))
            best = min(best, (real + 2 * distortion) * (1 + _ROUNDING))
    return best


_ROUNDING_VARIANCES = (Fraction(1), Fraction(3, 2), Fraction(2), Fraction(5, 2), Fraction(3))


def _mu_squared(counted: Counter[tuple[Fraction, Fraction]], rounding: Fraction) -> Fraction:
    """Σ Δ₂² / (σ² − r²), each term rounded up to whole units."""
    terms = (times * units(s / (v - rounding)) for (s, v), times in counted.items())
    return Fraction(sum(terms), UNITS)


def _distortion(rounding: Fraction) -> float:
    """An upper bound of τ: for r² ≥ 1, η < 2.001 exp(−2π²r²) and τ < 2.001 η; and π² > 9.8696."""
    return 4.005 * math.exp(-2 * 9.8696 * float(rounding))


def _log_gaussian_delta(mu: float, epsilon: float) -> float:
    """An upper bound of ln δ, δ = Φ(−a) − e^ε Φ(−b), a = ε/μ − μ/2, b = ε/μ + μ/2.

    Since e^ε φ(b) = φ(a), δ = φ(a) (R(a) − R(b)) with Mills' ratio R(x) = Φ(−x)/φ(x), where a small δ
    neither underflows nor is the difference of large numbers. The rounding of a and b, at most a few ulp
    of a + μ, moves R by at most as many ulp times 1 + μ, because |R'| < R and x |R'| < R.
    """
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if a < 0:  # δ is not small, and Φ(−a) is at least a half
        first, second = math.erfc(a / math.sqrt(2)) / 2, _density(a) * _mills_ratio(b)
        return math.log(first - second + _ROUNDING * (1 + mu) ** 2 * (first + second))
    first, second = _mills_ratio(a), _mills_ratio(b)
    difference = first - second + _ROUNDING * (1 + mu) * (first + second)
    return math.log(difference / math.sqrt(2 * math.pi)) - a * a / 2 + _ROUNDING * (1 + a * b)


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _mills_ratio(x: float) -> float:
    """R(x) = Φ(−x)/φ(x) for x ≥ 0: by erfc while it is accurate, then by its continued fraction."""
    if x < 2:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    tail = x
    for numerator in range(100, 0, -1):  # at x = 2 the 100th convergent is exact to 10⁻¹⁷
        tail = x + numerator / tail
    return 1 / tail


def _root(increasing: Callable[[float], float]) -> float:
    """Where an increasing function of x > 0 changes sign, within e^±345: bisection on ln x."""
    low, high = -345.0, 345.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if increasing(math.exp(middle)) < 0:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _above(value: Fraction | float) -> float:
    """The smallest double of at least `value`, which must not be negative."""
    _require(0 <= value < 10**300, "A privacy cost must be a finite number of at least 0.")
    nearest = float(value)
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def _exp_above(logarithm: float) -> float:
    """e^logarithm, rounded up, at most 1."""
    if logarithm >= 0:
        return 1.0
    return min(1.0, math.nextafter(math.exp(logarithm) * (1 + _ROUNDING), math.inf))


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BudgetError(sentence)
