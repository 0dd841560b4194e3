"""Mirror maps against their definition, and the implicit learner against one that holds the universe."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dualquery.beliefs.euclidean import SPREADS, Covariances, ImplicitEuclidean, ProductBase
from dualquery.beliefs.factored import Products
from dualquery.beliefs.multiplicative_weights import (
    Euclidean,
    MirrorDescent,
    MirrorMap,
    NegativeEntropy,
    PNorm,
    Schedule,
    StepSize,
)
from dualquery.errors import DualQueryError
from dualquery.game import Heard, TableQuery
from dualquery.queries.families import from_spec, from_texts
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records

MAPS: list[MirrorMap] = [NegativeEntropy(), Euclidean(), PNorm(1.1), PNorm(1.5), PNorm(1.9)]
MIXED = Domain((Categorical("a", ("x", "y", "z")), Categorical("b", ("no", "yes")), Items("item", 3)))


def distance(mirror: MirrorMap, to: np.ndarray, dual: np.ndarray) -> float:
    """ψ(w) − ⟨θ, w⟩, which the projection makes least."""
    if isinstance(mirror, NegativeEntropy):
        value = float((to * np.log(np.maximum(to, 1e-300))).sum())
    else:
        p = mirror.p if isinstance(mirror, PNorm) else 2.0
        value = 0.5 * float((to**p).sum()) ** (2 / p)
    return value - float(dual @ to)


@pytest.mark.parametrize("mirror", MAPS, ids=repr)
def test_the_way_back_is_the_bregman_projection(mirror: MirrorMap) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        weights = rng.dirichlet(np.ones(7))
        dual = mirror.dual(weights) + 0.3 * rng.normal(size=7)
        nearest = mirror.primal(dual)
        assert nearest.sum() == pytest.approx(1, abs=1e-12)
        assert nearest.min() >= 0
        least = distance(mirror, nearest, dual)
        others = rng.dirichlet(np.full(7, 0.5), 200)
        near = 0.99 * nearest + 0.01 * others
        assert all(distance(mirror, other, dual) >= least - 1e-9 for other in (*others, *near))


@pytest.mark.parametrize("mirror", MAPS, ids=repr)
def test_there_and_back_again(mirror: MirrorMap) -> None:
    weights = np.random.default_rng(1).dirichlet(np.ones(50))
    np.testing.assert_allclose(mirror.primal(mirror.dual(weights)), weights, atol=1e-9)


@pytest.mark.parametrize("mirror", MAPS, ids=repr)
def test_measured_answers_are_reached(mirror: MirrorMap) -> None:
    """Consistent answers without noise are fitted by every map, from whatever order they come in."""
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.full(48, 0.5)).reshape(3, 2, 2, 2, 2)
    learner = MirrorDescent(MIXED, mirror, schedule=Schedule(StepSize.FULL, 200, 1e-7), floor=1e-9)
    heard = []
    for members in [(0, 1), (1, 2), (0, 4), (2, 3)]:
        table = truth.sum(axis=tuple(j for j in range(5) if j not in members))
        for cell in np.ndindex(table.shape):
            query = np.zeros(table.shape)
            query[cell] = 1.0
            heard.append(Heard(TableQuery(members, query), float(table[cell])))
    for each in heard:
        learner.hear(each)
    found = learner.snapshot()
    for each in heard:
        assert float((each.what.cells * found.marginal(each.what.members)).sum()) == pytest.approx(
            float(each.value), abs=2e-4
        )


def test_a_norm_out_of_range_is_refused() -> None:
    with pytest.raises(DualQueryError, match=r"between 1\.01 and 1\.99"):
        PNorm(2.5)


# ── Without holding the universe ────────────────────────────────────────────────────────────────────────────────


def universe(domain: Domain) -> Records:
    return Records.from_rows(domain, np.array(list(product(*map(range, domain.sizes.tolist())))))


def values_on(workload: Workload, records: Records) -> np.ndarray:
    """Every query on every record."""
    rows = records.to_rows().astype(np.int32)
    out = np.zeros((workload.size, len(rows)))
    for r, row in enumerate(rows):
        answers = []
        for group in workload.groups:
            mine = np.zeros(group.size, np.int32)
            group.add_answers(row, mine)
            answers.append(mine)
        out[:, r] = np.concatenate(answers)
    return out


def base_of(domain: Domain) -> tuple[ProductBase, np.ndarray]:
    rng = np.random.default_rng(3)
    ones = {j: rng.dirichlet(np.ones(int(k))) for j, k in enumerate(domain.sizes) if j != 3}
    rows = universe(domain).to_rows()
    base = ProductBase(ones)
    weights = np.prod([base.of(j, int(k))[rows[:, j]] for j, k in enumerate(domain.sizes)], axis=0)
    return base, weights


WORKLOAD = from_spec(MIXED, "random:3:25:1 + marginals:2")
PARITIES = from_spec(Domain((Items("item", 5),)), "parities:3")
TEXTS = from_texts(MIXED, ["item[1] | item[3]", "!(a = x & b = yes)", "a in {x, y} & item[2]"])


@pytest.mark.parametrize("workload", [WORKLOAD, PARITIES, TEXTS], ids=["conjunctions", "parities", "texts"])
def test_covariances_are_those_of_the_whole_universe(workload: Workload) -> None:
    base, weights = base_of(workload.domain)
    values = values_on(workload, universe(workload.domain))
    covariances = Covariances(base, Products.of(workload))
    mean = values @ weights
    np.testing.assert_allclose(covariances.means, mean, atol=1e-12)
    whole = (values * weights) @ values.T - np.outer(mean, mean)
    np.testing.assert_allclose(covariances.variances, np.diag(whole), atol=1e-12)
    for query in range(workload.size):
        np.testing.assert_allclose(covariances.with_query(query), whole[query], atol=1e-12)


def test_the_implicit_learner_is_the_explicit_one() -> None:
    """Against a density over all cells, at every place and for queries that were never asked."""
    base, weights = base_of(MIXED)
    variance = 1e-4
    learner = ImplicitEuclidean(WORKLOAD, base, variance=variance)
    rng = np.random.default_rng(4)
    chosen = [*rng.choice(WORKLOAD.size, 8, replace=False).tolist(), 3, 3]
    told = rng.random(len(chosen))
    for query, value in zip(chosen, told, strict=True):
        learner.hear(Heard(query, value))
    density = learner.snapshot()
    cells = universe(MIXED)
    values = values_on(WORKLOAD, cells)
    mean = values @ weights
    centred = values[chosen] - mean[chosen][:, None]
    gram = (centred * weights) @ centred.T
    spread = density._spread()
    assert spread in SPREADS
    c = spread * np.linalg.solve(spread * gram + variance * np.eye(len(chosen)), told - mean[chosen])
    written_out = weights * (1 + c @ centred)
    np.testing.assert_allclose(density.answers(WORKLOAD), values @ written_out, atol=1e-10)
    np.testing.assert_allclose(density.answers(TEXTS), values_on(TEXTS, cells) @ written_out, atol=1e-10)
    np.testing.assert_allclose(
        density.answers(from_spec(MIXED, "random:3:25:1 + marginals:2")),
        density.answers(WORKLOAD),
        atol=1e-10,
    )


def test_what_was_measured_is_known_better() -> None:
    base, _ = base_of(MIXED)
    learner = ImplicitEuclidean(WORKLOAD, base, variance=1e-6)
    before = learner.snapshot().variances()
    learner.hear(Heard(0, float(learner.snapshot().answers(WORKLOAD)[0]) + 0.01))
    density = learner.snapshot()
    after = density.variances()
    assert after[0] < 1e-5 < before[0]
    assert (after <= density._spread() * before + 1e-12).all()
