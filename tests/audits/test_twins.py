"""Every broken twin is caught, and so an audit that finds nothing has looked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dualquery.audits import audit
from dualquery.audits.case import Verdict
from tests.audits.twins import HONEST, TWINS, Twin

SEED = 2014  # repeatable: chance is audited in test_audit.py
PAGE = Path(__file__).parents[2] / "docs" / "experiments" / "benchmarks.md"


def told_of(twin: Twin) -> str:
    """What the page says was proven of a twin."""
    line = rf"^\| {re.escape(str(twin))} \|.*\| ([\d.]+)(?:, exactly)? \|$"
    row = re.search(line, PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert row, f"docs/experiments/benchmarks.md does not tell of '{twin}'"
    return row[1]


@pytest.mark.parametrize("twin", TWINS, ids=str)
def test_a_broken_twin_is_caught(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    twin.breaks(monkeypatch)
    (finding,) = audit([twin.case()], runs=twin.runs or None, seed=SEED).findings
    print(f"{twin}: claimed {finding.claim.epsilon:.3g}, proven {finding.found:.3g}, by {finding.event}")
    assert finding.verdict is Verdict.BROKEN, finding
    assert f"{finding.found:.3g}" == told_of(twin)


@pytest.mark.parametrize("twin", [each for each in (*TWINS, *HONEST) if each.runs], ids=str)
def test_without_the_fault_nothing_is_found(twin: Twin) -> None:
    """The same case, the same runs, the code as it is."""
    if twin.breaks.__name__ == "nothing" and twin not in HONEST:
        pytest.skip("the fault is in the case itself")
    (finding,) = audit([twin.case()], runs=twin.runs, seed=SEED).findings
    assert finding.verdict is not Verdict.BROKEN, finding
