"""Formulas of regressions, as R writes them, and the tables that one is made of.

    income ~ age + sex                  a response, and what explains it
    'income' = '>50K' ~ age + sex       a response that is one value of an attribute, or any other
    hours ~ age * sex                   age + sex + age:sex, where age:sex is their product

Names and values are written as in queries (`queries.language`); those that hold one of ~ + * : need quotes. A model
needs the table of every pair of its attributes, and of an interaction a:b the table of a, b and the response.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations

from dualquery.errors import QueryError
from dualquery.queries.language import attribute_named
from dualquery.table.domain import Categorical, Domain, Numeric
from dualquery.types import Set

_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")|([~+*:=])|([^\s'\"~+*:=]+))")
_READS = "write it like income ~ age + sex"
Token = tuple[str, bool]  # a text, and whether it is a sign


@dataclass(frozen=True)
class Factor:
    """An attribute of a model, or whether it has one value of it."""

    attribute: int
    code: int | None = None

    def text(self, domain: Domain) -> str:
        name = domain.name(self.attribute)
        return name if self.code is None else f"{name} = {domain.labels(self.attribute)[self.code]}"


@dataclass(frozen=True)
class ModelFormula:
    """A response, and terms: one factor, or two whose product counts."""

    response: Factor
    terms: tuple[tuple[Factor, ...], ...]

    @property
    def attributes(self) -> list[int]:
        """All that it names, the response first."""
        named = [self.response, *(factor for term in self.terms for factor in term)]
        return list(dict.fromkeys(factor.attribute for factor in named))

    @property
    def interactions(self) -> list[Set]:
        """The response with both attributes of each product."""
        held = [
            {self.response.attribute, *(factor.attribute for factor in term)}
            for term in self.terms
            if len(term) > 1
        ]
        return list(dict.fromkeys(tuple(sorted(each)) for each in held if len(each) > 2))

    @property
    def sets(self) -> list[Set]:
        """The tables that it is made of."""
        return [*combinations(sorted(self.attributes), 2), *self.interactions]


def read_formula(domain: Domain, text: str) -> ModelFormula:
    """The model that a formula says, or a QueryError that says what is wrong with it."""
    if not isinstance(text, str):
        raise QueryError(f"expected a formula as text, got {type(text).__name__}; {_READS}")
    sides = _split(_tokens(text), "~")
    if len(sides) != 2 or not all(sides):
        raise QueryError(f"the formula '{text}' needs one ~ between the response and the rest; {_READS}")
    response = _factor(domain, sides[0], text)
    terms: list[tuple[Factor, ...]] = []
    for part in _split(sides[1], "+"):
        terms += _terms(domain, part, text)
    for term in terms:
        if any(factor.attribute == response.attribute for factor in term):
            raise QueryError(
                f"the formula '{text}' explains '{domain.name(response.attribute)}' by itself; take it from one side"
            )
    return ModelFormula(response, tuple(dict.fromkeys(terms)))


def _tokens(text: str) -> list[Token]:
    found, place = [], 0
    text = text.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise QueryError(f"the formula '{text}' has a quote that is never closed")
        quoted, sign, word = match.groups()
        if quoted:
            found.append((quoted[1:-1].replace(quoted[0] * 2, quoted[0]), False))
        else:
            found.append((sign or word, bool(sign)))
        place = match.end()
    return found


def _split(tokens: list[Token], sign: str) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for each in tokens:
        if each == (sign, True):
            parts.append([])
        else:
            parts[-1].append(each)
    return parts


def _terms(domain: Domain, part: list[Token], text: str) -> list[tuple[Factor, ...]]:
    """`a`, `a:b`, or `a*b`, which is a + b + a:b."""
    for sign in ("*", ":"):
        if (sign, True) in part:
            factors = [_factor(domain, each, text) for each in _split(part, sign)]
            if len(factors) != 2 or factors[0].attribute == factors[1].attribute:
                raise QueryError(
                    f"the formula '{text}' multiplies; only two different attributes can be, a{sign}b"
                )
            first, second = factors
            both = (first, second) if first.attribute < second.attribute else (second, first)
            return [(first,), (second,), both] if sign == "*" else [both]
    return [(_factor(domain, part, text),)]


def _factor(domain: Domain, part: list[Token], text: str) -> Factor:
    names = _split(part, "=")
    if len(names) > 2 or not all(len(each) == 1 and not each[0][1] for each in names):
        raise QueryError(
            f"the formula '{text}' cannot be read; {_READS}, with quotes around names that hold blanks or signs"
        )
    name = names[0][0][0]
    attribute = attribute_named(domain, name)
    if len(names) == 1:
        return Factor(attribute)
    value, labels = names[1][0][0], domain.labels(attribute)
    column = domain.column_of(attribute)[1]
    if isinstance(column, Numeric) or (isinstance(column, Categorical) and column.numeric):
        raise QueryError(f"'{name}' is a number, and stands in a formula without a value")
    if value not in labels:
        raise QueryError(f"attribute '{name}' has no value '{value}'; it has {', '.join(labels[:8])}")
    return Factor(attribute, labels.index(value))
