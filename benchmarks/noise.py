"""Cells of integer noise per second, beside numpy's real-valued noise and OpenDP's integer noise.

python benchmarks/noise.py [cells]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import opendp.prelude as dp

from dualquery.privacy.noise import Law, discrete_gaussian, discrete_laplace, enclose, thresholds
from dualquery.randomness import SystemEntropy

REPEATS = 3
VARIANCES = [Fraction(1, 100), Fraction(1), Fraction(100), Fraction(4550), Fraction(10**6), Fraction(10**9)]


def best_seconds(work: Callable[[], object]) -> float:
    """The fastest of a few runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def build_tables(variance: Fraction) -> None:
    enclose.cache_clear()
    thresholds.cache_clear()
    thresholds(Law.gaussian(variance))


def opendp_gaussian(sigma: float, cells: int) -> Callable[[], object]:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    measurement = dp.m.make_gaussian(*space, scale=sigma)
    return lambda: measurement([0] * cells)


def main(cells: int) -> None:
    entropy = SystemEntropy()
    discrete_gaussian(10_000, variance=Fraction(3), entropy=entropy)  # compile, or load what was compiled
    generator = np.random.default_rng()
    numpy_rate = cells / best_seconds(lambda: generator.normal(size=cells))
    words_rate = cells / best_seconds(lambda: entropy.words(cells))

    print(f"{cells:,} cells, system entropy, best of {REPEATS}")
    print(f"{'':34}{'million/s':>10}{'of numpy':>10}{'tables ms':>11}")

    def row(name: str, rate: float, tables: str = "") -> None:
        print(f"{name:34}{rate / 1e6:>10.2f}{rate / numpy_rate:>10.3f}{tables:>11}")

    row("numpy normal (not private)", numpy_rate)
    row("64-bit words of entropy alone", words_rate)
    for variance in VARIANCES:
        building = best_seconds(partial(build_tables, variance))
        rate = cells / best_seconds(partial(discrete_gaussian, cells, variance=variance, entropy=entropy))
        row(f"discrete Gaussian, σ² = {float(variance):g}", rate, f"{1000 * building:.1f}")
    for scale in (Fraction(1), Fraction(1000)):
        rate = cells / best_seconds(partial(discrete_laplace, cells, scale=scale, entropy=entropy))
        row(f"discrete Laplace, b = {float(scale):g}", rate)
    few = 20_000
    for sigma in (1.0, 1000.0):
        row(f"OpenDP discrete Gaussian, σ = {sigma:g}", few / best_seconds(opendp_gaussian(sigma, few)))


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**7)
