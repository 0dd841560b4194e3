"""Families of queries: all tables, all parities, disjunctions, a file's own, and what a SPEC names.

A workload is public, and so is the seed that draws it (random_families.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf, prod
from os.path import isfile
from pathlib import Path

import numpy as np

from dualquery.errors import QueryError
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.group import NONE, Group, equalities
from dualquery.queries.language import attribute_named
from dualquery.queries.language.formula import Literal, Query
from dualquery.queries.language.reader import Reader, to_groups
from dualquery.queries.models import read_formula
from dualquery.queries.random_families import Stream, Urn, random_conjunctions, random_literals, ranges
from dualquery.queries.tables import Tables
from dualquery.queries.workload import (
    MOST_CELLS,
    Grammar,
    Workload,
    affordable_order,
    check_count,
    check_order,
    check_tables,
    number_of_sets_up_to,
)
from dualquery.registry import KINDS
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.toml_text import contents
from dualquery.types import Ints, Set


def disjunctions(domain: Domain, k: int, count: int | None = None, seed: int = 0) -> Workload:
    """All disjunctions of k binary attributes, or so many of them at random (as drawn: one may come twice)."""
    check_order(domain, k, "disjunctions")
    binary = np.flatnonzero(domain.sizes == 2).astype(np.int32)
    if len(binary) < k:
        raise QueryError(
            f"disjunctions of {k} need as many binary attributes, and the schema has {len(binary)}"
        )
    if count is None:
        check_count(number_of_sets_up_to(len(binary), k) - number_of_sets_up_to(len(binary), k - 1))
        members = np.array(list(combinations(range(len(binary)), k)), np.int32)
        spec = f"disjunctions:{k}"
    else:
        check_count(count)
        drawn = Urn(np.ones(len(binary), np.int64)).draw(Stream(seed), k, count)
        members = np.sort(drawn.T, axis=1).astype(np.int32)
        spec = f"disjunctions:{k}:{count}:{seed}"
    predicates, _ = equalities(domain, binary)  # one a binary attribute: `= 1`
    literals = (2 * members + 1).astype(np.int32)
    group = Conjunctions(domain, predicates, literals, np.ones(len(literals), np.bool_))
    return Workload(domain, (group,), spec)


def attributes_of_disjunctions(workload: Workload) -> Ints:
    """Of a workload of disjunctions of binary attributes, `x_1 | … | x_k`, the attributes of each, padded with -1.

    A QueryError where a query is none. (A single attribute is a disjunction of one.)
    """
    rows = workload.product_rows(np.arange(workload.size, dtype=np.int64))
    plain = len(rows.parity_positions) == 0
    sizes = workload.domain.sizes[rows.predicates.attribute]
    ones = np.array(
        [rows.predicates.accepted(p).tolist() == [1] for p in range(len(rows.predicates))], np.bool_
    )
    fitting = np.append((sizes == 2) & ones, True)  # the last place is that of the padding
    numbers = np.where(rows.literals == NONE, NONE, rows.literals >> 1)
    padding = rows.literals == NONE
    # 1 − Π ¬x, or x alone
    negated = (rows.literals & 1 == 1) | padding
    alone = (~padding).sum(axis=1) == 1
    good = fitting[numbers].all(axis=1) & (
        (rows.complement & negated.all(axis=1))
        | (~rows.complement & alone & (~negated | padding).all(axis=1))
    )
    if not plain or not good.all():
        place = (
            int(rows.positions[np.flatnonzero(~good)[0]]) if not good.all() else int(rows.parity_positions[0])
        )
        raise QueryError(
            f"this mechanism only takes disjunctions of binary attributes; '{workload.text(place)}' is not one; "
            "use another mechanism, or leave --mechanism out"
        )
    out = np.full((workload.size, max(1, rows.literals.shape[1])), NONE, np.int32)
    attributes = np.append(rows.predicates.attribute, np.int32(NONE))[numbers]
    out[rows.positions] = np.where(padding, NONE, attributes)
    return out


FAMILIES = (
    "marginals:K, marginals:K:ATTRIBUTE, random:K:COUNT, random-literals:K:COUNT, parities:K, disjunctions:K, "
    "ranges:ATTRIBUTE:COUNT, tables:A*B,A*C, regress:Y~A+B"
)
Make = Callable[[Domain, list[str], str], Workload]  # of the fields of a SPEC, and the SPEC itself


def marginals(domain: Domain, k: int, attribute: str | None = None) -> Workload:
    """Every cell of every table over k attributes, or of those that hold a certain one.

    The latter are what a learner of that attribute needs: how it depends on each k − 1 of the others.
    """
    check_order(domain, k, "tables")
    held = None if attribute is None else attribute_named(domain, attribute)
    check_tables(domain, k, held)
    if held is None:
        return Workload(
            domain, (Tables(domain, tuple(combinations(range(domain.width), k))),), f"marginals:{k}"
        )
    others = [each for each in range(domain.width) if each != held]
    sets = tuple(tuple(sorted((held, *each))) for each in combinations(others, k - 1))
    return Workload(domain, (Tables(domain, sets),), f"marginals:{k}:{attribute}")


def parities(domain: Domain, k: int) -> Workload:
    """All parities of one to k attributes of a domain where every attribute is binary.

    Every order up to k is there because marginals are made from all of them (Theorem A.2 of the 2014 paper).
    """
    check_order(domain, k, "parities")
    wide = np.flatnonzero(domain.sizes != 2)
    if len(wide):
        raise QueryError(f"parities need binary attributes, and '{domain.name(int(wide[0]))}' is not binary")
    count = number_of_sets_up_to(domain.width, k)
    check_count(count)
    attributes = np.full((count, k), NONE, np.int32)
    sets = np.arange(domain.width, dtype=np.int32)[:, None]
    begin = 0
    for order in range(1, k + 1):
        if order > 1:
            sets = _one_larger(sets, domain.width)
        attributes[begin : begin + len(sets), :order] = sets
        begin += len(sets)
    return Workload(domain, (Parities(domain, attributes),), f"parities:{k}")


def _one_larger(sets: Ints, width: int) -> Ints:
    """Every increasing set of numbers below `width` whose first members are one of the given sets."""
    choices = width - 1 - sets[:, -1].astype(np.int64)
    begin = np.cumsum(choices) - choices
    following = np.arange(choices.sum()) - np.repeat(begin - sets[:, -1] - 1, choices)
    return np.column_stack([np.repeat(sets, choices, axis=0), following.astype(np.int32)])


def from_texts(domain: Domain, texts: Sequence[str]) -> Workload:
    """The queries of some texts in the query language, in their order."""
    groups = groups_of(domain, texts, [f"query {i + 1}" for i in range(len(texts))])
    return Workload(domain, groups, f"{len(texts)} queries as given")


def groups_of(domain: Domain, texts: Sequence[str], places: Sequence[str]) -> tuple[Group, ...]:
    """The queries of some texts in the language of the table, in their order; an error names the place."""
    return grammar_of(domain).groups(domain, texts, places) if texts else ()


def grammar_of(domain: Domain) -> Grammar:
    grammar: Grammar = KINDS[domain.kind].grammar
    return grammar


def from_file(domain: Domain, path: str | Path) -> Workload:
    """The queries of a file, one per line."""
    asked = lines_of(contents(path, f"query file '{path}'", QueryError), str(path))
    if not asked:
        raise QueryError(f"the query file '{path}' holds no query")
    texts, places = zip(*asked, strict=True)
    return Workload(domain, groups_of(domain, texts, places), str(path))


def lines_of(text: str, name: str) -> list[tuple[str, str]]:
    """Queries, one per line, each with its place; blank lines and those that begin with a # are passed over."""
    return [
        (line, f"{name}, line {number}")
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]


# SPEC


def from_spec(domain: Domain, spec: str | Sequence[str]) -> Workload:
    """The workload that a SPEC names, or several joined by `+` or given as a list.

    marginals:K[:ATTRIBUTE], random:K:COUNT[:SEED], random-literals:K:COUNT[:SEED], parities:K,
    disjunctions:K[:COUNT[:SEED]], ranges:ATTRIBUTE[*ATTRIBUTE…]:COUNT[:SEED], tables:A*B,A*C, regress:Y~A+B, or
    the path of a file with one query per line.
    """
    parts: list[str] = []
    for text in [spec] if isinstance(spec, str) else spec:
        # A path may contain a plus.
        parts += [text] if isfile(text) else _joined_formulas([part.strip() for part in text.split("+")])
    workloads = [_from_one_spec(domain, part) for part in parts]
    groups = tuple(group for workload in workloads for group in workload.groups)
    notes = tuple(note for workload in workloads for note in workload.notes)
    return Workload(domain, groups, " + ".join(workload.spec for workload in workloads), notes)


def _joined_formulas(parts: list[str]) -> list[str]:
    """Parts of a SPEC between pluses; those of a formula are one part again."""
    joined: list[str] = []
    for part in parts:
        of_formula = joined and joined[-1].startswith("regress:") and part.partition(":")[0] not in SPECS
        if of_formula and not isfile(part):
            joined[-1] += f" + {part}"
        else:
            joined.append(part)
    return joined


def names_family(domain: Domain, text: str) -> bool:
    """Whether a text is the SPEC of a family that this table can be asked, rather than a query."""
    families = grammar_of(domain).families.split(", ")
    return ":" in text and text.partition(":")[0] in {each.partition(":")[0] for each in families}


def _from_one_spec(domain: Domain, spec: str) -> Workload:
    grammar = grammar_of(domain)
    found = grammar.family(domain, spec)
    if found is None and not isfile(spec):
        raise QueryError(
            f"'{spec}' is neither a family of {grammar.words} ({grammar.families}) nor a file of them"
        )
    return found or from_file(domain, spec)


def _family_of(domain: Domain, spec: str) -> Workload | None:
    """The workload of a family of a table of records; None where the SPEC is something else."""
    family, colon, rest = spec.partition(":")
    if not colon or family not in SPECS:
        return None
    reads, least, most, make = SPECS[family]
    fields = rest.split(":")
    if not least <= len(fields) <= most:
        raise QueryError(f"'{spec}' should read {reads}")
    return make(domain, fields, spec)


def _of_numbers(make: Callable[..., Workload]) -> Make:
    """Of a family whose fields are K, COUNT and SEED, or the first of them."""

    def read(domain: Domain, fields: list[str], spec: str) -> Workload:
        names = ("K", "COUNT", "SEED")
        return make(domain, *(_integer(text, name, spec) for text, name in zip(fields, names, strict=False)))

    return read


def _marginals_from_spec(domain: Domain, fields: list[str], spec: str) -> Workload:
    return _affordable_marginals(domain, _integer(fields[0], "K", spec), ":".join(fields[1:]) or None)


def _affordable_marginals(domain: Domain, k: int, attribute: str | None) -> Workload:
    """All tables over k attributes, or over fewer where these are too many, with a note that says so."""
    less = affordable_order(domain, k, None if attribute is None else attribute_named(domain, attribute))
    made = marginals(domain, less, attribute)
    if less == k:
        return made
    note = (
        f"marginals:{k} of {domain.width} attributes are too many tables, so it is made for {made.spec}; "
        "larger tables can be asked all the same, and are as good as their pairs say"
    )
    return replace(made, notes=(note,))


def _ranges_from_spec(domain: Domain, fields: list[str], spec: str) -> Workload:
    """An attribute's own name may contain a colon or an asterisk; a name of the domain wins."""
    for numbers in (1, 2):
        name = ":".join(fields[:-numbers])
        names = [name] if domain.find(name) is not None else name.split("*")
        if name and (numbers == len(fields) - 1 or all(domain.find(each) is not None for each in names)):
            count, *seed = [_integer(fields[i], "COUNT or SEED", spec) for i in range(-numbers, 0)]
            return ranges(domain, names, count, *seed)
    raise QueryError(f"'{spec}' should read ranges:ATTRIBUTE:COUNT or ranges:ATTRIBUTE:COUNT:SEED")


def tables(domain: Domain, sets: Sequence[Sequence[str]], spec: str | None = None) -> Workload:
    """Every cell of the tables over these attributes, by name."""
    found = []
    for names in sets:
        members = tuple(sorted(attribute_named(domain, name) for name in names))
        if len(set(members)) < len(members):
            raise QueryError(f"an attribute stands twice in the table {'*'.join(names)}")
        found.append(members)
    return _of_sets(domain, found, spec or f"tables:{','.join('*'.join(names) for names in sets)}")


def _of_sets(domain: Domain, sets: Sequence[Set], spec: str) -> Workload:
    cells = sum(prod(int(domain.sizes[j]) for j in members) for members in sets)
    if cells > MOST_CELLS:
        raise QueryError(f"the tables of '{spec}' have {cells:,} cells; at most {MOST_CELLS:,} are allowed")
    return Workload(domain, (Tables(domain, tuple(dict.fromkeys(sets))),), spec)


def _tables_from_spec(domain: Domain, fields: list[str], spec: str) -> Workload:
    """Names between asterisks, sets between commas; a name of the domain that holds either wins."""
    named = [_names_between(domain, each, "*") for each in _names_between(domain, ":".join(fields), ",")]
    if not all(all(names) for names in named):
        raise QueryError(f"'{spec}' should read {SPECS['tables'][0]}")
    return tables(domain, named, spec)


def _names_between(domain: Domain, text: str, sign: str) -> list[str]:
    """The parts of a text between signs; the longest that is the name of an attribute is one part."""
    pieces, parts = text.split(sign), []
    while pieces:
        longest = next(
            (most for most in range(len(pieces), 1, -1) if domain.find(sign.join(pieces[:most])) is not None),
            1,
        )
        joined = sign.join(pieces[:longest])
        parts.append(joined if domain.find(joined) is not None else joined.strip())
        del pieces[:longest]
    return parts


def _regress_from_spec(domain: Domain, fields: list[str], spec: str) -> Workload:
    """The tables that a regression is made of (`queries.models`)."""
    return _of_sets(domain, read_formula(domain, ":".join(fields)).sets, spec)


def _integer(text: str, what: str, spec: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise QueryError(f"{what} must be a whole number in '{spec}', and '{text}' is not")
    return int(text)


def _read(domain: Domain, texts: Sequence[str], places: Sequence[str]) -> tuple[Group, ...]:
    reader = Reader(domain)
    queries = [reader.read(text, place=place) for text, place in zip(texts, places, strict=True)]
    return to_groups(domain, queries)


def _example(domain: Domain) -> str:
    """Two conditions: the upper half of a numeric column, one value or item of another."""
    literals: list[Literal] = []
    for position, column in enumerate(domain.columns):
        first, size = domain.starts[position], len(column.labels)
        if size < 2 or len(literals) == 2:
            continue
        if isinstance(column, Numeric) and column.bins >= 2:
            code = tuple(range(column.bins // 2, column.bins))
            code, negated = (code, False) if 2 * len(code) < size else (tuple(range(column.bins // 2)), True)
            literals.append(Literal(first, code, negated))
        elif isinstance(column, Items | Categorical):
            literals.append(Literal(first, (1,), False))
    return Query(tuple(literals)).text(domain) if literals else ""


# How the SPEC of each family reads, how many fields it has at least and at most, and what reads them.
SPECS: dict[str, tuple[str, int, float, Make]] = {
    "marginals": ("marginals:K or marginals:K:ATTRIBUTE", 1, inf, _marginals_from_spec),
    "random": ("random:K:COUNT or random:K:COUNT:SEED", 2, 3, _of_numbers(random_conjunctions)),
    "random-literals": (
        "random-literals:K:COUNT or random-literals:K:COUNT:SEED", 2, 3, _of_numbers(random_literals)
    ),
    "parities": ("parities:K", 1, 1, _of_numbers(parities)),
    "disjunctions": ("disjunctions:K, or disjunctions:K:COUNT:SEED", 1, 3, _of_numbers(disjunctions)),
    "ranges": ("ranges:ATTRIBUTE:COUNT or ranges:ATTRIBUTE:COUNT:SEED", 2, inf, _ranges_from_spec),
    "tables": ("tables:A*B,A*C with the names of attributes", 1, inf, _tables_from_spec),
    "regress": ("regress:Y ~ A + B with the names of attributes", 1, inf, _regress_from_spec),
}  # fmt: skip

QUERIES = Grammar("queries", FAMILIES, _example, _read, _family_of)  # of a table of records
