"""The curator charges before it draws, draws fresh noise, and says nothing else."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError, DataError
from dualquery.privacy.budget import RELATIONS, Accounting, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Epoch, GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian, Laplace
from dualquery.privacy.scores import FINE, SignedErrors, TableErrors
from dualquery.privacy.selection import SLACK, Candidates, Rate
from dualquery.privacy.thresholds import FarSide, HazardTest, SparseVector
from dualquery.queries.derived import Balance, number_of_records
from dualquery.queries.families import from_texts, marginals, parities
from dualquery.queries.tables import Tables
from dualquery.randomness import SeededEntropy
from dualquery.releases.plan import known_rows
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from tests import house
from tests.privacy.definitions import next_to
from tests.privacy.watched import Asking

DOMAIN = Domain(
    (Categorical("a", ("0", "1")), Categorical("b", ("0", "1")), Categorical("c", ("x", "y", "z")))
)
TEXTS = ["a = 1", "b = 1 & c = x", "!(a = 1 & c = y)"]
WORKLOAD = from_texts(DOMAIN, TEXTS)
UNIVERSE = [(a, b, c) for a in range(2) for b in range(2) for c in range(3)]
ROWS = 60


class Watched(SeededEntropy):
    """Notes how much had been charged when chance was first asked for."""

    def __init__(self, ledger):
        super().__init__(1)
        self.ledger = ledger
        self.charged_at_first_draw = None

    def _note(self):
        if self.charged_at_first_draw is None:
            self.charged_at_first_draw = len(self.ledger.events)

    def below(self, bound, count):
        self._note()
        return super().below(bound, count)

    def words(self, count):
        self._note()
        return super().words(count)


class WatchedCounter(MemoryCounter):
    """Notes how much had been charged when the truth was first read."""

    def __init__(self, table, ledger):
        super().__init__(table)
        self.ledger = ledger
        self.charged_at_first_count = None

    def true_counts(self, countable, *, kept=False):
        if self.charged_at_first_count is None:
            self.charged_at_first_count = len(self.ledger.events)
        return super().true_counts(countable, kept=kept)


def records(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return Records.from_rows(DOMAIN, np.stack([rng.integers(0, s, rows) for s in DOMAIN.sizes], axis=1))


budget = partial(house.budget, epsilon=1e4)


def curator_of(pays):
    ledger = Ledger(pays)
    entropy = Watched(ledger)
    counter = WatchedCounter(records(), ledger)
    return Curator(counter, ledger, entropy), counter, entropy


def signed(repeats=3, public_rows=ROWS):
    return SignedErrors(
        WORKLOAD, public_rows, repeats=repeats, scale=public_rows, offsets=np.array([1, 2, 0], np.int32)
    )


def of_tables(public_rows=ROWS):
    tables = Tables(DOMAIN, ((0,), (0, 1), (1, 2)))
    answers = np.random.default_rng(0).dirichlet(np.ones(tables.size))
    return TableErrors(tables, public_rows, penalties=np.array([0.0, 1.5, 3.0]), answers=answers)


@pytest.mark.parametrize(
    ("neighbours", "score", "width"),
    [
        (Neighbours.REPLACE, signed(), 2 * 3),
        (Neighbours.REPLACE, of_tables(), 4 * FINE),
        (Neighbours.ADD_REMOVE, signed(), 1 * 3),
        (Neighbours.ADD_REMOVE, of_tables(), 2 * FINE),
    ],
)
def test_select_charges_the_range_of_its_log_weights_first(neighbours, score, width):
    curator, counter, entropy = curator_of(budget(neighbours=neighbours))
    rate = Rate.below(0.3 / width, score.largest)
    curator.select(score, rate=rate, draws=7)
    assert curator.ledger.events == (Selection(width * rate.nats + SLACK, 7),)
    assert counter.charged_at_first_count == 1
    assert entropy.charged_at_first_draw == 1


def log_weights(scored):
    """One number a candidate, from the meaning of `Scored`."""
    plain = scored.repeats * scored.counts - scored.scale * scored.offsets.astype(np.int64)
    if scored.candidates is Candidates.ABSOLUTE:
        return np.abs(plain)
    return np.concatenate([plain, scored.surplus - plain])


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("kind", [signed, of_tables])
def test_no_neighbour_moves_the_log_weights_by_more_than_was_charged(neighbours, kind):
    """Brute force over every neighbouring pair of small tables."""
    base = tuple(UNIVERSE[i] for i in (0, 3, 5, 10))
    score = kind(public_rows=4)

    def weights(rows):
        return log_weights(score.of(MemoryCounter(Records.from_rows(DOMAIN, np.array(rows)))))

    moved = [weights(other) - weights(base) for other in next_to(neighbours, base, UNIVERSE)]
    widest = max(np.ptp(difference) for difference in moved)
    curator, _, _ = curator_of(budget(epsilon=1e9, neighbours=neighbours))
    rate = Rate(1 << 40, 40)
    curator.select(score, rate=rate)
    (event,) = curator.ledger.events
    charged = event.range / rate.nats  # in units of score
    assert widest <= charged
    assert charged <= widest + 1e-6 or kind is of_tables  # and no more than needed


def test_the_first_round_is_free():
    curator, _, _ = curator_of(budget())
    curator.select(signed(repeats=0), rate=Rate.below(0.01, 1000), draws=7)
    assert curator.ledger.events == ()


def test_what_cannot_be_paid_is_neither_counted_nor_drawn():
    curator, counter, entropy = curator_of(budget(epsilon=0.001))
    with pytest.raises(BudgetError):
        curator.select(signed(), rate=Rate.below(1, 1000), draws=7)
    with pytest.raises(BudgetError):
        curator.measure(marginals(DOMAIN, 1).groups[0], noise=Gaussian(Fraction(1)))
    with pytest.raises(BudgetError):
        Asking(curator)(Balance(WORKLOAD, 0), 0, SparseVector(Fraction(1), 10, 2), Gaussian(Fraction(1)))
    assert curator.ledger.events == ()
    assert counter.charged_at_first_count is None
    assert entropy.charged_at_first_draw is None


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.PURE])
def test_measure_charges_the_sensitivity_of_the_group(neighbours, accounting):
    curator, counter, entropy = curator_of(budget(neighbours=neighbours, accounting=accounting))
    group = marginals(DOMAIN, 2).groups[0]
    changed = Fraction(3 * (2 if neighbours is Neighbours.REPLACE else 1))
    if accounting is Accounting.ZCDP:
        noisy = curator.measure(group, noise=Gaussian(Fraction(9)))
        expected = GaussianMeasurement(sensitivity_squared=changed, variance=Fraction(9))
    else:
        noisy = curator.measure(group, noise=Laplace(Fraction(2)))
        expected = LaplaceMeasurement(sensitivity=changed, scale=Fraction(2))
    assert curator.ledger.events == (expected,)
    assert counter.charged_at_first_count == 1
    assert entropy.charged_at_first_draw == 1
    assert noisy.dtype == np.int64
    assert np.abs(noisy - group.counts(records())).max() < 40


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_sensitivity_of_a_group_against_brute_force(neighbours):
    groups = [
        WORKLOAD.groups[0],
        marginals(DOMAIN, 2).groups[0],
        Tables(DOMAIN, ((), (0,), (0, 1, 2))),
        parities(Domain(DOMAIN.columns[:2]), 2).groups[0],
    ]
    for group in groups:
        width = group.domain.width
        universe = sorted({record[:width] for record in UNIVERSE})
        base = (universe[0], universe[-1])

        def counts(rows, group=group):
            return group.counts(Records.from_rows(group.domain, np.array(rows)))

        moves = [np.abs(counts(other) - counts(base)) for other in next_to(neighbours, base, universe)]
        bound = neighbours.sensitivity(group.bound())
        assert max(move.max() for move in moves) <= 1
        assert max(move.sum() for move in moves) <= bound.l1
        assert max((move**2).sum() for move in moves) <= bound.l2_squared


def test_noise_is_fresh():
    curator, _, _ = curator_of(budget())
    statistic = marginals(DOMAIN, 1).groups[0]
    first = curator.measure(statistic, noise=Gaussian(Fraction(1000)))
    assert not np.array_equal(first, curator.measure(statistic, noise=Gaussian(Fraction(1000))))


def test_an_empty_table_is_refused_where_its_length_is_public():
    """A length that is private is not looked at: it is measured with noise, or declared."""
    empty = MemoryCounter(Records.from_rows(DOMAIN, np.zeros((0, 3), int)))
    curator = Curator(empty, Ledger(budget()), SeededEntropy(0))
    with pytest.raises(DataError, match="no rows"):
        known_rows(curator, empty, None)
    assert curator.ledger.events == ()
    limits = replace(budget(neighbours=Neighbours.ADD_REMOVE), adaptive=True)
    private = Curator(empty, Ledger(limits), SeededEntropy(0))
    assert known_rows(private, empty, None).rows >= 1
    assert len(private.ledger.events) == 1


# The third verb

TRUTH = int(Balance(WORKLOAD, 0).counts(records())[0])


def test_a_slot_of_hazard_tests_is_paid_for_once_up_to_its_fire():
    pays = budget(epsilon=10.0, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.RENYI)
    curator, _, _ = curator_of(pays)
    test, noise, asks = (
        HazardTest(Fraction(1, 4), 30, curator.ledger.order),
        Gaussian(Fraction(400)),
        Asking(curator),
    )
    asked = Balance(WORKLOAD, 0)
    paid = (test.event, GaussianMeasurement(sensitivity_squared=Fraction(1), variance=Fraction(400)))
    for times, side in ((1, FarSide.TOO_LOW), (2, FarSide.TOO_HIGH)):
        for _ in range(20):
            # εθ = 7.5: a hypothesis without error fires once in nine hundred times
            assert asks(asked, TRUTH, test, noise) is None
        surprise = asks(asked, TRUTH - 150 if side is FarSide.TOO_LOW else TRUTH + 150, test, noise)
        assert surprise is not None
        assert surprise.found.side is side
        assert abs(surprise.noisy[0] - TRUTH) < 8 * 20
        assert curator.ledger.events == paid * times


def test_an_epoch_is_paid_for_when_it_opens_and_ends_with_its_first_surprise():
    curator, counter, entropy = curator_of(budget())
    test, noise, asks = SparseVector(Fraction(4), 30, sensitivity=2), Laplace(Fraction(2)), Asking(curator)
    asked = Balance(WORKLOAD, 0)
    once = (Epoch(Fraction(4)), LaplaceMeasurement(sensitivity=Fraction(2), scale=Fraction(2)))
    assert asks(asked, TRUTH, test, noise) is None
    assert curator.ledger.events == once
    assert (counter.charged_at_first_count, entropy.charged_at_first_draw) == (2, 2)
    surprise = asks(asked, TRUTH - 200, test, noise)
    assert surprise is not None
    assert surprise.found.side is FarSide.FAR
    assert abs(surprise.noisy[0] - TRUTH) < 60
    assert curator.ledger.events == once  # all of it was paid for when the epoch opened
    assert asks(asked, TRUTH, test, noise) is None
    assert curator.ledger.events == once + once


def test_a_question_that_moves_farther_than_the_test_allows_is_refused():
    curator, counter, entropy = curator_of(budget())  # a record replaced moves a balance by two
    with pytest.raises(BudgetError, match="moves farther"):
        Asking(curator)(Balance(WORKLOAD, 0), TRUTH, SparseVector(Fraction(4), 30), Laplace(Fraction(2)))
    assert counter.charged_at_first_count is None
    assert entropy.charged_at_first_draw is None


def test_it_has_its_verbs_and_no_other_way_to_speak():
    public = {name for name in vars(Curator) if not name.startswith("_")}
    # allow and of_rows say nothing
    assert public == {"select", "measure", "exceeds", "frequent", "allow", "of_rows", "ledger", "neighbours"}


def test_the_number_of_records_is_free_where_it_is_public_and_one_count_where_not():
    for neighbours, moved in ((Neighbours.REPLACE, 0), (Neighbours.ADD_REMOVE, 1)):
        curator, _, _ = curator_of(budget(neighbours=neighbours))
        (noisy,) = curator.measure(number_of_records(DOMAIN), noise=Gaussian(Fraction(1)))
        assert curator.ledger.events == (GaussianMeasurement(Fraction(moved), Fraction(1)),)
        assert abs(noisy - ROWS) < 10
