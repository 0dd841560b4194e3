"""The texts of a column that occur often: a histogram of which nobody knows the cells beforehand.

Noise is added to the numbers of the texts that occur, and what does not exceed a threshold T is not shown. A text
that only one of two neighbours holds must not be shown; all others are Gaussian measurements. With K records moving,
each of them one text, the numbers c_i ≥ 1 of texts that only one table holds add up to at most K, and one of them is
shown with a probability of at most

    Σ P(N > T − c_i)  ≤  max(P(N > T − K), K P(N > T − 1))

because the tail is convex there, so that the sum is largest where one text has all K, or each of K texts one. Of
discrete Gaussian noise P(N ≥ m) ≤ P(σZ ≥ m − 1) (Canonne, Kamath, Steinke 2020, Proposition 25), so both are at most
δ_c for the whole number

    T = ⌈max(K + σΦ⁻¹(1 − δ_c), 1 + σΦ⁻¹(1 − δ_c/K))⌉.

Given that no such text is shown, noise being independent from text to text, both tables show texts that both hold:
the measurement alone. So it is δ_c-approximate ρ-zCDP (Bun and Steinke 2016, Definition 8.1), under every relation;
failures add up, and add to the δ of what all measurements cost together (docs/privacy.md, "Texts that occur often").
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

from dualquery.errors import require
from dualquery.privacy.noise import Gaussian

_ROUNDING = 1e-9  # of quantiles in floats, which are right to about 1e-15


def threshold(noise: Gaussian, *, records: int, failure: Fraction, times: int = 1) -> int:
    """T, of numbers that count every record so many times, where neighbours differ in at most K `records`."""
    require(0 < failure < Fraction(1, 2), "The probability of a failure must lie between 0 and a half.")
    ends = ((records, failure), (1, failure / records))
    return max(
        times * held + math.ceil(noise.deviation * -NormalDist().inv_cdf(float(chance)) * (1 + _ROUNDING))
        for held, chance in ends
    )
