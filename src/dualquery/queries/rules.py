"""Rules of a schema in codes: which combinations cannot be, and how rows that have one are mended.

A rule over few attributes is a table of *structural zeros*: cells that hold nobody. Fitted rows keep away from them,
what was measured of them is known to be noise (`zeros_of`), and at the end rows that are in one all the same are
mended: one attribute of the rule gets a value drawn from the rows that agree on the others and keep all rules, the
attribute on the right side of `=>` first. All of this is post-processing of released rows by public rules.

`checked` tells whoever writes a schema what is missing in it. Where a table is given, what is said depends on its
cells: it is internal, not to be published.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from math import prod

import numpy as np
import pyarrow as pa

from dualquery.errors import DataError, QueryError, SchemaError
from dualquery.queries.language.formula import Query
from dualquery.queries.language.reader import parse
from dualquery.table.cells import plain
from dualquery.table.database import Database
from dualquery.table.dates import Dates
from dualquery.table.domain import Categorical, Column, Dependency, Domain, Implication, Items, Numeric, Sum
from dualquery.table.drafting import several_rows
from dualquery.table.encoding import encode, wanted_columns
from dualquery.table.reading import AnyTable, read_table
from dualquery.table.reading.source import choose
from dualquery.table.records import ColumnCodes, Records, smallest_type
from dualquery.table.schema import Schema, read_schema
from dualquery.table.toml_text import quoted
from dualquery.table.units import units_in
from dualquery.types import Flags, Integers

MOST_CELLS = 2_000_000  # of a rule's table
PASSES = 20
TRIES = 2000  # random rows, among which one must be mended for the rules to leave anything


@dataclass(frozen=True, eq=False)
class Zeros:
    """The cells over some attributes that no record can be in; those in `mended` are changed first."""

    says: str
    members: tuple[int, ...]
    impossible: Flags
    mended: tuple[int, ...]

    def broken(self, rows: Integers) -> Flags:
        found: Flags = self.impossible[tuple(rows[:, j] for j in self.members)]
        return found


@lru_cache(maxsize=16)
def structural_zeros(domain: Domain) -> tuple[Zeros, ...]:
    """The tables of a domain's rules; a rule that cannot be read is an error that names it."""
    found = []
    for rule in domain.rules:
        if isinstance(rule, Implication):
            found.append(_of_implication(domain, rule))
        elif isinstance(rule, Sum):
            found.append(_of_sum(domain, rule))
        elif rule.values:
            found.append(_of_dependency(domain, rule))
    return tuple(found)


def zeros_of(domain: Domain, members: tuple[int, ...]) -> Flags | None:
    """The cells of a table that no rule leaves anybody in; None where there are none."""
    shape = [int(domain.sizes[j]) for j in members]
    out = np.zeros(shape, np.bool_)
    for zeros in structural_zeros(domain):
        shared = [j for j in zeros.members if j in members]
        if not shared:
            continue
        others = tuple(axis for axis, j in enumerate(zeros.members) if j not in members)
        part = zeros.impossible.all(axis=others)
        part = np.transpose(part, np.argsort([members.index(j) for j in shared]))
        out |= part.reshape([size if j in shared else 1 for j, size in zip(members, shape, strict=True)])
    return out if out.any() else None


def _of_implication(domain: Domain, rule: Implication) -> Zeros:
    when = _query(domain, rule.when, rule.says)
    then = None if rule.then is None else _query(domain, rule.then, rule.says)
    right = [literal.attribute for literal in then.literals] if then else []
    members = tuple(sorted({*(literal.attribute for literal in when.literals), *right}))
    _check_members(domain, members, rule.says)
    impossible = _held(domain, when, members)
    if then is not None:
        impossible = impossible & ~_held(domain, then, members)
    if not impossible.any():
        raise SchemaError(f"rule '{rule.says}' says nothing: no combination breaks it")
    return Zeros(rule.says, members, impossible, tuple(right) or members)


def _query(domain: Domain, text: str, says: str) -> Query:
    try:
        query = parse(text, Domain(domain.columns))
    except QueryError as error:
        raise SchemaError(f"rule '{says}': {error}") from None
    if query.parity:
        raise SchemaError(f"rule '{says}' is about a parity; write conditions on attributes")
    return query


def _check_members(domain: Domain, members: Sequence[int], says: str) -> None:
    if any(isinstance(domain.column_of(j)[1], Items) for j in members):
        raise SchemaError(f"rule '{says}' is about items; rules are about columns")
    if prod(int(domain.sizes[j]) for j in members) > MOST_CELLS:
        raise SchemaError(
            f"rule '{says}' has more than {MOST_CELLS:,} combinations; split it, or take fewer bins"
        )


def _held(domain: Domain, query: Query, members: tuple[int, ...]) -> Flags:
    out = np.ones([int(domain.sizes[j]) for j in members], np.bool_)
    for attribute, values, negated in query.literals:
        accepted = np.full(int(domain.sizes[attribute]), negated)
        accepted[list(values)] = not negated
        out &= accepted.reshape([-1 if j == attribute else 1 for j in members])
    return out ^ query.complement


def _of_sum(domain: Domain, rule: Sum) -> Zeros:
    """Impossible where no numbers of the parts' bins add up to one of the total's; a missing one is not compared."""
    names = (rule.total, *rule.parts)
    members = tuple(j for j in map(domain.find, names) if j is not None)
    _check_members(domain, members, rule.says)
    shape = [int(domain.sizes[j]) for j in members]
    least, most = np.zeros(shape[1:]), np.zeros(shape[1:])
    present = np.ones(shape, np.bool_)
    ends = []
    for axis, j in enumerate(members):
        column = domain.column_of(j)[1]
        assert isinstance(column, Numeric)
        low, high = column.bounds()
        absent = int(domain.sizes[j]) - column.bins
        side = [-1 if other == axis else 1 for other in range(len(members))]
        present &= (np.arange(int(domain.sizes[j])) < column.bins).reshape(side)
        ends.append((np.append(low, [0.0] * absent), np.append(high, [0.0] * absent)))
        if axis:
            least = least + ends[-1][0].reshape(side[1:])
            most = most + ends[-1][1].reshape(side[1:])
    first, last = (end.reshape([-1] + [1] * (len(members) - 1)) for end in ends[0])
    impossible = present & ((most[None] < first) | (least[None] > last))
    order = np.argsort(members)
    return Zeros(
        rule.says,
        tuple(members[i] for i in order),
        np.transpose(impossible, order),
        (members[0], *members[1:]),
    )


def _of_dependency(domain: Domain, rule: Dependency) -> Zeros:
    on, to = domain.find(rule.on[0]), domain.find(rule.attribute)
    assert on is not None
    assert to is not None
    _check_members(domain, (on, to), rule.says)
    givens, values = domain.labels(on), domain.labels(to)
    impossible = np.zeros((len(givens), len(values)), np.bool_)
    for given, value in rule.values:
        impossible[givens.index(given)] = True
        impossible[givens.index(given), values.index(value)] = False
    if on < to:
        return Zeros(rule.says, (on, to), impossible, (to,))
    return Zeros(rule.says, (to, on), impossible.T, (to,))


def check_rules(domain: Domain, seed: int = 0) -> None:
    """Refuse rules that nobody can read, and rules that leave no record possible."""
    zeros = structural_zeros(domain)
    if zeros and possible_row(domain, np.random.default_rng(seed)) is None:
        raise SchemaError(
            "the rules of the schema leave no record possible; look at those that share attributes"
        )


def possible_row(domain: Domain, rng: np.random.Generator) -> Integers | None:
    """A row that keeps all rules (attributes of no rule are 0), found among random ones."""
    zeros = structural_zeros(domain)
    touched = sorted({j for each in zeros for j in each.members})
    rows = np.zeros((TRIES, domain.width), np.int64)
    for j in touched:
        rows[:, j] = rng.integers(0, int(domain.sizes[j]), TRIES)
    _mend(rows, zeros, domain, rng)
    kept = np.flatnonzero(~_broken(rows, zeros))
    return rows[kept[0]] if len(kept) else None


def obeyed(records: Records, rng: np.random.Generator) -> Records:
    domain = records.domain
    if not domain.rules:
        return records
    zeros = structural_zeros(domain)
    dependencies = [rule for rule in domain.rules if isinstance(rule, Dependency) and not rule.values]
    named = [domain.find(name) for rule in dependencies for name in (rule.attribute, *rule.on)]
    touched = sorted(
        {*chain.from_iterable(each.members for each in zeros), *(j for j in named if j is not None)}
    )
    rows = np.zeros((records.rows, domain.width), np.int64)
    places = [domain.column_of(j)[0] for j in touched]
    for j, place in zip(touched, places, strict=True):
        rows[:, j] = np.asarray(records.columns[place])
    for _ in range(PASSES):
        for rule in dependencies:
            _settle(rows, domain, rule)
        if not _broken(rows, zeros).any():
            break
        _mend(rows, zeros, domain, rng)
    for rule in dependencies:
        _settle(rows, domain, rule)
    _replace(rows, zeros, domain, touched, rng)
    columns: list[ColumnCodes] = list(records.columns)
    for j, place in zip(touched, places, strict=True):
        columns[place] = rows[:, j].astype(smallest_type(int(domain.sizes[j])))
    return Records(domain, records.rows, tuple(columns), records.records_per_person)


def _broken(rows: Integers, zeros: Sequence[Zeros]) -> Flags:
    out = np.zeros(len(rows), np.bool_)
    for each in zeros:
        out |= each.broken(rows)
    return out


def _mend(rows: Integers, zeros: Sequence[Zeros], domain: Domain, rng: np.random.Generator) -> None:
    """Change one attribute of each row that breaks a rule, rule after rule, until none does or it is enough."""
    for _ in range(PASSES):
        clean = True
        for each in zeros:
            bad = np.flatnonzero(each.broken(rows))
            if len(bad):
                clean = False
                _mend_one(rows, bad, each, domain, rng)
        if clean:
            return


def _mend_one(rows: Integers, bad: Integers, zeros: Zeros, domain: Domain, rng: np.random.Generator) -> None:
    """For each bad row a value of one attribute, as frequent as among good rows that agree on the others."""
    sizes = [int(domain.sizes[j]) for j in zeros.members]
    counts = np.zeros(sizes, np.float64)
    np.add.at(counts, tuple(rows[:, j] for j in zeros.members), 1.0)
    counts = np.where(zeros.impossible, 0.0, counts + 1e-6)
    # A row without a value of the first attributes to go to changes another one, and at last a random one.
    left = bad
    others = [j for j in zeros.members if j not in zeros.mended]
    for j in (*zeros.mended, *others):
        axis = zeros.members.index(j)
        place = tuple(rows[left, k] for k in zeros.members if k != j)
        beside = np.moveaxis(counts, axis, -1)[place].reshape(-1, int(domain.sizes[j]))
        odds = np.cumsum(np.broadcast_to(beside, (len(left), beside.shape[1])), axis=1)
        possible = odds[:, -1] > 0
        drawn = (rng.random(len(left))[:, None] * odds[:, -1:] >= odds).sum(axis=1)
        rows[left[possible], j] = drawn[possible]
        left = left[~possible]
        if not len(left):
            return
    j = zeros.members[int(rng.integers(len(zeros.members)))]
    rows[left, j] = rng.integers(0, int(domain.sizes[j]), len(left))


def _settle(rows: Integers, domain: Domain, rule: Dependency) -> None:
    """Every row gets the value that most rows have which agree on what it depends on."""
    to = domain.find(rule.attribute)
    assert to is not None
    on = [j for j in map(domain.find, rule.on) if j is not None]
    _, group = np.unique(rows[:, on], axis=0, return_inverse=True)
    group = group.ravel()
    size = int(domain.sizes[to])
    counts = np.bincount(group * size + rows[:, to], minlength=(int(group.max(initial=0)) + 1) * size)
    rows[:, to] = counts.reshape(-1, size).argmax(axis=1)[group]


def _replace(
    rows: Integers, zeros: Sequence[Zeros], domain: Domain, touched: list[int], rng: np.random.Generator
) -> None:
    """Rows that could not be mended become rows that keep all rules, in what the rules are about."""
    bad = np.flatnonzero(_broken(rows, zeros))
    if not len(bad):
        return
    good = np.flatnonzero(~_broken(rows, zeros))
    if len(good):
        donors = good[rng.integers(0, len(good), len(bad))]
        for j in touched:
            rows[bad, j] = rows[donors, j]
    else:
        row = possible_row(domain, rng)
        assert row is not None, "check_rules has refused the others"
        rows[bad] = row


LONG = 1000  # values of an attribute: its tables are large, and their cells nearly empty


@dataclass(frozen=True)
class SchemaCheck:
    """What was found: `problems` stand in the way of a release, `notes` do not."""

    attributes: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return not self.problems

    @property
    def wrong(self) -> str:
        return "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"

    def lines(self) -> list[str]:
        out = [*self.attributes]
        out += [f"to fix: {each}" for each in self.problems]
        out += [f"note: {each}" for each in self.notes]
        return [*out, "nothing is missing" if self.sound else f"{self.wrong} to fix"]


def checked(schema: str | os.PathLike[str] | Schema, table: AnyTable | None = None) -> SchemaCheck:
    """What stands in a schema, what it lacks, and what of a table has no place in it."""
    read = schema if isinstance(schema, Schema) else read_schema(schema)
    domain = read.domain
    problems, notes = [], [*read.doubts, *_notes(domain)]
    if read.draft:
        problems.append("the line draft = true: delete it once everything in the schema is public knowledge")
    try:
        check_rules(domain)
    except SchemaError as error:
        problems.append(str(error).partition("\n")[0])
    if table is not None:
        found, more = _compared(read, table)
        problems += found
        notes += more
    return SchemaCheck(tuple(map(_described, domain.columns)), tuple(problems), tuple(notes))


def _described(column: Column) -> str:
    if isinstance(column, Items):
        return f"{column.name}: {column.count:,} items"
    size = len(column.labels)
    if isinstance(column, Dates):
        written = "" if column.format is None else f", written {column.example}"
        kind = f"dates by {column.by}, {column.labels[0]} to {column.labels[column.bins - 1]}{written}"
    elif isinstance(column, Numeric):
        kind = f"numbers in {column.bins:,} bins"
    else:
        kind = "ordered categories" if column.ordered else "categories"
        kind = "listed numbers" if column.numeric else kind
    absent = "missing values allowed" if column.missing_code is not None else "no missing values"
    return f"{column.name}: {kind}, {size:,} codes; {absent}"


def _notes(domain: Domain) -> list[str]:
    notes = []
    for column in domain.columns:
        size = len(column.labels)
        if size == 1:
            notes.append(f"'{column.name}' has one value only; leave it out")
        elif size > LONG:
            notes.append(f"'{column.name}' has {size:,} values; fewer would be answered better")
        if isinstance(column, Numeric) and not column.clamp:
            notes.append(
                f"'{column.name}': what lies beyond its ends is an error; clamp = true sends it to them"
            )
        if isinstance(column, Categorical) and column.unknown is None and not column.ordered and size > 20:
            notes.append(
                f"'{column.name}': an unlisted value is an error; unknown = \"...\" gives it a place"
            )
    return notes


def _compared(schema: Schema, table: AnyTable) -> tuple[list[str], list[str]]:
    """Every column by itself, so that all that is wrong is said at once; then the rules."""
    if isinstance(schema.domain, Database):
        dropped = units_in(table, schema.domain, schema.encoding).dropped
        return [], [f"left out: {why}, {number:,}" for why, number in dropped.items()]
    problems, notes = [], []
    wanted = wanted_columns(table, schema)
    # All columns of the table, but otherwise read as for a release.
    read = read_table(table, wanted if wanted.lines else replace(wanted, names=None))
    names = [name.strip() for name in read.column_names]
    known = {column.name for column in schema.domain.columns} | {schema.unit}
    if extra := [name for name in read.column_names if name.strip() not in known]:
        notes.append(f"the table has columns that the schema leaves out: {', '.join(map(quoted, extra))}")
    notes += several_rows(read, schema)
    if schema.unit is not None and schema.unit.strip() not in names:
        problems.append(f"the table has no column '{schema.unit}', which the schema calls its unit")
    encoded: dict[str, np.ndarray] = {}
    for column in schema.domain.columns:
        if column.name not in names:
            problems.append(f"the table has no column '{column.name}'")
            continue
        try:
            (place,) = choose([column.name], read.column_names, "the table")
            one = pa.table({column.name: plain(read.column(place))})
            codes = encode(one, Domain((column,))).columns[0]
        except DataError as error:
            problems.append(str(error))
            continue
        if isinstance(codes, np.ndarray):
            encoded[column.name] = codes
    if not problems:
        notes += _broken_rules(schema.domain, encoded, read.num_rows)
    return problems, notes


def _broken_rules(domain: Domain, encoded: dict[str, np.ndarray], rows: int) -> list[str]:
    """How many rows break each rule; a public rule may be broken by few, and is then as wrong as they are many."""
    out = []
    for zeros in structural_zeros(domain):
        codes = tuple(encoded[domain.name(j)].astype(np.int64) for j in zeros.members)
        broken = int(zeros.impossible[codes].sum())
        if broken:
            out.append(f"{broken:,} of {rows:,} rows break the rule '{zeros.says}'")
    return out
