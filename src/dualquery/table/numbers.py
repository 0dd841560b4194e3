"""Numbers, cut at public edges into bins.

A number v gets the code b with edges[b] ≤ v < edges[b + 1], the last bin closed, found by bisection of the edges. For
bins of equal width this is min(bins − 1, ⌊(v − low) / width⌋) in exact arithmetic; a division of floats would put 0.3
below the edge 3/10.

*How numbers are written in texts*: `1234.5`, and where the schema says so `1.234,50 €` or `$1,234.50`. With
`decimal_comma` the comma stands before the decimals, and points, apostrophes or blanks may stand between thousands.
With `currency` that sign may stand before or behind the number, and commas between thousands. Thousands have three
figures each: what is written otherwise is no number, because nobody knows which.

*Numbers inside their bins*: a released code says only which bin, so its numbers are spread over it. The j-th of the
n records of a bin, in an order of its own for each column, lies at the quantile (j + 1/2)/n of the bin's law. So
the mean of many records is that of the law, and two columns are not tied together by how they were spread. The
order is drawn from a seed that depends on the column's name alone: a release that is read back spreads its numbers
as before, and encoding gives the same codes.

The law is public: it looks at the edges and at the released records, never at the table. In a bin on one side of
zero the density is ∝ |x|^s. By default the bin *follows its neighbours*: s is the mean of the exponents with which
one power law would give it and a neighbour the shares that they have in the release; at the outer end it goes on
growing steeper, if it did. Where shares are level, s = 0 and the law is uniform; in the wide last bin of incomes it
falls as steeply as the incomes before it. `spread` in the schema fixes s = 0 (uniform) or s = −1 (log: the
logarithm is uniform). Bins across zero are uniform.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import SchemaError
from dualquery.table import toml_text as toml
from dualquery.table.cells import bins_of, floats_of, from_numpy, is_numeric, number_in, numbers_of
from dualquery.table.columns import KEYS, Attribute, Signed, Unplaced, absent_in
from dualquery.table.toml_text import figure, listed, only, optional, quoted, required, text, truth, whole
from dualquery.types import Flags, Integers, Reals

MAXIMAL_BINS = 1_000_000
MOST_UNITS = 10**15  # numbers of more digits are not all told apart by floats
PRECISION = 18  # decimal figures that fit into 64 bits
STEEPEST = 5.0  # exponents beyond are taken for noise
STEPS, EXACT = 50, 1e-9  # of an exponent, and when it is found
WIDEST = 1e12  # a bin whose ends are further apart (as a ratio) is uniform
OF_BIN = 0.45  # widths of a bin: between a quantile of the numbers in it and that of numbers spread over it
FINER = 3  # more figures than the width of a bin has, where nobody says how many decimals
_BLANKS = "\u00a0\u202f\u2009"  # that stand between thousands, and are no ordinary blanks
_COMMA = re.compile(r"[+-]?(?:\d{1,3}(?:[.' ]\d{3})+|\d+)(?:,\d+)?")
_POINT = re.compile(r"[+-]?(?:\d{1,3}(?:[,' ]\d{3})+|\d+)(?:\.\d+)?")


class Spread(Enum):
    """How numbers lie inside their bin where nothing but the bin is known."""

    UNIFORM = "uniform"
    LOG = "log"  # the logarithm is uniform

    @staticmethod
    def read(value: object) -> Spread:
        try:
            return Spread(value)
        except ValueError:
            raise ValueError(" or ".join(f'"{each.value}"' for each in Spread)) from None


@dataclass(frozen=True)
class Numeric(Attribute):
    """A number cut at public edges: code b stands for [edges[b], edges[b + 1]), the last bin closed.

    With `clamp`, a number beyond the edges goes to the nearest end; without it, it is an error.
    With `missing` (a label), an absent number has a code of its own, after the bins. `unknown` is what any other cell
    without a place is read as: a number (or a date), or that label; without it, such a cell is an error.
    `integer` says that the numbers are whole, `decimals` how many decimals they have, and so have those that are
    read back; `exact` says that they come back as exact decimals. `decimal_comma` and `currency` say how texts are
    written. `spread` overrides how numbers lie inside the bins.
    """

    name: str
    edges: tuple[float, ...]
    clamp: bool = False
    missing: str | None = None
    integer: bool = False
    decimals: int | None = None
    exact: bool = False
    decimal_comma: bool = False
    currency: str | None = None
    spread: Spread | None = None
    empty: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    @property
    def missing_code(self) -> int | None:
        return None if self.missing is None else self.bins

    @cached_property
    def labels(self) -> tuple[str, ...]:
        marks = [_short(x) for x in self.edges]
        intervals = [f"[{a}, {b})" for a, b in pairwise(marks[:-1])]
        intervals.append(f"[{marks[-2]}, {marks[-1]}]")
        return (*intervals, self.missing) if self.missing is not None else tuple(intervals)

    @property
    def in_units(self) -> bool:
        """Whether numbers are whole ones: of 1, or of the last decimal."""
        return self.integer or self.decimals is not None

    def unit_bounds(self) -> list[tuple[int, int]]:
        """The first and the last number that can lie in each bin, counted in units of the last decimal."""
        edges: Sequence[float | Fraction] = self.edges
        if self.decimals is not None:  # edges of integers need no scaling
            edges = [decimal(edge) * 10**self.decimals for edge in self.edges]
        starts, last = [math.ceil(edge) for edge in edges[:-1]], math.floor(edges[-1])
        return list(zip(starts, [*(start - 1 for start in starts[1:]), last], strict=True))

    @cached_property
    def wide(self) -> bool:
        """Whether one of the bins holds more than one number."""
        low, high = self.bounds()
        return bool((high > low).any())

    def bounds(self) -> tuple[Reals, Reals]:
        """The least and the largest number of each bin, in units where there are some."""
        return self._bounds

    @cached_property
    def _bounds(self) -> tuple[Reals, Reals]:
        if self.in_units:
            units = np.array(self.unit_bounds(), np.float64)
            return units[:, 0], units[:, 1]
        edges = np.array(self.edges)
        return edges[:-1], np.append(np.nextafter(edges[1:-1], -np.inf), edges[-1])

    def half_bins(self, values: Reals) -> Reals:
        """How far off a quantile may be at least: `OF_BIN` widths of the bin that it lies in."""
        low, high = self.bounds()
        unit = 10.0 ** (self.decimals or 0)
        wide = (high - low + 1.0) / unit if self.in_units else high - low
        found: Reals = OF_BIN * wide[np.clip(np.searchsorted(low / unit, values, "right") - 1, 0, None)]
        return found

    # In a schema file.

    @staticmethod
    def read(name: str, where: str, entry: Mapping[str, Any]) -> Numeric:
        if "edges" in entry:
            only(entry, where, KEYS["edges"])
            edges = required(entry, where, "edges", toml.numbers)
        else:
            only(entry, where, KEYS["bins"])
            low, high = (required(entry, where, key, toml.number) for key in ("low", "high"))
            edges = equal_edges(name, low, high, required(entry, where, "bins", whole))
        integer = optional(entry, where, "integer", truth) or False
        decimals = optional(entry, where, "decimals", whole)
        currency = optional(entry, where, "currency", text)
        if currency is not None and not integer and decimals is None:
            decimals = 2
        exact = optional(entry, where, "exact", truth)
        return Numeric(
            name,
            edges,
            clamp=optional(entry, where, "clamp", truth) or False,
            integer=integer,
            decimals=decimals,
            exact=currency is not None if exact is None else exact,
            decimal_comma=optional(entry, where, "decimal_comma", truth) or False,
            currency=currency,
            spread=optional(entry, where, "spread", Spread.read),
            unknown=optional(entry, where, "unknown", text),
            **absent_in(entry, where),
        )

    def said(self) -> dict[str, str]:
        low, high = self.edges[0], self.edges[-1]
        if self.edges == equal_edges(self.name, low, high, self.bins):
            return {"low": figure(low), "high": figure(high), "bins": str(self.bins)}
        return {"edges": listed([figure(edge) for edge in self.edges])}

    def options(self) -> dict[str, Any]:
        usual = self.exact == (self.currency is not None)
        return {
            "currency": None if self.currency is None else quoted(self.currency),
            "decimals": None if self.decimals is None else str(self.decimals),
            "exact": None if usual else "true" if self.exact else "false",
            "spread": None if self.spread is None else quoted(self.spread.value),
            "unknown": None if self.unknown is None else quoted(self.unknown),
            "clamp": self.clamp,
            "integer": self.integer,
            "decimal_comma": self.decimal_comma,
        }

    def check(self) -> None:
        name, edges = self.name, self.edges
        if len(edges) < 2 or not all(map(math.isfinite, edges)):
            raise SchemaError(f"attribute '{name}' needs at least two finite bin edges")
        if any(b <= a for a, b in pairwise(edges)):
            raise SchemaError(f"the bin edges of attribute '{name}' must increase")
        if self.missing is not None:
            if not self.missing or self.missing in self.labels[:-1]:
                raise SchemaError(
                    f"attribute '{name}': the label for missing numbers must be a text of its own"
                )
            if _reads_within(self.missing, edges[0], edges[-1]):
                raise SchemaError(
                    f"attribute '{name}': the label for missing numbers is a number within its edges"
                )
        if self.integer:
            # Past 2^53 a float no longer tells neighbouring integers apart.
            if max(abs(edges[0]), abs(edges[-1])) > 2**53:
                raise SchemaError(f"attribute '{name}' is integer, so its edges must lie within ±2^53")
            if any(math.ceil(a) >= b for a, b in pairwise(edges[:-1])) or math.ceil(edges[-2]) > edges[-1]:
                raise SchemaError(f"attribute '{name}' is integer, but no integer lies in one of its bins")
        self._check_decimals()
        if self.unknown is not None and (self.other_code or 0) < 0:
            raise SchemaError(
                f"attribute '{name}': what unknown cells are read as, '{self.unknown}', must have a place itself: "
                "within the edges, or the label of missing cells"
            )
        super().check()

    def _check_decimals(self) -> None:
        name, decimals = self.name, self.decimals
        if self.exact and not self.in_units:
            raise SchemaError(
                f"attribute '{name}' is exact, so it must say how many decimals it has: decimals = 2"
            )
        if decimals is None:
            return
        if self.integer or not 0 <= decimals <= 15:
            raise SchemaError(
                f"attribute '{name}': decimals must lie between 0 and 15, and integers have none"
            )
        if max(abs(decimal(self.edges[0])), abs(decimal(self.edges[-1]))) * 10**decimals > MOST_UNITS:
            raise SchemaError(f"attribute '{name}' has more than 15 digits with its decimals; declare fewer")
        if any(first > last for first, last in self.unit_bounds()):
            raise SchemaError(f"attribute '{name}': no number of {decimals} decimals lies in one of its bins")

    # From cells to codes.

    @property
    def other_code(self) -> int | None:
        if self.unknown is None:
            return None
        return int(self.placed(pa.chunked_array([pa.array([self.unknown], pa.string())]), typed=True)[0])

    def codes_of_typed(self, cells: pa.ChunkedArray) -> Signed | None:
        return self.bin_codes(floats_of(cells)) if is_numeric(cells.type) else None

    def codes_of_distinct(
        self, values: pa.Array, written: list[str | None], empty: int, *, typed: bool
    ) -> Signed:
        found, junk = self.numbers_of(values, written, typed=typed)
        if self.missing is not None and junk.any():
            label = self.missing.strip()
            junk &= np.array([each is None or each.strip() != label for each in written])
        codes = self.bin_codes(found)
        codes[junk] = Unplaced.NOT_A_NUMBER
        return codes

    def numbers_of(self, values: pa.Array, written: list[str | None], *, typed: bool) -> tuple[Reals, Flags]:
        """Each distinct cell as a number, NaN where it is empty, and whether it is no number at all."""
        if is_numeric(values.type):
            return numbers_of(values, self.name)
        return self.numbers_written(written, plain=typed)

    def numbers_written(self, written: list[str | None], *, plain: bool = False) -> tuple[Reals, Flags]:
        """The same of texts, in the notation of the column or in the plain one."""
        if not plain and (self.decimal_comma or self.currency is not None):
            written = [None if each is None else self._undressed(each) for each in written]
        return numbers_of(pa.array(written, pa.large_string()), self.name)

    def _undressed(self, cell: str) -> str:
        """The plain number, blank where there is none; what is written otherwise is a question mark."""
        bare = cell.translate(str.maketrans(_BLANKS, " " * len(_BLANKS))).strip()
        if self.currency:
            sign = bare[:1] if bare[:1] in ("-", "+") else ""
            dressed = bare[len(sign) :].strip()
            bare = sign + dressed.removeprefix(self.currency).removesuffix(self.currency).strip()
        if not bare or not (_COMMA if self.decimal_comma else _POINT).fullmatch(bare):
            return "?" if bare else ""
        figures = bare.replace("'", "").replace(" ", "")
        return figures.replace(".", "").replace(",", ".") if self.decimal_comma else figures.replace(",", "")

    def bin_codes(self, found: Reals) -> Signed:
        """The bin of each number; NaN is an empty cell, and so is a number that is the label for one."""
        edges = np.array(self.edges)
        codes = self.positions(found)
        least, most = found.min(initial=edges[0]), found.max(initial=edges[-1])  # NaN where there is one
        if self.missing is None and least == edges[0] and most == edges[-1]:
            return codes
        if not self.clamp:
            codes[(found < edges[0]) | (found > edges[-1])] = Unplaced.OUTSIDE
        empty = np.isnan(found)
        if self.missing is None:
            codes[empty] = Unplaced.EMPTY
        else:
            for marker in self.markers:
                empty |= found == marker
            codes[empty] = self.bins
        return codes

    def positions(self, found: Reals) -> Signed:
        """The bin of each number, those beyond the ends in the nearest; what NaN gets is replaced."""
        return bins_of(np.array(self.edges), found)

    @property
    def markers(self) -> list[float]:
        read = map(number_in, [self.missing or "", *self.empty])
        return [each for each in read if each is not None]

    def advice(self, reason: Unplaced) -> str:
        if reason is Unplaced.NOT_A_NUMBER:
            return (
                "holds cells that are not numbers; correct them, list the texts that stand for a "
                'missing number, empty = ["..."] in the schema, or make the attribute categorical'
            )
        if reason is Unplaced.EMPTY:
            return 'has empty cells or NaN; set missing = "missing" for it in the schema to give them a place'
        return (
            "holds numbers beyond its bin edges; widen the edges in the schema, "
            "or set clamp = true to send such numbers to the nearest end"
        )

    # From codes to cells.

    def spread_out(self, codes: NDArray[np.unsignedinteger]) -> Reals:
        """A number for each code, inside its bin, in units where there are some; 0 where it is missing."""
        known = codes < self.bins
        found = np.zeros(len(codes))
        found[known] = spread(self, codes[known].astype(np.int64))
        return found

    def decode(self, found: Reals, missing: Flags) -> pa.Array:
        """Numbers, in units where there are some, in the type that was declared."""
        if not self.in_units:
            return from_numpy(found, missing)
        units = found.astype(np.int64)
        if self.exact:
            return _exact(units, missing, self.decimals or 0)
        if self.integer:
            return from_numpy(units, missing)
        return from_numpy(units / 10 ** (self.decimals or 0), missing)


def equal_width(
    name: str,
    low: float,
    high: float,
    bins: int,
    *,
    clamp: bool = False,
    missing: str | None = None,
    integer: bool = False,
) -> Numeric:
    """`bins` bins of equal width from `low` to `high` (`equal_edges`)."""
    return Numeric(name, equal_edges(name, low, high, bins), clamp=clamp, missing=missing, integer=integer)


def equal_edges(name: str, low: float, high: float, bins: int) -> tuple[float, ...]:
    """Edge b is low + (high − low)·b/bins.

    The edges are worked out in fractions from the decimals that `low` and `high` are written with
    and rounded once, so that a cell which reads 0.3 lies on the edge 3/10 and not just below it.
    """
    if not (math.isfinite(low) and math.isfinite(high) and high > low and 1 <= bins <= MAXIMAL_BINS):
        raise SchemaError(f"attribute '{name}' needs high > low and between 1 and {MAXIMAL_BINS:,} bins")
    start, width = decimal(low), (decimal(high) - decimal(low)) / bins
    return (float(low), *(float(start + width * b) for b in range(1, bins)), float(high))


def decimal(x: float) -> Fraction:
    return Fraction(repr(float(x)))


def _short(x: float) -> str:
    """The plain text of a number where that loses nothing."""
    plain = f"{x:.15g}"
    return plain if float(plain) == x else repr(x)


def _reads_within(label: str, low: float, high: float) -> bool:
    try:
        return low <= float(label) <= high
    except ValueError:
        return False


def _exact(units: Integers, missing: Flags, decimals: int) -> pa.Array:
    """Decimals of Arrow: 128 bits a number, the upper half the sign."""
    words = np.stack([units, units >> 63], axis=1).tobytes()
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.decimal128(PRECISION, decimals), len(units), [valid, pa.py_buffer(words)])


def spread(
    column: Numeric, codes: Integers, quantiles: Reals | None = None, counts: Integers | None = None
) -> Reals:
    """A number for each code, inside its bin, at these quantiles of the bin's law; in units where there are some.

    `counts` are the records of all bins, which the laws follow; without them these codes are all records.
    """
    if counts is None:
        counts = np.bincount(codes, minlength=column.bins)
    if quantiles is None:
        quantiles = quantiles_in_bins(codes, column.bins, shuffled(column.name, len(codes)))
    if not column.in_units:
        low, high = np.array(column.edges[:-1]), np.array(column.edges[1:])
        return rounded_inside(column, codes, _placed(column, codes, quantiles, counts, low, high))
    first, last = column.bounds()
    # A unit stands for the numbers from it to the next one.
    placed = np.floor(_placed(column, codes, quantiles, counts, first, last + 1.0))
    inside: Reals = np.clip(placed, first[codes], last[codes])
    return inside


def rounded_inside(column: Numeric, codes: Integers, placed: Reals) -> Reals:
    """Numbers with as many figures as the width of their bin allows for, or whole units, all inside their bins."""
    if column.in_units:
        first, last = column.bounds()
        return np.clip(np.rint(placed), first[codes], last[codes])
    low, high = np.array(column.edges[:-1]), np.array(column.edges[1:])
    below = np.nextafter(high, -np.inf)
    below[-1] = high[-1]
    placed = np.clip(placed, low[codes], below[codes])
    width = high / 2 - low / 2
    figures = FINER - np.floor(np.log10(np.maximum(width, 1e-300) * 2))
    for most in np.unique(figures[np.abs(figures) < 16]):
        here = np.flatnonzero(figures[codes] == most)
        rounded = np.round(placed[here], int(most))
        inside = (rounded >= low[codes[here]]) & (rounded <= below[codes[here]])
        placed[here] = np.where(inside, rounded, placed[here])
    return placed


def _placed(
    column: Numeric, codes: Integers, quantiles: Reals, counts: Integers, low: Reals, high: Reals
) -> Reals:
    a, b = low[codes], high[codes]
    placed = a * (1 - quantiles) + b * quantiles
    bent = _one_side(low, high) & (high != low)
    here = np.flatnonzero(bent[codes])
    if len(here):
        # Bins of negative numbers are those of positive ones seen from the other side.
        power = exponents(column, counts)[codes[here]] + 1.0
        start, ratio = a[here], b[here] / a[here]
        flat = np.abs(power) < 1e-6
        power[flat] = 1.0
        bent_law = (1.0 + quantiles[here] * (ratio**power - 1.0)) ** (1.0 / power)
        placed[here] = start * np.where(flat, ratio ** quantiles[here], bent_law)
    return placed


def _one_side(low: Reals, high: Reals) -> Flags:
    """Which bins lie on one side of zero, and are not so wide that no power law is told apart."""
    nearer, farther = np.minimum(abs(low), abs(high)), np.maximum(abs(low), abs(high))
    sides: Flags = ((low > 0) | (high < 0)) & (farther / WIDEST < nearer)
    return sides


def exponents(column: Numeric, counts: Integers) -> Reals:
    """The exponent s of each bin's density |x|^s."""
    if column.spread is not None:
        return np.full(column.bins, -1.0 if column.spread is Spread.LOG else 0.0)
    edges = np.array(column.edges)
    total, number = np.zeros(column.bins), np.zeros(column.bins)
    pairs = [(edges, counts, np.arange(column.bins))]
    pairs.append((-edges[::-1], counts[::-1], np.arange(column.bins)[::-1]))  # negative numbers, mirrored
    for ends, held, place in pairs:
        first = np.flatnonzero((ends[:-2] >= 0) & (ends[2:] / WIDEST < ends[1:-1]))
        if not len(first):
            continue
        found = _joint_exponent(ends[first], ends[first + 1], ends[first + 2], held[first], held[first + 1])
        for shift in (0, 1):
            np.add.at(total, place[first + shift], found)
            np.add.at(number, place[first + shift], 1.0)
        if len(first) > 1 and ends[-1] > 0 and found[-2] < 0:
            # Where the law grows steeper towards the outer end, it does so beyond the last edge that has neighbours.
            total[place[-1]] += np.minimum(0.0, found[-1] - found[-2]) / 2
    mean: Reals = total / np.maximum(number, 1.0)
    return mean


def _joint_exponent(a: Reals, b: Reals, c: Reals, left: Integers, right: Integers) -> Reals:
    """The s for which ∫_b^c x^s dx / ∫_a^b x^s dx = right / left, (c^p − b^p)/(b^p − a^p) with p = s + 1.

    Its logarithm grows with s: a step of Newton's, or half the way between what is too little and too much.
    """
    wanted = np.log((right + 0.5) / (left + 0.5))
    end, start = c / b, a / b
    start = np.where(start * WIDEST > 1.0, start, 0.0)  # so near to zero that powers of it overflow
    log_end, log_start = np.log(end), np.log(np.where(start > 0, start, 1.0))

    def short(s: Reals) -> tuple[Reals, Reals]:
        """What the logarithm lacks, and how fast it grows."""
        power = np.where(np.abs(s + 1.0) < 1e-6, 1e-6, s + 1.0)
        above, below = end**power, start**power
        grows = log_end * above / (above - 1.0) + log_start * below / (1.0 - below)
        return wanted - np.log((above - 1.0) / (1.0 - below)), grows

    low = np.where(start > 0, -STEEPEST, -0.9)  # from zero on only s > −1 has a finite integral
    high = np.where(short(low)[0] > 0, STEEPEST, low)
    low, s = np.where(short(high)[0] > 0, high, low), np.zeros(len(a))
    for _ in range(STEPS):
        lacks, grows = short(s)
        low, high = (
            np.where(lacks > 0, np.maximum(s, low), low),
            np.where(lacks > 0, high, np.minimum(s, high)),
        )
        there, before = s + lacks / grows, s
        s = np.where((low <= there) & (there <= high), there, (low + high) / 2)
        if np.abs(s - before).max() <= EXACT:
            break
    return s


def shuffled(name: str, rows: int) -> Reals:
    """An order of records that everybody can draw again, another one for each column."""
    seed = int.from_bytes(hashlib.sha256(name.encode("utf-8", errors="replace")).digest()[:8], "little")
    return np.random.default_rng(seed).random(rows)


def quantiles_in_bins(codes: Integers, bins: int, rank: Reals) -> Reals:
    """(j + 1/2)/n for the j-th of the n records of a bin, by increasing rank."""
    order = np.lexsort((rank, codes))
    counts = np.bincount(codes, minlength=bins)
    starts = np.cumsum(counts) - counts
    place = np.empty(len(codes), np.float64)
    place[order] = np.arange(len(codes)) - starts[codes[order]]
    quantiles: Reals = (place + 0.5) / counts[codes]
    return quantiles
