"""Counting against a naive count, whichever way numpy or the kernels walk."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.queries import bit_columns, conjunctions
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.group import NONE, Predicates
from dualquery.queries.tables import Tables, distinct_rows
from dualquery.table.domain import Categorical, Domain, Items, equal_width
from dualquery.table.records import Records, SparseItems

DOMAIN = Domain(
    (
        Categorical("colour", ("red", "green", "blue")),
        equal_width("age", 0, 100, 5),
        Items("item", 7),
        Categorical("sex", ("f", "m")),
    )
)
ITEM_COLUMN = 2


def some_predicates(rng):
    """Equalities, and a few sets and ranges of several values."""
    equalities = [(j, [v]) for j in range(DOMAIN.width) for v in range(DOMAIN.sizes[j])]
    return Predicates.of([*equalities, (0, [0, 2]), (1, [1, 2, 3]), (1, [3, 4])])


def random_conjunctions(rng, queries, width):
    predicates = some_predicates(rng)
    literals = np.full((queries, width), NONE, np.int32)
    for row in literals:
        attributes = rng.permutation(DOMAIN.width)[: rng.integers(1, width + 1)]
        for k, attribute in enumerate(attributes):
            predicate = rng.choice(np.flatnonzero(predicates.attribute == attribute))
            row[k] = 2 * predicate + rng.integers(2)
    return Conjunctions(DOMAIN, predicates, literals, rng.random(queries) < 0.3)


def random_rows(rng, rows):
    return np.stack([rng.integers(0, size, rows) for size in DOMAIN.sizes], axis=1)


def sparse(records):
    """The same records with the items as lists."""
    items = records.to_rows()[:, 2:9]
    owner, ids = np.nonzero(items)
    start = np.concatenate([[0], np.cumsum(items.sum(axis=1))]).astype(np.int64)
    assert np.all(np.diff(owner) >= 0)
    columns = list(records.columns)
    columns[ITEM_COLUMN] = SparseItems(start, ids.astype(np.int32))
    return Records(records.domain, records.rows, tuple(columns))


def naive(group, rows):
    counts = []
    for row, flip in zip(group.literals, group.complement, strict=True):
        holds = np.ones(len(rows), bool)
        for literal in row[row >= 0]:
            predicate = int(literal) >> 1
            codes = rows[:, group.predicates.attribute[predicate]]
            accepted = np.isin(codes, group.predicates.accepted(predicate))
            holds &= accepted != bool(literal & 1)
        counts.append(np.sum(holds != flip))
    return np.array(counts)


@pytest.mark.parametrize("way", ["few", "blocked", "direct", "slabs"])
@pytest.mark.parametrize("kind", ["bits", "sparse"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.sampled_from([1, 63, 64, 65, 130, 9000]), width=st.integers(1, 5))
def test_conjunctions_equal_a_naive_count(way, kind, seed, rows, width):
    rng = np.random.default_rng(seed)
    codes = random_rows(rng, rows)
    group = random_conjunctions(rng, 40, width)
    records = Records.from_rows(DOMAIN, codes)
    if kind == "sparse":
        records = sparse(records)
    with pytest.MonkeyPatch.context() as patch:
        if way != "few":
            patch.setattr(bit_columns, "FEW", 0)
        if way in ("direct", "slabs"):
            patch.setattr(conjunctions, "BLOCK_BYTES", 0)
        if way == "slabs":
            patch.setattr(bit_columns, "SLAB_BYTES", 1)
            patch.setattr(bit_columns, "VALUE_BYTES", 1)
        assert np.array_equal(group.counts(records), naive(group, codes))


def test_a_lone_block_of_bits_is_read_in_place():
    domain = Domain((Items("item", 300),))
    rng = np.random.default_rng(5)
    codes = (rng.random((1000, 300)) < rng.random(300) ** 4).astype(np.int64)
    predicates = Predicates.of([(j, [1]) for j in range(300)])
    literals = 2 * np.stack([rng.permutation(300)[:3] for _ in range(500)]) + rng.integers(0, 2, (500, 3))
    group = Conjunctions(domain, predicates, literals.astype(np.int32), np.zeros(500, bool))
    records = Records.from_rows(domain, codes)
    expected = naive(group, codes)
    assert np.array_equal(group.counts(records), expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bit_columns, "FEW", 0)
        assert np.array_equal(group.counts(records), expected)
        patch.setattr(conjunctions, "BLOCK_BYTES", 0)
        assert np.array_equal(group.counts(records), expected)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.sampled_from([1, 64, 500]))
def test_parities_and_tables_equal_a_naive_count(seed, rows):
    rng = np.random.default_rng(seed)
    codes = random_rows(rng, rows)
    for records in (Records.from_rows(DOMAIN, codes), sparse(Records.from_rows(DOMAIN, codes))):
        binary = np.arange(2, 10)
        attributes = np.stack([rng.permutation(binary)[:3] for _ in range(20)]).astype(np.int32)
        attributes[::3, 2] = NONE
        parities = Parities(DOMAIN, attributes)
        even = [np.sum(codes[:, row[row >= 0]].sum(axis=1) % 2 == 0) for row in attributes]
        assert np.array_equal(parities.counts(records), even)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bit_columns, "FEW", 0)
            assert np.array_equal(parities.counts(records), even)

        tables = Tables(DOMAIN, ((), (1,), (0, 1), (0, 5, 9), (2, 3, 4)))
        counts = tables.counts(records)
        for members, first, last in zip(tables.sets, tables.starts[:-1], tables.starts[1:], strict=True):
            shape = tuple(DOMAIN.sizes[list(members)])
            expected = np.zeros(shape, int)
            for row in codes:
                expected[tuple(row[list(members)])] += 1
            assert np.array_equal(counts[first:last].reshape(shape), expected)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_answers_of_single_records_add_up_to_counts(seed):
    rng = np.random.default_rng(seed)
    codes = random_rows(rng, 30).astype(np.int32)
    records = Records.from_rows(DOMAIN, codes)
    groups = (
        random_conjunctions(rng, 50, 3),
        Parities(DOMAIN, np.array([[2, 3, NONE], [2, 8, 9]], np.int32)),
        Tables(DOMAIN, ((0, 1), (1, 9))),
    )
    for group in groups:
        answers = np.zeros(group.size, np.int32)
        for record in codes:
            group.add_answers(record, answers)
        assert np.array_equal(answers, group.counts(records))


def test_distinct_rows_keep_every_record():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, (4, 1000)).astype(np.uint16)
    distinct, weights = distinct_rows(codes)
    assert weights.sum() == 1000
    assert len(weights) == len(np.unique(codes, axis=1).T) == distinct.shape[1]
    back = np.repeat(distinct, weights, axis=1)
    assert np.array_equal(back[:, np.lexsort(back)], codes[:, np.lexsort(codes)])
