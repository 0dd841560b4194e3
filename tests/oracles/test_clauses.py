from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery import oracles as module
from dualquery.oracles import Clauses, merge, value
from dualquery.queries.group import NONE, Predicates


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_value_is_the_definition(data, small_clauses, universe_values):
    clauses = data.draw(small_clauses)
    for record, expected in universe_values(clauses).items():
        assert value(clauses, np.array(record, np.int32)) == expected


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_merging_keeps_the_objective(data, small_clauses, universe_values):
    clauses = data.draw(small_clauses)
    merged = merge(clauses)
    assert universe_values(merged) == universe_values(clauses)
    for rows, weights in ((merged.literals, merged.weights), (merged.parities, merged.parity_weights)):
        assert np.all(weights != 0)
        assert len({tuple(row) for row in rows.tolist()}) == len(rows)
        for row in rows.tolist():
            named = [entry for entry in row if entry != NONE]
            assert row == sorted(named) + [NONE] * (len(row) - len(named))


def test_equal_rows_in_any_order_are_one():
    predicates = Predicates.of([(0, [1]), (1, [1]), (2, [1])])
    rows = np.array([[0, 2], [2, 0], [NONE, 4], [4, NONE], [0, 3]], np.int32)
    clauses = Clauses(
        np.array([2, 2, 2], np.int32),
        predicates,
        rows,
        np.array([2, 3, 1, -1, -7]),
        np.array([[0, 1, 2], [2, 1, 0]], np.int32),
        np.array([5, -5]),
    )
    merged = merge(clauses)
    assert merged.literals.tolist() == [[0, 2], [0, 3]]
    assert merged.weights.tolist() == [5, -7]
    assert len(merged.parities) == 0
    assert merged.ceiling == 5


def test_one_compilation_serves_writable_and_read_only_arrays(random_clauses):
    clauses = random_clauses([2] * 5, 4, 2, seed=1)
    merge(clauses)
    for array in (clauses.literals, clauses.weights, clauses.predicates.values, clauses.parities):
        array.flags.writeable = False
    merge(clauses)
    assert len(module._merged.signatures) == 1


def test_a_clause_without_a_weight_is_refused():
    with pytest.raises(ValueError, match="one weight"):
        Clauses(
            np.array([2], np.int32),
            Predicates.of([(0, [1])]),
            np.zeros((2, 1), np.int32),
            np.ones(1, np.int64),
            np.zeros((0, 0), np.int32),
            np.zeros(0, np.int64),
        )
