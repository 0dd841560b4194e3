from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import DualQueryError
from dualquery.oracles import value
from dualquery.oracles.local_search import best_response
from dualquery.oracles.program import exact_response


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_exact_oracle_is_the_maximum_over_all_records(data, small_clauses, universe_values):
    clauses = data.draw(small_clauses)
    fallback = np.array([data.draw(st.integers(0, size - 1)) for size in clauses.sizes.tolist()], np.int32)
    response = exact_response(clauses, fallback, time_limit=20.0)
    values = universe_values(clauses)
    assert response.optimal
    assert response.value == response.bound == max(values.values()) == values[tuple(response.record.tolist())]


@pytest.mark.parametrize("seed", range(3))
def test_search_and_proof_agree_where_enumeration_cannot_go(seed, random_clauses):
    clauses = random_clauses([2, 5, 9, 3, 2, 2, 7, 4, 12, 2, 3, 6], 120, 0, seed)
    fallback = np.zeros(12, np.int32)
    found = best_response(clauses, fallback, rng=np.random.default_rng(seed))
    proof = exact_response(clauses, fallback, time_limit=60.0, hint=found.record)
    assert proof.optimal
    assert found.value == proof.value == value(clauses, proof.record)


def test_out_of_time_it_returns_the_hint_or_better_with_a_bound(random_clauses):
    clauses = random_clauses([2] * 120, 900, 0, seed=1)
    fallback = np.zeros(120, np.int32)
    hint = best_response(clauses, fallback, rng=np.random.default_rng(0))
    response = exact_response(clauses, fallback, time_limit=0.05, hint=hint.record)
    assert not response.optimal
    assert hint.value <= response.value == value(clauses, response.record) < response.bound <= clauses.ceiling


def test_without_the_extra_it_says_what_to_install(monkeypatch, random_clauses):
    monkeypatch.setitem(sys.modules, "ortools.linear_solver", None)
    with pytest.raises(DualQueryError, match=r"pip install 'dualquery\[exact\]'"):
        exact_response(random_clauses([2, 2, 2], 2, 0, seed=0), np.zeros(3, np.int32), time_limit=1.0)
