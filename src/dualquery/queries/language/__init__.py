"""Queries as text.

What a condition on one attribute means in codes, and how a set of codes is written back.

The set of accepted codes is a Python integer used as a bit set: bit v is set where code v is
accepted. Intersection, union and negation are then single operations, also on an attribute of
thousands of values.

Only ordered attributes can be compared: a numeric one, whose bins follow one another, and a
categorical one declared as ordered. A place for missing or unknown values has no rank, so
`age >= 50` leaves the missing ones out and its negation takes them in.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import TypeGuard

import numpy as np

from dualquery.errors import QueryError
from dualquery.table.dates import Dates, period_in
from dualquery.table.domain import Categorical, Column, Domain, Items, Numeric

KEYWORDS = frozenset({"and", "or", "not", "in", "is", "missing", "parity"})
WORD = r"[^\s'\"&|!()\[\]{},=<>#≠≤≥∧∨¬]+"  # what needs no quotes
_WORD = re.compile(WORD)


class CutSide(Enum):
    """Where a cut lies: just before its bound (as in `< 50`, `>= 50`) or just after (`<= 50`, `> 50`)."""

    BEFORE = "before"
    AFTER = "after"


def everything(column: Column) -> int:
    return (1 << len(column.labels)) - 1


def codes_in(mask: int) -> list[int]:
    if mask.bit_length() > 64:
        packed = np.frombuffer(mask.to_bytes(-(-mask.bit_length() // 8), "little"), np.uint8)
        codes: list[int] = np.flatnonzero(np.unpackbits(packed, bitorder="little")).tolist()
        return codes
    codes = []
    while mask:
        lowest = mask & -mask
        codes.append(lowest.bit_length() - 1)
        mask ^= lowest
    return codes


def bit_set(codes: Sequence[int]) -> int:
    if not codes or codes[-1] < 64:
        return sum(1 << code for code in codes)
    inside = np.zeros(codes[-1] + 1, np.bool_)
    inside[list(codes)] = True
    return int.from_bytes(np.packbits(inside, bitorder="little").tobytes(), "little")


def ranked_codes(column: Column) -> Sequence[int] | None:
    """The codes that can be compared, in their order; None for an attribute without an order."""
    if isinstance(column, Numeric):
        return range(column.bins)
    if isinstance(column, Categorical) and column.ordered:
        absent = column.missing_code
        return [
            code for code, value in enumerate(column.values) if code != absent and value != column.unknown
        ]
    return None


def accepted_by(column: Column, value: str, *, quoted: bool, codes: dict[str, int]) -> int:
    """The bit set that `= value` asks for. `codes` numbers the column's labels."""
    if isinstance(column, Dates) and value not in codes:
        first, last = (_cut_dates(column, value, side) for side in (CutSide.BEFORE, CutSide.AFTER))
        return between(column, first, last)
    return 1 << code_of(column, value, quoted=quoted, codes=codes)


def code_of(column: Column, value: str, *, quoted: bool, codes: dict[str, int]) -> int:
    if is_binned(column) and not quoted and (number := number_in(value)) is not None:
        return _bin_of(column, number)
    code = codes.get(value)
    if code is not None:
        return code
    if is_binned(column) and (number := number_in(value)) is not None:
        return _bin_of(column, number)
    if _is_numbers(column) and (number := number_in(value)) in (known := column.numbers.tolist()):
        return known.index(number)
    raise QueryError(f"{_noun(column)} has no value '{value}'{_suggestion(value, column.labels)}")


def cut(column: Column, bound: str, side: CutSide, *, codes: dict[str, int]) -> int:
    """How many of the ranked codes lie before a cut at this bound."""
    if isinstance(column, Dates):
        return _cut_dates(column, bound, side)
    if isinstance(column, Numeric):
        number = number_in(bound)
        if number is None:
            raise QueryError(f"'{bound}' is not a number, and {_noun(column)} is numeric")
        return _cut_bins(column, number, side)
    ranked = ranked_codes(column)
    if ranked is None:
        raise QueryError(f"{_noun(column)} has no order; use =, != or in {{…}}, or declare it as ordered")
    if _is_numbers(column) and bound not in codes and (number := number_in(bound)) is not None:
        find = bisect_left if side is CutSide.BEFORE else bisect_right  # between two values lies a cut, too
        return find([float(column.labels[code]) for code in ranked], number)
    code = code_of(column, bound, quoted=True, codes=codes)
    place = bisect_left(ranked, code)
    if place == len(ranked) or ranked[place] != code:
        raise QueryError(f"'{bound}' stands for missing or unknown values of {_noun(column)} and has no rank")
    return place if side is CutSide.BEFORE else place + 1


def between(column: Column, first: int, last: int) -> int:
    """The bit set of the ranked codes from cut `first` to cut `last`."""
    ranked = ranked_codes(column)
    assert ranked is not None, "cut() has refused the others"
    if isinstance(ranked, range):
        return (1 << last) - (1 << first) if first < last else 0
    return bit_set(ranked[first:last])


def number_in(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _bin_of(column: Numeric, number: float) -> int:
    """The bin that holds this number and, among the numbers that can occur, no other."""
    edges = column.edges
    if not edges[0] <= number <= edges[-1]:
        raise QueryError(_beyond(column, number))
    code = min(bisect_right(edges, number) - 1, column.bins - 1)
    last = math.floor(edges[-1]) if code == column.bins - 1 else math.ceil(edges[code + 1]) - 1
    if column.integer and number == math.ceil(edges[code]) == last:
        return code
    raise QueryError(
        f"{_noun(column)} is known by its bins only, and {mark(number)} shares one with other numbers; "
        f"ask for {quoted_where_needed(column.name)} in {column.labels[code]}"
    )


def _cut_bins(column: Numeric, number: float, side: CutSide) -> int:
    """The cut of a numeric attribute, refused where it would split a bin.

    Where only integers occur, > 49 and >= 50 are the same cut, and so is any edge between 49 and 50.
    """
    edges, bins = column.edges, column.bins
    edge = _edge_at(column, number)
    if edge is not None and (edge < bins) == (side is CutSide.BEFORE):
        return edge  # the last bin is closed: before its upper edge there is no cut, after it there is
    if column.integer:
        following = math.ceil(number) if side is CutSide.BEFORE else math.floor(number) + 1
        if following == math.floor(edges[-1]) + 1:
            return bins
        place = bisect_right(edges, following) - 1
        if 0 <= place < bins and math.ceil(edges[place]) == following:
            return place
    if not edges[0] <= number <= edges[-1]:
        raise QueryError(_beyond(column, number))
    code = min(bisect_right(edges, number) - 1, bins - 1) if edge is None else min(edge, bins - 1)
    raise QueryError(
        f"a bound at {mark(number)} would split the bin {column.labels[code]} of {_noun(column)}; "
        f"the nearest edges are {mark(edges[code])} and {mark(edges[code + 1])}"
    )


def _cut_dates(column: Dates, bound: str, side: CutSide) -> int:
    """How many periods lie before the beginning of a period (`>= 2024-03`), or before its end (`> 2024-03`)."""
    period = period_in(bound)
    if period is None:
        raise QueryError(
            f"'{bound}' is not a date such as {column.labels[0]}, and {_noun(column)} holds dates"
        )
    starts = [*column.edges[:-1], math.floor(column.edges[-1]) + 1.0]
    moment = period.first if side is CutSide.BEFORE else period.end
    number = column.number(moment)
    place = bisect_left(starts, number)
    whole = column.per_day > 1 or (moment.hour == 0)
    if place < len(starts) and starts[place] == number and whole:
        return place
    first, last = column.labels[0], column.labels[column.bins - 1]
    if not starts[0] <= number <= starts[-1]:
        raise QueryError(f"{bound} lies beyond {_noun(column)}, which reaches from {first} to {last}")
    label = column.labels[bisect_right(starts, number) - 1]
    raise QueryError(f"a bound at {bound} would split the {column.by} {label} of {_noun(column)}")


def _edge_at(column: Numeric, number: float) -> int | None:
    """The place of the edge at a number, also where the edge carries a rounding error of its own."""
    edges = column.edges
    near = bisect_left(edges, number)
    if near < len(edges) and edges[near] == number:
        return near
    return next(
        (i for i in (near, near - 1) if 0 <= i < len(edges) and f"{edges[i]:.15g}" == f"{number:.15g}"), None
    )


def _beyond(column: Numeric, number: float) -> str:
    low, high = mark(column.edges[0]), mark(column.edges[-1])
    return f"{mark(number)} lies beyond the bins of {_noun(column)}, which reach from {low} to {high}"


def is_binned(column: Column) -> TypeGuard[Numeric]:
    """Whether an attribute is known by intervals of numbers; dates are known by their periods."""
    return isinstance(column, Numeric) and not isinstance(column, Dates)


def _is_numbers(column: Column) -> TypeGuard[Categorical]:
    """Whether an attribute lists its values, and they are numbers."""
    return isinstance(column, Categorical) and column.numeric


def _noun(column: Column) -> str:
    return f"item '{column.name}'" if isinstance(column, Items) else f"attribute '{column.name}'"


def _suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'age'?` where something known is close, or nothing."""
    names = list(known)
    folded = {name.casefold(): name for name in names}
    if word.casefold() in folded:
        return f"; did you mean '{folded[word.casefold()]}'?"
    close = get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; it has {', '.join(names)}" if len(names) <= 6 else ""


def unknown_name(domain: Domain, name: str) -> str:
    """What to say of a name that no column bears."""
    names = [f"{c.name}[{c.first}]" if isinstance(c, Items) else c.name for c in domain.columns]
    close = get_close_matches(name, names, n=1) or [n for n in names if n.casefold() == name.casefold()]
    return f"unknown attribute '{name}'" + (f"; did you mean '{close[0]}'?" if close else "")


def attribute_named(domain: Domain, name: str) -> int:
    """The attribute of this name, or a QueryError."""
    attribute = domain.find(name)
    if attribute is None:
        raise QueryError(unknown_name(domain, name))
    return attribute


def mark(number: float) -> str:
    """A number as it stands in labels: plain text where that loses nothing."""
    plain = f"{number:.15g}"
    return plain if float(plain) == number else repr(float(number))


def quoted_where_needed(text: str) -> str:
    """A name or a value as the language reads it back."""
    if _WORD.fullmatch(text) and text.isprintable() and text.lower() not in KEYWORDS:
        return text
    return "'" + text.replace("'", "''") + "'"


def attribute_text(domain: Domain, attribute: int) -> str:
    """An attribute's name as the language reads it back."""
    position, column = domain.column_of(attribute)
    if isinstance(column, Items):
        return f"{quoted_where_needed(column.name)}[{column.first + attribute - domain.starts[position]}]"
    return quoted_where_needed(column.name)


def condition_text(domain: Domain, attribute: int, accepted: int) -> str:
    """The condition that a bit set of accepted codes stands for. It never needs parentheses."""
    column = domain.column_of(attribute)[1]
    name = attribute_text(domain, attribute)
    if isinstance(column, Items):
        return name if accepted == 0b10 else f"!{name}"
    return column.words(accepted) or text_of_codes(column, name, accepted)


def text_of_codes(column: Categorical | Numeric, name: str, accepted: int) -> str:
    """The condition that what has this name has one of these codes."""
    rejected = everything(column) ^ accepted
    absent = column.missing_code
    if absent is not None and accepted == 1 << absent:
        return f"{name} is missing"
    if absent is not None and rejected == 1 << absent:
        return f"{name} is not missing"
    if not is_binned(column) and accepted.bit_count() == 1:
        return f"{name} = {_value_text(column, accepted)}"
    if not is_binned(column) and rejected.bit_count() == 1:
        return f"{name} != {_value_text(column, rejected)}"
    return (
        _range_text(column, name, accepted, negated=False)
        or _range_text(column, name, rejected, negated=True)
        or _set_text(column, name, accepted, rejected)
    )


def _value_text(column: Categorical | Numeric, mask: int) -> str:
    return quoted_where_needed(column.labels[mask.bit_length() - 1])


def _range_text(column: Categorical | Numeric, name: str, mask: int, *, negated: bool) -> str | None:
    """One comparison or interval for a run of ranked codes; None where there is no such run."""
    ranked = ranked_codes(column)
    if ranked is None or not mask:
        return None
    lowest, highest = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
    first = bisect_left(ranked, lowest)
    last = first + mask.bit_count()
    if last > len(ranked) or between(column, first, last) != mask:
        return None
    starts, ends = first == 0, last == len(ranked)
    if starts == ends:
        return f"{name} {'not in' if negated else 'in'} {_interval(column, lowest, highest)}"
    if is_binned(column):
        bound = f"< {_edge(column, last)}" if starts else f">= {_edge(column, first)}"
    else:
        bound = f"<= {_value_text(column, mask)}" if starts else f">= {_value_text(column, 1 << lowest)}"
    return f"!({name} {bound})" if negated else f"{name} {bound}"


def _edge(column: Numeric, place: int) -> str:
    return mark(column.edges[place])


def _interval(column: Categorical | Numeric, first: int, last: int) -> str:
    if is_binned(column):
        close = "]" if last == column.bins - 1 else ")"
        return f"[{_edge(column, first)}, {_edge(column, last + 1)}{close}"
    return f"[{_value_text(column, 1 << first)}, {_value_text(column, 1 << last)}]"


def _set_text(column: Categorical | Numeric, name: str, accepted: int, rejected: int) -> str:
    """The shorter of the two sets; neighbouring bins are joined."""
    negated = rejected.bit_count() < accepted.bit_count()
    codes = codes_in(rejected if negated else accepted)
    if not is_binned(column):
        members = [quoted_where_needed(column.labels[code]) for code in codes]
    else:
        members = []
        while codes:
            run = next((i for i in range(1, len(codes)) if codes[i] != codes[0] + i), len(codes))
            if codes[0] + run - 1 == column.bins and run > 1:
                run -= 1  # the place of missing numbers follows the last bin but does not continue it
            members.append(_member(column, codes[0], codes[run - 1]))
            codes = codes[run:]
    return f"{name} {'not in' if negated else 'in'} {{{', '.join(members)}}}"


def _member(column: Numeric, first: int, last: int) -> str:
    if first < column.bins:
        return _interval(column, first, last)
    assert column.missing is not None, "the code after the bins"
    # A label that looks like a number must not be read as one.
    label = column.missing
    return f"'{label}'" if number_in(label) is not None else quoted_where_needed(label)
