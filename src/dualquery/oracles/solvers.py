"""Who finds best responses, by name: our search, CP-SAT, an integer solver that OR-Tools finds, or one of one's own.

    dualquery.register(Solver("mine", respond))             # then --oracle mine, or oracle="mine"

`respond` gets the clauses of a round, the record that our search found for them, and the seconds that it may take,
and gives back a record. Whatever it does is post-processing: a bad solver can only cost accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.oracles.clauses import Clauses
from dualquery.oracles.program import PROVES, backend_of, exact_response
from dualquery.registry import Registry
from dualquery.types import Ints

Respond = Callable[[Clauses, Ints, float], Ints]


@dataclass(frozen=True)
class Solver:
    """A solver by its name."""

    registered_in: ClassVar[str] = "solvers"

    name: str
    respond: Respond

    def best(self, clauses: Clauses, found: Ints, seconds: float) -> Ints:
        """Its record, after a look at whether it is one."""
        record = np.asarray(self.respond(clauses, found, seconds))
        whole = record.shape == clauses.sizes.shape and np.issubdtype(record.dtype, np.integer)
        if not whole or (record < 0).any() or (record >= clauses.sizes).any():
            raise DualQueryError(
                f"the solver '{self.name}' must give back a record: one code an attribute, within its values"
            )
        return record.astype(np.int32)


def _exact(clauses: Clauses, found: Ints, seconds: float, backend: str = PROVES) -> Ints:
    return exact_response(clauses, found, time_limit=seconds, hint=found, backend=backend).record


SEARCH = Solver("search", lambda clauses, found, seconds: found)
EXACT = Solver("exact", _exact)
SOLVERS: Registry[Solver] = Registry(
    "solvers",
    "solver",
    {"search": "dualquery.oracles.solvers:SEARCH", "exact": "dualquery.oracles.solvers:EXACT"},
)


def solver_of(name: str) -> Solver:
    """One that is built in or registered; else a backend of OR-Tools, or a sentence that says what there is."""
    if name in SOLVERS:
        return SOLVERS[name]
    backend_of(name)
    return Solver(name, partial(_exact, backend=name))
