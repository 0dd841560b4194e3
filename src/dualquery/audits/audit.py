"""All audits, one after another, at one confidence for all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dualquery.audits import curator, releases, sessions
from dualquery.audits.case import AuditError, Case, Finding, Verdict, judged, stream
from dualquery.pool import limited
from dualquery.types import Progress

CONFIDENCE = 0.999  # that no claim which holds is called broken, over all cases of an audit
FEWEST_RUNS = 40


@dataclass(frozen=True)
class Audit:
    findings: tuple[Finding, ...]
    confidence: float

    @property
    def broken(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.verdict is Verdict.BROKEN)

    def to_json(self) -> dict[str, object]:
        return {
            "confidence": self.confidence,
            "broken": len(self.broken),
            "findings": [each.to_json() for each in self.findings],
        }


def all_cases() -> list[Case]:
    """Every case: what the curator says, what mechanisms release, what folders show."""
    return [
        *curator.cases(),
        *sessions.cases(),
        *releases.cases(),
    ]


def chosen_cases(names: Sequence[str]) -> list[Case]:
    """The cases whose mechanism is named: by all of its name, or by the words before its colon."""
    cases = all_cases()
    if not names:
        return cases
    known = dict.fromkeys(each.mechanism.partition(":")[0] for each in cases)
    for name in names:
        if not any(_named(case, name) for case in cases):
            raise AuditError(f"there is no audit of '{name}'; there are {', '.join(known)}")
    return [case for case in cases if any(_named(case, name) for name in names)]


def _named(case: Case, name: str) -> bool:
    return name in (case.mechanism, case.mechanism.partition(":")[0])


def audit(
    cases: Iterable[Case],
    *,
    quick: bool = False,
    runs: int | None = None,
    seed: int | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Audit:
    """Every case at the same share of the chance to be wrong (Bonferroni).

    `runs` on each table replaces the number of runs of every sampled case. With a seed every sample has a stream of
    its own; without one chance is the system's, as for a release.
    """
    listed = [case for case in cases if case.exact is not None or runs or case.runs(None, quick=quick)]
    if runs is not None and runs < FEWEST_RUNS:
        raise AuditError(
            f"an audit needs at least {FEWEST_RUNS} runs on each table, of which half choose an event"
        )
    failure = (1 - CONFIDENCE) / max(1, len(listed))
    planned = [case.runs(runs, quick=quick) for case in listed]
    findings = []
    with limited(1):  # tables of a few records are counted faster without a second thread to wait for
        for case, count in zip(listed, planned, strict=True):
            done = 0

            def tell(more: int, case: Case = case, count: int = count) -> None:
                nonlocal done
                done += more
                progress(f"{case.mechanism}, {case.pair}", done, 2 * count)

            entropies = tuple(stream(seed, case.mechanism, case.pair, str(side)) for side in (0, 1))
            findings.append(judged(case, runs=count, entropies=entropies, failure=failure, tell=tell))
    return Audit(tuple(findings), CONFIDENCE)
