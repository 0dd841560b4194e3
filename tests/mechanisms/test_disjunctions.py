"""Disjunctions: polynomials, basis, weights over monomials, parities by order, baskets, refusals."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from dualquery.beliefs.multiplicative_weights import Schedule, StepSize
from dualquery.beliefs.universes import SignedMonomials
from dualquery.counting import MemoryCounter
from dualquery.errors import DualQueryError
from dualquery.game import Heard
from dualquery.kinds import choose
from dualquery.mechanisms.artefact import BareAnswers, MeasuredParities, SignedRows
from dualquery.mechanisms.mechanism import Outcome, Task
from dualquery.mechanisms.monomials import (
    chebyshev_degree,
    chebyshev_or,
    incidence_of,
    least_degree,
    minimax_or,
    number_of_functions,
)
from dualquery.mechanisms.parities import shrunk, towards_zero
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import attributes_of_disjunctions, disjunctions, from_spec, from_texts
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records
from dualquery.types import silent

ITEMS = Domain((Items("item", 12),))
MIXED = Domain((Categorical("a", ("x", "y", "z")), Categorical("b", ("no", "yes")), Items("item", 4)))
WIDE = Domain((Items("item", 250),))
BUDGET = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)


def held(domain: Domain, rows: int = 20_000, often: float = 0.5) -> Records:
    """Items of falling popularity; every third follows the one before."""
    rng = np.random.default_rng(0)
    chance = often / np.arange(1, domain.width + 1) ** 0.7
    out = rng.random((rows, domain.width)) < chance
    for j in range(2, domain.width, 3):
        out[:, j] = np.where(rng.random(rows) < 0.5, out[:, j - 1], out[:, j])
    return Records.from_rows(domain, out.astype(int))


def ran(name: str, records: Records, workload: Workload, **options: object) -> Outcome:
    plan = MECHANISMS[name].plan_for(Task(workload, records.rows, BUDGET), options)
    entropy = SeededEntropy(0)
    curator = Curator(MemoryCounter(records), Ledger(BUDGET), entropy)
    return MECHANISMS[name].run(plan, curator, entropy.public_generator(), silent)


def errors(outcome: Outcome, workload: Workload, records: Records) -> np.ndarray:
    assert outcome.answers is not None
    return np.abs(outcome.answers - workload.fractions(records))


# ── Polynomials ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_minimax_table() -> None:
    degrees = {k: least_degree(k).degree for k in (2, 3, 4, 6, 8, 12, 16, 32)}
    assert degrees == {2: 2, 3: 3, 4: 4, 6: 6, 8: 7, 12: 8, 16: 10, 32: 14}
    assert all(chebyshev_degree(k) >= degree for k, degree in degrees.items())


@pytest.mark.parametrize(("k", "degree"), [(5, 3), (8, 4), (12, 6), (20, 9)])
def test_no_polynomial_is_better(k: int, degree: int) -> None:
    """The error equioscillates at degree + 2 points, which no other polynomial of the degree can beat."""
    found = minimax_or(k, degree)
    wrong = np.array(found.values) - (np.arange(k + 1) > 0)
    assert np.abs(np.diff(found.values, degree + 1)).max() < 1e-7  # it is one of this degree
    extreme = np.flatnonzero(np.abs(wrong) > found.error * (1 - 1e-6))
    turns = 1 + int((np.diff(np.sign(wrong[extreme])) != 0).sum())
    assert turns >= degree + 2
    assert chebyshev_or(k, degree).error >= found.error - 1e-12


def test_coefficients_are_those_of_monomials() -> None:
    """r(Σ y) = Σ_j c_j Σ_{|U| = j} Π_U y on every y."""
    found = minimax_or(8, 4)
    for ones in range(9):
        value = sum(c * comb(ones, j) for j, c in enumerate(found.coefficients))
        assert value == pytest.approx(found.values[ones], abs=1e-9)
    assert minimax_or(3, 3).weight(50) == pytest.approx(sum(comb(50, j) for j in (1, 2, 3)))


# ── The basis ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("blocks", [1, 2, 3, 6])
def test_every_record_is_a_combination_of_the_basis(blocks: int) -> None:
    """With the coefficients of an exact polynomial, the functions of a record answer all its disjunctions."""
    k, d = 3, 6
    queries = np.array(list(combinations(range(d), k)), np.int32)
    incidence = incidence_of(queries, blocks, k)
    assert incidence.number <= number_of_functions(d, blocks, k)
    basis = np.zeros((len(queries), incidence.number))
    for q in range(len(queries)):
        basis[q, incidence.functions[incidence.start[q] : incidence.start[q + 1]]] = 1
    for record in product((0, 1), repeat=d):
        truth = np.array(record)[queries].max(axis=1).astype(float)
        solved, *_ = np.linalg.lstsq(basis, truth, rcond=None)
        np.testing.assert_allclose(basis @ solved, truth, atol=1e-9)


def test_a_step_makes_the_measurement_true() -> None:
    queries = np.array(list(combinations(range(6), 3)), np.int32)
    learner = SignedMonomials(
        incidence_of(queries, 6, 3), weight=41.0, schedule=Schedule(StepSize.FULL, 1, 0.0)
    )
    asked = disjunctions(Domain((Items("x", 6),)), 3)
    assert np.abs(learner.snapshot().answers(asked)).max() < 1e-12
    learner.hear(Heard(7, 0.63))
    assert learner.snapshot().answers(asked)[7] == pytest.approx(0.63, abs=1e-9)
    learner.hear(Heard(3, 0.2))
    assert learner.snapshot().answers(asked)[3] == pytest.approx(0.2, abs=1e-9)


# ── Parities ────────────────────────────────────────────────────────────────────────────────────────────────────


TEXTS = from_texts(
    MIXED, ["item[1] | item[3] | b = yes", "item[2] & !item[4]", "b = no", "!(item[1] & item[2] & item[3])"]
)


@pytest.mark.parametrize(
    "workload", [TEXTS, disjunctions(ITEMS, 3), from_spec(ITEMS, "parities:2 + random:3:40")]
)
def test_the_expansion_is_exact(workload: Workload) -> None:
    domain = workload.domain
    rng = np.random.default_rng(1)
    rows = (rng.random((500, domain.width)) * domain.sizes).astype(int)
    records = Records.from_rows(domain, rows)
    signed = SignedRows.of(workload)
    sign = 1 - 2 * rows
    measured = {}
    for order in range(1, signed.order + 1):
        sets = signed.sets(order)
        measured[order] = MeasuredParities(sets, sign[:, sets].prod(axis=2).mean(axis=0), 1e-9)
    np.testing.assert_allclose(signed.answers(measured), workload.fractions(records), atol=1e-12)
    shrunken = shrunk(measured, domain.width)  # next to no noise: nothing to shrink
    np.testing.assert_allclose(signed.answers(shrunken), workload.fractions(records), atol=1e-6)


def test_shrinking_helps_and_keeps_what_is_clear() -> None:
    rng = np.random.default_rng(2)
    truth = np.where(rng.random(4000) < 0.1, rng.normal(0, 5, 4000), 0.0)
    noisy = truth + rng.normal(0, 1, 4000)
    told = towards_zero(noisy, 1.0)
    assert ((told - truth) ** 2).mean() < 0.5 * ((noisy - truth) ** 2).mean()
    assert abs(towards_zero(np.append(noisy, 60.0), 1.0)[-1] - 60) < 0.5


def test_parities_beat_the_weights_over_monomials_and_independent_noise() -> None:
    records, workload = held(ITEMS), disjunctions(ITEMS, 3)
    parities = ran("parities", records, workload)
    learned = ran("monomials", records, workload, rounds=100)
    independent = ran("gaussian", records, workload)
    mean = {name: errors(each, workload, records).mean() for name, each in
            {"parities": parities, "monomials": learned, "gaussian": independent}.items()}  # fmt: skip
    assert mean["parities"] < mean["monomials"]
    assert mean["parities"] < mean["gaussian"]
    assert isinstance(parities.artefact, BareAnswers)
    inside = np.abs(parities.artefact.values - workload.fractions(records)) <= parities.artefact.half_widths
    assert inside.mean() > 0.9


def test_blocks_weigh_less_and_learn_as_well() -> None:
    records, workload = held(ITEMS), disjunctions(ITEMS, 3)
    weights = []
    for blocks in (12, 6, 3):
        task = Task(workload, records.rows, BUDGET)
        weights.append(MECHANISMS["monomials"].plan_for(task, {"blocks": blocks}).parameters.weight)
    assert weights == sorted(weights, reverse=True)
    assert errors(ran("monomials", records, workload, rounds=60, blocks=4), workload, records).mean() < 0.05


def test_wide_baskets_are_measured_by_items() -> None:
    records, workload = held(WIDE, often=0.3), disjunctions(WIDE, 3, 5_000, seed=1)
    outcome = ran("parities", records, workload)
    independent = ran("gaussian", records, workload)
    assert errors(outcome, workload, records).mean() < errors(independent, workload, records).mean()


def test_what_is_chosen() -> None:
    """Projection, but for disjunctions over very many items."""
    for workload, name in [
        (disjunctions(ITEMS, 3), "projection"),
        (disjunctions(WIDE, 3, 5_000), "parities"),
        (from_spec(WIDE, "random:3:5000"), "projection"),
    ]:
        assert choose(Task(workload, 20_000, BUDGET), {}).mechanism == name


# ── What is asked, and what is refused ──────────────────────────────────────────────────────────────────────────


def test_families_of_disjunctions() -> None:
    workload = from_spec(ITEMS, "disjunctions:3")
    assert workload.size == comb(12, 3)
    assert workload.text(0) == "item[1] | item[2] | item[3]"
    assert workload.digest() == disjunctions(ITEMS, 3).digest()
    assert from_spec(ITEMS, "disjunctions:2:50:7").size == 50
    again = from_texts(ITEMS, list(workload.texts()))
    np.testing.assert_array_equal(attributes_of_disjunctions(again), attributes_of_disjunctions(workload))


@pytest.mark.parametrize(
    ("name", "domain", "texts", "options", "words"),
    [
        ("monomials", ITEMS, ["item[1] | item[2] | item[3]"], {"widest": 2}, "wider than 2"),
        ("parities", ITEMS, ["item[1] | item[2] | item[3]"], {"widest": 2}, "wider than 2"),
        ("monomials", ITEMS, ["item[1] & item[2]"], {}, "'item\\[1\\] & item\\[2\\]' is not one"),
        ("monomials", MIXED, ["a = x | b = yes"], {}, "is not one"),
        ("parities", MIXED, ["a = x | b = yes"], {}, "'a' is not"),
        ("monomials", ITEMS, ["item[1] | item[2]"], {"degree": 3}, "--degree lies between 1 and the 2"),
        ("monomials", ITEMS, ["item[1] | item[2]"], {"blocks": 5}, "--blocks lies between"),
        ("monomials", ITEMS, ["item[1] | item[2]"], {"rounds": 0}, "at least one round"),
        ("parities", ITEMS, ["item[1] | item[2]"], {"rounds": 5}, "means nothing"),
    ],
)
def test_what_cannot_be_played_is_refused_before_anything_is_charged(
    name: str, domain: Domain, texts: list[str], options: dict[str, object], words: str
) -> None:
    task = Task(from_texts(domain, texts), 1000, BUDGET)
    with pytest.raises(DualQueryError, match=words):
        MECHANISMS[name].plan_for(task, options)
