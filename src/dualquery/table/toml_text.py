"""TOML: a text as its values, and values as TOML writes them."""

from __future__ import annotations

import json
import tomllib
from typing import Any


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
    """A text."""
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
