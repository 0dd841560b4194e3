"""The shape of a certificate: every field, and what may stand there.

A certificate comes out of a file that anybody may have edited. It is checked against this list before anything else
reads it, so that whatever is missing or misplaced is named in a sentence. docs/certificate.md explains the fields.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from dualquery.errors import ReleaseError

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
