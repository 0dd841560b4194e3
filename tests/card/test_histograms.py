"""A distribution on the card is the processor's but for the last digits of its sums."""

from __future__ import annotations

import numpy as np
import pytest

import dualquery.beliefs.cuda
import dualquery.beliefs.histogram
from dualquery.beliefs.cuda import CardHistogram, CardHistograms
from dualquery.beliefs.factored import Factored
from dualquery.beliefs.histogram import Histogram, believing_with
from dualquery.card import CardError
from dualquery.table.domain import Domain, Items


def both(sizes: tuple[int, ...], made: CardHistograms) -> tuple[Histogram, Histogram]:
    attributes = tuple(range(len(sizes)))
    on_card = made(attributes, sizes)
    assert isinstance(on_card, CardHistogram)
    return on_card, Histogram(attributes, sizes)


def broken(*given: object) -> None:
    raise CardError("the GPU gave up")


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (dualquery.beliefs.histogram, dualquery.beliefs.cuda):
        monkeypatch.setattr(module, "SERIAL_CELLS", 8)
    monkeypatch.setattr(dualquery.beliefs.histogram, "ROW_CELLS", 32)
    dualquery.beliefs.histogram._classes.cache_clear()
    dualquery.beliefs.histogram._pruned_steps.cache_clear()


@pytest.mark.usefixtures("any_card")
@pytest.mark.parametrize("sizes", [(2,) * 9, (3, 4, 2, 5, 2), (7, 40)], ids=str)
@pytest.mark.parametrize("fails", [None, "kernels", "later"])
def test_the_cells_are_those_of_the_processor(
    sizes: tuple[int, ...], fails: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, rng = CardHistograms(), np.random.default_rng(0)
    if fails == "kernels":
        monkeypatch.setattr(dualquery.beliefs.cuda, "kernels", broken)
    found, expected = both(sizes, made)
    for turn in range(6):
        if fails == "later" and turn == 4:
            monkeypatch.setattr(dualquery.beliefs.cuda, "kernels", broken)
        members = tuple(sorted(rng.choice(len(sizes), 2, replace=False).tolist()))
        factors = rng.random([sizes[j] for j in members]) * (1e60 if turn == 2 else 1.0)
        mass = float((expected.marginal(members) * factors).sum())
        if turn % 2:  # by a snapshot, which stays as it is
            before = found.probabilities()
            lent, found = found, found.multiplied(members, factors, mass=mass)
            expected = expected.multiplied(members, factors, mass=mass)
            np.testing.assert_allclose(lent.probabilities(), before, rtol=1e-12)
        else:
            found.multiply(members, factors, mass=mass)
            expected.multiply(members, factors, mass=mass)
        for asked in ((), members, (len(sizes) - 1,), tuple(range(len(sizes)))[:3]):
            np.testing.assert_allclose(found.marginal(asked), expected.marginal(asked), rtol=1e-12)
        ours, theirs = found.survival(2), expected.survival(2)
        np.testing.assert_allclose(ours.table, theirs.table, rtol=1e-11)
        np.testing.assert_allclose(found.glimpse(members), expected.glimpse(members), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found.probabilities(), expected.probabilities(), rtol=1e-11)
    drawn = [each.sample(50, np.random.default_rng(1)) for each in (found, expected)]
    np.testing.assert_array_equal(*drawn)
    assert made.said == (["the GPU gave up; a distribution was kept by the processor"] if fails else [])


@pytest.mark.usefixtures("any_card")
def test_whole_domains_are_believed_on_the_card() -> None:
    domain = Domain((Items("x", 9),))
    with believing_with(CardHistograms()):
        whole = Factored.explicit(domain)
    assert isinstance(whole.part(0), CardHistogram)
    whole.multiply((0, 3), np.array([[1.0, 2.0], [3.0, 4.0]]), mass=2.5)
    plain = Factored.explicit(domain)
    plain.multiply((0, 3), np.array([[1.0, 2.0], [3.0, 4.0]]), mass=2.5)
    np.testing.assert_allclose(whole.marginal((0, 3)), plain.marginal((0, 3)), rtol=1e-13)
