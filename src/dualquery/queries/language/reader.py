"""Queries as people write them: `age >= 50 & sex = Female & !(workclass = Private)`.

    formula    = term { ("|" | "or") term }
    term       = factor { ("&" | "and") factor }
    factor     = ("!" | "not") factor | "(" formula ")" | condition | "parity" "(" name { "," name } ")"
    condition  = name [ operator value | ["not"] "in" (set | interval) | "is" ["not"] "missing" ]
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">="
    set        = "{" value { "," value } "}"
    interval   = ("[" | "(") value "," value (")" | "]")
    value      = word | quoted | interval
    name       = (word | quoted) [ "[" number "]" ]

A condition without operator is for items: `item[17]` is `item[17] = 1`. Every formula must be one
product of conditions on single attributes or the complement of one (see `formula`). What is read
is a `Query` in canonical form, so that queries with the same meaning are equal and print alike; queries that were
read one by one become groups that are counted together (`to_groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NoReturn

import numpy as np

from dualquery.errors import QueryError
from dualquery.queries import language
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.group import Group, Predicates, padded
from dualquery.queries.language import KEYWORDS, CutSide
from dualquery.queries.language.formula import (
    SIGNS_IN_WORDS,
    Box,
    Condition,
    Cursor,
    Every,
    Fault,
    Formula,
    Literal,
    Negation,
    Query,
    Some,
    Token,
    as_box,
    canonical,
    pointing_at,
    tokens_of,
)
from dualquery.table.domain import Column, Domain, Items

DEEPEST = 50  # nested parentheses
_ORDER = {
    "<": (CutSide.BEFORE, False),
    "<=": (CutSide.AFTER, False),
    ">=": (CutSide.BEFORE, True),
    ">": (CutSide.AFTER, True),
}
_SPECIAL = frozenset({"&", "|", "!", "=", "!=", "<", "<=", ">", ">=", "(", ")", "[", "]", "{", "}", ","})


def parse(text: str, domain: Domain, *, place: str = "") -> Query:
    """The query that a text asks. `place` (a file and line, say) is named in front of an error."""
    return Reader(domain).read(text, place=place)


class Reader(Cursor):
    """Reads many queries about one domain; it remembers names and values between them."""

    def __init__(self, domain: Domain) -> None:
        super().__init__()
        self._domain = domain
        self._positions = {column.name: i for i, column in enumerate(domain.columns)}
        self._codes: dict[int, dict[str, int]] = {}

    def read(self, text: str, *, place: str = "") -> Query:
        """The query that a text asks; QueryError with the column of the fault where it asks none."""
        try:
            self.begin(tokens_of(text))
            return self._query()
        except Fault as fault:
            raise QueryError(pointing_at(text, fault.column, str(fault), place)) from None

    def _query(self) -> Query:
        begin = self.tokens[0]
        if begin.kind == "end":
            raise Fault(0, "the query is empty")
        formula = self._formula(0)
        if self.token.kind != "end":
            self._expected("'&', '|' or the end of the query")
        if isinstance(formula, Query):
            return formula
        return self._made(formula, begin.column)

    def _made(self, formula: Formula, begin: int) -> Query:
        """The canonical query of a formula that begins at this column."""
        try:
            box = as_box(formula)
        except QueryError as error:
            raise Fault(begin, str(error)) from None
        if box.sides is None:
            raise Fault(begin, "no record can satisfy this query")
        if not box.sides:
            raise Fault(begin, "this query holds for every record")
        return query_of(box, self._size)

    def _size(self, attribute: int) -> int:
        return int(self._domain.sizes[attribute])

    # The grammar, one method a rule. A parity is a query of its own kind and joins no formula.

    def _formula(self, depth: int) -> Formula | Query:
        return self._joined("|", depth)

    def _joined(self, sign: str, depth: int) -> Formula | Query:
        column = self.token.column
        parts = [self._joined("&", depth) if sign == "|" else self._factor(depth)]
        while self.takes(sign):
            parts.append(self._joined("&", depth) if sign == "|" else self._factor(depth))
        if len(parts) == 1:
            return parts[0]
        formulas = tuple(self._no_parity(part, column) for part in parts)
        return Some(formulas) if sign == "|" else Every(formulas)

    def _factor(self, depth: int) -> Formula | Query:
        column = self.token.column
        negated = False
        while self.takes("!"):
            negated = not negated
        if depth == DEEPEST:
            raise Fault(column, f"more than {DEEPEST} nested parentheses")
        token = self.token
        if self.takes("("):
            part = self._formula(depth + 1)
            self._take(")", f"')' to close the '(' at column {token.column + 1}")
        elif self.takes("word", "parity"):
            part = self._parity()
        else:
            part = self._condition()
        return Negation(self._no_parity(part, column)) if negated else part

    def _no_parity(self, part: Formula | Query, column: int) -> Formula:
        if isinstance(part, Query):
            raise Fault(column, "a parity stands alone: it cannot be negated or joined with other conditions")
        return part

    def _parity(self) -> Query:
        self._take("(", "'(' (a name 'parity' needs quotes)")
        attributes: list[int] = []
        while True:
            column = self.token.column
            attribute = self._name()
            name = self._domain.name(attribute)
            if self._domain.sizes[attribute] != 2:
                raise Fault(column, f"a parity needs binary attributes, and '{name}' is not binary")
            if attribute in attributes:
                raise Fault(column, f"'{name}' stands twice in this parity")
            attributes.append(attribute)
            if not self.takes(","):
                break
        self._take(")", "',' or ')'")
        return Query((), parity=tuple(sorted(attributes)))

    def _name(self) -> int:
        """The number of the attribute that is named next."""
        token = self.token
        if token.kind not in ("word", "quoted") or (token.kind == "word" and token.text.lower() in KEYWORDS):
            self._expected("an attribute")
        self.place += 1
        position = self._positions.get(token.text)
        column = None if position is None else self._domain.columns[position]
        if self.token.kind != "[":
            if position is None or column is None:
                raise Fault(token.column, language.unknown_name(self._domain, token.text))
            if isinstance(column, Items):
                example = f"{column.name}[{column.first}]"
                raise Fault(token.column, f"'{column.name}' is a block of items; name one, as {example}")
            return self._domain.starts[position]
        self.place += 1
        number = self._take_value()
        self._take("]", "']'")
        if position is None or column is None:
            raise Fault(token.column, language.unknown_name(self._domain, f"{token.text}[{number.text}]"))
        if not isinstance(column, Items):
            raise Fault(token.column, f"'{column.name}' is not a block of items; leave out [{number.text}]")
        last = column.first + column.count - 1
        digits = number.text
        if not (digits.isdecimal() and len(digits) < 19 and column.first <= int(digits) <= last):
            raise Fault(number.column, f"'{column.name}' has items {column.first} to {last}")
        return self._domain.starts[position] + int(digits) - column.first

    def _condition(self) -> Condition:
        column_number = self.token.column
        attribute = self._name()
        position, column = self._domain.column_of(attribute)
        codes = self._codes.get(position)
        if codes is None:
            codes = self._codes[position] = {label: code for code, label in enumerate(column.labels)}
        return Condition(attribute, self._accepted(column, codes, column_number), len(column.labels))

    def _accepted(self, column: Column, codes: dict[str, int], column_number: int) -> int:
        """The codes that what stands behind a name accepts, as a bit set."""
        token = self.token
        full = language.everything(column)
        if token.kind in ("=", "!="):
            self.place += 1
            accepted = self._value(column, codes)
            if token.kind == "!=":
                accepted ^= full
        elif token.kind in _ORDER:
            self.place += 1
            accepted = self._comparison(token, column, codes)
        elif self.takes("!"):
            if not self.takes("word", "in"):
                self._expected("'in'")
            accepted = full ^ self._membership(column, codes)
        elif self.takes("word", "in"):
            accepted = self._membership(column, codes)
        elif self.takes("word", "is"):
            accepted = full if self.takes("!") else 0
            if not self.takes("word", "missing"):
                self._expected("'missing'")
            absent = column.missing_code
            if absent is None:
                raise Fault(column_number, f"'{column.name}' declares no place for missing values")
            accepted ^= 1 << absent
        elif column.labels == Items.labels:
            accepted = 0b10
        else:
            self._expected(f"a comparison of '{column.name}' with a value")
        return accepted

    def _comparison(self, operator: Token, column: Column, codes: dict[str, int]) -> int:
        side, upwards = _ORDER[operator.kind]
        place = self._cut(column, codes, side)
        first, last = (place, len(language.ranked_codes(column) or ())) if upwards else (0, place)
        return language.between(column, first, last)

    def _membership(self, column: Column, codes: dict[str, int]) -> int:
        if not self.takes("{"):
            if self.token.kind not in ("[", "("):
                self._expected("'{' or '['")
            return self._value(column, codes)
        accepted = self._value(column, codes)
        while self.takes(","):
            accepted |= self._value(column, codes)
        self._take("}", "',' or '}'")
        return accepted

    def _value(self, column: Column, codes: dict[str, int]) -> int:
        token = self.token
        if token.kind in ("[", "("):
            self.place += 1
            first = self._cut(column, codes, CutSide.BEFORE if token.kind == "[" else CutSide.AFTER)
            self._take(",", "','")
            close = self.tokens[min(self.place + 1, len(self.tokens) - 1)].kind
            last = self._cut(column, codes, CutSide.AFTER if close == "]" else CutSide.BEFORE)
            if not self.takes("]"):
                self._take(")", "')' or ']' to close the interval")
            return language.between(column, first, last)
        self._take_value()
        try:
            return language.accepted_by(column, token.text, quoted=token.kind == "quoted", codes=codes)
        except QueryError as error:
            raise Fault(token.column, str(error)) from None

    def _cut(self, column: Column, codes: dict[str, int], side: CutSide) -> int:
        token = self._take_value()
        try:
            return language.cut(column, token.text, side, codes=codes)
        except QueryError as error:
            raise Fault(token.column, str(error)) from None

    # Tokens

    def _take(self, sign: str, description: str) -> None:
        if not self.takes(sign):
            self._expected(description)

    def _take_value(self) -> Token:
        token = self.token
        # A word such as `not` is a value where a value is due.
        if token.kind not in ("word", "quoted") and token.text.lower() not in SIGNS_IN_WORDS:
            self._expected("a value")
        self.place += 1
        return token

    def _expected(self, description: str) -> NoReturn:
        token = self.token
        found = "the end of the query" if token.kind == "end" else f"'{token.text}'"
        hint = "; put quotes around it if it is part of a name or value" if token.kind in _SPECIAL else ""
        raise Fault(token.column, f"expected {description}, found {found}{hint}")


def query_of(box: Box, size: Callable[[int], int]) -> Query:
    """A box that is neither empty nor whole as a query; `size` gives the number of codes of an attribute."""
    sides = box.sides or {}
    literals = [Literal(j, *canonical(sides[j], size(j))) for j in sorted(sides)]
    return Query(tuple(literals), box.complement)


def to_groups(domain: Domain, queries: Iterable[Query]) -> tuple[Group, ...]:
    """The same queries as groups, in the same order: neighbours of one kind share a group."""
    groups: list[Group] = []
    for is_parity, run in groupby(queries, key=lambda query: bool(query.parity)):
        if is_parity:
            rows = [query.parity for query in run]
            groups.append(Parities(domain, padded(rows)))
        else:
            groups.append(_conjunctions(domain, list(run)))
    return tuple(groups)


def _conjunctions(domain: Domain, queries: list[Query]) -> Conjunctions:
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    rows: list[tuple[int, ...]] = []
    for query in queries:
        row = []
        for attribute, values, negated in query.literals:
            number = numbers.setdefault((attribute, values), len(numbers))
            row.append(2 * number + negated)
        rows.append(tuple(row))
    complement = np.array([query.complement for query in queries])
    return Conjunctions(
        domain, Predicates.of(list(numbers)), padded(rows), complement if complement.any() else None
    )
