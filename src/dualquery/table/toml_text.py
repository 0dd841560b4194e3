"""TOML: a text as its values, and values as TOML writes them.

Each key of a schema file is read as what it must be; a misspelt one is an error, never ignored.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from dualquery.errors import DualQueryError, SchemaError


def contents(path: str | os.PathLike[str], where: str, kind: type[DualQueryError] = SchemaError) -> str:
    """The text of a file, or in a sentence why there is none."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise kind(f"there is no {where}") from None
    except UnicodeDecodeError:
        raise kind(f"{where} is not UTF-8 text") from None
    except OSError as error:
        raise kind(f"{where} cannot be read: {error.strerror}") from None


def document(text: str) -> dict[str, Any]:
    """What a text says, or ValueError with what is wrong with it, for a sentence that begins with its name."""
    try:
        found = tomllib.loads(text)
        _check_size(found)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is not well-formed TOML: {error}") from None
    except RecursionError:
        raise ValueError("is not well-formed TOML: it nests too deeply") from None
    except ValueError:  # of whole numbers beyond what Python reads
        raise ValueError("holds a number of very many figures; write it with fewer") from None
    return found


def _check_size(value: object) -> None:
    """Refuse whole numbers that Python reads as hexadecimal ones, and could not write."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_size(each)
    if isinstance(value, int):
        str(value)


def figure(x: float) -> str:
    """A number, a whole one without its point."""
    return str(int(x)) if x.is_integer() and abs(x) < 2**53 else repr(x)


def quoted(text: str) -> str:
    # A JSON string is a TOML string, but for one control character that only TOML forbids.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def listed(texts: list[str]) -> str:
    """A list on one line, or where that grows long on lines of bounded length."""
    line = f"[{', '.join(texts)}]"
    if len(line) <= 90:
        return line
    lines, current = [], ""
    for text in texts:
        if current and len(current) + len(text) > 90:
            lines.append(current)
            current = ""
        current += f" {text}," if current else f"    {text},"
    return "\n".join(["[", *lines, current, "]"])


def commented(text: str) -> str:
    """A text as a comment, which may not hold control characters; names of files and columns may."""
    lines = ["".join(c if c.isprintable() else "?" for c in line) for line in text.splitlines()]
    return "\n".join(f"# {line}".rstrip() for line in lines)


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


def dated(value: object) -> str:
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
