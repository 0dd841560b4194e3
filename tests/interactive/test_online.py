"""A table that answers one question at a time: badges, bounds, prices, and what is refused."""

from __future__ import annotations

import json
import math
import time
from threading import Thread

import numpy as np
import pytest

import dualquery
from dualquery import Accounting, Budget, BudgetError, LedgerError, Neighbours, PersonReplace, QueryError
from dualquery.errors import DualQueryError
from dualquery.interactive import Answered, Closed, Fired, MemoryJournal, Prepaid, Reopened
from dualquery.interactive.answers import Badge
from dualquery.interactive.rule import OnlineRule
from dualquery.privacy.conversion import units
from dualquery.randomness import SeededEntropy
from tests.interactive.conftest import BUDGET, DOMAIN, ROWS, records, release_of

TRUTH = records()


def truth(text: str) -> float:
    from dualquery.queries.families import from_texts

    return float(from_texts(DOMAIN, [text]).counts(TRUTH)[0]) / ROWS


def test_easy_questions_are_not_contradicted_and_free(open_table) -> None:
    online = open_table()
    before = online.status()
    for text in ("sex = m", "region = south & age >= 50", "!(rare = yes)", "region = north | sex = f"):
        answer = online.ask(text)
        assert answer.badge is Badge.NOT_CONTRADICTED
        assert answer.cost.units == 0
        assert abs(answer.value - truth(answer.question)) <= answer.bound
        assert answer.bars_95[0] < answer.bound < 0.05
        assert answer.confidence == 0.95
    after = online.status()
    assert (after.spent, after.left) == (before.spent, before.left)
    assert after.answers == {"not contradicted": 4}


def test_a_budget_that_names_no_accounting_pays_for_questions() -> None:
    budget = Budget(epsilon=BUDGET.epsilon, delta=BUDGET.delta, neighbours=BUDGET.neighbours)
    online = dualquery.online(records(), budget=budget, release=release_of(), seed=1)
    assert online.ask("sex = m").badge is Badge.NOT_CONTRADICTED


def test_a_surprise_is_measured_costs_the_price_and_mends_the_hypothesis(open_table) -> None:
    online = open_table(lean=0.2, share=0.5)
    before = online.status()
    answer = online.ask("region = south")
    assert answer.badge is Badge.MEASURED
    assert answer.cost.units == online.price.units == online.rule.price
    assert answer.cost.share == pytest.approx(0.02, rel=0.01)
    assert abs(answer.value - truth("region = south")) <= answer.bound < 0.01
    after = online.status()
    assert after.spent == before.spent + online.price.units
    assert after.fires_left == before.fires_left - 1 == answer.left.fires
    assert after.updates == 1
    # What was measured is known: asking again is free, and others who ask profit.
    again = online.ask("region  =  south")
    assert (again.badge, again.value, again.cost.units) == (Badge.MEASURED, answer.value, 0)
    unmended = release_of(0.2, 0.5).answer("region = south & sex = m").value
    mended = online._state.hypothesis.fractions(online._state.reader.read("region = south & sex = m"))[0]
    right = truth("region = south & sex = m")
    assert abs(mended - right) < 0.6 * abs(unmended - right)


def test_a_whole_table_is_one_question(open_table) -> None:
    online = open_table(lean=0.2, share=0.5)
    answer = online.ask("region by sex")
    assert answer.badge is Badge.MEASURED
    assert answer.cost == online.price
    assert answer.attributes == ("region", "sex")
    assert answer.labels[2] == ("south", "f")
    exact = [truth(f"region = {region} & sex = {sex}") for region, sex in answer.labels]
    assert np.abs(np.array(answer.values) - exact).max() <= answer.bound < 0.02
    quiet = open_table()
    calm = quiet.ask("region by sex")
    assert calm.badge is Badge.NOT_CONTRADICTED
    assert calm.bound > quiet.ask("sex = m").bound  # θ grows by ln(cells)/ε
    assert "8 cells" in str(calm)
    with pytest.raises(ValueError, match="values to unpack"):
        _ = calm.value


def test_nothing_left_is_not_checked_and_reads_nothing(open_table) -> None:
    online = open_table(lean=0.2, share=0.97)
    assert online.status().fires_left == 1
    assert online.ask("region = south").badge is Badge.MEASURED
    assert online.status().fires_left == 0

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the table was read")

    online._curator._counter.true_counts = refuse
    answer = online.ask("region = north")
    assert (answer.badge, answer.bound, answer.cost.units) == (Badge.NOT_CHECKED, None, 0)
    assert answer.bars_95[0] > 0
    assert "not checked" in online.quote("region = north").words
    with pytest.raises(BudgetError, match="left"):
        online.buy("region = north", error=0.0001)


def test_without_a_test_nothing_is_looked_at_and_nothing_charged(open_table) -> None:
    online = open_table(lean=0.2, share=0.5)
    known = online.ask("region = south")
    counts = online._curator._counter.true_counts

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the table was read")

    online._curator._counter.true_counts = refuse
    answer = online.ask("region = north", test=False)
    assert (answer.badge, answer.bound, answer.cost.units) == (Badge.NOT_CHECKED, None, 0)
    again = online.ask("region = south", test=False)
    assert (again.badge, again.values) == (Badge.MEASURED, known.values)
    online._curator._counter.true_counts = counts
    assert online.ask("rare = yes").badge is Badge.NOT_CONTRADICTED


def refuse_to_count(online) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the table was read")

    online._curator._counter.true_counts = refuse


def test_a_question_that_was_tested_is_told_again_without_another_test(open_table) -> None:
    """Each test may fire by chance: a question that is asked four times must not be charged on the fourth."""
    online = open_table()
    first = online.ask("sex = m")
    assert first.badge is Badge.NOT_CONTRADICTED
    counts = online._curator._counter.true_counts
    refuse_to_count(online)
    assert online.ask(" sex  = m") == first
    assert online.ask("sex = m", tolerance=1.0) == first  # a stricter test has been silent
    assert online.ask("sex = m", test=False) == first
    quote = online.quote("sex = m")
    assert (quote.most.units, quote.bound, quote.words) == (0, first.bound, "free: it has been checked")
    with pytest.raises(AssertionError, match="read"):
        online._curator._counter.true_counts(None)
    # A stricter test is a new one, and so is any test once the hypothesis has moved.
    online._curator._counter.true_counts = counts
    strict = online.rule.tolerances()[0]
    assert online.quote("sex = m", tolerance=strict).most.units == online.price.units
    assert online.ask("sex = m", tolerance=strict).bound == strict
    assert online.quote("sex = m", tolerance=strict).most.units == 0
    online.buy("region = south", error=0.02)
    assert online.quote("sex = m").most.units == online.price.units


def test_what_was_tested_is_known_after_opening_again(open_table) -> None:
    journal = MemoryJournal()
    before = open_table(journal=journal)
    first = before.ask("sex = m")
    before.close()
    again = open_table(journal=MemoryJournal(journal.entries()))
    refuse_to_count(again)
    assert again.ask("sex = m") == first


def test_a_journal_from_before_badges_had_other_names_goes_on(open_table) -> None:
    journal = MemoryJournal()
    open_table(journal=journal).close()
    journal.append(Reopened(), Answered("sex = m", "verified", (0.5,), 0.02, 0), Closed())
    again = open_table(journal=MemoryJournal(journal.entries()))
    assert again.status().answers == {"verified": 1}
    assert again.ask("sex = m").badge is Badge.NOT_CONTRADICTED


def test_only_so_many_tested_questions_are_remembered(open_table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualquery.interactive.rule.MOST_TESTED", 2)
    online = open_table()
    for text in ("sex = m", "age >= 50", "sex = m", "rare = yes"):
        assert online.ask(text).badge is Badge.NOT_CONTRADICTED
    assert [online.quote(text).most.units == 0 for text in ("age >= 50", "sex = m", "rare = yes")] == [
        False,
        True,
        True,
    ]


def test_the_bar_of_an_estimate_is_95_percent(open_table) -> None:
    """Of many questions the truth lies within the bar of nearly all: within one standard error are two of three."""
    online = open_table()
    texts = [
        f"region = {r} & age {sign} {a}"
        for r in ("north", "south", "east", "west")
        for a in range(10, 90, 10)
        for sign in (">=", "<")
    ]
    answers = [online.ask(text, test=False) for text in texts]
    within = [abs(each.value - truth(each.question)) <= each.bars_95[0] for each in answers]
    assert np.mean(within) >= 0.9


def test_a_price_is_quoted_before_and_kept(open_table) -> None:
    online = open_table()
    quote = online.quote("sex = m")
    assert (quote.least.units, quote.most.units) == (0, online.price.units)
    assert quote.words == "usually free, at most 2% of the budget"
    assert quote.bound == online.ask("sex = m").bound
    bought = online.quote("sex = m", error=0.004)
    assert bought.least == bought.most
    answer = online.buy("sex = m", error=0.004)
    assert answer.cost == bought.most
    assert answer.badge is Badge.BOUGHT
    assert answer.bars_95 == pytest.approx(
        ((1.959964 * 0.004 * ROWS + 1) / ROWS,)
    )  # 95%, not one standard error
    assert abs(answer.value - truth("sex = m")) <= answer.bound == bought.bound
    assert online.quote("sex = m").words == "free: it has been measured"
    assert str(answer).endswith(f"(95%); bought, guaranteed within {answer.bound:.2g} (95%)")
    with pytest.raises(QueryError, match="one of them"):
        online.quote("sex = m", error=0.01, tolerance=0.02)


def test_a_purchase_costs_its_formula(open_table) -> None:
    """αρ with ρ = Δ²/(2σ²), Δ² = 1 for a question and 2 for a table under replacement."""
    online = open_table()
    for text, squared in (("sex = m", 1), ("region by sex", 2)):
        from fractions import Fraction

        sigma = Fraction("0.02") * ROWS
        expected = units(online.rule.order * Fraction(squared) / (2 * sigma**2))
        assert online.quote(text, error=0.02).most.units == expected
        before = online.status().spent
        online.buy(text, error=0.02)
        assert online.status().spent - before == expected


def test_what_was_bought_is_told_again_to_whoever_wants_no_more_precision(open_table) -> None:
    online = open_table()
    bought = online.buy("sex = m", error=0.02)
    before = online.status().spent
    assert online.quote("sex = m", error=0.03).most.units == 0
    again = online.buy("sex = m", error=0.03)
    assert (again.value, again.bars_95, again.bound) == (bought.value, bought.bars_95, bought.bound)
    assert again.cost.units == 0
    assert online.status().spent == before
    assert online.buy("sex = m", error=0.015).cost.units > 0


def test_what_no_rule_can_be_made_of_is_refused_before_a_release_is_paid_for() -> None:
    for wrong in ({"share": 2.0}, {"tolerance": 2.0}, {"questions": 0}):
        journal = MemoryJournal()
        with pytest.raises(BudgetError):
            dualquery.online(TRUTH, schema=DOMAIN, budget=BUDGET, journal=journal, **wrong)
        assert not journal.entries()


def test_a_purchase_beyond_what_is_left_says_so_and_charges_nothing(open_table) -> None:
    online = open_table()
    before = (online.status().spent, len(list(online.journal.entries())))
    with pytest.raises(BudgetError, match=r"and 8% is left; an error of 0\.0008\d* is within it"):
        online.buy("sex = m", error=0.0002)
    assert (online.status().spent, len(list(online.journal.entries()))) == before
    least = float(str(_refusal(online)).rsplit("error of ", 1)[1].split()[0])
    online.buy("sex = m", error=least)


def _refusal(online) -> Exception:
    try:
        online.buy("sex = m", error=0.0002)
    except BudgetError as error:
        return error
    raise AssertionError


def test_tolerances_choose_from_a_menu_at_the_same_price(open_table) -> None:
    online = open_table()
    menu = online.status().tolerances
    assert list(menu) == sorted(menu)
    for named in menu:
        quote = online.quote("sex = m", tolerance=named)
        assert quote.bound == named
        assert quote.most == online.price
    between = (menu[3] + menu[4]) / 2
    assert online.ask("sex = m", tolerance=between).bound == menu[3]
    for wrong in (menu[0] * 0.99, 0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(QueryError, match="tolerance"):
            online.ask("sex = m", tolerance=wrong)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sex == ", "column 8: expected a value"),
        ("planet = mars", "unknown attribute 'planet'"),
        ("sex = x", "sex"),
        ("", "empty"),
        ("sex = m | region = north & age >= 50", "product"),
    ],
)
def test_what_cannot_be_asked_is_refused_and_nothing_happens(open_table, text: str, sentence: str) -> None:
    online = open_table()
    before = len(list(online.journal.entries()))
    for ask in (online.ask, online.quote, lambda text: online.buy(text, error=0.01)):
        with pytest.raises(QueryError):
            ask(text)
    with pytest.raises(QueryError, match=sentence):
        online.ask(text)
    assert len(list(online.journal.entries())) == before
    assert online.ask("sex = m").badge is Badge.NOT_CONTRADICTED


@pytest.mark.parametrize("error", [0.0, -0.1, 0.7, float("nan"), float("inf")])
def test_a_purchase_needs_an_error_that_means_something(open_table, error: float) -> None:
    online = open_table()
    with pytest.raises(QueryError, match="error of a purchase"):
        online.buy("sex = m", error=error)


def small_release(**changes):
    given = {"budget": Budget(20, 1e-6), "workload": "marginals:1", "mechanism": "gaussian", **changes}
    return dualquery.release(records(), schema=DOMAIN, **given)


def test_what_is_published_beside_a_private_table_is_private_and_named(open_table) -> None:
    """A seeded release at ε = 20 of the same table stood beside a promise of (1, 10⁻⁶) that did not know of it."""
    start = dualquery.release(
        records(), schema=DOMAIN, budget=Budget(0.5, 1e-6, accounting="zcdp"), workload="marginals:1"
    )
    journal = MemoryJournal()
    for wanted in ({"release": start}, {"release": None}):
        with pytest.raises(BudgetError, match="'seeded' is not private \\(a seed was used\\)"):
            open_table(seed=None, journal=journal, published={"seeded": small_release(seed=3)}, **wanted)
    assert journal.entries() == ()
    online = open_table(seed=None, release=start, published={"first": start, "other": small_release()})
    certificate = online.certificate()
    assert certificate["private"]
    assert [(each["name"], each["epsilon"], each["covered"]) for each in certificate["published"]] == [
        ("first", 0.5, True),
        ("other", 20, False),
    ]
    assert "not covered" in certificate["promise"]
    assert "other (ε = 20, δ = 1e-06)" in certificate["promise"]
    assert "first (" not in certificate["promise"]
    assert "not covered" not in open_table(seed=None, release=start).certificate()["promise"]


def test_published_releases_are_free_and_say_so(open_table) -> None:
    other = release_of(0.2, 0.5)
    online = open_table(published={"older": other})
    answer = online.ask("region = south", release="older")
    assert (answer.badge, answer.bound, answer.cost.units) == (Badge.RELEASE, None, 0)
    assert answer.value == pytest.approx(other.answer("region = south").value)
    assert sum(online.ask("region by sex", release="older").values) == pytest.approx(1)
    with pytest.raises(QueryError, match="there are: older"):
        online.ask("sex = m", release="newer")


def test_answers_and_status_are_plain_json(open_table) -> None:
    online = open_table()
    for answer in (online.ask("sex = m"), online.ask("region by sex"), online.buy("sex = f", error=0.01)):
        again = json.loads(json.dumps(answer.to_json()))
        assert again["badge"] == answer.badge.value
        assert answer.badge.words()
        assert tuple(again["values"]) == answer.values
        assert str(answer)
    json.dumps([online.status().to_json(), online.quote("sex = m").to_json(), online.certificate()])


def test_the_certificate_states_the_cap_and_never_what_was_charged(open_table) -> None:
    online = open_table(lean=0.2, share=0.5)
    before = online.certificate()
    online.ask("region = south")
    online.buy("sex = m", error=0.01)
    assert online.certificate() == before
    assert before["cap"] == online.rule.cap
    assert before["private"] is False  # a seed was used
    assert any("seed" in warning for warning in before["warnings"])
    unseeded = open_table(seed=None).certificate()
    assert unseeded["private"] is False  # the release was made with one
    assert [warning for warning in unseeded["warnings"] if warning.startswith("of the release")]


def test_every_answer_is_in_the_journal_with_its_note(open_table) -> None:
    online = open_table(lean=0.2, share=0.5)
    online.ask("region = south", note="ann")
    online.ask("rare = yes", note="ben")
    kinds = [entry for entry in online.journal.entries() if isinstance(entry, Fired | Answered)]
    assert [(type(entry), entry.note) for entry in kinds] == [(Fired, "ann"), (Answered, "ben")]
    with pytest.raises(QueryError, match="500"):
        online.ask("sex = m", note="x" * 501)


def test_threads_share_one_budget(open_table) -> None:
    """Many threads with surprises of their own: never more fires than were paid for."""
    online = open_table(lean=0.3, share=0.85)
    fires = online.status().fires_left
    texts = [f"region = {r} & age >= {a}" for r in ("south", "north") for a in range(10, 80, 10)] * 3
    answers, problems = [], []

    def asks(mine: list[str]) -> None:
        try:
            answers.extend(online.ask(text) for text in mine)
        except Exception as problem:
            problems.append(problem)

    threads = [Thread(target=asks, args=(texts[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(answers) == len(texts)
    paid = [answer for answer in answers if answer.cost.units]
    assert len(paid) == len([e for e in online.journal.entries() if isinstance(e, Fired)]) <= fires
    status = online.status()
    assert status.spent <= status.cap
    prepaid = [e for e in online.journal.entries() if isinstance(e, Prepaid)]
    assert len(prepaid) <= fires


def test_a_closed_table_answers_nothing(open_table) -> None:
    online = open_table()
    online.close()
    for call in (lambda: online.ask("sex = m"), lambda: online.buy("sex = m", error=0.1), online.close):
        with pytest.raises(LedgerError, match="closed"):
            call()


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.GAUSSIAN])
def test_other_accountings_are_refused(accounting: Accounting) -> None:
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=accounting)
    with pytest.raises(BudgetError, match="renyi"):
        dualquery.online(TRUTH, schema=DOMAIN, budget=budget)


def test_a_release_about_other_neighbours_or_of_bare_answers_is_refused(open_table) -> None:
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.RENYI)
    with pytest.raises(BudgetError, match="neighbours"):
        open_table(budget=budget)
    zcdp = Budget(epsilon=0.3, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    bare = dualquery.release(
        TRUTH, schema=DOMAIN, budget=zcdp, workload="marginals:1", mechanism="gaussian", seed=1
    )
    with pytest.raises(DualQueryError, match="consist of records"):
        open_table(release=bare)


def test_a_release_that_takes_everything_leaves_answers_that_are_not_checked() -> None:
    zcdp = Budget(epsilon=0.9999, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    release = dualquery.release(
        TRUTH, schema=DOMAIN, budget=zcdp, workload="marginals:2", mechanism="projection", seed=1
    )
    online = dualquery.online(TRUTH, schema=DOMAIN, budget=BUDGET, release=release)
    assert online.ask("sex = m").badge is Badge.NOT_CHECKED


def test_a_table_opens_from_a_frame_and_makes_its_release() -> None:
    import pandas

    rng = np.random.default_rng(1)
    frame = pandas.DataFrame(
        {"region": rng.choice(["north", "south"], 3000), "sex": rng.choice(["f", "m"], 3000)}
    )
    schema = dualquery.Domain(
        (
            dualquery.Categorical("region", ("north", "south")),
            dualquery.Categorical("sex", ("f", "m")),
        )
    )
    online = dualquery.online(frame, schema=schema, budget=BUDGET)
    status = online.status()
    assert status.fires_left == 5
    assert status.spent / status.cap == pytest.approx(0.92, abs=0.001)
    assert online.ask("region by sex").badge is Badge.NOT_CONTRADICTED
    assert online.certificate()["private"] is True


@pytest.mark.parametrize(
    "neighbours", [Neighbours.ADD_REMOVE, PersonReplace(3)], ids=["add-remove", "person-replace"]
)
def test_other_relations_are_priced_by_what_they_move(neighbours: Neighbours) -> None:
    budget = Budget(epsilon=1, delta=1e-6, neighbours=neighbours, accounting=Accounting.RENYI)
    rule, usual = OnlineRule.of(budget, rows=ROWS), OnlineRule.of(BUDGET, rows=ROWS)
    moved = neighbours.largest(alone=1, apart=1)
    assert rule.test.sensitivity == moved
    assert rule.price <= rule.cap // 50
    assert rule.bound(rule.test) == pytest.approx(moved * usual.bound(usual.test), rel=0.02)


def test_records_may_be_added_and_the_number_is_the_releases() -> None:
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.RENYI)
    online = dualquery.online(TRUTH, schema=DOMAIN, budget=budget, workload="marginals:2", seed=3)
    rows = online.status().rows
    assert rows == online.release.certificate["records"]["rows"] != ROWS  # measured, with noise
    answer = online.ask("region by sex")
    assert answer.badge is Badge.NOT_CONTRADICTED


def test_a_question_takes_at_most_a_millisecond_on_100_000_rows() -> None:
    """Processor time of 300 questions, each asked for the first time; the median of their times."""
    big = records(rows=100_000)
    online = dualquery.online(big, schema=DOMAIN, budget=BUDGET, release=release_of(), seed=1)
    rng = np.random.default_rng(2)
    regions, sexes = DOMAIN.columns[0].labels, DOMAIN.columns[1].labels
    texts = [
        f"region = {regions[rng.integers(4)]} & sex = {sexes[rng.integers(2)]} & age >= {10 * rng.integers(1, 8)} "
        f"& rare = {'yes' if rng.random() < 0.5 else 'no'}"
        for _ in range(400)
    ]
    taken = []
    for text in texts:
        begun = time.thread_time()
        online.ask(text)
        taken.append(time.thread_time() - begun)
    assert np.median(taken[100:]) < 0.001


# The other test; `test_promise.py` has what it promises


def test_a_test_that_nobody_knows_is_refused(open_table) -> None:
    with pytest.raises(BudgetError, match="must be hazard or sparse-vector, got 'sparse'"):
        open_table(test="sparse")


def test_what_the_sparse_vector_bounds_and_how_often_it_fires_falsely() -> None:
    """Of a thousand tests: silence beyond the bound in no more than 5%, a false fire in no more than one of k."""
    rule = OnlineRule.of(BUDGET, rows=ROWS, questions=20, test="sparse-vector", domain=DOMAIN)
    law, entropy = rule.test, SeededEntropy(3)
    beyond = math.floor(law.bound(0.05)) + 1

    def fires(x: int) -> int:
        noise = [law.threshold_noise(entropy) for _ in range(1000)]
        return sum(law.draw(np.array([x]), entropy, each) is not None for each in noise)

    assert fires(beyond) >= 950
    assert fires(0) <= 1000 / 20
    assert fires(law.threshold) > 300


def test_an_epoch_that_was_tested_ends_with_the_process_and_another_is_paid() -> None:
    """Nobody knows the noise of its threshold any more; one that no test was drawn against goes on."""
    journal = MemoryJournal()

    def opened() -> dualquery.Online:
        return dualquery.online(
            records(), schema=DOMAIN, budget=BUDGET, journal=journal, seed=5, test="sparse-vector"
        )

    first = opened()
    first.close()
    untested = opened()
    assert untested.status().spent == first.status().spent
    untested.ask("sex = m")
    untested.close()
    again = opened()
    assert again.status().spent == first.status().spent + again.price.units
    with pytest.raises(LedgerError, match="another table, release, budget or rule"):
        dualquery.online(
            records(), schema=DOMAIN, budget=BUDGET, release=release_of(), journal=journal, seed=5
        )
