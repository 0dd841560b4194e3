"""One audit: two neighbouring tables, one way to release them, the claim, and what was found.

*Bounds.* (ε, δ)-differential privacy says P(S) ≤ e^ε Q(S) + δ for every event S. So an event that was fixed before
the samples were looked at gives, with confidence 1 − 2α,

    ε ≥ ln((p − δ) / q),    p = lower bound of P(S), q = upper bound of Q(S), each with confidence 1 − α

(Jagielski, Ullman, Oprea 2020; Clopper, Pearson 1934). Nothing about the mechanism enters.

*Events.* A run shows several *features*: numbers, or texts. The adversary looks at the first half of the runs on both
tables, ranks what each feature shows by how much it speaks for the first table, and takes the feature, the threshold
and the direction that would prove the most. On the second half one event is left, and one pair of bounds.

    number    ranked by itself, and all numbers together by Fisher's discriminant, S⁻¹(mean − mean′)
    text      ranked by ln((times + ½)/(times′ + ½)); what was seen fewer than five times says nothing
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DualQueryError
from dualquery.privacy.budget import Budget, Neighbours
from dualquery.privacy.ledger import Ledger
from dualquery.randomness import Entropy, SeededEntropy, SystemEntropy
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.records import MOST, Records
from dualquery.types import Integers, Reals, halved

_STEPS = 60  # halvings: far below the error of counting
_MARGIN = 1e-9  # more than the rounding of a sum of logarithms


@dataclass(frozen=True, order=True)
class Claim:
    """What a ledger says was spent: (ε, δ)."""

    epsilon: float
    delta: float = 0.0

    @staticmethod
    def of(ledger: Ledger) -> Claim:
        spent = ledger.spent()
        return Claim(spent.epsilon, spent.delta)


@dataclass(frozen=True)
class Hits:
    """How often an event happened: on the side that it favours, and on the other, of so many runs each."""

    likely: int
    unlikely: int
    runs: int


def proven_epsilon(hits: Hits, *, delta: float, failure: float) -> float:
    """The ε that these hits prove, but with chance `failure`; 0 where they prove nothing."""
    p = lower_bound(hits.likely, hits.runs, failure=failure / 2)
    q = upper_bound(hits.unlikely, hits.runs, failure=failure / 2)
    return max(0.0, math.log((p - delta) / q)) if p > delta else 0.0


def lower_bound(hits: int, runs: int, *, failure: float) -> float:
    """The probability below which so many hits or more have less than this chance."""
    return 0.0 if hits == 0 else 1 - upper_bound(runs - hits, runs, failure=failure)


def upper_bound(hits: int, runs: int, *, failure: float) -> float:
    """The probability above which so few hits or fewer have less than this chance, rounded up."""
    if hits >= runs:
        return 1.0
    _, high = halved(0.0, 1.0, _STEPS, lambda p: _at_most(hits, runs, p) <= failure)
    return min(1.0, high * (1 + _MARGIN) + _MARGIN / runs)


def _at_most(hits: int, runs: int, p: float) -> float:
    """P(X ≤ hits) of a binomial distribution, summed by logarithms."""
    if not 0 < p < 1:
        return 1.0 if p <= 0 else 0.0
    k = np.arange(hits + 1)
    logs = _log_choices(runs)[: hits + 1] + k * math.log(p) + (runs - k) * math.log1p(-p)
    largest = float(logs.max())
    return math.exp(largest + math.log(float(np.exp(logs - largest).sum())))


@lru_cache(maxsize=8)
def _log_choices(runs: int) -> Reals:
    k = np.arange(runs, dtype=np.float64)
    return np.concatenate([[0.0], np.cumsum(np.log(runs - k) - np.log1p(k))])


def about_epsilon(likely: Integers, unlikely: Integers, runs: int, *, delta: float, strict: float) -> Reals:
    """Roughly what `proven_epsilon` will say of many events, by Wilson's interval: good enough to choose by."""
    p, _ = _wilson(likely, runs, strict)
    _, q = _wilson(unlikely, runs, strict)
    return np.where(p > delta, np.log(np.maximum(p - delta, 1e-300) / q), -np.inf)


def _wilson(hits: Integers, runs: int, z: float) -> tuple[Reals, Reals]:
    share = hits / runs
    middle = share + z * z / (2 * runs)
    half = z * np.sqrt(share * (1 - share) / runs + (z / (2 * runs)) ** 2)
    scale = 1 + z * z / runs
    return (middle - half) / scale, (middle + half) / scale


Feature = Reals | NDArray[np.str_]  # one entry per run
Shown = Mapping[str, float | str]  # what one run shows
Features = Mapping[str, Feature]  # everything that runs on one table showed
Ranking = Callable[[Features], Reals]

TOGETHER = "all numbers together"
_RARE = 5
_MOST_THRESHOLDS = 2000
_STRICT = 4.0  # standard deviations, in the choice of an event


@dataclass(frozen=True)
class Event:
    """{rank ≥ threshold} or {rank ≤ threshold} of a feature, and the table that makes it likely."""

    feature: str
    rank: Ranking
    threshold: float
    above: bool
    likely_side: int

    def hits(self, seen: tuple[Features, Features]) -> Hits:
        ranks = [self.rank(each) for each in (seen[self.likely_side], seen[1 - self.likely_side])]
        held = [rank >= self.threshold if self.above else rank <= self.threshold for rank in ranks]
        return Hits(int(held[0].sum()), int(held[1].sum()), len(held[0]))


def aligned(one: Features, other: Features) -> tuple[Features, Features]:
    """The same features on both sides: a text that only one side shows is empty on the other."""
    names = dict.fromkeys((*one, *other))

    def completed(seen: Features) -> Features:
        length = len(next(iter(seen.values())))
        nothing = np.array([""] * length)
        return {name: seen.get(name, nothing) for name in names}

    return completed(one), completed(other)


def split(seen: Features) -> tuple[Features, Features]:
    """The first half of the runs, to choose by, and the second, to judge by."""
    half = len(next(iter(seen.values()))) // 2
    first = {name: values[:half] for name, values in seen.items()}
    return first, {name: values[half : 2 * half] for name, values in seen.items()}


def choose_event(seen: tuple[Features, Features], *, delta: float) -> Event:
    """The event that would prove the most: ranked by one half of these runs, the ranking tried on the other.

    (Tried on the runs that made it, a ranking of many texts would look perfect.)
    """
    learning, trying = zip(*map(split, seen), strict=True)
    best: tuple[float, Event] | None = None
    for name, rank in _rankings(learning).items():
        value, event = _best_threshold(name, rank, trying, delta)
        if best is None or value > best[0]:
            best = value, event
    assert best is not None, "a run shows something"
    return best[1]


def _rankings(seen: tuple[Features, Features]) -> dict[str, Ranking]:
    numbers = [name for name, values in seen[0].items() if values.dtype.kind == "f"]
    rankings = {name: _number(name) if name in numbers else _text(name, seen) for name in seen[0]}
    if len(numbers) > 1:
        rankings[TOGETHER] = _discriminant(numbers, seen)
    return rankings


def _number(name: str) -> Ranking:
    return lambda seen: seen[name].astype(np.float64)


def _text(name: str, seen: tuple[Features, Features]) -> Ranking:
    times = [Counter(each[name].tolist()) for each in seen]
    speaks = {
        text: float(np.log((times[0][text] + 0.5) / (times[1][text] + 0.5)))
        for text in times[0] | times[1]
        if times[0][text] + times[1][text] >= _RARE
    }
    return lambda seen: np.array([speaks.get(text, 0.0) for text in seen[name].tolist()])


def _discriminant(names: list[str], seen: tuple[Features, Features]) -> Ranking:
    def matrix(each: Features) -> Reals:
        return np.column_stack([each[name].astype(np.float64) for name in names])

    one, other = map(matrix, seen)
    scatter = np.cov(one, rowvar=False) + np.cov(other, rowvar=False)
    scatter += np.diag(1e-9 + 1e-6 * np.diag(scatter))
    direction = np.linalg.solve(scatter, one.mean(axis=0) - other.mean(axis=0))
    return lambda seen: matrix(seen) @ direction


def _best_threshold(
    name: str, rank: Ranking, seen: tuple[Features, Features], delta: float
) -> tuple[float, Event]:
    ranks = [np.sort(rank(each)) for each in seen]
    runs = len(ranks[0])
    cuts = np.unique(np.concatenate(ranks))
    if len(cuts) > _MOST_THRESHOLDS:
        cuts = cuts[np.linspace(0, len(cuts) - 1, _MOST_THRESHOLDS).astype(np.int64)]
    below = [np.searchsorted(each, cuts, side="right") for each in ranks]  # rank ≤ cut
    reach = [runs - np.searchsorted(each, cuts, side="left") for each in ranks]  # rank ≥ cut
    found = []
    for side in (0, 1):
        for above, hits in ((False, below), (True, reach)):
            values = about_epsilon(hits[side], hits[1 - side], runs, delta=delta, strict=_STRICT)
            at = int(values.argmax())
            found.append((float(values[at]), Event(name, rank, float(cuts[at]), above, side)))
    return max(found, key=lambda each: each[0])


class AuditError(DualQueryError):
    """An audit that found nothing out."""


@dataclass(frozen=True)
class Sampled:
    """Runs on one table: what they showed, and what the ledger says each of them spent."""

    seen: Features
    claim: Claim
    refusal: str | None = None  # the sentence, where every run was refused and nothing was published


class Refusal(Enum):
    """Whether files may be refused. A refusal that nobody expected would make any audit hold."""

    NEVER = "never"
    MALFORMED = "one of the files is malformed"
    ALWAYS = "for a public reason, both in the same words"


Tell = Callable[[int], None]  # runs that are done
Sampler = Callable[[int, int, Entropy, Tell], Sampled]  # which of the two tables, how many runs


def repeated(budget: Budget, begin: Callable[[int, Entropy], Callable[[Ledger], Shown]]) -> Sampler:
    """Runs one at a time, each paid by a ledger of its own; the claim is the most that any of them has spent."""

    def sample(side: int, runs: int, entropy: Entropy, tell: Tell) -> Sampled:
        run, found, claim = begin(side, entropy), [], Claim(0.0)
        for _ in range(runs):
            ledger = Ledger(budget)
            found.append(run(ledger))
            claim = max(claim, Claim.of(ledger))
            tell(1)
        return Sampled(columns(found), claim)

    return sample


def columns(found: Sequence[Shown]) -> Features:
    """What runs showed, feature by feature; a text that a run does not show is empty."""
    names = dict.fromkeys(name for each in found for name in each)
    return {name: np.array([each.get(name, "") for each in found]) for name in names}


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
        return 0 if self.exact is not None else wanted or (self.quick if quick else self.long)


class Verdict(Enum):
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
    claim = max(one.claim, other.claim)
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


def stream(seed: int | None, *names: str) -> Entropy:
    """System entropy; or with a seed a stream that nothing else of another name draws from."""
    if seed is None:
        return SystemEntropy()
    digest = hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()
    return SeededEntropy(int.from_bytes(digest[:16]))


BITS = Domain((Categorical("a", ("0", "1")), Categorical("b", ("0", "1"))))
GRADES = Domain((Categorical("grade", ("low", "middle", "high")), Categorical("b", ("0", "1"))))
BASKETS = Domain((Items("basket", 6),))
HEIGHTS = Domain((Numeric("height", (0.0, 1.5, 3.0)),))


@dataclass(frozen=True)
class Pair:
    """Two tables that one record tells apart, and the number of records that the public believes in."""

    words: str
    neighbours: Neighbours
    tables: tuple[Records, Records]
    public_rows: int

    @property
    def domain(self) -> Domain:
        return self.tables[0].domain


def pair_of(
    words: str,
    neighbours: Neighbours,
    one: Sequence[Sequence[int]],
    other: Sequence[Sequence[int]],
    domain: Domain = BITS,
) -> Pair:
    """A pair from rows of codes; the public believes in as many records as the larger table has."""
    tables = [
        Records.from_rows(domain, np.array(rows, np.int64).reshape(len(rows), domain.width))
        for rows in (one, other)
    ]
    return Pair(words, neighbours, (tables[0], tables[1]), max(len(one), len(other), 1))


REPLACED = pair_of("a record and its opposite", Neighbours.REPLACE, [[0, 0]], [[1, 1]])
DUPLICATES = pair_of(
    "ten duplicates, one of them replaced", Neighbours.REPLACE, [[0, 0]] * 10, [[0, 0]] * 9 + [[1, 1]]
)
ALONE = pair_of("one row against none", Neighbours.ADD_REMOVE, [], [[1, 1]])
MANY = pair_of(
    "a record more that alone satisfies every query",
    Neighbours.ADD_REMOVE,
    [[0, 0]] * 9,
    [[0, 0]] * 9 + [[1, 1]],
)
EXTREMES = pair_of("the lowest value replaced by the highest", Neighbours.REPLACE, [[0, 0]], [[2, 1]], GRADES)
FULL_BASKET = pair_of(
    "a full basket more", Neighbours.ADD_REMOVE, [[0] * 6] * 2, [[0] * 6] * 2 + [[1] * 6], BASKETS
)


def placed(pair: Pair, *places: Sequence[int]) -> Pair:
    """The pair, with a place in its bin for the number of each record."""
    one, other = (
        replace(table, places=(np.array(each, np.uint16),))
        for table, each in zip(pair.tables, places, strict=True)
    )
    return replace(pair, tables=(one, other))


FROM_END_TO_END = placed(
    pair_of("the least number of a bin replaced by the largest", Neighbours.REPLACE, [[0]], [[0]], HEIGHTS),
    [0],
    [MOST],
)
AT_AN_END = placed(
    pair_of("a number more, at the end of its bin", Neighbours.ADD_REMOVE, [], [[1]], HEIGHTS), [], [0]
)
