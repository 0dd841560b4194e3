"""What the user got wrong, in one sentence that says what to do next.

A message names attributes, flags and files, which are public. It never names a value, a row or
a count of the private table: an error is an output too, and nobody charged for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class DualQueryError(Exception):
    """Anything a user can mend. The command line prints it and exits with code 2."""


class SchemaError(DualQueryError):
    """The schema file, or the domain that it describes, is not well formed."""


class DataError(DualQueryError):
    """The table cannot be read, or does not fit the schema."""


class QueryError(DualQueryError):
    """A query or a workload cannot be understood, or cannot be asked of this domain."""


class BudgetError(DualQueryError):
    """The privacy budget is malformed, or too small for what it should pay for."""


class ReleaseError(DualQueryError):
    """A release folder cannot be written, or what stands there is not a release."""


class LedgerError(DualQueryError):
    """A ledger cannot be read or written, or what stands there is not what was written."""


def require(condition: bool, sentence: str) -> None:
    """BudgetError, in this sentence, unless the condition holds."""
    if not condition:
        raise BudgetError(sentence)


@contextmanager
def writing(path: object, kind: type[DualQueryError] = ReleaseError) -> Iterator[None]:
    """What the operating system says against a file that is written, in a sentence."""
    try:
        yield
    except OSError as error:
        raise kind(f"'{path}' cannot be written: {error.strerror or error}") from None
