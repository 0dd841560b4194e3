"""Queries by their numbers, put to beliefs that answer one workload: what several learners are asked."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.counting.counter import Integers
from dualquery.game.moves import HeardQuery
from dualquery.privacy.scores import SignedErrors
from dualquery.privacy.selection import Selected
from dualquery.privacy.statistics import Balance
from dualquery.queries.workload import Workload


class Answering(Protocol):
    """A belief as it stands, about the workload that it was made for."""

    def own_answers(self) -> NDArray[np.float64]:
        """The fraction of each query."""


class NumberedQueries:
    """The queries of a workload, put to one belief after another."""

    def __init__(self, workload: Workload, public_rows: int, start: Answering) -> None:
        self._workload = workload
        self._public_rows = public_rows
        self._start = start
        self._all = np.arange(workload.size, dtype=np.int64)

    def score(self, reply: Answering | None) -> SignedErrors:
        answers = (self._start if reply is None else reply).own_answers()
        return SignedErrors.of_answers(self._workload, self._public_rows, answers, self._all)

    def statistic(self, chosen: Selected) -> Balance:
        return Balance(self._workload, int(chosen.queries[0]))

    def heard(self, chosen: Selected, noisy: Integers) -> HeardQuery:
        rows = self._workload.unit * self._public_rows
        return HeardQuery(int(chosen.queries[0]), (rows + int(noisy[0])) / (2 * rows))
