"""The adversary's event: chosen on one half of the runs, so that the other half may judge it.

A run shows several *features*: numbers, or texts. The adversary looks at the first half of the runs on both tables,
ranks what each feature shows by how much it speaks for the first table, and takes the feature, the threshold and the
direction that would prove the most. On the second half one event is left, and one pair of bounds.

    number    ranked by itself, and all numbers together by Fisher's discriminant, S⁻¹(mean − mean′)
    text      ranked by ln((times + ½)/(times′ + ½)); what was seen fewer than five times says nothing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.audits.bounds import Hits, about_epsilon

Feature = NDArray[np.float64] | NDArray[np.str_]  # one entry a run
Seen = Mapping[str, Feature]  # everything that runs on one table showed
Ranking = Callable[[Seen], NDArray[np.float64]]

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

    def hits(self, seen: tuple[Seen, Seen]) -> Hits:
        ranks = [self.rank(each) for each in (seen[self.likely_side], seen[1 - self.likely_side])]
        held = [rank >= self.threshold if self.above else rank <= self.threshold for rank in ranks]
        return Hits(int(held[0].sum()), int(held[1].sum()), len(held[0]))


def aligned(one: Seen, other: Seen) -> tuple[Seen, Seen]:
    """The same features on both sides: a text that only one side shows is empty on the other."""
    names = dict.fromkeys((*one, *other))

    def completed(seen: Seen) -> Seen:
        length = len(next(iter(seen.values())))
        nothing = np.array([""] * length)
        return {name: seen.get(name, nothing) for name in names}

    return completed(one), completed(other)


def split(seen: Seen) -> tuple[Seen, Seen]:
    """The first half of the runs, to choose by, and the second, to judge by."""
    half = len(next(iter(seen.values()))) // 2
    first = {name: values[:half] for name, values in seen.items()}
    return first, {name: values[half : 2 * half] for name, values in seen.items()}


def choose_event(seen: tuple[Seen, Seen], *, delta: float) -> Event:
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


def _rankings(seen: tuple[Seen, Seen]) -> dict[str, Ranking]:
    numbers = [name for name, values in seen[0].items() if values.dtype.kind == "f"]
    rankings = {name: _number(name) if name in numbers else _text(name, seen) for name in seen[0]}
    if len(numbers) > 1:
        rankings[TOGETHER] = _discriminant(numbers, seen)
    return rankings


def _number(name: str) -> Ranking:
    return lambda seen: seen[name].astype(np.float64)


def _text(name: str, seen: tuple[Seen, Seen]) -> Ranking:
    times = [Counter(each[name].tolist()) for each in seen]
    speaks = {
        text: float(np.log((times[0][text] + 0.5) / (times[1][text] + 0.5)))
        for text in times[0] | times[1]
        if times[0][text] + times[1][text] >= _RARE
    }
    return lambda seen: np.array([speaks.get(text, 0.0) for text in seen[name].tolist()])


def _discriminant(names: list[str], seen: tuple[Seen, Seen]) -> Ranking:
    def matrix(each: Seen) -> NDArray[np.float64]:
        return np.column_stack([each[name].astype(np.float64) for name in names])

    one, other = map(matrix, seen)
    scatter = np.cov(one, rowvar=False) + np.cov(other, rowvar=False)
    scatter += np.diag(1e-9 + 1e-6 * np.diag(scatter))
    direction = np.linalg.solve(scatter, one.mean(axis=0) - other.mean(axis=0))
    return lambda seen: matrix(seen) @ direction


def _best_threshold(name: str, rank: Ranking, seen: tuple[Seen, Seen], delta: float) -> tuple[float, Event]:
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
