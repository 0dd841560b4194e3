"""Compiled steps of expectation and maximisation for the separable prior (`separable`).

Everything is padded to the longest attribute. In the basis of the eigenvectors of Σ_i and Σ_j the prior of a pair
is diagonal, a λ_i λ_jᵀ, so that its posterior is a matter of single numbers; the second moments of an attribute are
added up in its own eigenvectors and turned back once a step.
"""

from __future__ import annotations

import numpy as np

from dualquery.compiled import njit


@njit(cache=True)
def improve(first, second, length, seen, noise, values, vectors, strength, moments):  # type: ignore[no-untyped-def]
    """One pass over all pairs: `strength` is renewed, and Σ_pairs E[θ Λ⁻¹ θᵀ]/a of each attribute lies in `moments`.

    Pair n is (first[n], second[n]); attribute j has length[j] contrasts, values[j] and vectors[j] (columns).
    """
    widest = values.shape[1]
    half = np.empty((widest, widest))
    mean = np.empty((widest, widest))
    spread = np.empty((widest, widest))
    moments[:] = 0.0
    for n in range(first.shape[0]):
        i, j = first[n], second[n]
        p, q = length[i], length[j]
        left, right, table = vectors[i], vectors[j], seen[n]
        for a in range(p):
            for b in range(q):
                half[a, b] = 0.0
            for c in range(p):
                turn = left[c, a]
                for b in range(q):
                    half[a, b] += turn * table[c, b]
        strong, fresh = strength[n], 0.0
        for a in range(p):
            for b in range(q):
                total = 0.0
                for c in range(q):
                    total += half[a, c] * right[c, b]
                scale = values[i, a] * values[j, b]
                prior = strong * scale
                shrunk = prior / (prior + noise[n])
                mean[a, b] = total * shrunk
                spread[a, b] = noise[n] * shrunk
                fresh += (mean[a, b] ** 2 + spread[a, b]) / scale
        strength[n] = fresh / (p * q)  # first: the scale of a pair is then told once
        _add_moments(mean, spread, p, q, values[j], strength[n], moments[i], False)
        _add_moments(mean, spread, q, p, values[i], strength[n], moments[j], True)


@njit(cache=True)
def _add_moments(mean, spread, rows, columns, other, strong, moments, turned):  # type: ignore[no-untyped-def]
    """moments += (mean Λ⁻¹ meanᵀ + diag(spread Λ⁻¹ 1)) / a, of the transposed matrices where `turned`."""
    for c in range(columns):
        weight = 1.0 / (other[c] * strong)
        for a in range(rows):
            here = mean[c, a] if turned else mean[a, c]
            moments[a, a] += (spread[c, a] if turned else spread[a, c]) * weight
            for b in range(rows):
                moments[a, b] += here * weight * (mean[c, b] if turned else mean[b, c])
