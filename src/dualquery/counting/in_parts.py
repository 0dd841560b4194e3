"""Numbers that are rounded once, over all records, where a table is counted in parts.

Rounded in every part they would depend on where the parts begin, which a single record can shift for all that
follow. So parts give the sums as they are before rounding, which add up, and the whole is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dualquery.counting.counter import Countable
from dualquery.queries.workload import Workload
from dualquery.table.records import Records
from dualquery.types import Done, Integers, no_progress


@runtime_checkable
class RoundedOnce(Protocol):
    """counts(records) = rounded(sums(records)), and sums add up over records."""

    def sums(self, records: Records, progress: Done = ..., /) -> Integers: ...

    def rounded(self, sums: Integers) -> Integers: ...


@dataclass(frozen=True)
class InParts:
    """What is counted of each part, and what is made of all parts together."""

    asked: Countable

    @property
    def _pieces(self) -> Sequence[Countable]:
        return self.asked.groups if isinstance(self.asked, Workload) else (self.asked,)

    def counts(self, records: Records, progress: Done = no_progress) -> Integers:
        """Of a part, before rounding."""
        return np.concatenate(
            [
                (each.sums if isinstance(each, RoundedOnce) else each.counts)(records, progress)
                for each in self._pieces
            ]
        )

    def whole(self, sums: Integers) -> Integers:
        """Of all parts, whose numbers were added up."""
        if not isinstance(self.asked, Workload):
            return self.asked.rounded(sums) if isinstance(self.asked, RoundedOnce) else sums
        parts = np.split(sums, self.asked.starts[1:-1])
        return np.concatenate(
            [
                group.rounded(part) if isinstance(group, RoundedOnce) else part
                for group, part in zip(self.asked.groups, parts, strict=True)
            ]
        )
