"""Every kind of query by one and the same test, a fourth one among them that only the tests know.

What a kind means is written down a second time here, query by query and record by record (`Case`); each
member of `Group` is then held against that. The fourth kind has values between nothing and all and is no
product of predicates: it is counted, measured, answered and released by code that has never heard of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from dualquery.counting import MemoryCounter
from dualquery.errors import QueryError
from dualquery.mechanisms.artefact import BareAnswers, SyntheticRecords
from dualquery.mechanisms.baselines import INDEPENDENT_GAUSSIAN, INDEPENDENT_LAPLACE
from dualquery.mechanisms.dual_query import DUAL_QUERY
from dualquery.mechanisms.mechanism import Mechanism, Task
from dualquery.mechanisms.mwem import MWEM, PMW
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours, Sensitivity
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.noise import Gaussian
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.derived import Balance
from dualquery.queries.families import from_texts
from dualquery.queries.group import (
    NO_PREDICATES,
    NONE,
    Digest,
    Group,
    ProductRows,
    Sample,
)
from dualquery.queries.language.reader import parse
from dualquery.queries.random_families import random_conjunctions
from dualquery.queries.tables import Tables, attribute_codes
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.records import Records, SparseItems
from dualquery.types import Integers, silent
from tests import house
from tests.house import curator_of

DOMAIN = Domain(
    (
        Categorical("colour", ("red", "green", "blue")),
        Categorical("only", ("one",)),
        Numeric("size", (0.0, 1.0, 2.0, 4.0), missing="none"),
        Items("item", 3),
    )
)
UNIVERSE = list(product(*(range(size) for size in DOMAIN.sizes.tolist())))
ROWS = 500


# The fourth kind


@dataclass(frozen=True, eq=False)
class Graded:
    """How much of something a record has: query q gives it values[q, x_j] of `unit`, j being attribute[q]."""

    domain: Domain
    attribute: NDArray[np.int32]
    values: NDArray[np.int64]
    unit: int

    predicates = NO_PREDICATES
    bound = Group.bound

    @property
    def size(self) -> int:
        return len(self.attribute)

    def counts(self, records: Records) -> Integers:
        counts = np.zeros(self.size, np.int64)
        for q, j in enumerate(self.attribute.tolist()):
            counts[q] = self.values[q, attribute_codes(records, [j])[0]].sum()
        return counts

    def add_answers(self, record: NDArray[np.int32], answers: NDArray[np.int32]) -> None:
        answers += self.values[np.arange(self.size), record[self.attribute]].astype(np.int32)

    def scope(self) -> NDArray[np.int32]:
        return np.unique(self.attribute)[:, None].astype(np.int32)

    def table_starts(self) -> None:
        return None

    def most_satisfied(self) -> int:
        return self.size

    def most_differing(self) -> int:
        return self.size

    def take(self, indices: NDArray[np.int64]) -> Graded:
        return replace(self, attribute=self.attribute[indices], values=self.values[indices])

    def sampled(self, rng: np.random.Generator, *, queries: int, cells: int) -> Sample:
        indices = np.sort(rng.permutation(self.size)[:queries])
        return Sample(indices, self.take(indices))

    def in_parts(self, cells: int) -> Iterator[Group]:
        yield self

    def describe(self, digest: Digest) -> None:
        digest.add_integers(f"graded by {self.unit}", self.attribute)
        digest.add_integers("values", self.values)

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
        return [
            f"graded({self.domain.name(int(self.attribute[q]))}: {self.values[q].tolist()} of {self.unit})"
            for q in indices.tolist()
        ]

    def products(self, indices: NDArray[np.int64]) -> ProductRows:
        raise QueryError(
            "graded questions are no products; use a mechanism that measures the queries themselves"
        )


def graded(unit: int = 1000) -> Graded:
    rng = np.random.default_rng(8)
    attribute = np.array([2, 0, 2, 3, 1, 5, 0], np.int32)
    values = rng.integers(0, unit + 1, (len(attribute), int(DOMAIN.sizes.max())))
    values[:, 0], values[2, 3] = 0, unit
    return Graded(DOMAIN, attribute, values, unit)


# What each kind means


@dataclass(frozen=True)
class Case:
    """A group, and what each of its queries gives a record and asks about, by the definition."""

    group: Group
    value: Callable[[int, tuple[int, ...]], int]
    members: list[tuple[int, ...]]

    def values(self, record: tuple[int, ...]) -> list[int]:
        return [self.value(q, record) for q in range(len(self.members))]


def conjunctions_case() -> Case:
    texts = ["colour = red & item[1]", "size < 2 | colour != blue | item[2]", "size is missing"]
    texts += ["!(item[1] & item[3])", "size in [1, 4] & !item[2]", "size not in {[0, 1), [2, 4]}"]
    random = random_conjunctions(DOMAIN, 3, 25, 5)
    queries = [parse(text, DOMAIN) for text in (*texts, *random.texts(), texts[0])]
    (group,) = from_texts(DOMAIN, [query.text(DOMAIN) for query in queries]).groups
    members = [tuple(literal.attribute for literal in query.literals) for query in queries]
    return Case(group, lambda q, record: int(queries[q].holds(record)), members)


def parities_case() -> Case:
    members = [(3,), (3, 4, 5), (4, 5), (5, 3), (3, 4, 5)]
    rows = np.array([[*each, *[NONE] * (3 - len(each))] for each in members], np.int32)
    return Case(
        Parities(DOMAIN, rows),
        lambda q, record: int(sum(record[j] for j in members[q]) % 2 == 0),
        [tuple(sorted(each)) for each in members],
    )


def tables_case() -> Case:
    sets = ((2, 4), (0,), (0, 1, 2), (3, 4, 5), (1, 5), (0,), (1,))
    cells = [
        (members, cell) for members in sets for cell in product(*(range(DOMAIN.sizes[j]) for j in members))
    ]
    return Case(
        Tables(DOMAIN, sets),
        lambda q, record: int(tuple(record[j] for j in cells[q][0]) == cells[q][1]),
        [members for members, _ in cells],
    )


def graded_case() -> Case:
    group = graded()
    return Case(
        group,
        lambda q, record: int(group.values[q, record[group.attribute[q]]]),
        [(j,) for j in group.attribute.tolist()],
    )


CASES = {
    "conjunctions": conjunctions_case(),
    "parities": parities_case(),
    "tables": tables_case(),
    "graded": graded_case(),
}
every_kind = pytest.mark.parametrize("kind", CASES)
every_product = pytest.mark.parametrize("kind", ["conjunctions", "parities", "tables"])


def some_rows(rows: int, seed: int) -> NDArray[np.int64]:
    return np.array(UNIVERSE)[np.random.default_rng(seed).integers(0, len(UNIVERSE), rows)]


def records_of(rows: NDArray[np.int64], *, sparse: bool = False) -> Records:
    records = Records.from_rows(DOMAIN, rows)
    if not sparse:
        return records
    items = rows[:, 3:6]
    start = np.concatenate([[0], np.cumsum(items.sum(axis=1))]).astype(np.int64)
    held = SparseItems(start, np.nonzero(items)[1].astype(np.int32))
    return Records(DOMAIN, len(rows), (*records.columns[:-1], held))


def naive(case: Case, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.array([case.values(tuple(row)) for row in rows.tolist()]).sum(axis=0)


def all_of(group: Group) -> NDArray[np.int64]:
    return np.arange(group.size, dtype=np.int64)


def digest_of(group: Group) -> str:
    return Workload(DOMAIN, (group,), "").digest()


# Each member of the protocol


@every_kind
def test_values_lie_between_nothing_and_the_unit(kind: str) -> None:
    case = CASES[kind]
    assert case.group.size == len(case.members)
    assert case.group.domain == DOMAIN
    values = np.array([case.values(record) for record in UNIVERSE])
    assert values.min() == 0
    assert values.max() == case.group.unit


@every_kind
@pytest.mark.parametrize("sparse", [False, True])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.sampled_from([1, 63, 64, 65, 300]))
def test_counts_are_sums_over_records(kind: str, sparse: bool, seed: int, rows: int) -> None:
    case = CASES[kind]
    codes = some_rows(rows, seed)
    counts = case.group.counts(records_of(codes, sparse=sparse))
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(counts, naive(case, codes))
    # Counts of parts of a table add up to those of the whole.
    parts = [records_of(part, sparse=sparse) for part in np.array_split(codes, 3) if len(part)]
    np.testing.assert_array_equal(sum(case.group.counts(part) for part in parts), counts)


@every_kind
def test_the_answers_of_a_record_are_added(kind: str) -> None:
    case = CASES[kind]
    answers = np.arange(case.group.size, dtype=np.int32)
    expected = answers.astype(np.int64)
    for record in UNIVERSE:
        case.group.add_answers(np.array(record, np.int32), answers)
        expected += case.values(record)
        np.testing.assert_array_equal(answers, expected)
    assert answers.dtype == np.int32


@every_kind
def test_the_scope_is_every_set_that_is_asked_about_once(kind: str) -> None:
    case = CASES[kind]
    scope = case.group.scope()
    assert scope.dtype == np.int32
    found = []
    for row in scope.tolist():
        members = [j for j in row if j != NONE]
        assert row == sorted(members) + [NONE] * (len(row) - len(members))
        found.append(tuple(members))
    assert sorted(found) == sorted(set(case.members))
    # A query depends on nothing but what it says it is about.
    for q in range(0, case.group.size, 3):
        seen: dict[tuple[int, ...], int] = {}
        for record in UNIVERSE:
            key = tuple(record[j] for j in case.members[q])
            assert seen.setdefault(key, case.value(q, record)) == case.value(q, record)


@every_kind
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_some_queries_are_taken_in_any_order(kind: str, data: st.DataObject) -> None:
    case = CASES[kind]
    chosen = np.array(data.draw(st.lists(st.integers(0, case.group.size - 1), min_size=1)), np.int64)
    taken = case.group.take(chosen)
    records = records_of(some_rows(70, 3))
    assert (taken.size, taken.unit) == (len(chosen), case.group.unit)
    np.testing.assert_array_equal(taken.counts(records), case.group.counts(records)[chosen])
    assert taken.texts(all_of(taken)) == case.group.texts(chosen)
    asked = {tuple(j for j in row if j != NONE) for row in taken.scope().tolist()}
    assert asked == {case.members[q] for q in chosen}


@every_kind
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), queries=st.integers(1, 200), cells=st.integers(1, 60))
def test_a_sample_is_some_of_the_queries_and_of_tables_whole_ones(
    kind: str, seed: int, queries: int, cells: int
) -> None:
    case = CASES[kind]
    group, rng = case.group, np.random.default_rng(seed)
    indices, sample = group.sampled(rng, queries=queries, cells=cells)
    records = records_of(some_rows(70, 3))
    assert (np.diff(indices) > 0).all()  # in their order, none twice
    np.testing.assert_array_equal(sample.counts(records), group.counts(records)[indices])
    assert sample.texts(all_of(sample)) == group.texts(indices)
    starts = group.table_starts()
    if starts is None:
        assert sample.size == min(queries, group.size)
    else:
        runs = [range(a, b) for a, b in pairwise(starts)]
        chosen = [run for run in runs if run[0] in indices]
        assert [q for run in chosen for q in run] == indices.tolist()
        assert sample.size <= cells or len(chosen) == 1


@every_kind
def test_every_query_has_the_same_chance_to_be_sampled(kind: str) -> None:
    """Of tables: every one of those that are as large, when there is room for half of them."""
    case = CASES[kind]
    group = Tables(DOMAIN, ((3, 4), (3, 5), (4, 5), (1, 3, 4))) if kind == "tables" else case.group
    seen = np.zeros(group.size)
    for seed in range(1500):
        indices, _ = group.sampled(np.random.default_rng(seed), queries=-(-group.size // 3), cells=8)
        seen[indices] += 1
    units = seen if group.table_starts() is None else seen[group.table_starts()[:-1]]
    assert chisquare(units).pvalue > 1e-6
    assert units.min() > 0


@every_kind
@pytest.mark.parametrize("cells", [1, 5, 12, 13, 10**6])
def test_parts_are_the_same_queries_in_order(kind: str, cells: int) -> None:
    group = CASES[kind].group
    parts = list(group.in_parts(cells))
    records = records_of(some_rows(70, 3))
    np.testing.assert_array_equal(
        np.concatenate([part.counts(records) for part in parts]), group.counts(records)
    )
    texts = [text for part in parts for text in part.texts(all_of(part))]
    assert texts == group.texts(all_of(group))
    if group.table_starts() is None:
        assert len(parts) == 1
    else:
        for part in parts:
            assert part.size <= cells or len(part.table_starts()) == 2
        sizes = [part.size for part in parts]
        assert all(one + other > cells for one, other in pairwise(sizes))


@every_kind
def test_runs_that_partition_the_records_are_tables(kind: str) -> None:
    case = CASES[kind]
    starts = case.group.table_starts()
    assert (starts is None) == (kind != "tables")
    if starts is None:
        return
    assert (starts[0], starts[-1]) == (0, case.group.size)
    for record in UNIVERSE:
        sums = np.add.reduceat(case.values(record), starts[:-1])
        assert sums.tolist() == [case.group.unit] * (len(starts) - 1)


@every_kind
@pytest.mark.parametrize("neighbours", RELATIONS, ids=lambda relation: relation.value)
def test_no_neighbour_moves_counts_by_more_than_the_group_says(kind: str, neighbours: Neighbours) -> None:
    case = CASES[kind]
    values = np.array([case.values(record) for record in UNIVERSE])
    apart = np.abs(values[:, None, :] - values[None, :, :])
    assert (values > 0).sum(axis=1).max() <= case.group.most_satisfied()
    assert (apart > 0).sum(axis=2).max() <= case.group.most_differing()
    bound = neighbours.sensitivity(case.group.bound())
    moves = apart if neighbours is Neighbours.REPLACE else values
    assert moves.sum(axis=-1).max() <= bound.l1
    assert (moves**2).sum(axis=-1).max() <= bound.l2_squared
    if kind == "tables":  # of which the bound is the truth
        assert (moves.sum(axis=-1).max(), (moves**2).sum(axis=-1).max()) == (bound.l1, bound.l2_squared)


@every_kind
def test_equal_queries_have_equal_digests_and_others_have_others(kind: str) -> None:
    group, again = CASES[kind].group, CASES[kind].group
    if isinstance(group, Tables):
        again, other = Tables(Domain(DOMAIN.columns), group.sets), Tables(DOMAIN, group.sets[::-1])
    else:
        again, other = group.take(all_of(group)), group.take(all_of(group)[::-1].copy())
    assert digest_of(again) == digest_of(group)
    assert digest_of(other) != digest_of(group)
    assert digest_of(group) not in {digest_of(case.group) for name, case in CASES.items() if name != kind}


@every_kind
def test_texts_are_those_of_the_queries_that_are_asked_for(kind: str) -> None:
    group = CASES[kind].group
    texts = group.texts(all_of(group))
    assert len(texts) == group.size
    some = np.array([group.size - 1, 0, 2, 2], np.int64)
    assert group.texts(some) == [texts[q] for q in some]
    assert group.texts(np.empty(0, np.int64)) == []


@every_product
def test_texts_are_read_back_as_what_they_ask(kind: str) -> None:
    case = CASES[kind]
    for q, text in enumerate(case.group.texts(all_of(case.group))):
        values = [case.value(q, record) for record in UNIVERSE]
        if all(values):
            continue  # a cell of the table over `only`, which the language does not ask for
        query = parse(text, DOMAIN)
        assert [int(query.holds(record)) for record in UNIVERSE] == values


@every_product
def test_products_are_the_queries(kind: str) -> None:
    case = CASES[kind]
    chosen = np.array([case.group.size - 1, 0, 3, 3], np.int64)
    rows = case.group.products(chosen)
    assert rows.predicates is case.group.predicates
    universe = np.array(UNIVERSE)
    found = np.zeros((len(chosen), len(universe)), bool)
    for row, flip, place in zip(rows.literals, rows.complement, rows.positions, strict=True):
        holds = np.ones(len(universe), bool)
        for literal in row[row != NONE].tolist():
            codes = universe[:, rows.predicates.attribute[literal // 2]]
            holds &= np.isin(codes, rows.predicates.accepted(literal // 2)) != bool(literal % 2)
        found[place] = holds != flip
    for row, place in zip(rows.parities, rows.parity_positions, strict=True):
        found[place] = universe[:, row[row != NONE]].sum(axis=1) % 2 == 0
    assert sorted([*rows.positions, *rows.parity_positions]) == [0, 1, 2, 3]
    expected = [[case.value(q, record) for record in UNIVERSE] for q in chosen.tolist()]
    np.testing.assert_array_equal(found, expected)


def test_empty_groups_count_nothing() -> None:
    records = records_of(some_rows(9, 0))
    for kind in ("conjunctions", "parities", "graded"):
        empty = CASES[kind].group.take(np.empty(0, np.int64))
        assert empty.size == 0
        assert empty.counts(records).shape == (0,)


# A workload of several kinds


def mixed(*kinds: str) -> Workload:
    return Workload(DOMAIN, tuple(CASES[kind].group for kind in kinds), "several kinds")


WORKLOADS = [
    ("graded",),
    ("conjunctions",),
    ("tables", "parities", "conjunctions"),
    ("parities", "graded"),
    ("graded", "tables", "graded"),
]


@pytest.mark.parametrize("kinds", WORKLOADS, ids=" ".join)
def test_a_workload_says_what_its_groups_say(kinds: tuple[str, ...]) -> None:
    workload, cases = mixed(*kinds), [CASES[kind] for kind in kinds]
    members = [each for case in cases for each in case.members]
    assert workload.size == len(members)
    rows = [[j for j in row if j != NONE] for row in workload.scope.tolist()]
    assert sorted(map(tuple, rows)) == sorted(set(members))
    touched = sorted({j for each in members for j in each})
    assert workload.attributes.tolist() == touched
    assert workload.order == max(map(len, members))
    assert workload.decisions == sum(int(DOMAIN.sizes[j]) - 1 for j in touched)
    codes = some_rows(80, 1)
    counts = np.concatenate([naive(case, codes) for case in cases])
    np.testing.assert_array_equal(workload.counts(records_of(codes)), counts)
    units = np.concatenate([np.full(case.group.size, case.group.unit) for case in cases])
    np.testing.assert_allclose(workload.fractions(records_of(codes)), counts / units / len(codes), rtol=1e-14)
    texts = [text for case in cases for text in case.group.texts(all_of(case.group))]
    assert list(workload.texts()) == [workload.text(i) for i in range(workload.size)] == texts
    if len(set(units.tolist())) == 1:
        assert workload.unit == units[0]
    else:
        with pytest.raises(QueryError, match="different units"):
            _ = workload.unit


# The fourth kind in the house


budget = partial(house.budget, neighbours=Neighbours.ADD_REMOVE)


TABLE = some_rows(ROWS, 7)


def curator(pays: Budget) -> Curator:
    return curator_of(records_of(TABLE), pays, seed=3)


def test_it_is_counted_by_the_counter() -> None:
    case, counter = CASES["graded"], MemoryCounter(records_of(TABLE))
    expected = naive(case, TABLE)
    np.testing.assert_array_equal(counter.true_counts(case.group), expected)
    workload = mixed("tables", "graded")
    for _ in range(2):  # kept or counted anew
        found = counter.true_counts(workload, kept=True)
        np.testing.assert_array_equal(found[-case.group.size :], expected)


@pytest.mark.parametrize("neighbours", RELATIONS, ids=lambda relation: relation.value)
def test_it_is_measured_by_the_curator_at_the_price_of_its_unit(neighbours: Neighbours) -> None:
    case, holder = CASES["graded"], curator(budget(neighbours=neighbours))
    noise = Gaussian(Fraction(10**9))
    noisy = holder.measure(case.group, noise=noise)
    squared = case.group.size * case.group.unit**2
    assert neighbours.sensitivity(case.group.bound()) == Sensitivity(
        case.group.size * case.group.unit, squared
    )
    assert holder.ledger.events == (GaussianMeasurement(Fraction(squared), Fraction(10**9)),)
    assert np.abs(noisy - naive(case, TABLE)).max() < 6 * noise.deviation
    # One query of it alone, as the balance that a round of a game would ask for.
    balance = Balance(mixed("graded"), 2)
    (truth,) = balance.counts(records_of(TABLE))
    assert truth == 2 * naive(case, TABLE)[2] - case.group.unit * ROWS
    moved = case.group.unit if neighbours is Neighbours.ADD_REMOVE else 2 * case.group.unit
    assert neighbours.sensitivity(balance.bound()) == Sensitivity(moved, moved**2)


def test_it_is_answered_by_synthetic_records_and_by_bare_answers() -> None:
    case = CASES["graded"]
    mean = naive(case, TABLE) / (case.group.unit * ROWS)
    np.testing.assert_allclose(SyntheticRecords(records_of(TABLE)).fractions(case.group), mean, rtol=1e-14)
    bare = BareAnswers(case.group.texts(all_of(case.group)), mean, np.zeros(len(mean)))
    chosen = np.array([4, 1], np.int64)
    np.testing.assert_array_equal(bare.fractions(case.group.take(chosen)), mean[chosen])
    with pytest.raises(QueryError, match="not among its queries"):
        bare.fractions(CASES["parities"].group)


@pytest.mark.parametrize(
    ("mechanism", "accounting"),
    [
        (INDEPENDENT_GAUSSIAN, Accounting.ZCDP),
        (INDEPENDENT_GAUSSIAN, Accounting.GAUSSIAN),
        (INDEPENDENT_LAPLACE, Accounting.PURE),
    ],
)
@pytest.mark.parametrize("kinds", [("graded",), ("parities", "graded")], ids=" ".join)
def test_it_is_released_with_independent_noise(
    mechanism: Mechanism, accounting: Accounting, kinds: tuple[str, ...]
) -> None:
    workload, pays = mixed(*kinds), budget(40.0, accounting=accounting)
    plan = mechanism.plan_for(Task(workload, ROWS, pays), {})
    holder = curator(pays)
    outcome = mechanism.run(plan, holder, np.random.default_rng(0), silent)
    assert holder.ledger.events == tuple(step.event for step in plan.steps)
    assert holder.ledger.spent().epsilon == pytest.approx(40.0, rel=1e-6)
    truth = np.concatenate([naive(CASES[kind], TABLE) / CASES[kind].group.unit / ROWS for kind in kinds])
    last = CASES["graded"].group
    errors = np.abs(outcome.artefact.fractions(last) - truth[-last.size :])
    law = plan.parameters.law
    assert errors.max() <= 8 * law.deviation / (last.unit * ROWS)
    if len(kinds) == 1:  # several groups share one noise, in which the others' small numbers may drown
        assert errors.max() <= 0.1
        assert errors.max() <= 3 * plan.max_error
    assert outcome.answers is not None
    np.testing.assert_array_equal(outcome.artefact.fractions(last), outcome.answers[-last.size :])


def test_it_is_released_by_rows_that_are_fitted_to_tables() -> None:
    """Projection needs to know only which attributes are asked about."""
    pays = budget(10.0)
    plan = PROJECTION.plan_for(Task(mixed("graded", "conjunctions"), ROWS, pays), {})
    outcome = PROJECTION.run(plan, curator(pays), np.random.default_rng(0), silent)
    case = CASES["graded"]
    truth = naive(case, TABLE) / (case.group.unit * ROWS)
    assert np.abs(outcome.artefact.fractions(case.group) - truth).max() < 0.05


@pytest.mark.parametrize("mechanism", [DUAL_QUERY, MWEM, PMW], ids=lambda mechanism: mechanism.name)
@pytest.mark.parametrize("unit", [1, 1000])
@pytest.mark.parametrize("others", [(), ("conjunctions",), ("tables", "parities")], ids=len)
def test_mechanisms_that_need_products_refuse_it_in_a_sentence_before_anything_is_charged(
    mechanism: Mechanism, unit: int, others: tuple[str, ...]
) -> None:
    """Wherever it stands among other queries: a plan is made from public things, and there is none."""
    groups = (*(CASES[kind].group for kind in others), graded(unit))
    for order in (groups, groups[::-1]):
        workload = Workload(DOMAIN, order, "some of it")
        with pytest.raises(QueryError) as refused:
            mechanism.plan_for(Task(workload, ROWS, budget()), {})
        sentence = str(refused.value)
        assert "\n" not in sentence
        assert "graded questions are no products" in sentence
        assert "use a mechanism that measures the queries themselves" in sentence
    if others:  # and without it the others are planned
        mechanism.plan_for(Task(mixed(*others), ROWS, budget()), {})


def test_a_group_of_conjunctions_is_what_a_product_row_makes_of_it() -> None:
    assert isinstance(CASES["tables"].group.take(np.array([0])), Conjunctions)
