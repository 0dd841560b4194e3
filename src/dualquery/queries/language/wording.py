"""How a set of accepted codes of one attribute is said in words that the language reads back."""

from __future__ import annotations

from bisect import bisect_left

from dualquery.queries.language.vocabulary import (
    between,
    codes_in,
    everything,
    is_binned,
    mark,
    number_in,
    quoted_where_needed,
    ranked_codes,
)
from dualquery.table.domain import Categorical, Domain, Items, Numeric


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
