"""Few directions in which all attributes depend on each other: what stands out of the noise of all pairs.

The interactions of all pairs, less what independence says, are one symmetric matrix R over the values of all
attributes. Noise of deviation s on every cell has a spectrum that ends at the edge 2 s √D, D = Σ (k_j − 1) (Wigner);
a direction that dependence has in common sticks out of it. Eigenvalues λ beyond the edge e are kept, as √(λ² − e²)
(Gavish and Donoho, 2017), the others are dropped, and most of the noise with them. Blocks where an attribute meets
itself are not measured; they are filled with what the directions say, a few times over.

Nothing here knows of privacy: measurements are public by the time they are fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.game.all_pairs import AllPairsDataPlayer
from dualquery.game.moves import Cells
from dualquery.game.play import play
from dualquery.game.residual import Chains, ResidualQueryPlayer
from dualquery.mechanisms.projection.fit import product_start
from dualquery.mechanisms.projection.fitting import Rows
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.queries.tables import centred
from dualquery.table.domain import Domain

MOST_DIRECTIONS = 48
KEPT = 1.03  # in edges: noise alone ends at one
CLEAR = 1.1  # one direction at least must stand so far out, or none is believed
REFILLS = 4
FIRST_PASSES, PASSES = 20, 5  # of subspace iteration: for the first directions, and after each refill
TEMPERATURE = 0.3  # standard deviations of the noise in a cell

Progress = Callable[[int, int], None]
Matrix = NDArray[np.floating[Any]]  # single precision is enough for what stands out


@dataclass(frozen=True)
class Directions:
    """Targets of all values: the one-way fractions, and the tables of all pairs as one matrix."""

    first_value: NDArray[np.int64]
    ones: Cells
    pairs: Cells
    noise: float  # of a measured cell
    number: int


def directions_of(measured: MeasuredTables, rng: np.random.Generator) -> Directions | None:
    """What stands out of the noise; None where nothing does clearly. Every pair must have been measured."""
    sizes = measured.domain.sizes.astype(np.int64)
    fractions = measured.ones()
    ones = np.concatenate([fractions[j] for j in range(len(sizes))])
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = np.concatenate([centred(fractions[j]) for j in range(len(sizes))])
    matrix = np.zeros((len(ones), len(ones)), np.float32)
    pairs = [members for members in measured.interactions if len(members) == 2]
    for i, j in pairs:
        block = measured.interactions[(i, j)] / measured.total
        matrix[first[i] : first[i + 1], first[j] : first[j + 1]] = block
        matrix[first[j] : first[j + 1], first[i] : first[i + 1]] = block.T
    matrix -= _without_blocks(np.outer(flat, flat), first)
    noise = math.sqrt(float(np.mean([measured.variance[s] for s in pairs]))) / measured.total
    edge = 2 * math.sqrt(float((sizes - 1).sum()) * (noise**2 + _sampling(fractions, measured.total)))
    if _largest_beside(matrix, flat, rng) < CLEAR * edge:
        return None
    kept, number = _kept(matrix, first, edge, rng)
    tables: Cells = np.maximum(np.outer(ones, ones) + kept, 0.0)
    return Directions(first, ones, _without_blocks(tables, first), noise, number)


def _sampling(fractions: Mapping[int, Cells], total: float) -> float:
    """The mean variance of a cell of R that a sample of so many records has by itself."""
    spread = [float((p * (1 - p)).sum()) / (len(p) - 1) for p in fractions.values()]
    return float(np.mean(spread)) ** 2 / total


def _without_blocks(matrix: Cells, first: NDArray[np.int64]) -> Cells:
    """The same matrix, empty where an attribute meets itself."""
    for begin, end in pairwise(first):
        matrix[begin:end, begin:end] = 0.0
    return matrix


def _largest_beside(matrix: Matrix, flat: Cells, rng: np.random.Generator) -> float:
    """The largest eigenvalue beside the direction of the one-way tables.

    Their noise ε puts flat·εᵀ + ε·flatᵀ into R, which can stand out without any dependence.
    """
    length = float(np.linalg.norm(flat))
    if length > 0:
        along = flat / length
        matrix = matrix - np.outer(along, along @ matrix)
        matrix = matrix - np.outer(matrix @ along, along)
    values, _ = _leading(matrix, _some(len(matrix), rng), FIRST_PASSES)
    return float(values.max())


def _kept(
    matrix: Matrix, first: NDArray[np.int64], edge: float, rng: np.random.Generator
) -> tuple[Matrix, int]:
    """The part of R beyond the edge, with its own blocks filled in."""
    filled = matrix.copy()
    basis = _some(len(matrix), rng)
    for refill in range(REFILLS):
        values, basis = _leading(filled, basis, PASSES if refill else FIRST_PASSES)
        beyond = values > KEPT * edge
        vectors = basis[:, beyond]
        shrunken = vectors * np.sqrt(np.maximum(values[beyond] ** 2 - edge**2, 0.0))
        for begin, end in pairwise(first):
            filled[begin:end, begin:end] = shrunken[begin:end] @ vectors[begin:end].T
    return shrunken @ vectors.T, int(beyond.sum())


def _some(values: int, rng: np.random.Generator) -> Matrix:
    """As many random directions as are looked for."""
    return rng.standard_normal((values, min(MOST_DIRECTIONS, values)), np.float32)


def _leading(matrix: Matrix, basis: Matrix, passes: int) -> tuple[Matrix, Matrix]:
    """The eigenvalues of largest size, nearly, and their vectors: subspace iteration, then Rayleigh and Ritz."""
    for _ in range(passes):
        basis, _ = np.linalg.qr(matrix @ basis)
    values, rotation = np.linalg.eigh(basis.T @ matrix @ basis)
    return values, basis @ rotation


def fit_directions(
    domain: Domain, found: Directions, pace: Pace, rng: np.random.Generator, progress: Progress
) -> Rows:
    """Rows that answer the residual of one-way tables and of all pairs."""
    fractions = {j: found.ones[found.first_value[j] : found.first_value[j + 1]] for j in range(domain.width)}
    start: Chains = product_start(domain, fractions, pace, rng)
    heat = pace.temperatures(found.noise, TEMPERATURE)
    transcript = play(
        ResidualQueryPlayer(heat),
        AllPairsDataPlayer(found.first_value, found.ones, found.pairs, 1.0, start, rng),
        rounds=len(heat),
        progress=progress,
    )
    return pace.released(transcript)
