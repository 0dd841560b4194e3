"""The best response: milliseconds a call, and how near it comes to CP-SAT with far more time.

    python benchmarks/oracle.py [--time-limit 5] [--repeats 5]

The clauses are those of random queries as in the paper: three attributes, a value each, negated by a coin,
weight +1 or −1. CP-SAT starts from the best response: `ratio` is that one's value over CP-SAT's, `gap` what
CP-SAT's bound leaves open. Milliseconds are processor time, the least of the repeats, so that a busy machine
does not count.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from dualquery.oracles import Clauses
from dualquery.oracles.local_search import best_response
from dualquery.oracles.program import exact_response
from dualquery.queries.group import Predicates

ADULT = [20, 8, 20, 16, 10, 7, 14, 6, 5, 2, 10, 10, 10, 41, 2]
KDD99 = [20, 3, 66, 11, 20, 20, 2, 4, 4, 10, 6, 2, 10, 2, 3, 5, 5, 3, 5, 2, 2, 2, 10, 10] + 17 * [10]

CASES: list[tuple[str, list[int], int, int]] = [
    ("adult, 100 samples", ADULT, 100, 0),
    ("adult, 1,000 samples", ADULT, 1000, 0),
    ("kdd99, 1,750 samples", KDD99, 1750, 0),
    ("nltcs, 16 binary", 16 * [2], 1000, 0),
    ("500 binary", 500 * [2], 1000, 0),
    ("2,000 binary", 2000 * [2], 2000, 0),
    ("8,000 binary", 8000 * [2], 2000, 0),
    ("kosarak, 23,496 binary", 23_496 * [2], 5000, 0),
    ("512,000 binary", 512_000 * [2], 50_000, 0),
    ("5,000 values, 10 attributes", 10 * [5000], 1000, 0),
    ("parities, 16 binary", 16 * [2], 0, 500),
    ("parities, 100 binary", 100 * [2], 0, 500),
    ("parities, 8,000 binary", 8000 * [2], 0, 2000),
]


def random_clauses(sizes: list[int], conjunctions: int, parities: int, rng: np.random.Generator) -> Clauses:
    """Canonical literals: of a binary attribute's two values only 1 is named."""
    counts = np.array(sizes, np.int32)
    first = np.concatenate([[0], np.cumsum(counts[:-1])])
    attribute = np.repeat(np.arange(len(sizes), dtype=np.int32), counts)
    codes = (np.arange(len(attribute)) - first[attribute]).astype(np.int32)
    predicates = Predicates(attribute, np.arange(len(attribute) + 1), codes)

    def members(count: int) -> NDArray[np.int64]:
        rows = rng.integers(0, len(sizes), (count, 3))
        while count and (repeated := (np.diff(np.sort(rows, axis=1)) == 0).any(axis=1)).any():
            rows[repeated] = rng.integers(0, len(sizes), (int(repeated.sum()), 3))
        return rows

    named = members(conjunctions)
    value = np.where(counts[named] == 2, 1, (rng.random(named.shape) * counts[named]).astype(np.int64))
    literals = 2 * (first[named] + value) + rng.integers(0, 2, named.shape)
    return Clauses(
        counts,
        predicates,
        literals.astype(np.int32),
        rng.choice([-1, 1], conjunctions),
        members(parities).astype(np.int32),
        rng.choice([-1, 1], parities),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds of CP-SAT for each case")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    start = time.process_time()
    for conjunctions, parities in ((400, 0), (0, 200)):  # one call that searches, one that eliminates
        clauses = random_clauses(40 * [2], conjunctions, parities, np.random.default_rng(0))
        best_response(clauses, np.zeros(40, np.int32), rng=np.random.default_rng(0))
    print(f"first calls, compiling or reading the cache: {time.process_time() - start:.1f} s\n")

    print(
        f"{'case':<28}{'ms':>8}{'value':>8}{'optimal':>10}{'cp-sat':>8}{'seconds':>9}{'ratio':>8}{'gap':>7}"
    )
    for name, sizes, conjunctions, parities in CASES:
        clauses = random_clauses(sizes, conjunctions, parities, np.random.default_rng(1))
        fallback = np.zeros(len(sizes), np.int32)
        times = []
        for repeat in range(options.repeats):
            start = time.process_time()
            response = best_response(clauses, fallback, rng=np.random.default_rng(repeat))
            times.append(time.process_time() - start)
        start = time.perf_counter()
        proof = exact_response(clauses, fallback, time_limit=options.time_limit, hint=response.record)
        seconds = time.perf_counter() - start
        print(
            f"{name:<28}{1e3 * min(times):>8.2f}{response.value:>8}{'yes' if response.optimal else 'no':>10}"
            f"{proof.value:>8}{seconds:>9.1f}{response.value / max(1, proof.value):>8.3f}"
            f"{(proof.bound - proof.value) / max(1, proof.value):>7.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
