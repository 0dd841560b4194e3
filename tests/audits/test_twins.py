"""Every broken twin is caught, and so an audit that finds nothing has looked."""

from __future__ import annotations

import pytest

from dualquery.audits.audit import audit
from dualquery.audits.case import Verdict
from tests.audits.twins import HONEST, TWINS, Twin

SEED = 2014  # repeatable: chance is audited in test_audit.py


@pytest.mark.parametrize("twin", TWINS, ids=str)
def test_a_broken_twin_is_caught(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    twin.breaks(monkeypatch)
    (finding,) = audit([twin.case()], runs=twin.runs or None, seed=SEED).findings
    print(f"{twin}: claimed {finding.claim.epsilon:.3g}, proven {finding.found:.3g}, by {finding.event}")
    assert finding.verdict is Verdict.BROKEN, finding


@pytest.mark.parametrize("twin", [each for each in (*TWINS, *HONEST) if each.runs], ids=str)
def test_without_the_fault_nothing_is_found(twin: Twin) -> None:
    """The same case, the same runs, the code as it is."""
    if twin.breaks.__name__ == "nothing" and twin not in HONEST:
        pytest.skip("the fault is in the case itself")
    (finding,) = audit([twin.case()], runs=twin.runs, seed=SEED).findings
    assert finding.verdict is not Verdict.BROKEN, finding
