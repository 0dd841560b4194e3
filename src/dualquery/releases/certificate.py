"""The certificate: what was done, what it cost, and what was public, as plain data that anyone can check.

Nothing in it is private. The number of records stands there only where it is public or was paid for, and
how long a run took stands nowhere, because time can depend on the data.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dualquery import __version__
from dualquery.errors import ReleaseError
from dualquery.releases.prediction import PredictedError
from dualquery.releases.shape import check_shape, read_json
from dualquery.table.schema import Schema, parse_schema, schema_text

if TYPE_CHECKING:  # to read a certificate needs no mechanism
    from dualquery.mechanisms.choose import AnyMechanism
    from dualquery.mechanisms.mechanism import Plan
    from dualquery.privacy.events import Event
    from dualquery.privacy.ledger import Ledger
    from dualquery.randomness import Entropy

SEVERAL = (2, 5, 10)  # records, or persons, for which the certificate says what is left of the promise
FORMAT = 4
_PACKAGES = ("numpy", "numba", "pyarrow")


class RowsFrom(Enum):
    """How the number of records came to be known to the public."""

    TABLE = "the length of the table, which these neighbours share"
    DECLARED = "declared by the curator as public"
    MEASURED = "measured with noise, out of the same budget"


@dataclass(frozen=True)
class Certificate(Mapping[str, Any]):
    """A read-only mapping, nested like the JSON that it is saved as."""

    _data: Mapping[str, Any]

    @staticmethod
    def of(data: Mapping[str, Any]) -> Certificate:
        return Certificate(_frozen(data))

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __str__(self) -> str:
        return self.to_json()

    def __reduce__(self) -> tuple[Any, ...]:
        """Read-only mappings cannot be pickled; the plain data can."""
        return Certificate.of, (_thawed(self._data),)

    def with_files(self, digests: Mapping[str, str]) -> Certificate:
        """The same certificate, tied to the contents of the files that it certifies."""
        return Certificate.of({**self._data, "files": digests})

    def to_json(self) -> str:
        return json.dumps(_thawed(self._data), indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> Certificate:
        """The certificate that a text holds, as far as its shape tells; whether it is sealed is for `seal`."""
        data = read_json(text)
        if data["format"] != FORMAT:
            raise ReleaseError(
                "the release was written by another version of dualquery (its format is not "
                f"{FORMAT}); read it with that version"
            )
        check_shape(data)
        return Certificate.of(data)

    @property
    def private(self) -> bool:
        """Whether the release may claim differential privacy at all."""
        return bool(self["entropy"]["private"]) and not self["schema_is_draft"]

    @property
    def schema(self) -> Schema:
        return parse_schema(self["schema"], origin="the schema of the release")

    @property
    def predicted_error(self) -> PredictedError:
        return PredictedError.from_json(self["predicted_error"])


def certify(
    *,
    plan: Plan[Any],
    mechanism: AnyMechanism,
    schema: Schema,
    ledger: Ledger,
    entropy: Entropy,
    rows_from: RowsFrom,
    synthetic_rows: int | None,
    replicas: Mapping[str, int],
    predicted_error: PredictedError,
    accounting_reason: str,
    warnings: Sequence[str],
    notes: Sequence[str],
    engine: str,
    book: Mapping[str, str | int] | None = None,
    artefact: str | None = None,
) -> Certificate:
    """The certificate of a finished run. What is called spent is what the ledger paid, never the plan."""
    from dualquery.mechanisms.mechanism import shown
    from dualquery.privacy.conversion import UNITS

    budget, spent, workload = ledger.budget, ledger.spent(), plan.task.workload
    return Certificate.of(
        {
            "format": FORMAT,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "mechanism": plan.mechanism,
            "mechanism_words": mechanism.words,
            "reason": plan.reason,
            "parameters": shown(plan.parameters),
            "budget": {
                "epsilon": budget.epsilon,
                "delta": budget.delta,
                "neighbours": budget.neighbours.value,
                "neighbours_words": budget.neighbours.words(),
                "records_per_person": budget.neighbours.records_per_person,
                "accounting": budget.accounting.value,
                "accounting_words": budget.accounting.words(),
                "accounting_reason": accounting_reason,
            },
            "several": {str(k): finite(ledger.epsilon_for(k)) for k in SEVERAL},
            "spent": {
                "epsilon": spent.epsilon,
                "delta": spent.delta,
                "rho": None if spent.rho_units is None else f"{spent.rho_units / UNITS:.12f}",
            },
            **({} if book is None else {"book": book}),
            "events": event_list(ledger.events),
            "engine": engine,
            "entropy": {"statement": entropy.statement, "private": entropy.private},
            "records": {"rows": plan.task.rows, "from": rows_from.value},
            "synthetic_rows": synthetic_rows,
            **({} if schema.domain.kind == "records" else {"table": schema.domain.kind}),
            **({} if artefact is None else {"artefact": artefact}),
            "replicas": replicas,
            "workload": {
                "spec": workload.spec,
                "queries": workload.size,
                "digest": workload.digest(),
            },
            "predicted_error": predicted_error.to_json(),
            "warnings": list(warnings),
            "notes": list(notes),
            "versions": versions(),
            "schema": schema_text(schema),
            "schema_is_draft": schema.draft,
            "files": {},
        }
    )


def finite(epsilon: float) -> float | None:
    """JSON has no word for an infinite ε."""
    return epsilon if math.isfinite(epsilon) else None


def event_list(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The events in order, equal neighbours written once with the number of times."""
    return [{**event.to_json(), "times": len(list(run))} for event, run in groupby(events)]


def versions() -> dict[str, str]:
    """The versions of everything that decided a bit of the output."""
    found = {"dualquery": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({key: _frozen(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_thawed(item) for item in value]
    return value
