"""Persons against brute force: every statistic and every score, all blocks of at most K records of one person.

A person's records A become B beside the records of others. That is tried for all A and B of at most K records,
with others of several sizes; `next_to` must list exactly these tables. The cases are those of `test_statistics`, so
that a statistic that is left out there fails there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError
from dualquery.loops import limited
from dualquery.mechanisms.dual_query.parameters import Learning, dual_query_pure, dual_query_rho
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.mwem import automatic_rounds, promised_error
from dualquery.mechanisms.projection.baskets import plan_baskets
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.budget import (
    RELATIONS,
    Accounting,
    Budget,
    Neighbours,
    PersonAddRemove,
    PersonReplace,
    Sensitivity,
    person_relations,
)
from dualquery.privacy.conversion import UNITS
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Fire
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.scores import selection_event, signed_range
from dualquery.privacy.selection import SLACK, Rate
from dualquery.privacy.thresholds import HazardTest
from dualquery.queries import derived as derived_module
from dualquery.queries.binary import HeldItems, HeldPairs
from dualquery.queries.derived import Balance, Interactions, interaction_distance, number_of_records
from dualquery.queries.families import from_spec, parities
from dualquery.queries.statistics import ONE_CELL, Bound, Countable
from dualquery.queries.tables import Tables
from dualquery.randomness import SeededEntropy
from dualquery.releases.plan import price_of_rows
from dualquery.table.domain import Domain, Items
from dualquery.table.encoding import decode, encode
from dualquery.table.schema import parse_schema
from tests.house import curator_of
from tests.privacy.definitions import next_to
from tests.privacy.test_statistics import (
    L1,
    L2,
    MIXED,
    RANGE,
    SCORES,
    STATISTICS,
    TEXTS,
    Case,
    domain_of,
    numbers_of,
    records_of,
    universe_of,
)
from tests.privacy.watched import Asking

UNIVERSE = ("x", "y", "z")
BOTH = [relation for most in (1, 2) for relation in person_relations(most)]
MOST_BLOCKS = 250  # of a person; of larger universes K = 2 is tried on some of the blocks


# ── The relations ───────────────────────────────────────────────────────────────────────────────────────────────


def test_persons_are_found_by_name_and_say_what_they_are() -> None:
    for relation in person_relations(3):
        assert Neighbours.named(relation.value, 3) == relation
        assert Neighbours.named(relation.value, 2) != relation
        assert (relation.records_per_person, relation.size_is_public) == (3, False)
        assert "one person" in relation.words()
        assert "at most 3 records" in relation.words()
        assert str(relation) == f"{relation.value} (at most 3 records each)"
        with pytest.raises(BudgetError, match="--records-per-person"):
            Neighbours.named(relation.value)
    for relation in RELATIONS:
        assert relation.records_per_person is None
        with pytest.raises(BudgetError, match=f"ask for 'person-{relation.value}'"):
            Neighbours.named(relation.value, 3)
    assert "one record in each" in PersonReplace(1).words()
    assert person_relations(3) not in RELATIONS


@pytest.mark.parametrize("wrong", [0, -1, 1_000_001, 10**30, 2.0, True, None])
def test_records_per_person_are_a_sensible_number(wrong: object) -> None:
    for kind in (PersonAddRemove, PersonReplace):
        with pytest.raises(BudgetError, match="whole number from 1"):
            kind(wrong)  # type: ignore[arg-type]


def test_how_far_a_person_moves_a_sum() -> None:
    """The lemma: K·alone, and K·max(alone, apart); squares of norms K² times."""
    cells = ONE_CELL
    assert PersonAddRemove(3).sensitivity(cells) == Sensitivity(3, 9)
    assert PersonReplace(3).sensitivity(cells) == Sensitivity(6, 18)
    rows = Bound((1, 1), (0, 0))
    for relation in person_relations(3):  # two records count alike, but a person may have fewer
        assert relation.sensitivity(rows) == Sensitivity(3, 9)


def as_sets(tables: Iterator[tuple[str, ...]]) -> set[tuple[str, ...]]:
    return {tuple(sorted(table)) for table in tables}


@given(st.lists(st.sampled_from(UNIVERSE), max_size=4).map(tuple), st.integers(1, 3))
def test_neighbours_are_what_one_person_can_make_of_a_table(table: tuple[str, ...], most: int) -> None:
    """The definition with owners: others ⊎ A becomes others ⊎ B, |A| and |B| at most K."""
    expected = {"any": set(), "empty": set()}
    for size in range(len(table) + most + 1):
        for other in combinations_with_replacement(UNIVERSE, size):
            less, more = Counter(table) - Counter(other), Counter(other) - Counter(table)
            if less.total() <= most and more.total() <= most:
                expected["any"].add(other)
                if not less or not more:
                    expected["empty"].add(other)
    assert as_sets(next_to(PersonReplace(most), table, UNIVERSE)) == expected["any"]
    assert as_sets(next_to(PersonAddRemove(most), table, UNIVERSE)) == expected["empty"]


@pytest.mark.parametrize("relation", BOTH, ids=str)
@given(table=st.lists(st.sampled_from(UNIVERSE), max_size=3).map(tuple))
def test_being_a_neighbour_is_mutual(relation: Neighbours, table: tuple[str, ...]) -> None:
    for other in as_sets(next_to(relation, table, UNIVERSE)):
        assert tuple(sorted(table)) in as_sets(next_to(relation, other, UNIVERSE))


# ── Brute force ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with limited(1):
        yield


@pytest.fixture
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(derived_module, "SHORT", request.getfixturevalue("case").short)
    interaction_distance.cache_clear()
    yield
    interaction_distance.cache_clear()


def blocks_of(universe: Sequence[tuple[int, ...]], most: int) -> list[tuple[tuple[int, ...], ...]]:
    """All that a person can have; of large universes all with equal records, and some of the others."""
    found = [block for size in range(most + 1) for block in combinations_with_replacement(universe, size)]
    if len(found) > MOST_BLOCKS:
        kept = set(np.random.default_rng(0).permutation(len(found))[:MOST_BLOCKS].tolist())
        found = [b for i, b in enumerate(found) if i in kept or len(set(b)) <= 1]
    return found


def numbers(case: Case, others: tuple[tuple[int, ...], ...], most: int) -> NDArray[np.int64]:
    """What the case says, a row a block."""
    out = []
    for block in blocks_of(universe_of(case.domain), most):
        out.append(numbers_of(case, (*others, *block)))
    return np.array(out, np.int64)


def moved(case: Case, relation: Neighbours) -> dict[str, int]:
    """The largest moves over all pairs of blocks, one of them empty where a person comes or goes."""
    universe = universe_of(case.domain)
    found = {L1: 0, L2: 0, RANGE: 0}
    for others in ((), (universe[0],), (universe[-1], universe[len(universe) // 2], universe[-1])):
        rows = numbers(case, others, relation.records_per_person or 0)
        for here in rows if relation.value == "person-replace" else rows[:1]:
            moves = rows - here
            if not moves.size:
                continue
            found[L1] = max(found[L1], int(np.abs(moves).sum(axis=1).max()))
            found[L2] = max(found[L2], int((moves**2).sum(axis=1).max()))
            found[RANGE] = max(found[RANGE], int((moves.max(axis=1) - moves.min(axis=1)).max()))
    return found


def stated_of(case: Case, relation: Neighbours) -> dict[str, int]:
    if hasattr(case.subject, "bound"):
        charged = relation.sensitivity(case.subject.bound())
        return {L1: charged.l1, L2: charged.l2_squared}
    return {RANGE: case.subject.range(relation)}


def exceeds(case: Case, relation: Neighbours, norm: str) -> bool:
    """Whether the price of single records exceeds the truth, in every way in which a person can attain it.

    A person who is replaced may also come or go, so that a bound on two records that is no larger than what one
    attains is tight for persons.
    """
    singles = [Neighbours.ADD_REMOVE, Neighbours.REPLACE][: 2 if relation.value == "person-replace" else 1]
    prices = {single.value: stated_of(case, single)[norm] for single in singles}
    dearest = [single for single, price in prices.items() if price == max(prices.values())]
    return all((single, norm) in case.exceeds for single in dearest)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("relation", BOTH, ids=str)
@pytest.mark.parametrize("case", [*STATISTICS, *SCORES], ids=str)
def test_the_price_is_how_far_a_person_moves(case: Case, relation: Neighbours) -> None:
    true = moved(case, relation)
    for norm, price in stated_of(case, relation).items():
        if exceeds(case, relation, norm):
            assert price > true[norm], f"{norm} is tight after all"
        else:
            assert price == true[norm], norm


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("case", STATISTICS, ids=str)
def test_k_records_are_charged_k_times_and_k_squared_times(case: Case) -> None:
    """Beside single records: the same L1 times K, the same squared L2 times K² (the lemma, on every statistic)."""
    for most in (1, 2, 7):
        alone = Neighbours.ADD_REMOVE.sensitivity(case.subject.bound())
        apart = Neighbours.REPLACE.sensitivity(case.subject.bound())
        assert PersonAddRemove(most).sensitivity(case.subject.bound()) == Sensitivity(
            most * alone.l1, most**2 * alone.l2_squared
        )
        assert PersonReplace(most).sensitivity(case.subject.bound()) == Sensitivity(
            most * max(alone.l1, apart.l1), most**2 * max(alone.l2_squared, apart.l2_squared)
        )


# ── What depends on it ──────────────────────────────────────────────────────────────────────────────────────────


def budget_of(relation: Neighbours, epsilon: float = 1.0, accounting: Accounting = Accounting.ZCDP) -> Budget:
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    return Budget(epsilon=epsilon, delta=delta, neighbours=relation, accounting=accounting)


@pytest.mark.parametrize("relation", person_relations(4), ids=str)
@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.GAUSSIAN, Accounting.PURE])
def test_the_number_of_records_is_measured_for_a_person(relation: Neighbours, accounting: Accounting) -> None:
    """1% of the budget buys K times the noise, and the ledger accepts it together with the rest."""
    one = Neighbours.ADD_REMOVE
    person, single = (
        price_of_rows(replace(budget_of(each, accounting=accounting), adaptive=True))
        for each in (relation, one)
    )
    assert person.noise.deviation / person.times == pytest.approx(
        4 * single.noise.deviation / single.times, rel=1e-3
    )
    assert person.left.epsilon == single.left.epsilon
    shares = []
    for priced, each in ((person, relation), (single, one)):
        ledger = Ledger(budget_of(each, accounting=accounting))
        curator = curator_of(records_of(STATISTICS[0], ((0, 1, 0),)), ledger, seed=1)
        curator.measure(priced.statistic(MIXED), noise=priced.noise)
        shares.append(ledger.spent().rho_units or ledger.spent().epsilon * UNITS)
    assert shares[0] == pytest.approx(shares[1], rel=0 if accounting is not Accounting.GAUSSIAN else 1e-3)


@pytest.mark.parametrize("relation", person_relations(5), ids=str)
def test_dual_query_pays_for_a_person(relation: Neighbours) -> None:
    """Log-weights move K times as far a round: K times the pure price, K² times ρ."""
    single = Neighbours.named(relation.value.removeprefix("person-"))
    given = Learning(learning_rate=1.0, samples=50, rounds=20), 10_000
    assert signed_range(relation, 1) == 5 * signed_range(single, 1)
    assert dual_query_pure(*given, relation) == 5 * dual_query_pure(*given, single)
    assert dual_query_rho(*given, relation) == 25 * dual_query_rho(*given, single)
    rate = Rate.below(0.01, 10**6)
    for case in SCORES:
        event = selection_event(case.subject, relation, rate=rate, draws=2)
        beside = selection_event(case.subject, single, rate=rate, draws=2)
        if beside is None:
            assert event is None
        else:
            assert event is not None
            assert event.range - SLACK == 5 * (beside.range - SLACK)


def test_a_threshold_test_needs_the_range_of_a_person() -> None:
    """D_α(Kε): a test for one record refuses a question that a person moves by K, and one for K pays K times ε."""
    relation = PersonAddRemove(3)
    budget = budget_of(relation, epsilon=200.0, accounting=Accounting.RENYI)
    ledger = Ledger(budget)
    curator = curator_of(records_of(STATISTICS[0], ((0, 1, 0),) * 9), ledger, seed=2)
    question = Balance(TEXTS, 0)
    for sensitivity in (1, 2):
        test = HazardTest(Fraction(1, 10), 5, ledger.order, sensitivity)
        with pytest.raises(BudgetError, match="moves farther"):
            Asking(curator)(question, 0, test, Gaussian(Fraction(4)))
    Asking(curator)(question, 1000, HazardTest(Fraction(1, 10), 5, ledger.order, 3), Gaussian(Fraction(4)))
    fire, measured = ledger.events[-2:]
    assert isinstance(fire, Fire)
    assert fire.cost == Fire(Fraction(3, 10), 1, ledger.order).cost
    assert measured == Gaussian(Fraction(4)).event(Sensitivity(3, 9))


def test_a_gaussian_release_pays_for_a_person() -> None:
    """Δ² of K records is K² times that of one: K² times the variance costs the same ρ, and nearly the same ε."""
    single, person = (
        Ledger(budget_of(relation, accounting=Accounting.GAUSSIAN))
        for relation in (Neighbours.ADD_REMOVE, PersonAddRemove(3))
    )
    case = STATISTICS[0]
    counter = MemoryCounter(records_of(case, ((0, 1, 0),) * 3))
    Curator(counter, single, SeededEntropy(1)).measure(case.subject, noise=Gaussian(Fraction(400)))
    Curator(counter, person, SeededEntropy(1)).measure(case.subject, noise=Gaussian(Fraction(3600)))
    assert person.spent().epsilon == pytest.approx(single.spent().epsilon, rel=0.01)
    assert person.spent().rho_units == single.spent().rho_units


def test_plans_know_that_a_person_is_dearer() -> None:
    """Public rules that look at n ε go by n ε / K, so that K = 3 plans like a third of the budget."""
    workload = from_spec(domain_of(2, 2, 2, 2), "marginals:2")
    single = Task(workload, 30_000, budget_of(Neighbours.ADD_REMOVE, epsilon=1 / 3))
    person = Task(workload, 30_000, budget_of(PersonAddRemove(3)))
    assert automatic_rounds(person) == automatic_rounds(single)
    assert promised_error(person, 10) > promised_error(
        Task(workload, 30_000, budget_of(Neighbours.ADD_REMOVE)), 10
    )


@pytest.mark.parametrize("relation", person_relations(3), ids=str)
def test_the_plan_of_items_can_be_paid_for(relation: Neighbours) -> None:
    """The total is one of its measurements, and moves by K."""
    domain = Domain((Items("item", 30),))
    task = Task(from_spec(domain, "random:2:50:1"), 5_000, budget_of(relation))
    ledger = Ledger(task.budget)
    for step in plan_baskets(task, ProjectionWishes(), 4).steps:
        ledger.charge(*[step.event] * step.times)
    assert ledger.spent().epsilon > 0.99


# ── The page ────────────────────────────────────────────────────────────────────────────────────────────────────

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "schema.md").read_text(encoding="utf-8")


SQUARED = {  # L2: a record added, replaced, a person with 3 added, replaced
    "the number of records": (1, 0, 9, 9),
    "4 tables": (4, 8, 36, 72),
    "the balance of one query": (1, 4, 9, 36),
    "the interaction of attributes with 3 and 4 values": (72, 216, 648, 1944),
    "10 parities of one or two of 4 attributes": (10, 10, 90, 90),
    "items, at most 5 of a record": (5, 10, 45, 90),
    "pairs of items, at most 5 of a record": (10, 20, 90, 180),
}


def test_squared_sensitivities_of_a_person_are_those_worked_out_by_hand() -> None:
    values, rank = domain_of(3, 4, 2), np.arange(100)
    held = HeldItems(0, rank, 100, 5), HeldPairs(0, rank, 100, 5)
    statistics: dict[str, Countable] = {
        "the number of records": number_of_records(values),
        "4 tables": Tables(values, ((0,), (1,), (0, 1), (2,))),
        "the balance of one query": Balance(from_spec(values, "marginals:1"), 0),
        "the interaction of attributes with 3 and 4 values": Interactions(values, ((0, 1),), (1,)),
        "10 parities of one or two of 4 attributes": parities(domain_of(2, 2, 2, 2), 2).groups[0],
        "items, at most 5 of a record": held[0],
        "pairs of items, at most 5 of a record": held[1],
    }
    relations = (Neighbours.ADD_REMOVE, Neighbours.REPLACE, *person_relations(3))
    assert {
        name: tuple(relation.sensitivity(statistic.bound()).l2_squared for relation in relations)
        for name, statistic in statistics.items()
    } == SQUARED


def test_the_example_of_the_page(tmp_path: Path) -> None:
    schema = parse_schema(PAGE.partition("# visits.toml\n")[2].partition("```")[0], origin="the page")
    path = tmp_path / "visits.csv"
    path.write_text(PAGE.partition("```csv\n")[2].partition("```")[0], encoding="utf-8")
    found = decode(encode(path, schema, records_per_person=2)).to_pylist()
    said = [
        ("births", "short"),
        ("births", "short"),
        ("heart", "long"),
        ("heart", "long"),
        ("surgery", "short"),
    ]
    assert sorted((each["ward"], each["stay"]) for each in found) == said
    long = PAGE.partition("## Baskets in long form")[2]
    baskets = parse_schema(long.partition("```toml\n")[2].partition("```")[0], origin="the page")
    path.write_text(long.partition("```\n\n```\n")[2].partition("```")[0], encoding="utf-8")
    assert decode(encode(path, baskets)).to_pylist() == [{"item": [4, 17]}, {"item": [3]}]
