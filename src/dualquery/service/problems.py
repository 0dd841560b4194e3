"""Whatever is refused has one shape: a code for programs, a sentence for people, and what helps to mend it."""

from __future__ import annotations

import json
import re

from dualquery.errors import BudgetError, DualQueryError, LedgerError, QueryError

Detail = dict[str, object]


class ProblemError(DualQueryError):
    """A refusal with its HTTP status."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: dict[str, str] | None = None,
        **details: object,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.details = status, code, details
        self.headers = headers or {}

    def to_json(self) -> Detail:
        return {"error": {"code": self.code, "message": str(self), **self.details}}

    def body(self) -> bytes:
        return json.dumps(self.to_json(), separators=(",", ":")).encode("ascii")


def a_defect() -> ProblemError:
    """What is said of a fault of ours: nothing of where it was, or of what it found."""
    return ProblemError(500, "defect", "the service met a defect with this request; tell its owner")


def not_ready(code: str, message: str) -> ProblemError:
    """Why nothing can be asked now; nothing in it names a place, a person or a number."""
    return ProblemError(503, code, message, headers={"Retry-After": "5"})


def problem_of(error: DualQueryError) -> ProblemError:
    """An error of the library, as a refusal."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, QueryError):
        return malformed(str(error))
    if isinstance(error, BudgetError):
        return ProblemError(403, "budget_exhausted", str(error))
    if isinstance(error, LedgerError):
        return ProblemError(503, "ledger_away", f"{error}; nothing was told", headers={"Retry-After": "5"})
    return ProblemError(422, "refused", str(error))


def malformed(message: str) -> ProblemError:
    """A query that cannot be understood, with the column of the fault, counted from 1."""
    first, _, picture = message.partition("\n")
    found = re.match(r"column (\d+): (.*)", first, re.DOTALL)
    if found is None:
        return ProblemError(422, "malformed_query", message)
    return ProblemError(422, "malformed_query", found[2], column=int(found[1]), picture=picture)
