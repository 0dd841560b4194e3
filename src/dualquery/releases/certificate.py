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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby, pairwise, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dualquery import __version__
from dualquery.errors import ReleaseError
from dualquery.loops import together
from dualquery.mechanisms.error_bars import (
    ANY,
    LEVEL,
    ErrorCurves,
    Replica,
    learned_curves,
    linked_curves,
)
from dualquery.queries.random_families import Stream
from dualquery.table.records import Records
from dualquery.table.schema import Schema, parse_schema, schema_text
from dualquery.table.units import Units

if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import AnyMechanism, Outcome, Plan
    from dualquery.privacy.events import Event
    from dualquery.privacy.ledger import Ledger
    from dualquery.randomness import Entropy
    from dualquery.table.persons import Span

SEVERAL = (2, 5, 10)  # records, or persons, for which the certificate says what is left of the promise
FORMAT = 4
_PACKAGES = ("numpy", "numba", "pyarrow")
HISTOGRAM_BARS = 30
SAMPLE = 5_000  # queries of a group that the histogram is made of
MOST_CELLS = 50_000  # of tables in the sample


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
        return json.dumps(self.plain(), indent=2, ensure_ascii=False) + "\n"

    def plain(self) -> dict[str, Any]:
        """All of it as dictionaries and lists, to be changed by whoever asked."""
        return dict(_thawed(self._data))

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
        return bool(self["entropy"]["private"]) and not self["schema_is_draft"] and "fitted" not in self

    @property
    def schema(self) -> Schema:
        return parse_schema(self["schema"], origin="the schema of the release")

    @property
    def schema_read(self) -> Schema:
        """The schema, with the periods whose records the release has read."""
        return self.schema.during(self["period"]["periods"] if "period" in self else None)

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
    outcome: Outcome,
    rows_for_people: int | None = None,
    replicas: Mapping[str, int],
    predicted_error: PredictedError,
    accounting_reason: str,
    warnings: Sequence[str],
    notes: Sequence[str],
    engine: str,
    measured: Sequence[Mapping[str, Any]] = (),
    check: Mapping[str, Any] | None = None,
    accepted: Mapping[str, Any] | None = None,
    book: Mapping[str, str | int] | None = None,
    prior: Sequence[Mapping[str, Any]] = (),
    draft: Mapping[str, Any] | None = None,
    totals: Sequence[Mapping[str, Any]] = (),
) -> Certificate:
    """The certificate of a finished run. What is called spent is what the ledger paid, never the plan."""
    from dualquery.mechanisms.mechanism import shown
    from dualquery.privacy.conversion import UNITS

    budget, spent, workload = ledger.budget, ledger.spent(), plan.task.workload
    kind, within, made, trust = schema.domain.kind, schema.within, outcome.artefact, outcome.trust
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
            **_told(book=book),
            "events": event_list(ledger.events),
            "engine": engine,
            **_told(measured=list(measured), check=check, accepted=accepted),
            "entropy": {"statement": entropy.statement, "private": entropy.private},
            "records": {"rows": plan.task.rows, "from": rows_from.value},
            "synthetic_rows": made.rows,
            **_told(rows_for_people=rows_for_people, table=None if kind == "records" else kind),
            **_told(artefact=made.words),
            "replicas": replicas,
            **_told(prior=list(prior), draft=draft, totals=list(totals)),
            **_told(trust=None if trust is None else asdict(trust)),
            "workload": {"spec": workload.spec, "queries": workload.size, "digest": workload.digest()},
            "predicted_error": predicted_error.to_json(),
            "warnings": list(warnings),
            "notes": list(notes),
            "versions": versions(),
            **_told(period=None if within is None else _period(within)),
            "schema": schema_text(schema),
            "schema_is_draft": schema.draft,
            "files": {},
        }
    )


def _told(**named: Any) -> dict[str, Any]:
    """What there is to be said."""
    return {name: said for name, said in named.items() if said}


def _period(span: Span) -> dict[str, str]:
    return {"periods": str(span), "column": span.calendar.column, "calendar": span.calendar.by}


def finite(number: float) -> float | None:
    """JSON has no word for an infinite ε, or an error that nobody knows."""
    return float(number) if math.isfinite(number) else None


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
    if isinstance(value, MappingProxyType):
        return value  # as it was frozen here before
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(item) for key, item in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, MappingProxyType):
        return {key: _thawed(item) for key, item in value.items()}
    return list(map(_thawed, value)) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class PredictedError:
    """Errors as fractions of the table; None where nothing is predicted.

    `edges` and `counts` are the histogram of the errors that replicas make on the queries of the workload; empty,
    like the curves, where there are no replicas. `curves_of` are those of a database (`linked_curves`).
    """

    mean: float | None
    maximum: float | None
    curves: ErrorCurves = field(default_factory=ErrorCurves)
    curves_of: Mapping[str, ErrorCurves] = field(default_factory=dict)
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @staticmethod
    def of(
        plan: Plan[Any], released: Records | None, replicas: Sequence[Replica], seed: int
    ) -> PredictedError:
        """What the plan predicts, and what the replicas show."""
        mean, maximum = finite(plan.mean_error), finite(plan.max_error)
        if released is None or not replicas:
            return PredictedError(mean, maximum)
        stream = Stream(seed + len(replicas))  # another one than those that drew the replicas
        curves = learned_curves(released, plan.task.rows, replicas, stream)
        counts, edges = np.histogram(_workload_errors(plan, replicas, seed), bins=HISTOGRAM_BARS)
        of_tables = (
            linked_curves(released, plan.task.rows, replicas, stream) if isinstance(released, Units) else {}
        )
        return PredictedError(
            mean, maximum, curves, of_tables, tuple(map(float, edges)), tuple(map(int, counts))
        )

    def about(self, kind: str) -> ErrorCurves:
        """Of questions about the rows of a table of a database, or with any, all and count; "": about units."""
        return self.curves_of.get(kind, self.curves)

    def scaled(self, scales: Mapping[tuple[str, int], float]) -> PredictedError:
        """With bars as many times as wide as a check has found; those of any, all and count as the widest of rows and
        of pairs of rows: they are no tables of these.
        """
        by = {of: {order: scale for (each, order), scale in scales.items() if each == of} for of, _ in scales}
        by[ANY] = {1: max([1.0, *(scale for (of, _), scale in scales.items() if of)])}
        curves_of = {kind: curves.scaled(by.get(kind, {})) for kind, curves in self.curves_of.items()}
        return replace(self, curves=self.curves.scaled(by.get("", {})), curves_of=curves_of)

    def to_json(self) -> dict[str, Any]:
        return {
            "level": LEVEL,
            "mean": self.mean,
            "max": self.maximum,
            "curves": self.curves.to_json(),
            **(
                {"curves_of": {k: each.to_json() for k, each in self.curves_of.items()}}
                if self.curves_of
                else {}
            ),
            "histogram": {"edges": list(self.edges), "counts": list(self.counts)},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PredictedError:
        histogram = data["histogram"]
        return PredictedError(
            data["mean"],
            data["max"],
            ErrorCurves.from_json(data["curves"]),
            {name: ErrorCurves.from_json(each) for name, each in data.get("curves_of", {}).items()},
            tuple(histogram["edges"]),
            tuple(histogram["counts"]),
        )


def _workload_errors(plan: Plan[Any], replicas: Sequence[Replica], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    groups = [
        group.sampled(rng, queries=SAMPLE, cells=MOST_CELLS).group for group in plan.task.workload.groups
    ]
    seen = together(lambda both: both[1].seen(both[0]).errors, list(product(groups, replicas)))
    return np.abs(np.concatenate(seen))


LARGEST = 2**63


@dataclass(frozen=True)
class FieldKind:
    """What may stand in a field, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]

    def or_null(self) -> FieldKind:
        return FieldKind(f"{self.words}, or null", lambda value: value is None or self.fits(value))


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _number(value: Any) -> bool:
    return _real(value) and value >= 0


def _whole(value: Any) -> bool:
    return isinstance(value, int) and _number(value)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(fits, value))


def _named(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(fits, value.values()))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _like(pattern: str) -> Callable[[Any], bool]:
    return lambda value: _text(value) and re.fullmatch(pattern, value) is not None


def _time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _curve(value: Any) -> bool:
    """Triples of an answer, its error and a share, by increasing answer: what an interpolation needs."""
    points = _list_of(lambda point: _list_of(_number)(point) and len(point) == 3)
    return points(value) and len(value) > 0 and all(a[0] <= b[0] for a, b in pairwise(value))


def _histogram(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    edges, counts = value.get("edges", 0), value.get("counts", 0)
    listed = _list_of(_real)(edges) and _list_of(_whole)(counts)
    return listed and (len(edges) == len(counts) + 1 or not (edges or counts))


def plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and not re.search(r"[/\\\0]", name)


DIGEST = FieldKind("a SHA-256 digest", _like("sha256:[0-9a-f]{64}"))
TEXT = FieldKind("a text", _text)
TEXTS = FieldKind("a list of texts", _list_of(_text))
FLAG = FieldKind("true or false", lambda value: isinstance(value, bool))
WHOLE = FieldKind("a whole number", _whole)
COUNT = FieldKind("a whole number above 0", lambda value: _whole(value) and value > 0)
NUMBER = FieldKind("a number that is not negative", _number)
CHANCE = FieldKind("a number from 0 to 1", lambda value: _number(value) and value <= 1)
DECIMAL = FieldKind("a decimal number in quotes", _like(r"[0-9]{1,30}(\.[0-9]{1,30})?"))
VERDICTS = ("pass", "fail", "cannot tell")
VERDICT = FieldKind("pass, fail or cannot tell", lambda value: value in VERDICTS)
HEX = FieldKind("a text of hexadecimal digits", _like("[0-9a-f]+"))

# Every field; a list holds entries of one kind, and what ends in a question mark may be missing.
FIELDS: dict[str, Any] = {
    "format": WHOLE,
    "created": FieldKind("a time with its zone", _time),
    "mechanism": TEXT,
    "mechanism_words": TEXT,
    "reason": TEXT,
    "parameters": FieldKind("a list of names and values", _named(lambda value: True)),
    "budget": {
        "epsilon": NUMBER,
        "delta": CHANCE,
        "neighbours": TEXT,
        "neighbours_words": TEXT,
        "accounting": TEXT,
        "accounting_words": TEXT,
        "accounting_reason?": TEXT,
        "records_per_person": WHOLE.or_null(),
    },
    "several": {"2": NUMBER.or_null(), "5": NUMBER.or_null(), "10": NUMBER.or_null()},
    "spent": {"epsilon": NUMBER, "delta": CHANCE, "rho": DECIMAL.or_null()},
    "events": [{"event": TEXT, "times": COUNT, "draws?": COUNT}],
    "engine?": TEXT,
    "measured?": [{"kind": TEXT, "columns": TEXTS, "text?": TEXT, "numbers": WHOLE, "variance": NUMBER}],
    "check?": {
        "share": CHANCE,
        "why_not": TEXT.or_null(),
        "orders": [
            {
                "of?": TEXT,
                "attributes": COUNT,
                "tables": COUNT,
                "error": NUMBER,
                "bar": NUMBER,
                "scale": NUMBER.or_null(),
            }
        ],
    },
    "accepted?": {
        "verdict": VERDICT,
        "criteria": [
            {
                "says": TEXT,
                "limit": NUMBER,
                "error": NUMBER.or_null(),
                "bar": NUMBER.or_null(),
                "verdict": VERDICT,
                "confidence": CHANCE.or_null(),
            }
        ],
    },
    "entropy": {"statement": TEXT, "private": FLAG},
    "records": {"rows": WHOLE, "from": TEXT},
    "synthetic_rows": WHOLE.or_null(),
    "rows_for_people?": COUNT,
    "table?": TEXT,
    "artefact?": TEXT,
    "replicas": {"number": WHOLE, "records": COUNT, "seed": WHOLE, "atoms?": COUNT},
    "fitted?": {"origin": TEXT, "tables": COUNT},
    "prior?": [{"origin": TEXT, "records": WHOLE, "digest": DIGEST, "lacks": TEXTS}],
    "draft?": {"epsilon": NUMBER, "delta": NUMBER, "seal": TEXT, "attributes": TEXTS},
    "totals?": [{"attributes": TEXTS, "records": COUNT, "digest": DIGEST}],
    "trust?": {"records": NUMBER, "share": CHANCE, "of_ones?": NUMBER},
    "period?": {"periods": TEXT, "column": TEXT, "calendar": TEXT},
    "workload": {"spec": TEXT, "queries": WHOLE, "digest": TEXT},
    "predicted_error": {
        "mean": NUMBER.or_null(),
        "max": NUMBER.or_null(),
        "level": CHANCE,
        "curves": FieldKind("lists of triples of numbers, by increasing answer", _list_of(_curve)),
        "curves_of?": FieldKind("a list of tables and their curves", _named(_list_of(_curve))),
        "histogram": FieldKind("the edges and counts of a histogram", _histogram),
    },
    "warnings": TEXTS,
    "notes": TEXTS,
    "versions": FieldKind(
        "a list of programs and their versions", lambda value: _named(_text)(value) and "dualquery" in value
    ),
    "schema": TEXT,
    "schema_is_draft": FLAG,
    "files": FieldKind(
        "a list of file names and SHA-256 digests",
        lambda value: _named(DIGEST.fits)(value) and all(map(plain_name, value)),
    ),
    "seal?": DIGEST,
    "signature?": {"algorithm": TEXT, "public_key": HEX, "signature": HEX},
}


def read_json(text: str) -> dict[str, Any]:
    """The object in a text, where no name stands twice and every number is one.

    Programs disagree about which of two values of one name counts: a certificate must not say two things.
    """
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite)
    except json.JSONDecodeError:
        raise ReleaseError("certificate.json is damaged: it is not JSON") from None
    except (ValueError, RecursionError):
        raise ReleaseError(
            "certificate.json is damaged: it has a name twice, a number beyond all bounds, or too many brackets"
        ) from None
    if not isinstance(data, dict) or "format" not in data:
        raise ReleaseError("certificate.json is not a certificate of dualquery")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no number")
    return value


def check_shape(value: Any, shape: Any = FIELDS, path: str = "") -> None:
    """ReleaseError that names the first field that is missing or holds something else than it should."""
    words = shape.words if isinstance(shape, FieldKind) else "a list"
    if isinstance(shape, FieldKind):
        fits = shape.fits(value)
    else:
        fits = isinstance(value, Mapping if isinstance(shape, dict) else list | tuple)
    if not fits:
        raise ReleaseError(
            f"'{path}' in certificate.json is not {words}: it is damaged, or was changed by hand"
        )
    if isinstance(shape, list):
        for each in value:
            check_shape(each, shape[0], f"{path}[]")
    elif isinstance(shape, dict):
        for name, inner in shape.items():
            place = f"{path}.{name}".lstrip(".").removesuffix("?")
            if name.removesuffix("?") in value:
                check_shape(value[name.removesuffix("?")], inner, place)
            elif not name.endswith("?"):
                raise ReleaseError(f"certificate.json lacks '{place}': it is damaged, or was changed by hand")
