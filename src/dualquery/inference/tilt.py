"""Weights of released rows that give the moments that were drawn, by least relative entropy.

    minimise  KL(w | uniform) + Σ_k (E_w x_k − m_k)² / (2 c_k)

The ridge c makes it solvable for any m, also where chance has drawn moments that no table has together. The dual is
convex and smooth, log mean exp(λ·x) − λ·m + ½ Σ c_k λ_k², of as many variables as moments; w ∝ exp(λ·x). Newton's
steps take the curvature of the first draw for all, which costs two products with the rows each, and a curvature of
their own only where that stops helping.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualquery.types import Integers, Reals

STEPS = 40
CHORDS = 6  # steps with an older curvature, before a fresh one is worked out
ENOUGH = 1e-7  # a step that gains less, in units of the relative entropy, is the last
SHORTEST = 1e-4


@dataclass(eq=False)
class Tilting:
    """Rows with the features of their moments, and the curvature that was last worked out, inverted."""

    rows: Reals  # one a row, one a moment
    ridge: Reals
    inverse: Reals | None = None  # of the curvature

    def weights(self, wanted: Reals) -> Reals:
        """Of each row, summing to one."""
        rows = self.rows
        multipliers = np.zeros(len(wanted))
        value, weights = self._value(multipliers, wanted)
        fresh = self.inverse is None
        age = 0
        for _ in range(STEPS):
            if fresh:
                self.inverse = np.asarray(np.linalg.inv(self._curvature(weights)), np.float64)
                age = 0
            assert self.inverse is not None
            slope = weights @ rows - wanted + self.ridge * multipliers
            step: Reals = -(self.inverse @ slope)
            length, decrease = 1.0, float(slope @ step)
            while True:
                further, found = self._value(multipliers + length * step, wanted)
                if further <= value + 1e-4 * length * decrease or length < SHORTEST:
                    break
                length /= 2
            gained = value - further
            if gained > 0:
                multipliers, value, weights = multipliers + length * step, further, found
            age += 1
            if gained < ENOUGH and (fresh or -decrease < ENOUGH):
                break
            fresh = gained < ENOUGH or length < 0.5 or age >= CHORDS
        return weights

    def _value(self, multipliers: Reals, wanted: Reals) -> tuple[float, Reals]:
        tilted = self.rows @ multipliers
        most = float(tilted.max(initial=-np.inf))
        weights = np.exp(tilted - most)
        total = float(weights.sum())
        value = np.log(total / len(weights)) + most - multipliers @ wanted
        return float(value + 0.5 * (self.ridge * multipliers) @ multipliers), weights / total

    def _curvature(self, weights: Reals) -> Reals:
        mean = weights @ self.rows
        found: Reals = (self.rows * weights[:, None]).T @ self.rows - np.outer(mean, mean)
        found[np.diag_indices(len(mean))] += self.ridge
        return found


def systematic(weights: Reals, number: int, start: float) -> Integers:
    """So many places in proportion to weights: between ⌊n w⌋ and ⌈n w⌉ + 1 times each; `start` lies in [0, 1)."""
    ends = np.cumsum(weights)
    marks = (start + np.arange(number)) / number * ends[-1]
    return np.minimum(np.searchsorted(ends, marks, side="right"), len(weights) - 1)
