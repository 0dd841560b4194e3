"""From one currency of privacy to another, rounded so that no promise is broken.

Every function returns a bound that holds: an ε or a δ is rounded up, a ρ down. Each optimises over a free parameter
whose every value gives a valid bound, so an inexact optimum costs tightness and never privacy; what remains is the
rounding of the formula itself, which is added on the safe side (`_ROUNDING` times the sum of the magnitudes, for a
library whose logarithms err by a few ulp). Proofs: docs/privacy.md, "Conversions".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache

from dualquery.errors import BudgetError, require
from dualquery.types import first_whole

UNITS = 10**12  # ρ, μ² and pure ε are kept in whole multiples of 10⁻¹²
PI = Fraction(355, 113)  # a little above π

_ROUNDING = 2.0**-48  # 32 units in the last place
_STEPS = 200  # more halvings than a double has bits: bisection ends at neighbouring numbers


def units(cost: Fraction) -> int:
    return math.ceil(cost * UNITS)


def rho_of(*, epsilon: float, delta: float) -> Fraction:
    """The largest ρ, in whole units of 10⁻¹², for which ρ-zCDP implies (ε, δ)-DP.

    Never overshoots: `epsilon_of(rho_of(epsilon=ε, delta=δ), delta=δ) <= ε`.
    """
    return Fraction(rho_units_of(epsilon=epsilon, delta=delta), UNITS)


@lru_cache(maxsize=256)
def rho_units_of(*, epsilon: float, delta: float) -> int:
    require(0 < epsilon < math.inf, "epsilon must be a positive number.")
    return largest_units(lambda cost: epsilon_of(cost, delta=delta) <= epsilon)


def epsilon_of(rho: Fraction | float, *, delta: float) -> float:
    """The smallest ε for which ρ-zCDP implies (ε, δ)-DP (Canonne, Kamath, Steinke 2020, Proposition 12).

    ε = inf over x = α − 1 > 0 of   (1 + x) ρ + (ln(1/δ) − ln(1 + x)) / x − ln(1 + 1/x),
    at the root of                  ρ x² + ln(1 + x) = ln(1/δ).
    """
    cost = _above(rho)
    require(0 < delta < 1, "delta must lie between 0 and 1.")
    if cost == 0:
        return 0.0
    depth = -math.log(delta)
    x = _turn(cost, depth)
    terms = ((1 + x) * cost, depth / x, -math.log1p(x) / x, -math.log1p(1 / x))
    return max(0.0, math.fsum(terms) + _ROUNDING * math.fsum(map(abs, terms)))


def renyi_epsilon(cost: Fraction | float, *, order: int, delta: float) -> float:
    """The ε that a Rényi divergence of C at the order α implies (Canonne, Kamath, Steinke 2020, Prop. 12).

    ε = C + (ln(1/δ) − ln α) / (α − 1) − ln(1 + 1/(α − 1)): `epsilon_of` with C for αρ, at one α.
    """
    divergence = _above(cost)
    require(order >= 2, "The order of a Rényi divergence is a whole number of at least 2.")
    require(0 < delta < 1, "delta must lie between 0 and 1.")
    if divergence == 0:
        return 0.0
    x = order - 1
    terms = (divergence, -math.log(delta) / x, -math.log(order) / x, -math.log1p(1 / x))
    return max(0.0, math.fsum(terms) + _ROUNDING * math.fsum(map(abs, terms)))


@lru_cache(maxsize=256)
def renyi_cap(*, epsilon: float, delta: float, order: int) -> int:
    """The largest C, in whole units, for which D_α ≤ C implies (ε, δ)-DP; 0 where this order has none."""
    require(0 < epsilon < math.inf, "epsilon must be a positive number.")
    return largest_units(lambda cost: renyi_epsilon(cost, order=order, delta=delta) <= epsilon)


@lru_cache(maxsize=256)
def best_order(*, epsilon: float, delta: float) -> int:
    """The whole order α ≥ 2 whose cap C pays for the most ρ = C/α.

    The conversion of the largest ρ is best at α = 1 + x, ρx² + ln(1 + x) = ln(1/δ); α is one of its neighbours.
    """
    rho, depth = float(rho_of(epsilon=epsilon, delta=delta)), -math.log(delta)
    require(rho > 0, "The budget is too small for any order.")
    below = max(2, math.floor(1 + _turn(rho, depth)))
    return max(
        (below, below + 1),
        key=lambda order: Fraction(renyi_cap(epsilon=epsilon, delta=delta, order=order), order),
    )


@lru_cache(maxsize=256)
def fire_units(*, epsilon: Fraction, sensitivity: int, order: int) -> int:
    """What one fire of a hazard test costs at the order α, in whole units, rounded up, and one unit more.

    With E = e^−Kε, e^{(α−1)D} = v = E^α / (αE − α + 1), which needs (α − 1)(e^{Kε} − 1) < 1 and falls with E.
    So 1/v is bounded below with E rounded down, and D is the least number of units with e^−(α−1)D ≤ 1/v. The
    unit more pays for the rounding of the test's table. Proof: docs/privacy.md, "Threshold tests".
    """
    require(epsilon > 0, "The epsilon of a test must be positive.")
    require(sensitivity >= 1, "The sensitivity of a test is a whole number of at least 1.")
    require(order >= 2, "The order of a Rényi divergence is a whole number of at least 2.")
    one = 1 << _PRECISION
    least = exp_minus(sensitivity * epsilon, _PRECISION)[0]
    room = order * least - (order - 1) * one
    require(
        room > 0,
        f"A test of epsilon = {float(epsilon):.6g} has no finite price at the order {order}; "
        f"its epsilon, times the sensitivity, must stay below {-math.log1p(-1 / order):.6g}.",
    )
    power = Fraction(least, one) ** order
    target = math.floor(room / power)  # 2^precision / v, rounded down

    def too_cheap(cost: Fraction) -> bool:
        return exp_minus((order - 1) * cost, _PRECISION)[1] > target

    return largest_units(too_cheap) + 2


_PRECISION = 256  # bits after the point


def exp_minus(x: Fraction, precision: int) -> tuple[int, int]:
    """Integers below and above 2^precision · exp(−x), for rational x ≥ 0, few units apart."""
    if x >= precision:
        return 0, 1
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 2)  # x / 2^halvings ≤ 1/2
    guarded = precision + halvings + 8
    y = x * (1 << guarded - halvings)
    y_low, y_high = y.numerator // y.denominator, -(-y.numerator // y.denominator)
    low = high = term_low = term_high = 1 << guarded
    order = 0
    while term_high > 1:  # the terms y^k / k! decrease and alternate, so the next one bounds the rest
        order += 1
        divisor = order << guarded
        term_low, term_high = term_low * y_low // divisor, -(-term_high * y_high // divisor)
        low, high = (low - term_high, high - term_low) if order % 2 else (low + term_low, high + term_high)
    low, high = max(0, low - term_high), high + term_high
    for _ in range(halvings):
        low, high = low * low >> guarded, -(-high * high >> guarded)
    excess = guarded - precision
    return low >> excess, min(1 << precision, -(-high >> excess))


def largest_units(holds: Callable[[Fraction], bool]) -> int:
    """The largest number of units for which a property of costs holds that, once lost, stays lost; or 0."""
    largest, too_much = 0, 1
    while holds(Fraction(too_much, UNITS)):
        largest, too_much = too_much, 2 * too_much
    return first_whole(largest, too_much, lambda number: not holds(Fraction(number, UNITS))) - 1


def advanced_composition(largest: Fraction | float, draws: int, *, delta: float) -> float:
    """ε of k adaptive draws, each ε'-DP: √(2k ln(1/δ)) ε' + k ε' (e^ε' − 1) (Lemma 2.4, Gaboardi et al.)."""
    require(0 < delta < 1, "delta must lie between 0 and 1.")
    each = _above(largest)
    if each > 700:  # e^ε' would not fit a double, nor any budget
        return math.inf if draws else 0.0
    return each * (math.sqrt(-2 * draws * math.log(delta)) + draws * math.expm1(each)) * (1 + _ROUNDING)


@lru_cache(maxsize=1024)  # asked for again and again: whether a step is affordable, then what was spent
def gaussian_epsilon(mu_squared: Fraction | float, *, delta: float) -> float:
    """The smallest ε for which a Gaussian of *real* noise with Δ²/σ² = μ² is (ε, δ)-DP.

    This is the exact privacy of continuous noise (Balle and Wang 2018), also of any number of adaptive measurements
    with Σ Δ_i²/σ_i² = μ² (Dong, Roth, Su 2022). Of discrete noise it is `discrete_gaussian_epsilon`.
    """
    require(0 < delta < 1, "delta must lie between 0 and 1.")
    mu = math.sqrt(_above(mu_squared)) * (1 + _ROUNDING)
    target = math.log(delta)
    if mu == 0 or _log_gaussian_delta(mu, 0.0) <= target:
        return 0.0
    low, high = 0.0, 1.0
    while _log_gaussian_delta(mu, high) > target:
        low, high = high, 2 * high
    return _least(low, high, lambda epsilon: _log_gaussian_delta(mu, epsilon) <= target)


def tight_gaussian_epsilon(rho: Fraction | float, *, delta: float) -> float:
    """`gaussian_epsilon` of real Gaussian noise that costs ρ in all: μ² = 2ρ. Better than `epsilon_of`."""
    return gaussian_epsilon(2 * rho, delta=delta)


def discrete_gaussian_epsilon(
    noises: Iterable[tuple[Fraction, Fraction]], *, delta: float, others: Fraction = Fraction(0)
) -> float:
    """An ε for measurements of integers by *discrete* Gaussian noise; pairs are (Δ₂², σ²); `others` cost a μ².

    A discrete Gaussian of variance parameter σ² is, up to factors e^±τ on its probabilities, a randomised rounding of
    a real Gaussian of variance σ² − r², with τ = ln((1 + η)/(1 − η)) and η = 2 Σ_m exp(−2π² r² m²). Neighbours differ
    in at most M = ⌊Σ Δ₂²⌋ cells, so that

        μ² = Σ Δ₂² / (σ² − r²)  is (ε, δ)-DP   ⟹   the release is (ε + 2Mτ, e^(Mτ) δ)-DP.

    The best of a few r is taken, and of the conversion from ρ. Proof: docs/privacy.md, "Gaussian releases".
    """
    counted = Counter(noises)
    best = epsilon_of(_mu_squared(counted, Fraction(0)) / 2 + others / PI, delta=delta)  # of which μ² is πρ
    smallest = min((variance for _, variance in counted), default=Fraction(0))
    cells = math.floor(sum(times * sensitivity for (sensitivity, _), times in counted.items()))
    for rounding in _ROUNDING_VARIANCES:
        distortion = cells * distortion_of(rounding)
        if distortion < 1 and (rounding < smallest or not counted):
            mu_squared = _mu_squared(counted, rounding) + others
            real = gaussian_epsilon(mu_squared, delta=delta * math.exp(-2 * distortion))
            best = min(best, (real + 2 * distortion) * (1 + _ROUNDING))
    return best


_ROUNDING_VARIANCES = (Fraction(1), Fraction(3, 2), Fraction(2), Fraction(5, 2), Fraction(3))


def _mu_squared(counted: Counter[tuple[Fraction, Fraction]], rounding: Fraction) -> Fraction:
    """Σ Δ₂² / (σ² − r²), each term rounded up to whole units."""
    terms = (times * units(s / (v - rounding)) for (s, v), times in counted.items())
    return Fraction(sum(terms), UNITS)


def distortion_of(rounding: Fraction) -> float:
    """An upper bound of τ: for r² ≥ 1, η < 2.001 exp(−2π²r²) and τ < 2.001 η; and π² > 9.8696."""
    return 4.005 * math.exp(-2 * 9.8696 * float(rounding))


def _log_gaussian_delta(mu: float, epsilon: float) -> float:
    """An upper bound of ln δ, δ = Φ(−a) − e^ε Φ(−b), a = ε/μ − μ/2, b = ε/μ + μ/2.

    Since e^ε φ(b) = φ(a), δ = φ(a) (R(a) − R(b)) with Mills' ratio R(x) = Φ(−x)/φ(x), where a small δ neither
    underflows nor is the difference of large numbers. The rounding of a and b, at most a few ulp of a + μ, moves R by
    at most as many ulp times 1 + μ, because |R'| < R and x |R'| < R.
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
    for numerator in range(10 + int(400 / (x * x)), 0, -1):  # exact to 3 · 10⁻¹⁷ (test_mills_ratio)
        tail = x + numerator / tail
    return 1 / tail


def _turn(rho: float, depth: float) -> float:
    """x with ρx² + ln(1 + x) = depth, within e^±345: bisection on ln x."""
    return math.exp(
        _least(-345.0, 345.0, lambda ln: rho * math.exp(ln) ** 2 + math.log1p(math.exp(ln)) >= depth)
    )


def _least(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """The least double, by bisection, at which a property holds that, once won, stays won; it holds at `high`."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _above(value: Fraction | float) -> float:
    """The smallest double of at least `value`, which must not be negative."""
    require(0 <= value < 10**300, "A privacy cost must be a finite number of at least 0.")
    nearest = float(value)
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


_GROUP_ROUNDING = 2.0**-46
_DEEPEST = 700.0  # e^-700 is about the least δ that a double holds


def renyi_group_epsilon(cost: Fraction | float, *, order: int, records: int, delta: float) -> float:
    """The ε at δ between tables k records apart that D_α ≤ C between neighbours implies; infinite from k = α on.

    For every δ' < δ, C gives ε' = `renyi_epsilon` at δ' between neighbours; P ≤ e^ε' P' + δ', k times over, gives

        (k ε', δ' Σ_{i<k} e^{iε'})        (Vadhan 2017, Lemma 2.2).

    The least k ε' for which the second is at most δ; it falls with δ' like δ'^(1 − (k − 1)/(α − 1)).
    """
    if records < 1:
        raise BudgetError("Tables differ in a whole number of records, at least one.")
    allowed = -math.log(delta)

    def each(depth: float) -> float:
        return renyi_epsilon(cost, order=order, delta=math.exp(-depth))

    def fits(depth: float) -> bool:
        """δ' Σ e^{iε'} ≤ δ at δ' = e^−depth; the sum is e^{(k−1)ε'} times one between 1 and k."""
        epsilon = each(depth)
        grown = (records - 1) * epsilon + math.log(math.fsum(math.exp(-i * epsilon) for i in range(records)))
        return grown + allowed - depth + _GROUP_ROUNDING * (grown + allowed + depth) <= 0

    if records >= order or not fits(_DEEPEST):
        return math.inf
    return records * each(_least(allowed, _DEEPEST, fits)) * (1 + _GROUP_ROUNDING)
