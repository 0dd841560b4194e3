"""The keys of a schema file, each read as what it must be; a misspelt one is an error, never ignored."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, TypeVar

from dualquery.errors import SchemaError

T = TypeVar("T")


def only(entry: Mapping[str, Any], where: str, keys: set[str]) -> None:
    for key in entry:
        if key not in keys:
            known = ", ".join(sorted(keys))
            raise SchemaError(f"{where} has a key '{key}' that means nothing here; it may have {known}")


def required(entry: Mapping[str, Any], where: str, key: str, kind: Callable[[object], T]) -> T:
    if key not in entry:
        raise SchemaError(f"{where} has no '{key}'")
    try:
        return kind(entry[key])
    except ValueError as wanted:
        raise SchemaError(f"{where}: '{key}' must be {wanted}") from None


def optional(entry: Mapping[str, Any], where: str, key: str, kind: Callable[[object], T]) -> T | None:
    return required(entry, where, key, kind) if key in entry else None


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text in quotes")
    return value


def texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("a list of texts in quotes")
    return tuple(value)


def period(value: object) -> str:
    """A date: a text, or what TOML itself writes as a date."""
    if isinstance(value, date):  # of which a moment is one, too
        return value.isoformat()
    return text(value)


def truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a whole number")
    return value


def number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > sys.float_info.max:
        raise ValueError("a finite number")
    return float(value)


def numbers(value: object) -> tuple[float, ...]:
    if isinstance(value, list):
        return tuple(number(each) for each in value)
    raise ValueError("a list of numbers")
