"""Questions about the hours of a day: `from 22 to 4`, and the family `arcs:HOURS`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery import Digest, Domain, Grammar, Group, NotProducts, QueryError, Records, Workload

HOURS = 24


@dataclass(frozen=True, eq=False)
class Arcs(NotProducts):
    """Query q asks for the records with an hour in members[q]; a record adds 0 or 1 to each."""

    domain: Domain
    members: NDArray[np.bool_]  # one row per query, one column per hour

    noun = "arcs"

    @property
    def size(self) -> int:
        return len(self.members)

    def counts(self, records: Records) -> NDArray[np.int64]:
        held = np.bincount(np.asarray(records.columns[0]), minlength=HOURS)
        return self.members.astype(np.int64) @ held

    def most_satisfied(self) -> int:
        """Of which the price of a measurement follows (`bound`): the most queries that one hour satisfies."""
        return int(self.members.sum(axis=0).max())

    def most_differing(self) -> int:
        """The most queries that two hours answer differently."""
        apart = self.members[:, :, None] != self.members[:, None, :]
        return int(apart.sum(axis=0).max())

    def take(self, indices: NDArray[np.int64]) -> Arcs:
        return Arcs(self.domain, self.members[indices])

    def describe(self, digest: Digest) -> None:
        digest.add_domain(self.domain)
        digest.add_integers("arcs", self.members.astype(np.int32))

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
        found = []
        for row in self.members[indices]:
            first = int(np.flatnonzero(row & ~np.roll(row, 1))[0]) if not row.all() else 0
            found.append(f"from {first} to {(first + int(row.sum()) - 1) % HOURS}")
        return found


def arc(first: int, hours: int) -> NDArray[np.bool_]:
    return (np.arange(HOURS) - first) % HOURS < hours


def _groups(domain: Domain, texts: Sequence[str], places: Sequence[str]) -> tuple[Group, ...]:
    rows = []
    for text, place in zip(texts, places, strict=True):
        asked = re.fullmatch(r"\s*from (\d+) to (\d+)\s*", text)
        if asked is None or max(int(asked[1]), int(asked[2])) >= HOURS:
            raise QueryError(f"{place}: a question about a clock reads like from 22 to 4")
        rows.append(arc(int(asked[1]), (int(asked[2]) - int(asked[1])) % HOURS + 1))
    return (Arcs(domain, np.stack(rows)),)


def _family(domain: Domain, spec: str) -> Workload | None:
    name, _, hours = spec.partition(":")
    if name != "arcs" or not hours.isdecimal() or not 0 < int(hours) <= HOURS:
        return None
    rows = np.stack([arc(first, int(hours)) for first in range(HOURS)])
    return Workload(domain, (Arcs(domain, rows),), spec)


ARCS = Grammar("arcs", "arcs:HOURS", lambda domain: "from 22 to 4", _groups, _family)
