"""Cuts, distances and lists are audited, and a fault in each of their sensitivities is caught."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dualquery.audits import all_cases, audit
from dualquery.audits.case import Case, Verdict
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Neighbours, Sensitivity
from dualquery.queries.statistics import Bound

SEED = 2014
STATISTICS = (
    "cuts",
    "degrees",
    "blocks and pairs",
    "distances",
    "knots",
    "lists",
    "rows of units",
    "pairs of rows",
    "tallies",
)
MEASURED = [case for case in all_cases() if case.mechanism in {f"measure: {each}" for each in STATISTICS}]


def test_every_mechanism_of_special_tables_is_audited() -> None:
    assert {case.mechanism for case in all_cases()} >= {
        name for name, each in MECHANISMS.items() if each.plays and "records" not in each.plays
    }


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case.mechanism)
def test_what_is_measured_of_special_tables_holds_nearly_to_its_claim(case: Case) -> None:
    (finding,) = audit([case], quick=True, seed=SEED).findings
    assert finding.verdict is Verdict.HOLDS
    assert finding.ratio > 0.8


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case.mechanism)
def test_half_of_a_sensitivity_is_caught(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the same measurement, priced as if a record moved half as much."""
    true = Neighbours.sensitivity

    def half(self: Neighbours, bound: Bound) -> Sensitivity:
        whole = true(self, bound)
        return Sensitivity(Fraction(whole.l1, 2), Fraction(whole.l2_squared, 4))  # type: ignore[arg-type]

    monkeypatch.setattr(Neighbours, "sensitivity", half)
    (finding,) = audit([case], quick=True, seed=SEED).findings
    assert finding.verdict is Verdict.BROKEN


@pytest.mark.parametrize("name", ["distance-curves", "noisy-cells", "frieze-kannan", "linked"])
def test_mechanisms_of_special_tables_hold(name: str) -> None:
    (case,) = [each for each in all_cases() if each.mechanism == name]
    (finding,) = audit([case], runs=60, seed=SEED).findings
    assert finding.verdict is Verdict.HOLDS
