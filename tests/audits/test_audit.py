"""The bounds are those of Clopper and Pearson, events are chosen fairly, and every claim holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from dualquery import audits as auditing
from dualquery.audits import all_cases, audit, chosen_cases, curator
from dualquery.audits.case import (
    ALONE,
    DUPLICATES,
    EXTREMES,
    FULL_BASKET,
    MANY,
    REPLACED,
    AuditError,
    Case,
    Claim,
    Hits,
    Pair,
    Refusal,
    Sampled,
    Verdict,
    aligned,
    choose_event,
    lower_bound,
    proven_epsilon,
    split,
    upper_bound,
)
from dualquery.audits.curator import law_of
from dualquery.cli import run
from dualquery.mechanisms.wishes import MECHANISMS
from tests.privacy.definitions import next_to

OF_RECORDS = [name for name, each in MECHANISMS.items() if each.plays is None or "records" in each.plays]

SEED = 2012


# ── Bounds ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("runs", [1, 7, 100, 5000])
@pytest.mark.parametrize("failure", [0.05, 1e-5])
def test_the_bounds_are_those_of_clopper_and_pearson(runs: int, failure: float) -> None:
    for hits in {0, 1, runs // 3, runs - 1, runs}:
        high = 1.0 if hits == runs else float(beta.ppf(1 - failure, hits + 1, runs - hits))
        low = 0.0 if hits == 0 else float(beta.ppf(failure, hits, runs - hits + 1))
        assert upper_bound(hits, runs, failure=failure) == pytest.approx(high, rel=1e-6)
        assert lower_bound(hits, runs, failure=failure) == pytest.approx(low, rel=1e-6, abs=1e-8)
        assert upper_bound(hits, runs, failure=failure) >= high * (1 - 1e-12)
        assert lower_bound(hits, runs, failure=failure) <= low * (1 + 1e-12)


def test_nothing_is_proven_of_events_as_likely_as_each_other_or_within_delta() -> None:
    assert proven_epsilon(Hits(50, 50, 100), delta=0.0, failure=0.01) == 0.0
    assert proven_epsilon(Hits(50, 0, 1000), delta=0.1, failure=0.01) == 0.0
    assert proven_epsilon(Hits(500, 0, 500), delta=0.0, failure=0.01) > 4


def test_bounds_of_a_true_loss_lie_above_it_as_seldom_as_promised() -> None:
    """Randomised response with ε = 1: of 500 audits at a failure of 5%, no more than 5% and some are wrong."""
    rng, runs = np.random.default_rng(3), 200
    p, q = np.e / (1 + np.e), 1 / (1 + np.e)
    wrong = sum(
        proven_epsilon(Hits(int(a), int(b), runs), delta=0.0, failure=0.05) > 1
        for a, b in zip(rng.binomial(runs, p, 500), rng.binomial(runs, q, 500), strict=True)
    )
    assert wrong <= 500 * 0.05 + 4 * 5


# ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_event_is_of_the_feature_that_tells_most() -> None:
    rng = np.random.default_rng(1)
    noise = [rng.normal(size=4000) for _ in range(4)]
    seen = (
        {"dull": noise[0], "telling": noise[1], "word": np.array(["x"] * 4000)},
        {"dull": noise[2], "telling": noise[3] + 3, "word": np.array(["x"] * 4000)},
    )
    event = choose_event((split(seen[0])[0], split(seen[1])[0]), delta=0.0)
    assert event.feature in ("telling", "all numbers together")
    assert event.hits((split(seen[0])[1], split(seen[1])[1])).runs == 2000


def test_texts_that_nobody_saw_twice_are_no_evidence() -> None:
    one, other = ({"clock": np.array([f"{side} {i}" for i in range(400)])} for side in (0, 1))
    halves = [split(each) for each in aligned(one, other)]
    event = choose_event((halves[0][0], halves[1][0]), delta=0.0)
    hits = event.hits((halves[0][1], halves[1][1]))
    assert proven_epsilon(hits, delta=0.0, failure=0.01) == 0.0


def test_a_text_that_only_one_table_shows_is_found() -> None:
    one = {"answer": np.array(["1"] * 200)}
    other = {"answer": np.array([""] * 200), "refusal": np.array(["DataError"] * 200)}
    halves = [split(each) for each in aligned(one, other)]
    event = choose_event((halves[0][0], halves[1][0]), delta=0.0)
    assert proven_epsilon(event.hits((halves[0][1], halves[1][1])), delta=0.0, failure=0.01) > 2


def test_a_law_is_read_off_the_code() -> None:
    assert law_of(lambda chance: "low" if chance.below(10, 1)[0] < 3 else "high") == {
        "low": pytest.approx(0.3),
        "high": pytest.approx(0.7),
    }


# ── Pairs and cases ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "pair", [REPLACED, DUPLICATES, ALONE, MANY, EXTREMES, FULL_BASKET], ids=lambda p: p.words
)
def test_pairs_are_neighbours(pair: Pair) -> None:
    one, other = (tuple(map(tuple, table.to_rows().tolist())) for table in pair.tables)
    found = {tuple(sorted(table)) for table in next_to(pair.neighbours, one, sorted({*one, *other}))}
    assert tuple(sorted(other)) in found


def test_every_mechanism_is_audited() -> None:
    audited = {case.mechanism for case in all_cases() if case.quick or case.exact}
    assert set(OF_RECORDS) <= audited
    assert len({(case.mechanism, case.pair, case.exact is None) for case in all_cases()}) == len(all_cases())


def test_a_name_that_nobody_has_is_refused() -> None:
    with pytest.raises(AuditError, match="there is no audit of 'mvem'"):
        chosen_cases(["mvem"])


def test_an_audit_that_could_not_run_does_not_hold() -> None:
    def refused(side: int, runs: int, entropy: Any, tell: Any) -> Sampled:
        return Sampled({"refusal": np.array(["x"] * runs)}, Claim(1.0), "no such thing")

    with pytest.raises(AuditError, match="no such thing"):
        audit([Case("m", "p", refused)], runs=100)
    (finding,) = audit([Case("m", "p", refused, refuses=Refusal.ALWAYS)], runs=100).findings
    assert finding.verdict is Verdict.REFUSED


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(AuditError, match="at least 40"):
        audit(curator.cases(), runs=10)


def test_a_seed_repeats_an_audit() -> None:
    cases = [case for case in curator.cases() if case.mechanism == "measure: balance"]
    assert audit(cases, quick=True, seed=1) == audit(cases, quick=True, seed=1)
    assert audit(cases, quick=True, seed=1) != audit(cases, quick=True, seed=2)


# ── The audit ───────────────────────────────────────────────────────────────────────────────────────────────────


def one_of_each() -> list[Case]:
    """The first case of every mechanism and of every verb that a quick audit tries, with a third of its runs."""
    found: dict[str, Case] = {}
    for case in all_cases():
        if case.quick or case.exact:
            found.setdefault(case.mechanism.partition(":")[0], case)
    fewer = (replace(case, quick=case.quick // 3) if case.quick < 5000 else case for case in found.values())
    return [*fewer, *(case for case in curator.cases() if case.mechanism == "measure: number of records")]


@pytest.mark.parametrize("cases", [one_of_each, pytest.param(all_cases, marks=pytest.mark.long)])
def test_every_claim_holds(cases: Callable[[], list[Case]]) -> None:
    """The quick audit, repeatable; chance itself is audited by the few draws below, and by the long audit."""
    found = audit(cases(), quick=True, seed=SEED)
    assert found.broken == ()
    assert len({each.mechanism for each in found.findings}) > 20
    tight = {each.mechanism: each.ratio for each in found.findings if each.mechanism.startswith("measure")}
    assert tight["measure: number of records"] > 0.8, "an adversary this weak would find nothing"


def test_chance_of_the_system_is_audited() -> None:
    """With one false alarm in a thousand times six, at most."""
    cases = [case for case in curator.cases() if case.mechanism.startswith("measure: number of records")]
    assert not audit(cases, quick=True).broken


@pytest.mark.long
def test_every_claim_holds_at_length() -> None:
    assert audit(all_cases()).broken == ()


def test_the_command_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "select: queries", "zeros", "--quick", "--seed", "1"]) == 0
    printed = capsys.readouterr().out
    assert "99.9% confidence" in printed
    assert "claims hold" in printed
    assert run(["audit", "select: queries", "--quick", "--seed", "1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["broken"] == 0
    assert {"claimed_epsilon", "proven_epsilon", "verdict", "ratio", "runs"} <= data["findings"][0].keys()
    assert run(["audit", "zeros", "--quick", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_a_broken_claim_is_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(side: int, runs: int, entropy: Any, tell: Any) -> Sampled:
        return Sampled({"side": np.full(runs, float(side))}, Claim(1.0))

    monkeypatch.setattr(auditing, "all_cases", lambda: [Case("gossip", "any", told, quick=400, long=400)])
    assert run(["audit", "--quick"]) == 1
    assert "1 of 1 claims are broken" in capsys.readouterr().out
