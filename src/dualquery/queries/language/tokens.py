"""The words and signs of a query text, and errors that point at one of them."""

from __future__ import annotations

import re
from typing import NamedTuple

from dualquery.queries.language.vocabulary import WORD

_WINDOW = 60  # characters of a long query shown on either side of the fault


class Token(NamedTuple):
    kind: str  # a sign, "word", "quoted" or "end"
    text: str
    column: int  # from 0


class Fault(Exception):
    """What is wrong with a query text, and at which column (from 0)."""

    def __init__(self, column: int, message: str) -> None:
        super().__init__(message)
        self.column = column


_TOKENS = re.compile(
    rf"""(?P<space>\s+|\#[^\n]*)|(?P<word>{WORD})|(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*")"""
    r"|(?P<sign>!=|==|<=|>=|&&|\|\||[&|!=<>()\[\]{},≠≤≥∧∨¬])|(?P<fault>.)"
)
_SIGNS = {"==": "=", "≠": "!=", "≤": "<=", "≥": ">=", "&&": "&", "∧": "&", "||": "|", "∨": "|", "¬": "!"}
SIGNS_IN_WORDS = {"and": "&", "or": "|", "not": "!"}


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, closed by an "end"; comments (# …) are left out."""
    tokens: list[Token] = []
    for match in _TOKENS.finditer(text):
        kind, found, column = match.lastgroup, match[0], match.start()
        if kind == "word":
            tokens.append(Token(SIGNS_IN_WORDS.get(found.lower(), "word"), found, column))
        elif kind == "quoted":
            quote = found[0]
            tokens.append(Token("quoted", found[1:-1].replace(quote * 2, quote), column))
        elif kind == "sign":
            tokens.append(Token(_SIGNS.get(found, found), found, column))
        elif kind == "fault":
            raise Fault(column, "this quote is not closed")
    tokens.append(Token("end", "", len(text)))
    return tokens


def pointing_at(text: str, column: int, message: str, place: str) -> str:
    """The message, and below it the text with a caret under the fault."""
    first = max(0, column - _WINDOW)
    shown = "".join(c if c.isprintable() else " " for c in text[first : column + _WINDOW])
    before, after = "…" if first else "", "…" if column + _WINDOW < len(text) else ""
    where = f"{place}, column {column + 1}" if place else f"column {column + 1}"
    return f"{where}: {message}\n  {before}{shown}{after}\n  {' ' * (len(before) + column - first)}^"
