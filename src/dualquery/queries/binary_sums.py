"""What is added up over the records of a wide binary table. Every number is a sum over records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.binary import GRID, SPREAD_ROWS, Axes, Binary, Centred, Classes, Clip
from dualquery.queries.bit_sums import add_along_records, count_ones
from dualquery.queries.group import Integers, Progress, no_progress
from dualquery.table.records import Records, unpack_bits

FEW_ATTRIBUTES = 512  # spread out at once beside a slab of records


@dataclass(frozen=True, eq=False)
class Balances:
    """Σ (2x − 1): of each attribute the records that have it, less those that have not."""

    binary: Binary

    def counts(self, records: Records, progress: Progress = no_progress) -> Integers:
        ones = np.zeros(self.binary.width, np.int64)
        for first, rows in self.binary.slabs(records):
            count_ones(self.binary.bits(records, first, rows), ones)
        return 2 * ones - records.rows


@dataclass(frozen=True, eq=False)
class Lengths:
    """How many records have |y|² up to the first edge, above it up to the second, …, above the last."""

    centred: Centred
    edges: NDArray[np.int64]  # increasing

    def counts(self, records: Records, progress: Progress = no_progress) -> Integers:
        found = np.zeros(len(self.edges) + 1, np.int64)
        for first, rows in self.centred.binary.slabs(records):
            group = self.centred.classes_of(records, first, rows)
            bits = self.centred.binary.bits(records, first, rows)
            place = np.searchsorted(self.edges, self.centred.squared_lengths(bits, group))
            found += np.bincount(place, minlength=len(found))
        return found


@dataclass(frozen=True, eq=False)
class HeldLengths:
    """How many records hold up to so many of the attributes, as `Lengths` of x itself."""

    binary: Binary
    edges: NDArray[np.int64]

    def counts(self, records: Records, progress: Progress = no_progress) -> Integers:
        whole = np.zeros((1, self.binary.width), np.int64)
        return Lengths(Centred(self.binary, whole), GRID**2 * self.edges).counts(records)


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """The upper triangle of Σ w² y yᵀ, row by row, without the diagonal. For few attributes and no classes."""

    centred: Centred
    clip: Clip

    def counts(self, records: Records, progress: Progress = no_progress) -> Integers:
        binary = self.centred.binary
        total = np.zeros((binary.width, binary.width))
        for first in range(0, records.rows, SPREAD_ROWS):
            rows = min(SPREAD_ROWS, records.rows - first)
            y = GRID * binary.matrix(records, first, rows) - self.centred.centre[0]
            w = self.clip.weights((y**2).sum(axis=1).astype(np.int64))
            y *= w[:, None]
            total += y.T @ y
        return total[np.triu_indices(binary.width, 1)].astype(np.int64)


@dataclass(frozen=True, eq=False)
class ClassSums:
    """For each class (`count_factor`·Σ w, Σ w y), over its records; `together`: one such vector over all records."""

    centred: Centred
    clip: Clip
    count_factor: int
    together: bool = False

    @property
    def number(self) -> int:
        """Of vectors."""
        return 1 if self.together else len(self.centred.centre)

    def counts(self, records: Records, progress: Progress = no_progress) -> Integers:
        centred, binary = self.centred, self.centred.binary
        weight = np.zeros(len(centred.centre), np.int64)
        held = np.zeros((binary.width, len(weight)), np.int64)
        for first, rows in binary.slabs(records):
            group = centred.classes_of(records, first, rows)
            bits = binary.bits(records, first, rows)
            w = self.clip.weights(centred.squared_lengths(bits, group))
            add_along_records(bits, group, w, held)
            np.add.at(weight, group, w)
        sums = GRID * held.T - centred.centre * weight[:, None]
        out = np.concatenate([self.count_factor * weight[:, None], sums], axis=1)
        return out.sum(axis=0) if self.together else out.ravel()


@dataclass(frozen=True, eq=False)
class CentreSums:
    """For each class (`count_factor`·Σ w, Σ w u), and at the end Σ ⌊w²|u|²/divisor⌋ over all records."""

    classes: Classes
    clip: Clip
    count_factor: int
    divisor: int

    def counts(self, records: Records, progress: Progress = no_progress) -> Integers:
        number, axes = self.classes.number, self.classes.axes
        sums = np.zeros((number, 1 + axes.number), np.int64)
        squares = 0
        for first, rows in axes.binary.slabs(records):
            places = axes.places(records, first, rows)
            group = self.classes.nearest(places)
            length = (places**2).sum(axis=1).astype(np.int64)
            w = self.clip.weights(length)
            squares += int((w * w * length // self.divisor).sum())
            vectors = np.column_stack([self.count_factor * w, w[:, None] * places.astype(np.int64)])
            np.add.at(sums, group, vectors)
        return np.append(sums.ravel(), squares)


@dataclass(frozen=True, eq=False)
class CrossSums:
    """Σ (w y)(w' u)ᵀ: how each attribute goes along with each axis. No classes."""

    centred: Centred
    clip: Clip
    axes: Axes
    axes_clip: Clip

    def counts(self, records: Records, progress: Progress = no_progress) -> Integers:
        binary = self.centred.binary
        total = np.zeros((binary.width, self.axes.number), np.int64)
        for first, rows in binary.slabs(records):
            bits = binary.bits(records, first, rows)
            w = self.clip.weights(self.centred.squared_lengths(bits, np.zeros(rows, np.int64)))
            places = self.axes.places(records, first, rows)
            both = w * self.axes_clip.weights((places**2).sum(axis=1).astype(np.int64))
            vectors = both[:, None] * places
            held = np.empty(total.shape)
            for begin in range(0, binary.width, FEW_ATTRIBUTES):
                part = unpack_bits(bits[begin : begin + FEW_ATTRIBUTES], rows)
                held[begin : begin + len(part)] = part.astype(np.float64) @ vectors
            whole = vectors.sum(axis=0).astype(np.int64)
            total += GRID * held.astype(np.int64) - self.centred.centre[0][:, None] * whole
        return total.ravel()
