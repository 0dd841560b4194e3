"""Where in its bin a number lies: what a record says of a number besides its code.

A place is a whole number from 0 to 2·HALF, at the lower end of the bin and at the upper: of x in a bin from a to b it
is the nearest to 2·HALF · (x − a)/(b − a). In units (whole numbers, or so many decimals) a and b are the first and
the last number of the bin; where they are the same there is one place, the middle. Numbers beyond the edges were
clamped to the ends before. A missing number has the middle, too.

Records have places where they were encoded from cells, for columns of numbers of whose bins one at least holds more
than one. Dates have none. A release has places as well: of code and place follows the number that is written
into it (`numbers_at`), and encoding that number gives both again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeGuard, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.table.columns import Signed
from dualquery.table.numbers import Numeric, rounded_inside
from dualquery.types import Integers, Reals

HALF = 32_767
MOST = 2 * HALF
_BITS = 16
Places = NDArray[np.uint16]


def has_places(column: Any) -> TypeGuard[Numeric]:
    """Whether numbers of this column can lie elsewhere in their bin."""
    return type(column) is Numeric and column.wide


def ends_of(column: Numeric) -> tuple[Reals, Reals]:
    """Where places 0 and 2·HALF lie in each bin, in units where there are some."""
    if column.in_units:
        return column.bounds()
    edges = np.array(column.edges)
    return edges[:-1], edges[1:]


def widths_of(column: Numeric) -> Reals:
    """How far apart they are, as cells and edges count."""
    low, high = ends_of(column)
    widths: Reals = (high - low) / 10 ** (column.decimals or 0)
    return widths


def places_of(column: Numeric, codes: Integers, numbers: Reals) -> Places:
    """The place of each number in the bin that it has been given, numbers in units where there are some."""
    low, high = ends_of(column)
    width = high - low
    with np.errstate(over="ignore"):
        per = np.divide(MOST, width, out=np.zeros(len(width)), where=width > 0)
    per[~np.isfinite(per)] = 0.0
    # one more bin, for what is missing; a bin of one number has its middle, and so has one too narrow to divide
    start, per = np.append(low, 0.0)[codes], np.append(per, 0.0)[codes]
    # no compiled loop: a question to a release must not wait for numba
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.subtract(numbers, start, dtype=np.float64)
        found *= per
        np.clip(found, 0.0, MOST, out=found)
        found[per == 0.0] = HALF
        found += 0.5
        return found.astype(np.uint16)


def numbers_at(column: Numeric, codes: NDArray[np.unsignedinteger], places: Places) -> Reals:
    """The number at each place, in units where there are some; 0 where it is missing."""
    low, high = ends_of(column)
    known = codes < column.bins
    bins = codes[known].astype(np.int64)
    share = places[known] / MOST
    found = np.zeros(len(codes))
    found[known] = rounded_inside(column, bins, low[bins] * (1 - share) + high[bins] * share)
    return found


@dataclass(frozen=True)
class _WithPlaces(Numeric):
    """The column, with codes that say the place as well: code · 2^16 + place."""

    @property
    def missing_code(self) -> int | None:
        return None if self.missing is None else (self.bins << _BITS) + HALF

    @property
    def code_type(self) -> Any:
        return np.int64

    def bin_codes(self, found: Reals) -> Signed:
        codes = super().bin_codes(found).astype(np.int64)
        with np.errstate(over="ignore"):  # of a number far beyond the edges, which lies at the end of its bin
            units = found * 10**self.decimals if self.decimals else found
        place = places_of(self, np.maximum(codes, 0), units)
        return np.where(codes < 0, codes, (codes << _BITS) + place)


def encode_with_places(column: Numeric, cells: pa.ChunkedArray) -> tuple[Signed, Places]:
    """The code of each cell, and its place in the bin."""
    both = _WithPlaces(**{each.name: getattr(column, each.name) for each in fields(column)}).encode(cells)
    both = both.astype(np.int64, copy=False)
    return both >> _BITS, cast("Places", (both & (2**_BITS - 1)).astype(np.uint16))
