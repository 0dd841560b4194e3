"""Where numbers lie inside their bins, added up: the statistic behind means (`table.places`).

Of each column and each of its bins, Σ (place − HALF) over the records of the bin: in units of 2·HALF a bin's width,
Σ ((x − low)/width − ½). A record lies in one bin of a column, and adds at most HALF to one number, up or down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualquery.errors import DataError
from dualquery.queries.countable import Bound
from dualquery.table.domain import Domain
from dualquery.table.numbers import Numeric
from dualquery.table.places import HALF, has_places
from dualquery.table.records import Records
from dualquery.types import Integers


@dataclass(frozen=True)
class BinSums:
    """The sums of all bins of some columns, one column behind the other; places of columns in the domain."""

    domain: Domain
    columns: tuple[int, ...]

    @staticmethod
    def of(domain: Domain) -> BinSums:
        """Of every column whose numbers can lie elsewhere in their bins."""
        return BinSums(domain, tuple(i for i, column in enumerate(domain.columns) if has_places(column)))

    @property
    def bins(self) -> list[int]:
        """How many bins each column has."""
        return [self.domain.columns[i].bins for i in self.columns]  # type: ignore[union-attr]

    @property
    def attributes(self) -> list[int]:
        """The attribute that each column is."""
        return [int(self.domain.starts[i]) for i in self.columns]

    def split(self, numbers: np.ndarray) -> list[np.ndarray]:
        """The numbers of each column."""
        return np.split(numbers, np.cumsum(self.bins)[:-1])

    def counts(self, records: Records) -> Integers:
        if records.rows and not records.places:
            raise DataError(
                "these records do not say where in its bin a number lies; encode them from a table, or release "
                "without means inside bins (--means 0)"
            )
        found = [np.zeros(0, np.int64)]
        for i, bins in zip(self.columns, self.bins, strict=True):
            if not records.rows:
                found.append(np.zeros(bins, np.int64))
                continue
            places, codes = records.places[i], records.columns[i]
            assert places is not None, "of the columns that have them"
            # Whole numbers below 2^53 in all: floats add them up exactly.
            sums = np.bincount(np.asarray(codes), weights=places.astype(np.float64) - HALF, minlength=bins)
            found.append(sums[:bins].astype(np.int64))
        return np.concatenate(found)

    def bound(self) -> Bound:
        """alone: HALF a column; apart: from one end of a bin to the other, or HALF in each of two bins.

        In squared L2 4·HALF² against 2·HALF², in L1 2·HALF both ways. `each` number moves by 2·HALF at most.
        """
        number = len(self.columns)
        return Bound((number * HALF, number * HALF**2), (2 * number * HALF, 4 * number * HALF**2), 2 * HALF)


def numeric(domain: Domain, column: int) -> Numeric:
    """A column of numbers in bins, by its place in the domain."""
    found = domain.columns[column]
    assert isinstance(found, Numeric)
    return found
