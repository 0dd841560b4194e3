"""Questions about the units of a database, and about the rows that hang on them.

    region = West & any(person.age >= 65)        households in the West with somebody of 65 or more
    all(person.job = yes)                        everybody has a job (of nobody, too)
    count(person where age < 18) >= 2            two children or more
    count(person) >= 3                           the same as person >= 3: the size of the unit

    condition = … | ("any" | "all") "(" formula ")" | "count" "(" table ["where" formula] ")" operator value
    name      = … | table "." name

Inside the brackets a formula is about one row of a child table and its unit: `age` or `person.age` is an attribute of
the row, `household.region` one of the unit (or `region`, where no row has an attribute of that name). Such formulas
are also asked by themselves, of the rows of a table (`--of person`): what is asked then is the share of all persons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby, product
from math import prod

from dualquery.errors import QueryError
from dualquery.queries import language
from dualquery.queries.families import FAMILIES, QUERIES
from dualquery.queries.group import Group
from dualquery.queries.language.formula import Condition, Fault, Literal, Query, Token, as_box, canonical
from dualquery.queries.language.reader import Reader, query_of, to_groups
from dualquery.queries.views import Counted, OverUnits, negated, over_units
from dualquery.queries.workload import Grammar, Workload, check_count
from dualquery.table.columns import Categorical
from dualquery.table.database import Database
from dualquery.table.domain import Column, Domain

QUANTIFIERS = ("any", "all", "count")
# Over the attributes of the units and behind them these numbers.
AskedOfUnits = tuple[Query, tuple[Counted, ...]]


class RowReader(Reader):
    """Reads formulas about one row of a child table and its unit."""

    def __init__(self, database: Database, child: str) -> None:
        super().__init__(database.view_domain(child))
        self._database, self._child = database, child
        for column in database.columns:  # by the name of its table, too
            known = f"{database.root.name}.{column.name}"
            self._positions.setdefault(known, self._positions.get(column.name, -1))
        for column in database.child(child).columns:
            if self._domain.find(f"{database.root.name}.{column.name}") is None:
                self._positions[column.name] = self._positions[f"{child}.{column.name}"]

    def _name(self) -> int:
        token = self.token
        twice = f"{self._database.root.name}.{token.text}"
        if token.text not in self._positions and self._domain.find(twice) is not None:
            raise Fault(
                token.column, f"write {self._child}.{token.text} or {twice}: both have '{token.text}'"
            )
        if token.text.lower() in QUANTIFIERS and self.tokens[self.place + 1].kind == "(":
            raise Fault(
                token.column,
                f"{token.text}(…) asks about a whole {self._database.root.name}, not about one row",
            )
        return super()._name()

    def inside(self, outer: Reader) -> Query:
        """The query that stands next in what another reader reads, which goes on behind it."""
        self.begin(outer.tokens, outer.place)
        begin = self.token.column
        formula = self._formula(1)
        outer.place = self.place
        try:
            box = as_box(self._no_parity(formula, begin))
        except QueryError as error:
            raise Fault(begin, str(error)) from None
        if box.sides is None:
            raise Fault(begin, f"no row of '{self._child}' can satisfy this")
        return query_of(box, self._size)


class UnitReader(Reader):
    """Reads questions about units."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database
        self._rows = {child.name: RowReader(database, child.name) for child in database.children}
        self._counted: dict[str, Counted] = {}  # by name, in the order in which they were met
        for column in database.columns:
            self._positions.setdefault(f"{database.root.name}.{column.name}", self._positions[column.name])

    def asked(self, text: str, place: str) -> AskedOfUnits:
        """The query that a text asks, and the numbers of rows that it is about."""
        self._counted = {}
        query = self.read(text, place=place)
        width, met = self._database.width, list(self._counted.values())
        used = [met[literal.attribute - width] for literal in query.literals if literal.attribute >= width]
        numbers = sorted(used, key=lambda each: each.name)
        literals = tuple(
            literal._replace(attribute=width + numbers.index(met[literal.attribute - width]))
            if literal.attribute >= width
            else literal
            for literal in query.literals
        )
        return Query(tuple(sorted(literals)), query.complement, query.parity), tuple(numbers)

    def _size(self, attribute: int) -> int:
        width = self._database.width
        if attribute < width:
            return super()._size(attribute)
        return len(list(self._counted.values())[attribute - width].values)

    def _name(self) -> int:
        token = self.token
        if token.text not in self._positions and (child := self._child_with(token.text)) is not None:
            own = token.text.removeprefix(f"{child}.")
            raise Fault(
                token.column,
                f"'{own}' is known of each row of '{child}', and a {self._database.root.name} may have several: ask "
                f"any({child}.{own} …), all({child}.{own} …) or count({child} where {own} …) >= 1, or ask it of "
                f"'{child}'",
            )
        return super()._name()

    def _condition(self) -> Condition:
        token = self.token
        word = token.text.lower()
        if token.kind != "word" or word not in QUANTIFIERS or self.tokens[self.place + 1].kind != "(":
            return super()._condition()
        self.place += 2
        return self._count(token) if word == "count" else self._quantified(token)

    def _quantified(self, token: Token) -> Condition:
        """What stands behind `any(` or `all(`."""
        is_any = token.text.lower() == "any"
        child = self._child_inside(token)
        query = self._rows[child].inside(self)
        self._take(")", "')'")
        if not query.literals:
            raise Fault(token.column, f"what stands in {token.text}(…) holds for every row of '{child}'")
        number = Counted.of(self._database, child, query if is_any else negated(query))
        return self._on(number, language.everything(number) ^ 1 if is_any else 1)

    def _count(self, token: Token) -> Condition:
        """What stands behind `count(`: a table, perhaps a condition, and how many."""
        child = self.token.text
        if child not in self._rows:
            names = " or ".join(self._rows)
            raise Fault(
                self.token.column, f"count(…) counts rows of {names}, like count({child_of(self._rows)})"
            )
        self.place += 1
        query = self._rows[child].inside(self) if self.takes("word", "where") else Query(())
        self._take(")", "'where' or ')'")
        size = self._database.find(child)
        assert size is not None, "the size of each child table is an attribute"
        column = self._database.column_of(size)[1]
        if not query.literals and isinstance(column, Categorical):
            return Condition(size, self._behind(column, token), len(column.labels))
        number = Counted.of(self._database, child, query)
        return self._on(number, self._behind(number, token))

    def _behind(self, column: Column, token: Token) -> int:
        """The numbers that the comparison behind a count accepts."""
        codes = {label: code for code, label in enumerate(column.labels)}
        return self._accepted(column, codes, token.column)

    def _on(self, number: Counted, accepted: int) -> Condition:
        known = self._counted.setdefault(number.name, number)
        place = list(self._counted).index(known.name)
        return Condition(self._database.width + place, accepted, len(number.values))

    def _child_with(self, name: str) -> str | None:
        """The first child table that has an attribute of this name, or of this one behind its own."""
        found = (
            child.name
            for child in self._database.children
            for column in child.columns
            if name in (column.name, f"{child.name}.{column.name}")
        )
        return next(found, None)

    def _child_inside(self, token: Token) -> str:
        """The one child table whose attributes stand in the brackets that have just been opened."""
        depth, names = 1, []
        for each in self.tokens[self.place :]:
            depth += (each.kind == "(") - (each.kind == ")")
            if depth == 0:
                break
            if each.kind in ("word", "quoted"):
                names.append(each.text)
        plainly = {
            c.name for c in self._database.children for x in c.columns if f"{c.name}.{x.name}" in names
        }
        found = plainly or {c.name for c in self._database.children for x in c.columns if x.name in names}
        if len(found) == 1:
            return found.pop()
        example = f"{child_of(self._rows)}.{self._database.children[0].columns[0].name}"
        raise Fault(
            token.column,
            f"{token.text}(…) asks about the rows of one table; name its attributes with the table before them, like "
            f"{example}",
        )


def child_of(rows: Mapping[str, RowReader]) -> str:
    return next(iter(rows))


def groups_of(database: Database, texts: Sequence[str], places: Sequence[str]) -> tuple[Group, ...]:
    """The questions of some texts, in their order: those that ask about numbers of rows apart from the others."""
    reader = UnitReader(database)
    asked = [reader.asked(text, place) for text, place in zip(texts, places, strict=True)]
    groups: list[Group] = []
    for plain, run in groupby(asked, key=lambda each: not each[1]):
        some = list(run)
        groups += to_groups(database, [query for query, _ in some]) if plain else [over_units(database, some)]
    return tuple(groups)


def unit_question(database: Database, text: str) -> OverUnits:
    """One question by itself, whatever it is about."""
    query, numbers = UnitReader(database).asked(text, "the question")
    if query.parity:
        raise QueryError(
            "a parity of units is not asked one at a time; release the database, and ask the release"
        )
    return over_units(database, [(query, numbers)])


def rows_groups_of(
    database: Database, rows: Domain, texts: Sequence[str], places: Sequence[str]
) -> tuple[Group, ...]:
    """The questions of some texts about the rows of the child table that has this domain."""
    child = next(each.name for each in database.children if database.view_domain(each.name) == rows)
    reader = RowReader(database, child)
    queries = [reader.read(text, place=place) for text, place in zip(texts, places, strict=True)]
    return to_groups(rows, queries)


def any_of(database: Database, k: int) -> Workload:
    """any(…) of every combination of values of k attributes of one row, for every child table."""
    asked: list[AskedOfUnits] = []
    for child in database.children:
        domain, first = database.view_domain(child.name), database.width
        for members in combinations(range(first, domain.width), k):
            sizes = [int(domain.sizes[j]) for j in members]
            check_count(len(asked) + prod(sizes))
            for values in product(*map(range, sizes)):
                cells = zip(members, values, sizes, strict=True)
                literals = tuple(Literal(j, *canonical(1 << v, size)) for j, v, size in cells)
                number = Counted.of(database, child.name, Query(literals))
                at_least_one = Literal(first, *canonical(language.everything(number) ^ 1, len(number.values)))
                asked.append((Query((at_least_one,)), (number,)))
    if not asked:
        raise QueryError(f"no table has {k} attributes, so there is no any(…) of so many")
    return Workload(database, (over_units(database, asked),), f"any:{k}")


def _family_of(database: Database, spec: str) -> Workload | None:
    family, colon, rest = spec.partition(":")
    if family != "any" or not colon:
        return QUERIES.family(database, spec)
    if not (rest.isdecimal() and 1 <= int(rest) < 10):
        raise QueryError(f"'{spec}' should read any:K, of K attributes of a row")
    return any_of(database, int(rest))


def _example(database: Database) -> str:
    """That some row has the second value of its first attribute."""
    child = database.children[0]
    column = replace(child.columns[0], name=f"{child.name}.{child.columns[0].name}")
    code = min(1, len(column.labels) - 1)
    return f"any({language.condition_text(Domain((column,)), 0, 1 << code)})"


UNITS = Grammar("questions", f"{FAMILIES}, any:K", _example, groups_of, _family_of)
