"""Workloads: numbering, texts, product rows and digests, against the definitions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import QueryError
from dualquery.queries import workload as module
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.families import from_spec, from_texts, marginals, parities
from dualquery.queries.group import NONE, Predicates, ProductRows
from dualquery.queries.language.reader import parse
from dualquery.queries.random_families import random_conjunctions
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.records import Records

DOMAIN = Domain(
    (
        Categorical("colour", ("red", "green", "blue")),
        Categorical("only", ("one",)),
        Numeric("size", (0.0, 1.0, 2.0, 4.0), missing="none"),
        Items("item", 3),
    )
)
RECORDS = np.array(list(product(*(range(size) for size in DOMAIN.sizes.tolist()))))


def everything() -> Workload:
    """Groups of every kind, with predicates shared and not."""
    conjunctions = from_texts(
        DOMAIN, ["colour = red & item[1]", "size < 2 | colour != blue | item[2]", "size is missing"]
    )
    tables = Tables(DOMAIN, ((2, 4), (0,), (0, 1, 2), (3, 4, 5), (1, 5)))
    pairs = random_conjunctions(DOMAIN, 2, 40, 5).groups
    odd = Parities(DOMAIN, np.array([[3, NONE, NONE], [3, 4, 5]], np.int32))
    return Workload(DOMAIN, (tables, odd, *conjunctions.groups, *pairs, tables), "a little of everything")


def holds(rows: ProductRows, records: np.ndarray, asked: int) -> np.ndarray:
    """Which queries hold for which records, from the meaning of ProductRows."""
    out = np.zeros((asked, len(records)), bool)
    predicates = rows.predicates
    for row, complement, position in zip(rows.literals, rows.complement, rows.positions, strict=True):
        product_ = np.ones(len(records), bool)
        for literal in row[row != NONE]:
            inside = np.isin(
                records[:, predicates.attribute[literal // 2]], predicates.accepted(literal // 2)
            )
            product_ &= inside ^ bool(literal % 2)
        out[position] = product_ ^ complement
    for row, position in zip(rows.parities, rows.parity_positions, strict=True):
        out[position] = records[:, row[row != NONE]].sum(axis=1) % 2 == 0
    return out


def test_product_rows_are_the_cells_parities_and_conjunctions_of_the_groups() -> None:
    workload = everything()
    truth = []
    for group in workload.groups:
        if isinstance(group, Tables):
            for members in group.sets:
                for cell in product(*(range(DOMAIN.sizes[j]) for j in members)):
                    truth.append((RECORDS[:, members] == cell).all(axis=1))
        else:
            alone = Workload(DOMAIN, (group,), "")
            truth += list(holds(alone.product_rows(np.arange(group.size)), RECORDS, group.size))
    indices = np.arange(workload.size)
    np.testing.assert_array_equal(holds(workload.product_rows(indices), RECORDS, workload.size), truth)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, everything().size - 1), max_size=30))
def test_product_rows_answer_any_indices_in_any_order(chosen: list[int]) -> None:
    workload = everything()
    indices = np.array(chosen, np.int64)
    rows = workload.product_rows(indices)
    assert sorted([*rows.positions, *rows.parity_positions]) == list(range(len(chosen)))
    whole = holds(workload.product_rows(np.arange(workload.size)), RECORDS, workload.size)
    np.testing.assert_array_equal(holds(rows, RECORDS, len(chosen)), whole[indices])
    assert rows.literals.dtype == np.int32
    assert rows.parities.dtype == np.int32


def test_texts_read_back_as_the_queries_they_print() -> None:
    workload = everything()
    truth = holds(workload.product_rows(np.arange(workload.size)), RECORDS, workload.size)
    for i in range(workload.size):
        if truth[i].all():
            continue  # a cell of the table over `only`
        query = parse(workload.text(i), DOMAIN)
        np.testing.assert_array_equal([query.holds(record) for record in RECORDS.tolist()], truth[i])


def test_examples_of_texts() -> None:
    tables = marginals(DOMAIN, 2)
    assert tables.text(0) == "colour = red & only = one"
    assert tables.text(3) == "colour = red & size < 1"
    assert tables.text(6) == "colour = red & size is missing"
    assert tables.text(tables.size - 1) == "item[2] & item[3]"
    assert tables.text(tables.size - 4) == "!item[2] & !item[3]"
    items = Domain((Items("item", 4),))
    assert parities(items, 2).text(4) == "parity(item[1], item[2])"
    with pytest.raises(IndexError):
        tables.text(tables.size)
    with pytest.raises(IndexError):
        tables.text(-1)


def asked_about(workload: Workload) -> list[tuple[int, ...]]:
    """The attributes of each query, from its product form alone."""
    rows = workload.product_rows(np.arange(workload.size))
    out: list[tuple[int, ...]] = [()] * workload.size
    for row, position in zip(rows.literals, rows.positions, strict=True):
        literals = row[row != NONE]
        out[position] = tuple(sorted(rows.predicates.attribute[literals // 2].tolist()))
    for row, position in zip(rows.parities, rows.parity_positions, strict=True):
        out[position] = tuple(sorted(row[row != NONE].tolist()))
    return out


@pytest.mark.parametrize(
    "spec",
    ["everything", "marginals:1", "marginals:3", "random:2:3", "random:4:60 + marginals:2", "ranges:size:5"],
)
def test_scope_attributes_order_and_decisions_are_those_of_the_queries(spec: str) -> None:
    workload = everything() if spec == "everything" else from_spec(DOMAIN, spec)
    asked = asked_about(workload)
    rows = workload.scope.tolist()
    for row in rows:
        members = [j for j in row if j != NONE]
        assert row == sorted(members) + [NONE] * (len(row) - len(members))
    found = [tuple(j for j in row if j != NONE) for row in rows]
    assert sorted(found) == sorted(set(asked))
    touched = sorted({j for members in asked for j in members})
    assert workload.attributes.tolist() == touched
    assert workload.order == max(map(len, asked))
    assert workload.decisions == sum(int(DOMAIN.sizes[j]) - 1 for j in touched)
    assert workload.unit == 1


def test_counts_and_fractions_are_those_of_the_queries() -> None:
    workload = everything()
    rng = np.random.default_rng(0)
    codes = RECORDS[rng.integers(0, len(RECORDS), 200)]
    truth = holds(workload.product_rows(np.arange(workload.size)), codes, workload.size).sum(axis=1)
    counts = workload.counts(Records.from_rows(DOMAIN, codes))
    np.testing.assert_array_equal(counts, truth)
    np.testing.assert_array_equal(workload.fractions(Records.from_rows(DOMAIN, codes)), truth / 200)


def test_all_texts_are_the_texts_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = everything()
    one_by_one = [workload.text(i) for i in range(workload.size)]
    assert list(workload.texts()) == one_by_one
    monkeypatch.setattr(module, "_TEXTS_AT_ONCE", 7)
    assert list(workload.texts()) == one_by_one


def test_numbering() -> None:
    workload = everything()
    assert workload.starts.tolist() == np.cumsum([0, *(group.size for group in workload.groups)]).tolist()
    assert workload.size == workload.starts[-1]


def test_one_group_of_conjunctions_is_sliced() -> None:
    workload = random_conjunctions(DOMAIN, 2, 100)
    (group,) = workload.groups
    assert isinstance(group, Conjunctions)
    rows = workload.product_rows(np.array([7, 7, 3]))
    assert rows.predicates is group.predicates
    np.testing.assert_array_equal(rows.literals, group.literals[[7, 7, 3]])
    assert rows.parities.shape[0] == 0


def test_tables_use_only_the_values_of_their_attributes() -> None:
    wide = Domain((Items("item", 512_000), Categorical("v", tuple(map(str, range(5000)))), Items("other", 3)))
    workload = Workload(wide, (Tables(wide, ((17, 512_000),)),), "")
    (tables,) = workload.groups
    assert len(tables.predicates) == len(workload.product_rows(np.arange(9)).predicates) == 5001
    assert workload.text(5000 + 4321) == "item[18] & v = 4321"


def test_a_workload_needs_queries_about_one_schema() -> None:
    with pytest.raises(QueryError, match="no query"):
        Workload(DOMAIN, (), "nothing")
    other = Domain((Items("item", 3),))
    with pytest.raises(QueryError, match="one and the same schema"):
        Workload(other, marginals(DOMAIN, 1).groups, "")
    twin = Domain(DOMAIN.columns)
    assert Workload(twin, marginals(DOMAIN, 1).groups, "").size == marginals(DOMAIN, 1).size


# Digests


def conjunctions_of(workload: Workload) -> Conjunctions:
    (group,) = workload.groups
    assert isinstance(group, Conjunctions)
    return group


def with_group(group: Conjunctions | Parities) -> str:
    return Workload(group.domain, (group,), "").digest()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.data())
def test_the_digest_does_not_see_how_queries_are_stored(seed: int, data: st.DataObject) -> None:
    texts = [random_conjunctions(DOMAIN, 3, 12, seed).text(i) for i in range(12)]
    texts += [
        "size in [1, 2) | item[1]",
        "size not in {[0, 1), [2, 4]} & colour = blue",
        "!(item[1] & item[3])",
    ]
    group = conjunctions_of(from_texts(DOMAIN, texts))
    generator = np.random.default_rng(seed)
    old = group.predicates

    # Renumber the predicates, add one that nobody uses, write each with or without its complement.
    order = generator.permutation(len(old))
    flip = generator.random(len(old)) < 0.5
    pairs = []
    for p in order:
        values = old.accepted(p)
        every = np.arange(DOMAIN.sizes[old.attribute[p]])
        stored = np.setdiff1d(every, values) if flip[p] else generator.permutation(values)
        pairs.append((int(old.attribute[p]), stored.tolist()))
    pairs.append((0, [0, 1]))
    number = np.empty(len(old), np.int64)
    number[order] = np.arange(len(old))
    literals = group.literals.astype(np.int64)
    used = literals != NONE
    renamed = 2 * number[literals // 2] + (literals % 2 ^ flip[literals // 2])
    literals = np.where(used, renamed, NONE)
    # Shuffle the literals of each query and pad them wider.
    literals = np.column_stack([literals, np.full(len(literals), NONE)])
    literals = generator.permuted(literals, axis=1)
    again = Conjunctions(DOMAIN, Predicates.of(pairs), literals, group.complement)  # type: ignore[arg-type]
    assert with_group(again) == with_group(group)

    # Any change of meaning is seen.
    q = data.draw(st.integers(0, len(texts) - 1))
    changed = group.literals.copy()
    changed[q, 0] ^= 1
    assert with_group(replace(group, literals=changed)) != with_group(group)
    complement = np.zeros(len(texts), bool) if group.complement is None else group.complement.copy()
    complement[q] ^= True
    assert with_group(replace(group, complement=complement)) != with_group(group)
    assert with_group(replace(group, literals=group.literals[::-1].copy())) != with_group(group)


def test_no_complement_is_the_same_as_none_complemented() -> None:
    group = conjunctions_of(random_conjunctions(DOMAIN, 2, 9))
    assert with_group(replace(group, complement=np.zeros(9, bool))) == with_group(group)


def test_a_complemented_literal_is_the_negated_literal() -> None:
    predicates = Predicates.of([(0, [1])])
    plain = Conjunctions(DOMAIN, predicates, np.array([[1]], np.int32))
    turned = Conjunctions(DOMAIN, predicates, np.array([[0]], np.int32), np.array([True]))
    assert with_group(plain) == with_group(turned)


def test_parities_are_sets() -> None:
    one = Parities(DOMAIN, np.array([[3, 4, NONE], [5, NONE, NONE]], np.int32))
    other = Parities(DOMAIN, np.array([[NONE, 4, 3, NONE], [NONE, NONE, NONE, 5]], np.int64))  # type: ignore[arg-type]
    assert with_group(one) == with_group(other)
    assert with_group(one) != with_group(replace(one, attributes=one.attributes[::-1].copy()))


def test_digests_of_different_workloads_differ() -> None:
    renamed = Domain((Categorical("colour", ("red", "green", "Blue")), *DOMAIN.columns[1:]))
    cells = from_texts(DOMAIN, [marginals(DOMAIN, 1).text(i) for i in (0, 1, 2)])
    workloads = [
        *(marginals(DOMAIN, k) for k in (1, 2, 3)),
        marginals(renamed, 1),
        Workload(DOMAIN, (Tables(DOMAIN, ((0,),)),), ""),
        cells,
        from_spec(DOMAIN, "marginals:1+marginals:1"),
        *(random_conjunctions(DOMAIN, 2, 50, seed) for seed in (0, 1)),
        random_conjunctions(DOMAIN, 2, 51),
        everything(),
    ]
    digests = [workload.digest() for workload in workloads]
    assert len(set(digests)) == len(digests)
    assert everything().digest() == everything().digest()
    assert marginals(Domain(DOMAIN.columns), 2).digest() == marginals(DOMAIN, 2).digest()
