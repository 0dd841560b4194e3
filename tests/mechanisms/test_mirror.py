"""Mirror descent as a mechanism: on histograms, without them, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.counting import MemoryCounter
from dualquery.errors import DualQueryError
from dualquery.mechanisms.artefact import BareAnswers, SyntheticRecords
from dualquery.mechanisms.mechanism import Outcome, Task
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records
from dualquery.types import silent

BINARY = Domain((Items("item", 7),))
MIXED = Domain((Categorical("a", ("x", "y", "z")), Categorical("b", ("no", "yes")), Items("item", 3)))
WIDE = Domain((Items("item", 60),))
BUDGET = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)


def table(domain: Domain, rows: int = 20_000) -> Records:
    """Records whose attributes depend on each other."""
    rng = np.random.default_rng(0)
    mood = rng.random(rows)
    codes = [
        np.where(rng.random(rows) < 0.7, mood ** (1 + j % 3) * k, rng.integers(0, k, rows))
        for j, k in enumerate(domain.sizes)
    ]
    return Records.from_rows(domain, np.stack(codes, axis=1).astype(int))


def pairwise(rows: int = 20_000) -> Records:
    """Sixty items of which every tenth follows the one before."""
    rng = np.random.default_rng(0)
    held = rng.random((rows, 60)) < 0.3
    follows = np.arange(9, 60, 10)
    held[:, follows] = np.where(
        rng.random((rows, len(follows))) < 0.5, held[:, follows - 1], held[:, follows]
    )
    return Records.from_rows(WIDE, held.astype(int))


def ran(name: str, records: Records, workload: Workload, **options: object) -> Outcome:
    plan = MECHANISMS[name].plan_for(Task(workload, records.rows, BUDGET), options)
    entropy = SeededEntropy(0)
    curator = Curator(MemoryCounter(records), Ledger(BUDGET), entropy)
    return MECHANISMS[name].run(plan, curator, entropy.public_generator(), silent)


def error(answers: np.ndarray, workload: Workload, records: Records) -> float:
    return float(np.abs(answers - workload.fractions(records)).mean())


@pytest.mark.parametrize(
    "options",
    [{}, {"mirror_map": "entropy"}, {"mirror_map": "p-norm"}, {"mirror_map": "p-norm", "norm": 1.2}],
)
def test_every_map_learns(options: dict[str, object]) -> None:
    records, workload = table(BINARY), from_spec(BINARY, "marginals:3")
    outcome = ran("mirror", records, workload, rounds=30, **options)
    assert isinstance(outcome.artefact, SyntheticRecords)
    assert outcome.belief is not None
    uniform = error(np.full(workload.size, 1 / 8), workload, records)
    assert error(outcome.belief.answers(workload), workload, records) < uniform / 5


def test_entropy_is_mwem() -> None:
    """The same map, the same game: the same questions are asked, and the answers agree to the noise."""
    records, workload = table(BINARY), from_spec(BINARY, "marginals:3")
    ours = ran("mirror", records, workload, rounds=20, mirror_map="entropy").belief
    theirs = ran("mwem", records, workload, rounds=20).belief
    assert ours is not None
    assert theirs is not None
    both = (
        error(ours.answers(workload), workload, records),
        error(theirs.answers(workload), workload, records),
    )
    assert max(both) < 2 * min(both)


@pytest.mark.parametrize("mirror_map", ["entropy", "euclidean", "p-norm"])
def test_the_step_of_the_theorem_keeps_its_promise(mirror_map: str) -> None:
    """R L √(2/T), and what draws and noise add; the default promises nothing."""
    records, workload = table(BINARY, 200_000), from_spec(BINARY, "marginals:4")
    task = Task(workload, records.rows, BUDGET)
    options = {"rounds": 100, "mirror_map": mirror_map, "measured": "queries"}
    plan = MECHANISMS["mirror"].plan_for(task, {**options, "updates": "once"})
    squared, longest = {
        "entropy": (np.log(128), 1.0),
        "euclidean": (0.5, 8**0.5),
        "p-norm": (0.5 / 0.5, 8 ** (1 / 3)),
    }[mirror_map]
    step = (2 * squared / 100) ** 0.5
    assert plan.parameters.learning_rate == pytest.approx(step / longest)
    assert step * longest < plan.parameters.promised_error < step * longest + 0.02
    outcome = ran("mirror", records, workload, **options, updates="once")
    assert outcome.belief is not None
    wrong = np.abs(outcome.belief.answers(workload) - workload.fractions(records)).max()
    assert 0.05 * step < wrong < plan.parameters.promised_error
    assert MECHANISMS["mirror"].plan_for(task, options).parameters.promised_error is None


def test_tables_that_are_not_binary_are_played_cell_by_cell() -> None:
    records, workload = table(MIXED), from_spec(MIXED, "marginals:2")
    outcome = ran("mirror", records, workload, rounds=15, iterate="average")
    assert isinstance(outcome.artefact, SyntheticRecords)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mirror_map": "manhattan"}, "--mirror-map must be one of entropy, euclidean, p-norm"),
        ({"norm": 1.5}, "--norm is the p of --mirror-map p-norm"),
        ({"mirror_map": "p-norm", "norm": 2.5}, "between 1.01 and 1.99"),
        ({"measured": "tables"}, "measure queries or parities"),
        ({"rounds": 0}, "at least one round"),
        ({"updates": "figure-1"}, "figure-1 is MWEM's"),
        ({"updates": "once", "iterate": "last"}, "speaks of the average"),
    ],
)
def test_wishes_that_cannot_be_are_refused(options: dict[str, object], words: str) -> None:
    task = Task(from_spec(BINARY, "marginals:2"), 1000, BUDGET)
    with pytest.raises(DualQueryError, match=words):
        MECHANISMS["mirror"].plan_for(task, options)


def test_a_universe_that_cannot_be_held_is_refused_and_the_other_learner_named() -> None:
    task = Task(from_spec(WIDE, "random:3:50"), 1000, BUDGET)
    with pytest.raises(DualQueryError, match="use the mechanism 'euclidean'"):
        MECHANISMS["mirror"].plan_for(task, {})
    assert MECHANISMS["euclidean"].plan_for(task, {}).parameters.rounds >= 1


def test_the_implicit_learner_answers_where_no_histogram_fits() -> None:
    records, workload = pairwise(), from_spec(WIDE, "random:3:2000:1")
    outcome = ran("euclidean", records, workload, rounds=40)
    assert isinstance(outcome.artefact, BareAnswers)
    assert outcome.answers is not None
    truth = workload.fractions(records)
    independent = ran("gaussian", records, workload).answers
    assert independent is not None
    assert error(outcome.answers, workload, records) < error(independent, workload, records)
    held = np.abs(outcome.answers - truth) <= outcome.artefact.half_widths
    assert held.mean() > 0.85


def test_rows_where_rows_are_wanted() -> None:
    records, workload = table(MIXED), from_spec(MIXED, "random:3:40:1")
    outcome = ran("euclidean", records, workload, rounds=20, synthetic_rows=5_000)
    assert isinstance(outcome.artefact, SyntheticRecords)
    assert outcome.artefact.rows == 5_000
    assert outcome.belief is not None
    answers = outcome.artefact.fractions(workload.groups[0])
    assert float(np.abs(answers - outcome.belief.answers(workload)).mean()) < 0.01


def test_too_many_rounds_are_refused() -> None:
    task = Task(from_spec(WIDE, "random:3:50"), 1000, BUDGET)
    with pytest.raises(DualQueryError, match="1 to 2,000 rounds"):
        MECHANISMS["euclidean"].plan_for(task, {"rounds": 5_000})
