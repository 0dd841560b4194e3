"""DualQuery: what it charges, what it may look at, and that it gets better with budget."""

import math
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dualquery
from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError, DualQueryError
from dualquery.game import Challenge
from dualquery.mechanisms import dual_query as game
from dualquery.mechanisms.dual_query import DUAL_QUERY, clauses_of, dual_query, rehearsal, search_oracle
from dualquery.mechanisms.dual_query.parameters import (
    ROUNDS_MOST,
    Density,
    Learning,
    dual_query_pure,
    dual_query_rho,
    from_budget,
    from_theory,
    rate_of,
    round_steps,
    uniform,
)
from dualquery.mechanisms.mechanism import Task, affordable, shown
from dualquery.mechanisms.wishes import DualQueryWishes
from dualquery.oracles import value
from dualquery.oracles.program import Solver
from dualquery.privacy.budget import RELATIONS, Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_spec, from_texts, marginals, parities
from dualquery.queries.random_families import random_conjunctions
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain, Items, equal_width
from dualquery.table.records import Records
from dualquery.types import silent
from tests.house import budget

DOMAIN = Domain(
    (
        Categorical("a", ("0", "1")),
        Categorical("b", ("0", "1")),
        Categorical("c", ("x", "y", "z")),
        equal_width("d", 0, 10, 5),
        Items("item", 4),
    )
)


def table(rows=6000, seed=0):
    """Related attributes: c follows a, d follows c, items follow b."""
    rng = np.random.default_rng(seed)
    a, b = rng.random(rows) < 0.3, rng.random(rows) < 0.7
    c = np.where(a, rng.integers(0, 2, rows), 2)
    d = np.minimum(4, c + rng.integers(0, 2, rows))
    items = (rng.random((rows, 4)) < np.where(b[:, None], 0.6, 0.1)).astype(int)
    return Records.from_rows(DOMAIN, np.column_stack([a, b, c, d, items]).astype(int))


def play(records, workload, pays, seed=0, **options):
    plan = DUAL_QUERY.plan_for(Task(workload, records.rows, pays), options)
    entropy = SeededEntropy(seed)
    ledger = Ledger(pays)
    curator = Curator(MemoryCounter(records), ledger, entropy)
    outcome = DUAL_QUERY.run(plan, curator, entropy.public_generator(), silent)
    return plan, outcome, ledger


def errors(records, synthetic, workload):
    return np.abs(workload.fractions(records) - workload.fractions(synthetic))


@pytest.fixture(scope="module")
def records():
    return table()


@pytest.mark.parametrize("spec", ["random:3:2000", "marginals:2", "ranges:d:20"])
def test_answers_are_close_and_rows_are_valid(records, spec):
    workload = from_spec(DOMAIN, spec)
    plan, outcome, ledger = play(records, workload, budget())
    assert errors(records, outcome.artefact.records, workload).mean() < 0.03
    rows = outcome.artefact.records.to_rows()
    assert rows.shape == (plan.parameters.rounds, DOMAIN.width)
    assert np.all(rows < DOMAIN.sizes)
    assert ledger.spent().epsilon <= 1


def test_parities(records):
    binary = Domain((Items("item", 8),))
    rng = np.random.default_rng(0)
    codes = (rng.random((6000, 8)) < rng.random(8)).astype(int)
    codes[:, 1] = codes[:, 0]
    items = Records.from_rows(binary, codes)
    workload = parities(binary, 3)
    _, outcome, _ = play(items, workload, budget())
    assert errors(items, outcome.artefact.records, workload).mean() < 0.05


def test_more_budget_means_less_error(records):
    workload = random_conjunctions(DOMAIN, 3, 2000)
    mean = []
    for epsilon in (0.05, 0.5, 5):
        runs = [play(records, workload, budget(epsilon), seed)[1].artefact.records for seed in range(2)]
        mean.append(np.mean([errors(records, synthetic, workload).mean() for synthetic in runs]))
    assert mean[0] > mean[1] > mean[2]


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.PURE, Accounting.THEOREM_4_3])
def test_the_ledger_holds_exactly_the_planned_charges(records, neighbours, accounting):
    workload = random_conjunctions(DOMAIN, 3, 300)
    pays = budget(2.0, delta=1e-3, neighbours=neighbours, accounting=accounting)
    plan, _, ledger = play(records, workload, pays, free="random", samples=5)
    task, parameters = Task(workload, records.rows, pays), plan.parameters
    chosen = Learning(parameters.learning_rate, parameters.samples, parameters.rounds)
    steps = round_steps(task, chosen)
    assert plan.steps == tuple(steps)
    assert all(step.times == 1 for step in steps)
    assert ledger.events == tuple(step.event for step in steps)
    spent = ledger.spent()
    assert spent.epsilon <= 2.0
    closed = (Learning(chosen.learning_rate, 5, chosen.rounds), records.rows, neighbours)
    if accounting is Accounting.ZCDP:
        assert spent.rho_units / 1e12 == pytest.approx(float(dual_query_rho(*closed)), rel=1e-3)
    if accounting is Accounting.PURE:
        assert spent.epsilon == pytest.approx(float(dual_query_pure(*closed)), rel=1e-3)
    if chosen.rounds < ROUNDS_MOST:  # one more round would not have been paid for
        assert not affordable(pays, round_steps(task, chosen._replace(rounds=chosen.rounds + 1)))


def test_a_density_is_paid_for(records):
    workload = random_conjunctions(DOMAIN, 3, 300)
    _, _, ledger = play(records, workload, budget(), free="density")
    noise = [event for event in ledger.events if type(event).__name__ == "GaussianMeasurement"]
    assert len(noise) == 2  # binary attributes as queries, the others as tables
    total = Fraction(ledger.spent().rho_units, 10**12)
    assert float(sum(event.rho for event in noise) / total) == pytest.approx(0.1, rel=0.1)


def drawn_share(shares, deviation, seed, rows=1000):
    """How many ones a record gets on average, by noisy counts of binary attributes with these shares."""
    domain = Domain((Items("item", len(shares)),))
    noise = np.random.default_rng(seed).normal(0, deviation * rows, len(shares))
    draw = Density.of(domain).fallback([shares * rows + noise], rows=rows, deviation=deviation * rows)
    return np.mean([draw(np.random.default_rng(1000 * seed + i)).mean() for i in range(20)])


@pytest.mark.parametrize("seed", range(3))
def test_what_attributes_have_in_common_is_left_where_noise_hides_each(seed):
    rare = np.full(20_000, 0.001)
    assert drawn_share(rare, 0.35, seed) < 0.02  # cut off at twice that noise, 2.5% would be ones for certain
    assert drawn_share(np.full(4000, 0.5), 0.35, seed) == pytest.approx(0.5, abs=0.03)
    assert drawn_share(np.full(4000, 0.9), 0.35, seed) == pytest.approx(0.9, abs=0.03)
    mixed = np.repeat([0.05, 0.95], 2000)  # as much as each tells of itself is kept
    assert drawn_share(mixed, 0.2, seed) == pytest.approx(0.5, abs=0.05)
    assert 0.1 < drawn_share(np.full(3, 0.01), 10.0, seed) < 0.9  # nothing is known: a coin


def test_noise_that_hides_everything_leaves_the_table_as_equal_cells():
    domain = Domain((Categorical("a", tuple("pqrstuvw")),))
    density = Density.of(domain)
    counts = np.random.default_rng(0).normal(0, 5000, 8)
    draw = density.fallback([counts], rows=1000, deviation=5000)
    held = np.bincount([draw(np.random.default_rng(i))[0] for i in range(800)], minlength=8)
    assert held.min() > 50


def test_a_density_is_bought_where_it_tells_anything():
    few = Density.of(Domain((Items("item", 4),)))
    many = Density.of(Domain((Items("item", 10_000),)))
    mixed = Density.of(Domain((Items("item", 4), *(Categorical(f"c{j}", tuple("pqr")) for j in range(5)))))
    assert [each.guides(0.15 * 1000, 1000) for each in (few, many, mixed)] == [True, True, False]
    assert [each.guides(2 * 1000, 1000) for each in (few, many)] == [False, True]
    assert not many.guides(11 * 1000, 1000)


def test_the_plan_looks_at_no_record(records):
    """Two very different tables of one shape: the same plan."""
    workload = random_conjunctions(DOMAIN, 3, 300)
    other = Records.from_rows(DOMAIN, np.zeros((records.rows, DOMAIN.width), int))
    first = play(records, workload, budget())[0]
    second = play(other, workload, budget())[0]
    assert shown(first.parameters) == shown(second.parameters)
    assert first.steps == second.steps


def test_the_game_repeats_from_a_seed(records):
    workload = random_conjunctions(DOMAIN, 3, 300)
    rows = [play(records, workload, budget(), seed)[1].artefact.records.to_rows() for seed in (3, 3, 4)]
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_the_oracle_is_told_the_drawn_queries_only(records, monkeypatch):
    workload = random_conjunctions(DOMAIN, 3, 300)
    heard = []
    original = game.best_response

    def listening(clauses, fallback, *, rng):
        heard.append(clauses)
        return original(clauses, fallback, rng=rng)

    monkeypatch.setattr(game, "best_response", listening)
    play(records, workload, budget(), rounds=6, samples=20, recall=1)
    # The plan's rehearsal calls the oracle too; the last six calls are the game's.
    for clauses in heard[-6:]:
        assert np.abs(clauses.weights).sum() <= 20


class Repeating:
    """A curator who says what was said in another game, or, where nothing is left of that, what comes out."""

    def __init__(self, curator, said=()):
        self.curator = curator
        self.left = list(said)
        self.said = []

    def select(self, score, *, rate, draws=1):
        own = self.curator.select(score, rate=rate, draws=draws)
        self.said.append(self.left.pop(0) if self.left else own)
        return self.said[-1]


def test_the_data_player_is_told_queries_only(records):
    """The same challenges give the same replies on other data: nothing else reaches the data player."""
    workload = random_conjunctions(DOMAIN, 3, 300)
    other = Records.from_rows(DOMAIN, 1 - records.to_rows() % 2)

    def game_on(table, said=()):
        curator = Repeating(Curator(MemoryCounter(table), Ledger(budget()), SeededEntropy(0)), said)
        transcript = dual_query(
            curator,
            workload,
            rate=rate_of(1.0, 6, table.rows),
            samples=20,
            rounds=6,
            recall=1,
            public_rows=table.rows,
            oracle=search_oracle(workload),
            fallback=uniform(DOMAIN),
            rng=np.random.default_rng(0),
            progress=lambda done, total: None,
        )
        return transcript, curator.said

    first, said = game_on(records)
    second, _ = game_on(other, said)
    for here, there in zip(first.challenges, second.challenges, strict=True):
        assert np.array_equal(here.queries, there.queries)
        assert np.array_equal(here.weights, there.weights)
        assert np.abs(here.weights).sum() <= 20
    for here, there in zip(first.replies, second.replies, strict=True):
        assert np.array_equal(here, there)
    # Left to itself the other table asks otherwise, and is answered otherwise.
    alone, _ = game_on(other)
    assert any(
        not np.array_equal(here.queries, there.queries)
        for here, there in zip(first.challenges, alone.challenges, strict=True)
    )
    assert not np.array_equal(first.average_reply(), alone.average_reply())


def test_clauses_agree_with_the_queries():
    """Σ w q(x) over a challenge, by clauses and by the queries' own answers, up to complements."""
    rng = np.random.default_rng(1)
    texts = ["a = 1 & c = x", "!(a = 1 & c = y)", "a = 1 | d >= 4", "item[2] & !item[3]", "parity(a, b)"]
    mixed = from_texts(DOMAIN, texts)
    workload = marginals(DOMAIN, 2)
    for work in (mixed, workload):
        queries = np.arange(min(work.size, 40))
        weights = rng.integers(-5, 6, len(queries))
        clauses = clauses_of(work, Challenge(queries, weights))
        sums, values = [], []
        for _ in range(20):
            record = np.array([rng.integers(s) for s in DOMAIN.sizes], np.int32)
            answers = np.zeros(work.size, np.int32)
            for group, start in zip(work.groups, work.starts, strict=False):
                group.add_answers(record, answers[start : start + group.size])
            sums.append(int(weights @ answers[: len(queries)]))
            values.append(value(clauses, record))
        assert len(set(np.subtract(sums, values))) == 1  # equal up to one constant


def test_parameters_from_the_theory():
    workload = random_conjunctions(DOMAIN, 3, 1000)
    chosen = from_theory(Task(workload, 10**9, budget()), alpha=0.1, beta=0.05)
    assert chosen.rounds == math.ceil(16 * math.log(2000) / 0.01)
    assert chosen.learning_rate == pytest.approx(0.025)
    universe = DOMAIN.log2_size * math.log(2)
    assert chosen.samples == math.ceil(48 * (universe + math.log(2 * chosen.rounds / 0.05)) / 0.01)


def test_given_parameters_are_kept():
    task = Task(random_conjunctions(DOMAIN, 3, 1000), 100_000, budget())
    plan = DUAL_QUERY.plan_for(task, {"learning_rate": 0.7, "samples": 33})
    assert (plan.parameters.learning_rate, plan.parameters.samples) == (0.7, 33)
    plan = DUAL_QUERY.plan_for(task, {"rounds": 25, "samples": 200})
    assert (plan.parameters.rounds, plan.parameters.samples) == (25, 200)
    squeezed = DUAL_QUERY.plan_for(replace(task, rows=3000), {"rounds": 200, "samples": 400})
    assert 0 < squeezed.parameters.learning_rate < 1  # the learning rate gives way


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "--rounds"),
        ({"samples": 0}, "--samples"),
        ({"recall": 0}, "--recall"),
        ({"learning_rate": -1.0}, "--learning-rate"),
        ({"free": "maybe"}, "--free"),
        ({"oracle": "oracle"}, "--oracle"),
        ({"beta": 0.1}, "--alpha"),
        ({"alpha": 2.0}, "between 0 and 1"),
        ({"alpha": 0.1, "samples": 4}, "fix all parameters"),
        ({"alpha": 0.1, "recall": 4}, "fix all parameters"),
        ({"alpha": 0.01}, "raise --alpha"),
        ({"part_cells": 100}, "means nothing"),
        ({"rounds": 400, "samples": 10_000, "learning_rate": 50.0}, "cost more"),
    ],
)
def test_bad_options_are_told_in_a_sentence(options, words):
    task = Task(random_conjunctions(DOMAIN, 3, 1000), 20_000, budget())
    with pytest.raises(DualQueryError, match=words):
        DUAL_QUERY.plan_for(task, options)


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.PURE, Accounting.THEOREM_4_3])
@pytest.mark.parametrize("alpha", [0.01, 0.001])
def test_a_target_that_is_too_dear_is_refused_at_once(alpha, accounting):
    """By the theory 1.2 million rounds and more: they are priced in closed form, not listed one by one."""
    task = Task(random_conjunctions(DOMAIN, 3, 1000), 20_000, budget(accounting=accounting))
    task.workload.product_rows(np.zeros(1, np.int64))  # compiles, where it must
    began = time.perf_counter()
    with pytest.raises(DualQueryError, match="raise --alpha"):
        DUAL_QUERY.plan_for(task, {"alpha": alpha})
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.PURE, Accounting.THEOREM_4_3])
def test_the_rule_spends_the_budget_and_more_of_it_buys_no_worse_game(accounting):
    """From ε = 0.05 to 10: at least 95% spent, and η² T³ s, by which errors fall, rises with ε."""
    workload, bought = random_conjunctions(DOMAIN, 3, 300), []
    for epsilon in (0.05, 0.1, 0.3, 1, 3, 10):
        pays = budget(epsilon, delta=1e-3, accounting=accounting)
        task = Task(workload, 30_000, pays)
        learning = from_budget(task, DualQueryWishes(), reserved=())
        ledger = Ledger(pays)
        for step in round_steps(task, learning):
            ledger.charge(step.event)
        assert 0.95 * epsilon <= ledger.spent().epsilon <= epsilon
        bought.append((learning.rounds, learning.learning_rate**2 * learning.rounds**3 * learning.samples))
    assert bought == sorted(bought)


def test_rounds_that_end_before_the_budget_are_told():
    """Few decisions, many records, a large budget: neither rounds nor rate nor samples take it all."""
    task = Task(random_conjunctions(DOMAIN, 3, 300), 10**8, budget(10))
    learning = from_budget(task, DualQueryWishes(), reserved=())
    assert learning == Learning(1.0, 3 * task.workload.decisions, ROUNDS_MOST)
    capped = DUAL_QUERY.plan_for(task, {"rounds": 30})
    assert (capped.parameters.learning_rate, capped.parameters.samples) == (1.0, learning.samples)
    assert "of epsilon = 10" in capped.notes[-1]
    assert "--rounds buys more" in capped.notes[-1]
    assert len(DUAL_QUERY.plan_for(replace(task, rows=20_000), {}).notes) == 1


def test_recalling_draws_lowers_the_error(records):
    """The same price, fewer draws a round: those of 64 rounds together say more than those of one."""
    workload = random_conjunctions(DOMAIN, 3, 2000)
    mean = {}
    for recall in (1, 64):
        runs = [play(records, workload, budget(0.3), seed, recall=recall)[1] for seed in range(3)]
        mean[recall] = np.mean([errors(records, run.artefact.records, workload).mean() for run in runs])
    assert mean[64] < 0.8 * mean[1]


def test_a_long_game_is_rehearsed_in_part(records, monkeypatch):
    """A third of it, and the power law for the rest: within a factor of 1.6 of the whole rehearsal."""
    task = Task(random_conjunctions(DOMAIN, 3, 2000), 30_000, budget(0.1))
    whole = DUAL_QUERY.plan_for(task, {})
    assert whole.parameters.rounds <= rehearsal.ROUNDS_REHEARSED
    monkeypatch.setattr(rehearsal, "ROUNDS_REHEARSED", whole.parameters.rounds // 3)
    part = DUAL_QUERY.plan_for(task, {})
    assert 1 / 1.6 < part.mean_error / whole.mean_error < 1.6
    assert 1 / 1.6 < part.max_error / whole.max_error < 1.6


def test_a_budget_too_small_for_a_round():
    task = Task(random_conjunctions(DOMAIN, 3, 1000), 10, budget(1e-6))
    with pytest.raises(BudgetError, match="raise epsilon"):
        DUAL_QUERY.plan_for(task, {})


def test_theorem_4_3_refuses_a_density():
    task = Task(random_conjunctions(DOMAIN, 3, 1000), 20_000, budget(accounting=Accounting.THEOREM_4_3))
    with pytest.raises(DualQueryError, match="zcdp or pure"):
        DUAL_QUERY.plan_for(task, {"free": "density"})


def test_the_exact_oracle_plays_too(records):
    workload = random_conjunctions(DOMAIN, 3, 200)
    plan, outcome, _ = play(records, workload, budget(), oracle="exact", rounds=4, samples=20)
    assert outcome.artefact.records.rows == 4
    assert (plan.parameters.oracle, plan.parameters.time_limit) == ("exact", 5.0)
    plan, outcome, _ = play(records, workload, budget(), oracle="scip", time_limit=2.0, rounds=2, samples=20)
    assert outcome.artefact.records.rows == 2
    assert (plan.parameters.oracle, plan.parameters.time_limit) == ("scip", 2.0)


def test_a_solver_of_ones_own_is_asked_every_round(records):
    asked = []

    def respond(clauses, found, seconds):
        asked.append((value(clauses, found), seconds))
        return clauses.sizes - 1

    dualquery.register(Solver("last-values", respond))
    workload = random_conjunctions(DOMAIN, 3, 200)
    options = {"oracle": "last-values", "time_limit": 20.0, "rounds": 3, "samples": 20}
    _, outcome, _ = play(records, workload, budget(), **options)
    assert len(asked) == 3
    assert all(worth > 0 and seconds == 20.0 for worth, seconds in asked)
    assert (outcome.artefact.records.to_rows() == DOMAIN.sizes - 1).all()
    dualquery.register(Solver("last-values", lambda clauses, found, seconds: found - 100))
    with pytest.raises(DualQueryError, match="'last-values' must give back a record"):
        play(records, workload, budget(), **options)


def test_who_answers_is_checked_by_the_plan():
    task = Task(random_conjunctions(DOMAIN, 3, 200), 1000, budget())
    for name in ("nobody", "glop", "not a name"):
        with pytest.raises(DualQueryError, match=f"--oracle '{name}' is neither search, exact, a registered"):
            DUAL_QUERY.plan_for(task, {"oracle": name})
    with pytest.raises(DualQueryError, match="--time-limit is for another --oracle than search"):
        DUAL_QUERY.plan_for(task, {"time_limit": 20.0})


def test_the_prediction_is_of_the_right_size(records):
    """Predicted on public random data, compared with what this table gives: within a factor of three."""
    workload = random_conjunctions(DOMAIN, 3, 3000)
    plan, outcome, _ = play(records, workload, budget(0.3))
    actual = errors(records, outcome.artefact.records, workload)
    assert plan.mean_error / 3 < actual.mean() < 3 * plan.mean_error
