"""The certificate: what was done, what it cost, and what was public, as plain data that anyone can check.

Nothing in it is private. The number of records stands there only where it is public or was paid for, and how long a
run took stands nowhere, because time can depend on the data.

It comes out of a file that anybody may have edited. So it is checked against a list of every field, and what may
stand there (`FIELDS`), before anything else reads it; docs/certificate.md explains the fields.

How far off answers are likely to be is said from public quantities alone. A mechanism predicts a mean and a
maximal error for its whole workload, before any data is read. Where there are replicas of a release
(`mechanisms.error_bars`), their errors say more: by answer and number of attributes, as curves that serve any query,
and for the workload as a histogram.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dualquery import __version__
from dualquery.errors import ReleaseError
from dualquery.mechanisms.error_bars import LEVEL, CurvePoint, ErrorCurves, Replica, learned_curves
from dualquery.queries.random_families import Stream
from dualquery.table.records import Records
from dualquery.table.schema import Schema, parse_schema, schema_text

if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import Plan

HISTOGRAM_BARS = 30
SAMPLE = 5_000  # queries of a group that the histogram is made of
MOST_CELLS = 50_000  # of tables in the sample


@dataclass(frozen=True)
class PredictedError:
    """Errors as fractions of the table; None where nothing is predicted.

    `edges` and `counts` are the histogram of the errors that replicas make on the queries of the workload; empty,
    like the curves, where there are no replicas.
    """

    mean: float | None
    maximum: float | None
    curves: ErrorCurves = field(default_factory=ErrorCurves)
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @staticmethod
    def of(
        plan: Plan[Any], released: Records | None, replicas: Sequence[Replica], seed: int
    ) -> PredictedError:
        """What the plan predicts, and what the replicas show."""
        mean, maximum = _known(plan.mean_error), _known(plan.max_error)
        if released is None or not replicas:
            return PredictedError(mean, maximum)
        stream = Stream(seed + len(replicas))  # another one than those that drew the replicas
        curves = learned_curves(released, plan.task.rows, replicas, stream)
        counts, edges = np.histogram(_workload_errors(plan, replicas, seed), bins=HISTOGRAM_BARS)
        return PredictedError(mean, maximum, curves, tuple(map(float, edges)), tuple(map(int, counts)))

    def to_json(self) -> dict[str, Any]:
        return {
            "level": LEVEL,
            "mean": self.mean,
            "max": self.maximum,
            "curves": [[list(point) for point in curve] for curve in self.curves.curves],
            "histogram": {"edges": list(self.edges), "counts": list(self.counts)},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PredictedError:
        histogram = data["histogram"]
        return PredictedError(
            data["mean"],
            data["max"],
            ErrorCurves(tuple(tuple(CurvePoint(*point) for point in curve) for curve in data["curves"])),
            tuple(histogram["edges"]),
            tuple(histogram["counts"]),
        )


def _workload_errors(plan: Plan[Any], replicas: Sequence[Replica], seed: int) -> np.ndarray:
    """The size of the errors of all replicas, on a sample of the workload."""
    rng = np.random.default_rng(seed)
    groups = [
        group.sampled(rng, queries=SAMPLE, cells=MOST_CELLS).group for group in plan.task.workload.groups
    ]
    return np.abs(np.concatenate([replica.seen(group).errors for group in groups for replica in replicas]))


def _known(error: float) -> float | None:
    return float(error) if math.isfinite(error) else None


LARGEST = 2**63
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DECIMAL = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?")
_MISSING = object()


@dataclass(frozen=True)
class FieldKind:
    """What may stand in a field, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]
    needed: bool = True

    def or_null(self) -> FieldKind:
        return FieldKind(f"{self.words}, or null", lambda value: value is None or self.fits(value))

    def optional(self) -> FieldKind:
        return FieldKind(self.words, self.fits, needed=False)


def _finite(value: Any) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and abs(value) < LARGEST and math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(fits, value))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _curve(value: Any) -> bool:
    """Triples of an answer, its error and a share, by increasing answer: what an interpolation needs."""
    points = _list_of(lambda point: _list_of(_finite)(point) and len(point) == 3 and min(point) >= 0)
    return points(value) and len(value) > 0 and all(a[0] <= b[0] for a, b in pairwise(value))


def _histogram(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    edges, counts = value.get("edges"), value.get("counts")
    if not isinstance(edges, list | tuple) or not isinstance(counts, list | tuple):
        return False
    sizes_fit = len(edges) == len(counts) + 1 or not (edges or counts)
    return sizes_fit and _list_of(_finite)(edges) and _list_of(_whole)(counts)


def _files(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(digest, str) and _DIGEST.fullmatch(digest) and plain_name(name)
        for name, digest in value.items()
    )


def plain_name(name: str) -> bool:
    """Whether a name stays in its folder."""
    return name not in ("", ".", "..") and not re.search(r"[/\\\0]", name)


TEXT = FieldKind("a text", _text)
TEXTS = FieldKind("a list of texts", _list_of(_text))
FLAG = FieldKind("true or false", lambda value: isinstance(value, bool))
WHOLE = FieldKind("a whole number", _whole)
COUNT = FieldKind("a whole number above 0", lambda value: _whole(value) and value > 0)
NUMBER = FieldKind("a number that is not negative", lambda value: _finite(value) and value >= 0)
CHANCE = FieldKind("a number from 0 to 1", lambda value: _finite(value) and 0 <= value <= 1)
DECIMAL = FieldKind(
    "a decimal number in quotes", lambda value: _text(value) and bool(_DECIMAL.fullmatch(value))
)
TIME = FieldKind("a time with its zone", _time)
MAPPING = FieldKind("a list of names and values", lambda value: isinstance(value, Mapping))
TEXTS_BY_NAME = FieldKind(
    "a list of names and texts", lambda value: isinstance(value, Mapping) and all(map(_text, value.values()))
)
DIGEST = FieldKind("a SHA-256 digest", lambda value: _text(value) and bool(_DIGEST.fullmatch(value)))
HEX = FieldKind(
    "a text of hexadecimal digits", lambda value: _text(value) and bool(re.fullmatch("[0-9a-f]+", value))
)

# `a.b` is the field b of the field a; `a[].b` is the field b of every entry of the list a.
FIELDS: dict[str, FieldKind] = {
    "format": WHOLE,
    "created": TIME,
    "mechanism": TEXT,
    "mechanism_words": TEXT,
    "reason": TEXT,
    "parameters": MAPPING,
    "budget.epsilon": NUMBER,
    "budget.delta": CHANCE,
    "budget.neighbours": TEXT,
    "budget.neighbours_words": TEXT,
    "budget.accounting": TEXT,
    "budget.accounting_words": TEXT,
    "budget.accounting_reason": TEXT.optional(),
    "budget.records_per_person": WHOLE.or_null(),
    "several.2": NUMBER.or_null(),
    "several.5": NUMBER.or_null(),
    "several.10": NUMBER.or_null(),
    "spent.epsilon": NUMBER,
    "spent.delta": CHANCE,
    "spent.rho": DECIMAL.or_null(),
    "events": FieldKind("a list", _list_of(lambda event: isinstance(event, Mapping))),
    "events[].event": TEXT,
    "events[].times": COUNT,
    "events[].draws": COUNT.optional(),
    "engine": TEXT.optional(),
    "entropy.statement": TEXT,
    "entropy.private": FLAG,
    "records.rows": WHOLE,
    "records.from": TEXT,
    "synthetic_rows": WHOLE.or_null(),
    "table": TEXT.optional(),
    "artefact": TEXT.optional(),
    "replicas.number": WHOLE,
    "replicas.records": COUNT,
    "replicas.seed": WHOLE,
    "workload.spec": TEXT,
    "workload.queries": WHOLE,
    "workload.digest": TEXT,
    "predicted_error.mean": NUMBER.or_null(),
    "predicted_error.max": NUMBER.or_null(),
    "predicted_error.level": CHANCE,
    "predicted_error.curves": FieldKind(
        "lists of triples of numbers, by increasing answer", _list_of(_curve)
    ),
    "predicted_error.histogram": FieldKind("the edges and counts of a histogram", _histogram),
    "warnings": TEXTS,
    "notes": TEXTS,
    "versions": TEXTS_BY_NAME,
    "versions.dualquery": TEXT,
    "schema": TEXT,
    "schema_is_draft": FLAG,
    "files": FieldKind("a list of file names and SHA-256 digests", _files),
    "seal": DIGEST.optional(),
    "signature": MAPPING.optional(),
}
SIGNATURE: dict[str, FieldKind] = {"algorithm": TEXT, "public_key": HEX, "signature": HEX}


def read_json(text: str) -> dict[str, Any]:
    """The object in a text, where no name stands twice and every number is one.

    Programs disagree about which of two values of one name counts: a certificate must not say two things.
    """
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_real)
    except json.JSONDecodeError:
        raise ReleaseError("certificate.json is damaged: it is not JSON") from None
    except (ValueError, RecursionError):
        raise ReleaseError(
            "certificate.json is damaged: it has a name twice, a number beyond all bounds, or too many brackets"
        ) from None
    if not isinstance(data, dict) or "format" not in data:
        raise ReleaseError("certificate.json is not a certificate of dualquery")
    return data


def check_shape(data: Mapping[str, Any]) -> None:
    """ReleaseError that names the first field that is missing or holds something else than it should."""
    _check(data, FIELDS)
    if "signature" in data:
        _check(data["signature"], SIGNATURE, prefix="signature.")


def _check(data: Mapping[str, Any], kinds: Mapping[str, FieldKind], prefix: str = "") -> None:
    for path, kind in kinds.items():
        for value in _at(data, path.split(".")):
            if value is _MISSING and kind.needed:
                raise ReleaseError(
                    f"certificate.json lacks '{prefix}{path}': it is damaged, or was changed by hand"
                )
            if value is not _MISSING and not kind.fits(value):
                raise ReleaseError(
                    f"'{prefix}{path}' in certificate.json is not {kind.words}: it is damaged, or was changed by hand"
                )


def _at(data: Any, names: list[str]) -> Iterator[Any]:
    """What stands at a path; at a list, once for each entry."""
    if not names:
        yield data
        return
    name, rest = names[0], names[1:]
    value = data.get(name.removesuffix("[]"), _MISSING) if isinstance(data, Mapping) else _MISSING
    entries: Iterable[Any] = [value]
    if name.endswith("[]") and isinstance(value, list | tuple):
        entries = value
    for entry in entries:
        if entry is _MISSING:
            yield _MISSING
        else:
            yield from _at(entry, rest)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _real(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


if TYPE_CHECKING:  # to read a certificate needs no mechanism
    from dualquery.mechanisms.mechanism import AnyMechanism, Plan
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
