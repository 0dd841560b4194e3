"""From distributions to what is released: which iterate, as rows and as answers; and options as named values."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dualquery.distributions.factored import Evaluation, Factored
from dualquery.distributions.products import Products
from dualquery.errors import DualQueryError
from dualquery.mechanisms.plan import Options, Outcome, Shape
from dualquery.queries.workload import Workload
from dualquery.table.records import Records

MOST_ANSWERS = 5_000_000  # worked out from the distribution itself; beyond, the rows answer
FEWEST_ROWS = 20_000  # of synthetic data


class Iterate(Enum):
    """Which distribution is released."""

    LAST = "last"
    AVERAGE = "average"


class Average:
    """The average of all iterates: of their answers, and as rows drawn from each in turn."""

    def __init__(
        self, distribution: Factored, workload: Workload, rounds: int, rows: int, rng: np.random.Generator
    ) -> None:
        self._distribution = distribution
        self._evaluation = Evaluation(Products.of(workload), distribution)
        self._rows_each = -(-rows // rounds)
        self._rng = rng
        self._answers: NDArray[np.float64] = np.zeros(workload.size)
        self._rows: list[NDArray[np.int32]] = []

    def hear(self) -> None:
        """Take in the distribution as it stands after a round."""
        self._answers += self._evaluation.answers()
        self._rows.append(self._distribution.sample(self._rows_each, self._rng))

    def outcome(self) -> Outcome:
        rows = np.concatenate(self._rows)
        return Outcome(
            records=Records.from_rows(self._distribution.domain, rows),
            answers=self._answers / len(self._rows),
        )


def released(distribution: Factored, workload: Workload, rows: int, rng: np.random.Generator) -> Outcome:
    """A distribution as synthetic records, and its own answers unless the queries are too many to list."""
    answers = None
    if workload.size <= MOST_ANSWERS:
        answers = Evaluation(Products.of(workload), distribution).answers()
    records = Records.from_rows(distribution.domain, distribution.sample(rows, rng))
    return Outcome(records=records, answers=answers)


def synthetic_rows(shape: Shape, options: Options) -> int:
    if options.synthetic_rows is not None and options.synthetic_rows < 1:
        raise DualQueryError("a synthetic table has at least one row")
    return options.synthetic_rows or max(FEWEST_ROWS, shape.rows)


Chosen = TypeVar("Chosen", bound=Enum)


def choice(kind: type[Chosen], given: str | None, usual: Chosen, flag: str) -> Chosen:
    """An option's text as one of its named values."""
    if given is None:
        return usual
    for each in kind:
        if each.value == given:
            return each
    names = ", ".join(str(each.value) for each in kind)
    raise DualQueryError(f"{flag} is one of {names}, and '{given}' is none of them")
