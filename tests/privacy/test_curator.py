"""The curator charges before it draws, draws fresh noise, and says nothing else."""

from fractions import Fraction

import numpy as np
import pytest

from dualquery.errors import BudgetError, DataError
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator, Gaussian, Laplace, changed_queries
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.selection import SLACK, Candidates, PublicScores, Rate
from dualquery.queries.counting import true_counts
from dualquery.queries.families import from_texts, marginals, parities
from dualquery.queries.query import Tables
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records

DOMAIN = Domain(
    (Categorical("a", ("0", "1")), Categorical("b", ("0", "1")), Categorical("c", ("x", "y", "z")))
)
TEXTS = ["a = 1", "b = 1 & c = x", "!(a = 1 & c = y)"]


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


def records(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    return Records.from_rows(DOMAIN, np.stack([rng.integers(0, s, rows) for s in DOMAIN.sizes], axis=1))


def budget(epsilon=1e4, *, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP):
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    return Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)


def curator_of(pays, workload=None):
    ledger = Ledger(pays)
    entropy = Watched(ledger)
    workload = workload or from_texts(DOMAIN, TEXTS)
    return Curator(records(), workload, ledger, entropy), ledger, entropy


def scores(kind=Candidates.SIGNED, repeats=3):
    return PublicScores(repeats, 60, np.array([1, 2, 0], np.int32), kind)


@pytest.mark.parametrize(
    ("neighbours", "kind", "width"),
    [
        (Neighbours.REPLACE, Candidates.SIGNED, 2),
        (Neighbours.REPLACE, Candidates.ABSOLUTE, 2),
        (Neighbours.ADD_REMOVE, Candidates.SIGNED, 1),
        (Neighbours.ADD_REMOVE, Candidates.ABSOLUTE, 2),
    ],
)
def test_select_charges_the_range_of_its_log_weights_first(neighbours, kind, width):
    curator, ledger, entropy = curator_of(budget(neighbours=neighbours))
    rate = Rate.below(0.01, 1000)
    curator.select(scores(kind), rate=rate, public_rows=60, draws=7)
    assert ledger.events == (Selection(width * 3 * rate.nats + SLACK, 7),)
    assert entropy.charged_at_first_draw == 1


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("kind", list(Candidates))
def test_no_neighbour_moves_the_log_weights_by_more_than_was_charged(neighbours, kind):
    """Brute force over every neighbouring pair of small tables."""
    workload = from_texts(DOMAIN, TEXTS)
    universe = np.array([(a, b, c) for a in range(2) for b in range(2) for c in range(3)])
    base = universe[[0, 3, 5, 10]]
    public_rows, repeats = 4, 3

    def log_weights(rows):
        counts = true_counts(workload.groups[0], Records.from_rows(DOMAIN, rows))
        plain = repeats * counts - public_rows * np.array([1, 2, 0])
        if kind is Candidates.ABSOLUTE:
            return np.abs(plain)
        return np.concatenate([plain, repeats * (len(rows) - public_rows) - plain])

    if neighbours is Neighbours.REPLACE:
        pairs = [np.vstack([np.delete(base, i, axis=0), u]) for i in range(4) for u in universe]
    else:
        pairs = [np.vstack([base, u]) for u in universe] + [np.delete(base, i, axis=0) for i in range(4)]
    moved = [log_weights(other) - log_weights(base) for other in pairs]
    widest = max(np.ptp(difference) for difference in moved)
    curator, ledger, _ = curator_of(budget(neighbours=neighbours))
    curator.select(scores(kind), rate=Rate(1 << 40, 40), public_rows=public_rows, draws=1)
    (event,) = ledger.events
    charged = event.range / Rate(1 << 40, 40).nats  # in units of score
    assert widest <= charged
    assert charged <= widest + 1e-6 or kind is Candidates.ABSOLUTE  # and no more than needed


def test_the_first_round_is_free():
    curator, ledger, _ = curator_of(budget())
    first = PublicScores(0, 60, np.zeros(3, np.int32), Candidates.SIGNED)
    curator.select(first, rate=Rate.below(0.01, 1000), public_rows=60, draws=7)
    assert ledger.events == ()


def test_what_cannot_be_paid_is_not_drawn():
    curator, ledger, entropy = curator_of(budget(0.001))
    with pytest.raises(BudgetError):
        curator.select(scores(), rate=Rate.below(1, 1000), public_rows=60, draws=7)
    with pytest.raises(BudgetError):
        curator.measure(marginals(DOMAIN, 1).groups[0], noise=Gaussian(Fraction(1)))
    assert ledger.events == ()
    assert entropy.charged_at_first_draw is None


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.PURE])
def test_measure_charges_the_sensitivity_of_the_group(neighbours, accounting):
    curator, ledger, entropy = curator_of(budget(neighbours=neighbours, accounting=accounting))
    group = marginals(DOMAIN, 2).groups[0]
    changed = Fraction(3 * (2 if neighbours is Neighbours.REPLACE else 1))
    if accounting is Accounting.ZCDP:
        noisy = curator.measure(group, noise=Gaussian(Fraction(9)))
        assert ledger.events == (GaussianMeasurement(sensitivity_squared=changed, variance=Fraction(9)),)
    else:
        noisy = curator.measure(group, noise=Laplace(Fraction(2)))
        assert ledger.events == (LaplaceMeasurement(sensitivity=changed, scale=Fraction(2)),)
    assert entropy.charged_at_first_draw == 1
    assert noisy.dtype == np.int64
    assert np.abs(noisy - true_counts(group, records())).max() < 40


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_changed_queries_against_brute_force(neighbours):
    universe = np.array([(a, b, c) for a in range(2) for b in range(2) for c in range(3)])
    groups = [
        from_texts(DOMAIN, TEXTS).groups[0],
        marginals(DOMAIN, 2).groups[0],
        Tables(DOMAIN, ((), (0,), (0, 1, 2))),
        parities(Domain(DOMAIN.columns[:2]), 2).groups[0],
    ]
    for group in groups:
        width = group.domain.width
        counts = [true_counts(group, Records.from_rows(group.domain, u[None, :width])) for u in universe]
        replaced = [np.abs(x - y) for x in counts for y in counts]
        moves = replaced if neighbours is Neighbours.REPLACE else counts
        assert max(move.max() for move in moves) <= 1
        assert max(move.sum() for move in moves) <= changed_queries(group, neighbours)


def test_noise_is_fresh():
    curator, _, _ = curator_of(budget())
    group = marginals(DOMAIN, 1).groups[0]
    first = curator.measure(group, noise=Gaussian(Fraction(1000)))
    assert not np.array_equal(first, curator.measure(group, noise=Gaussian(Fraction(1000))))


def test_an_empty_table_is_refused():
    empty = Records.from_rows(DOMAIN, np.zeros((0, 3), int))
    with pytest.raises(DataError, match="no rows"):
        Curator(empty, from_texts(DOMAIN, TEXTS), Ledger(budget()), SeededEntropy(0))
