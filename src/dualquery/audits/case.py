"""One audit: two neighbouring tables, one way to release them, and what was found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from dualquery.audits.bounds import Claim, proven_epsilon
from dualquery.audits.events import Seen, aligned, choose_event, split
from dualquery.errors import DualQueryError
from dualquery.randomness import Entropy


class AuditError(DualQueryError):
    """An audit that found nothing out."""


@dataclass(frozen=True)
class Sampled:
    """Runs on one table: what they showed, and what the ledger says each of them spent."""

    seen: Seen
    claim: Claim
    refusal: str | None = None  # the sentence, where every run was refused and nothing was published


class Refusal(Enum):
    """Whether files may be refused. A refusal that nobody expected would make any audit hold."""

    NEVER = "never"
    MALFORMED = "one of the files is malformed"
    ALWAYS = "for a public reason, both in the same words"


Tell = Callable[[int], None]  # runs that are done
Sampler = Callable[[int, int, Entropy, Tell], Sampled]  # which of the two tables, how many runs


@dataclass(frozen=True)
class Computed:
    """A bound that needs no samples, because the law of an output is known to the last bit."""

    found: float
    claim: Claim
    words: str = "exact"


@dataclass(frozen=True)
class Case:
    """A pair of neighbours and a way to release them: by sampling, or exactly where an `exact` is given."""

    mechanism: str
    pair: str
    sample: Sampler | None = field(default=None, repr=False)
    exact: Callable[[], Computed] | None = field(default=None, repr=False)
    quick: int = 0  # runs on each table; 0: not in a quick audit
    long: int = 0
    refuses: Refusal = Refusal.NEVER

    def runs(self, wanted: int | None, *, quick: bool) -> int:
        if self.exact is not None:
            return 0
        return wanted or (self.quick if quick else self.long)


class Verdict(Enum):
    """What an audit says."""

    HOLDS = "holds"
    REFUSED = "refused"  # a malformed file, as it should be: nothing was published
    BROKEN = "BROKEN"


@dataclass(frozen=True)
class Finding:
    """The lower bound beside the claim."""

    mechanism: str
    pair: str
    claim: Claim
    found: float  # the ε that was proven, but with chance `failure`
    runs: int
    event: str  # what the adversary looked at
    verdict: Verdict

    @property
    def ratio(self) -> float:
        return self.found / self.claim.epsilon if self.claim.epsilon else math.inf if self.found else 0.0

    def to_json(self) -> dict[str, object]:
        return {
            "mechanism": self.mechanism,
            "pair": self.pair,
            "claimed_epsilon": self.claim.epsilon,
            "claimed_delta": self.claim.delta,
            "proven_epsilon": self.found,
            "ratio": self.ratio,
            "runs": self.runs,
            "event": self.event,
            "verdict": self.verdict.value,
        }


def judged(case: Case, *, runs: int, entropies: tuple[Entropy, ...], failure: float, tell: Tell) -> Finding:
    """Sample both tables, choose an event on one half, bound it on the other."""
    if case.exact is not None:
        computed = case.exact()
        return _finding(case, computed.claim, computed.found, 0, computed.words)
    assert case.sample is not None, "a case samples, or computes"
    one = case.sample(0, runs, entropies[0], tell)
    other = case.sample(1, runs, entropies[1], tell)
    claim = max(one.claim, other.claim, key=lambda each: each.epsilon)
    if _rightly_refused(case, one.refusal, other.refusal):
        return Finding(case.mechanism, case.pair, claim, 0.0, runs, "a refusal", Verdict.REFUSED)
    choosing, judging = zip(*map(split, aligned(one.seen, other.seen)), strict=True)
    event = choose_event(choosing, delta=claim.delta)
    found = proven_epsilon(event.hits(judging), delta=claim.delta, failure=failure)
    return _finding(case, claim, found, runs, event.feature)


def _rightly_refused(case: Case, one: str | None, other: str | None) -> bool:
    if one is None and other is None:
        return False
    if one is not None and one == other and case.refuses is not Refusal.ALWAYS:
        raise AuditError(f"the audit of '{case.mechanism}' ({case.pair}) could not be run: {one}")
    return case.refuses is Refusal.MALFORMED or one == other


_ROUNDING = 1e-9  # of exact bounds, which are compared with claims that they may attain


def _finding(case: Case, claim: Claim, found: float, runs: int, event: str) -> Finding:
    verdict = Verdict.BROKEN if found > claim.epsilon * (1 + _ROUNDING) else Verdict.HOLDS
    return Finding(case.mechanism, case.pair, claim, found, runs, event, verdict)
