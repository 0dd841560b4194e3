"""Relations between tables: what they do to a set of records, and what that lets a sum over records move."""

from collections import Counter
from dataclasses import dataclass
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualquery.errors import BudgetError
from dualquery.privacy.budget import RELATIONS, Neighbours, Sensitivity
from dualquery.queries.statistics import ONE_CELL
from tests.privacy.definitions import next_to

UNIVERSE = (0, 1, 2, 3)
tables = st.lists(st.sampled_from(UNIVERSE), max_size=5).map(tuple)


def test_relations_are_found_by_name_and_say_what_they_are():
    assert RELATIONS == (Neighbours.REPLACE, Neighbours.ADD_REMOVE)
    for relation in RELATIONS:
        assert Neighbours.named(relation.value) is relation
        assert relation.words()
        assert relation.change
    assert len({relation.words() for relation in RELATIONS}) == len(RELATIONS)
    with pytest.raises(BudgetError, match=r"one of replace, add-remove, person-.*, got 'swap'"):
        Neighbours.named("swap")


def test_how_far_one_record_moves_a_sum():
    """A cell of a table: alone a record adds 1 to one of them, two records differ in two."""
    cells = ONE_CELL
    assert Neighbours.REPLACE.sensitivity(cells) == Sensitivity(2, 2)
    assert Neighbours.ADD_REMOVE.sensitivity(cells) == Sensitivity(1, 1)
    for relation, length, squared in ((Neighbours.REPLACE, 5, 9), (Neighbours.ADD_REMOVE, 3, 4)):
        assert relation.largest(alone=3, apart=5) == length
        assert relation.largest_squared(alone=4, apart=9) == squared


@given(tables)
def test_neighbours_under_replacement_differ_in_one_record(table):
    found = Counter(tuple(sorted(other)) for other in next_to(Neighbours.REPLACE, table, UNIVERSE))
    expected = {
        other
        for other in combinations_with_replacement(UNIVERSE, len(table))
        if (Counter(table) - Counter(other)).total() <= 1
    }
    assert set(found) == (expected if table else set())


@given(tables)
def test_neighbours_under_addition_and_removal_have_one_record_more_or_less(table):
    found = {tuple(sorted(other)) for other in next_to(Neighbours.ADD_REMOVE, table, UNIVERSE)}
    expected = {
        other
        for rows in (len(table) - 1, len(table) + 1)
        if rows >= 0
        for other in combinations_with_replacement(UNIVERSE, rows)
        if (Counter(table) - Counter(other)).total() + (Counter(other) - Counter(table)).total() == 1
    }
    assert found == expected


@pytest.mark.parametrize("relation", RELATIONS)
@given(table=tables)
def test_each_relation_is_symmetric(relation, table):
    for other in next_to(relation, table, UNIVERSE):
        back = {tuple(sorted(again)) for again in next_to(relation, other, UNIVERSE)}
        assert tuple(sorted(table)) in back


@pytest.mark.parametrize("relation", RELATIONS)
@given(table=tables)
def test_the_length_is_public_exactly_where_neighbours_share_it(relation, table):
    lengths = {len(other) for other in next_to(relation, table, UNIVERSE)}
    if relation.size_is_public:
        assert lengths <= {len(table)}
    else:
        assert len(table) not in lengths


def test_a_relation_that_does_not_say_how_far_it_moves_a_sum_cannot_be_made():
    @dataclass(frozen=True)
    class Silent(Neighbours):
        value = "silent"
        change = "were not mentioned"
        size_is_public = True

        def words(self):
            return "tables about which nothing is said"

    with pytest.raises(TypeError, match="abstract"):
        Silent()
