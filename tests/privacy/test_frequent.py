"""Frequent texts: the threshold against the exact law of the noise, and what the curator pays and says."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest

from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError, DualQueryError
from dualquery.privacy.budget import Accounting, Budget, Neighbours, PersonAddRemove, PersonReplace
from dualquery.privacy.curator import Curator, threshold
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian
from dualquery.queries.statistics import TextCounts
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records


@cache
def tails(variance: Fraction) -> list[mpmath.mpf]:
    """P(N ≥ x) of discrete Gaussian noise for x = 0, 1, 2, …, summed."""
    with mpmath.workdps(30):
        twice = 2 * mpmath.mpf(variance.numerator) / variance.denominator
        weight = [mpmath.exp(-(x**2) / twice) for x in range(int(14 * float(variance) ** 0.5) + 40)]
        whole = 2 * mpmath.fsum(weight) - 1
        return [mpmath.fsum(weight[least:]) / whole for least in range(len(weight))]


def tail(noise: Gaussian, least: int) -> mpmath.mpf:
    return tails(noise.variance)[least] if least >= 0 else 1 - tails(noise.variance)[1 - least]


def partitions(total: int, most: int) -> Iterator[tuple[int, ...]]:
    """All ways in which some records can be several texts."""
    if total == 0:
        yield ()
        return
    for first in range(min(total, most), 0, -1):
        for rest in partitions(total - first, first):
            yield (first, *rest)


@pytest.mark.parametrize("failure", [Fraction(1, 10**3), Fraction(1, 10**8)])
@pytest.mark.parametrize("records", [1, 2, 5])
@pytest.mark.parametrize("variance", [Fraction(1), Fraction(30), Fraction(401, 2)])
@pytest.mark.parametrize("times", [1, 4])
def test_what_only_one_table_holds_is_shown_with_the_probability_charged(
    failure: Fraction, records: int, variance: Fraction, times: int
) -> None:
    noise = Gaussian(variance)
    least = threshold(noise, records=records, failure=failure, times=times)
    with mpmath.workdps(30):
        shown = max(
            mpmath.fsum(tail(noise, least - times * held + 1) for held in texts)
            for size in range(1, records + 1)
            for texts in partitions(size, size)
        )
        assert shown <= mpmath.mpf(failure.numerator) / failure.denominator
        # and it is no larger than it must be: a standard deviation less would not do
        lower = least - int(2 * noise.deviation) - 2
        assert (
            max(
                mpmath.fsum(tail(noise, lower - times * held + 1) for held in texts)
                for texts in partitions(records, records)
            )
            > mpmath.mpf(failure.numerator) / failure.denominator
        )


@pytest.mark.parametrize("failure", [Fraction(0), Fraction(1, 2), Fraction(-1)])
def test_a_probability_that_is_none_is_refused(failure: Fraction) -> None:
    with pytest.raises(DualQueryError, match="between 0 and a half"):
        threshold(Gaussian(Fraction(4)), records=1, failure=failure)


COLUMN = Domain((Categorical("word", ("absent", "common", "rare", "usual")),))
TABLE = Records(COLUMN, 1301, (np.repeat(np.array([1, 2, 3], np.uint8), [900, 1, 400]),))
NOISE, FAILURE = Gaussian(Fraction(25)), Fraction(1, 10**6)


def curator(
    relation: Neighbours = Neighbours.REPLACE, failure: Fraction = FAILURE, epsilon: float = 5
) -> Curator:
    budget = Budget(epsilon, 1e-6, relation, Accounting.ZCDP)
    return Curator(MemoryCounter(TABLE), Ledger(budget, failure=failure), SeededEntropy(5))


def test_texts_above_the_threshold_are_said_with_noise_and_no_others() -> None:
    found = curator().frequent("word", noise=NOISE, times=1, failure=FAILURE)
    assert list(found) == ["common", "usual"]
    assert 0 < abs(found["common"] - 900) < 40
    doubled = curator().frequent("word", noise=NOISE, times=2, failure=FAILURE)
    assert abs(doubled["common"] - 1800) < 40


def test_a_text_that_lies_at_the_threshold_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gaussian, "draw", lambda self, count, entropy: np.zeros(count, np.int64))
    for at, shown in ((400, ["common"]), (399, ["common", "usual"]), (900, [])):
        monkeypatch.setattr("dualquery.privacy.curator.threshold", lambda *_, at=at, **__: at)
        assert list(curator().frequent("word", noise=NOISE, times=1, failure=FAILURE)) == shown


def test_texts_that_do_not_occur_get_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def draw(self: Gaussian, count: int, entropy: object) -> np.ndarray:
        drawn.append(count)
        return np.full(count, 10_000)

    monkeypatch.setattr(Gaussian, "draw", draw)
    assert list(curator().frequent("word", noise=NOISE, times=1, failure=FAILURE)) == [
        "common",
        "rare",
        "usual",
    ]
    assert drawn == [3]


@pytest.mark.parametrize("relation", [Neighbours.REPLACE, Neighbours.ADD_REMOVE, PersonReplace(3)])
def test_the_measurement_is_charged_as_a_histogram(relation: Neighbours) -> None:
    asking = curator(relation, epsilon=20)
    asking.frequent("word", noise=NOISE, times=2, failure=FAILURE)
    (event,) = asking.ledger.events
    assert event == NOISE.event(relation.sensitivity(TextCounts("word").bound().times(2)))


@pytest.mark.parametrize(
    ("failure", "epsilon"),
    [(FAILURE / 2, 5), (FAILURE, 0.001)],
    ids=["too much is risked", "too little is left"],
)
def test_nothing_is_counted_that_is_not_paid_for(
    failure: Fraction, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = curator(failure=failure, epsilon=epsilon)
    monkeypatch.setattr(MemoryCounter, "true_counts", lambda *_: pytest.fail("counted"))
    with pytest.raises(BudgetError, match="does not pay"):
        asking.frequent("word", noise=NOISE, times=1, failure=FAILURE)


def test_risks_add_up() -> None:
    ledger = Ledger(Budget(1, 1e-6, accounting=Accounting.ZCDP), failure=Fraction(3, 10**7))
    ledger.risk(Fraction(2, 10**7))
    with pytest.raises(BudgetError, match="this risk"):
        ledger.risk(Fraction(2, 10**7))
    ledger.risk(Fraction(1, 10**7))
    with pytest.raises(BudgetError, match="this risk"):
        ledger.risk(Fraction(1, 10**9))
    assert Ledger(Budget(1, 1e-6, accounting=Accounting.ZCDP)).failure == 0


@pytest.mark.parametrize(
    ("relation", "records"), [(Neighbours.REPLACE, 1), (PersonReplace(3), 3), (PersonAddRemove(3), 3)]
)
def test_the_threshold_is_that_of_the_relation(
    relation: Neighbours, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr("dualquery.privacy.curator.threshold", lambda _, **named: asked.append(named) or 0)
    curator(relation, epsilon=20).frequent("word", noise=NOISE, times=2, failure=FAILURE)
    assert asked == [{"records": records, "failure": FAILURE, "times": 2}]
