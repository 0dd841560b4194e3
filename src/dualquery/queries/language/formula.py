"""Formulas of conditions, the one product that each must be, one query as data, and the tokens of a query text.

A product Π_j [x_j ∈ A_j] is a box in the space of records. Boxes are closed under intersection, so
conjunctions of boxes are immediate, and so by De Morgan are disjunctions of complements of boxes.
Whatever else a formula mixes is decided by its truth table over the *classes* of values that its
conditions tell apart: a set is a box exactly where it is as large as the product of its shadows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import NamedTuple, NoReturn, TypeVar

import numpy as np

from dualquery.errors import QueryError
from dualquery.queries import language
from dualquery.queries.group import NONE, ProductRows
from dualquery.queries.language import WORD, attribute_text, condition_text
from dualquery.table.domain import Domain
from dualquery.types import Flags

MOST_CELLS = 1 << 20  # of a truth table


class Condition(NamedTuple):
    """[x_attribute ∈ accepted], with the accepted codes as a bit set, out of `size` codes."""

    attribute: int
    accepted: int
    size: int


class Negation(NamedTuple):
    part: Formula


class Every(NamedTuple):
    parts: tuple[Formula, ...]


class Some(NamedTuple):
    parts: tuple[Formula, ...]


Formula = Condition | Negation | Every | Some


class Box(NamedTuple):
    """Π_j [x_j ∈ sides[j]], or 1 minus that. Sides are proper subsets; `sides` None is the empty box.

    A complement of a single side is always written as the box of the other side, and a complement
    of nothing as the whole, so that equal sets of records are equal boxes.
    """

    sides: dict[int, int] | None
    complement: bool = False


WHOLE = Box({})
EMPTY = Box(None)


def as_box(formula: Formula) -> Box:
    """The one box, or complement of a box, that a formula describes; QueryError where there is none."""
    box = _reduced(formula, {})
    return box if box is not None else _from_truth_table(formula, dict(_sizes(formula)))


def _sizes(formula: Formula) -> list[tuple[int, int]]:
    if isinstance(formula, Condition):
        return [(formula.attribute, formula.size)]
    parts = (formula.part,) if isinstance(formula, Negation) else formula.parts
    return [pair for part in parts for pair in _sizes(part)]


def _reduced(formula: Formula, sizes: dict[int, int]) -> Box | None:
    """By intersection alone; None where that does not suffice. `sizes` collects those that are met."""
    if isinstance(formula, Condition):
        sizes[formula.attribute] = formula.size
        return _box({formula.attribute: formula.accepted}, sizes)
    if isinstance(formula, Negation):
        box = _reduced(formula.part, sizes)
        return None if box is None else _complement(box, sizes)
    boxes: list[Box] = []
    for part in formula.parts:
        box = _reduced(part, sizes)
        if box is None:
            return None
        boxes.append(box if isinstance(formula, Every) else _complement(box, sizes))
    meet = _intersection(boxes, sizes)
    return meet if meet is None or isinstance(formula, Every) else _complement(meet, sizes)


def _box(sides: dict[int, int], sizes: dict[int, int]) -> Box:
    """The box of these sides: full ones left out, empty if one is empty."""
    if not all(sides.values()):
        return EMPTY
    return Box({j: side for j, side in sides.items() if side != (1 << sizes[j]) - 1})


def _complement(box: Box, sizes: dict[int, int]) -> Box:
    if box.sides is None:
        return WHOLE
    if not box.sides:
        return EMPTY
    if len(box.sides) == 1:
        ((attribute, side),) = box.sides.items()
        return Box({attribute: side ^ ((1 << sizes[attribute]) - 1)})
    return Box(box.sides, not box.complement)


def _intersection(boxes: list[Box], sizes: dict[int, int]) -> Box | None:
    sides: dict[int, int] = {}
    complements: list[Box] = []
    for box in boxes:
        if box.sides is None:
            return EMPTY
        if box.complement:
            if box not in complements:
                complements.append(box)
            continue
        for attribute, side in box.sides.items():
            sides[attribute] = sides.get(attribute, side) & side
    if not complements:
        return _box(sides, sizes)
    return complements[0] if len(complements) == 1 and not sides else None


def _from_truth_table(formula: Formula, sizes: dict[int, int]) -> Box:
    attributes = sorted(sizes)
    classes = [_classes(formula, j, sizes[j]) for j in attributes]
    shape = tuple(len(parts) for parts in classes)
    if prod(shape) > MOST_CELLS:
        raise QueryError("this formula is too tangled to be one query; ask its parts as queries of their own")
    axis = {j: i for i, j in enumerate(attributes)}

    def truth(node: Formula) -> Flags:
        if isinstance(node, Condition):
            i = axis[node.attribute]
            column = np.array([bool(part & node.accepted) for part in classes[i]])
            return column.reshape([-1 if k == i else 1 for k in range(len(shape))])
        if isinstance(node, Negation):
            return ~truth(node.part)
        join: Callable[..., Flags] = np.logical_and if isinstance(node, Every) else np.logical_or
        return reduce(join, (truth(part) for part in node.parts))

    table = np.broadcast_to(truth(formula), shape)
    for complement in (False, True):
        held = table ^ complement
        shadows = [
            np.flatnonzero(np.moveaxis(held, i, 0).reshape(shape[i], -1).any(1)) for i in range(len(shape))
        ]
        if held.sum() == prod(map(len, shadows)):
            sides = {j: sum(classes[i][c] for c in shadows[i]) for i, j in enumerate(attributes)}
            box = _box(sides, sizes)
            return _complement(box, sizes) if complement else box
    raise QueryError(
        "this is neither a product of conditions on single attributes nor the complement of one; "
        "ask its parts as queries of their own"
    )


def _classes(formula: Formula, attribute: int, size: int) -> list[int]:
    """The coarsest partition of an attribute's codes that every condition on it respects."""
    parts = [(1 << size) - 1]
    for accepted in dict.fromkeys(_accepted(formula, attribute)):
        parts = [piece for part in parts for piece in (part & accepted, part & ~accepted) if piece]
    return parts


def _accepted(formula: Formula, attribute: int) -> list[int]:
    if isinstance(formula, Condition):
        return [formula.accepted] if formula.attribute == attribute else []
    parts = (formula.part,) if isinstance(formula, Negation) else formula.parts
    return [accepted for part in parts for accepted in _accepted(part, attribute)]


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


T = TypeVar("T")


def read_each(texts: Sequence[str], places: Sequence[str], read: Callable[[str], T]) -> list[T]:
    """What each text asks; an error points at what is wrong, and names the place of the text."""
    found = []
    for text, place in zip(texts, places, strict=True):
        try:
            found.append(read(text))
        except Fault as fault:
            raise QueryError(pointing_at(text, fault.column, str(fault), place)) from None
    return found


class Cursor:
    """A place in the tokens of a text, which are read from left to right."""

    def __init__(self, text: str = "") -> None:
        self.begin(tokens_of(text))

    def begin(self, tokens: list[Token], place: int = 0) -> None:
        self.tokens, self.place = tokens, place

    @property
    def token(self) -> Token:
        """The one that comes next."""
        return self.tokens[self.place]

    def takes(self, kind: str, word: str = "") -> bool:
        """Whether such a token comes next, which is then passed; of words one that reads so."""
        taken = self.token.kind == kind and word in ("", self.token.text.lower())
        self.place += taken
        return taken


class Phrase(Cursor):
    """A question of few words; what does not fit is told how such a question reads."""

    def __init__(self, text: str, like: str) -> None:
        super().__init__(text)
        self._like = like

    def take(self, *kinds: str) -> Token:
        """The next token, which must be one of these kinds where any are named."""
        token = self.token
        if kinds and token.kind not in kinds:
            self.refuse(token)
        self.place += 1
        return token

    def word(self, *words: str) -> str:
        """The next word, which must be one of these."""
        token = self.take("word")
        if token.text.lower() not in words:
            self.refuse(token)
        return token.text.lower()

    def attribute(self, domain: Domain) -> tuple[Token, int]:
        """The attribute that is named next."""
        name = self.take("word", "quoted")
        found = domain.find(name.text)
        if found is None:
            raise Fault(name.column, language.unknown_name(domain, name.text))
        return name, found

    def refuse(self, token: Token) -> NoReturn:
        raise Fault(token.column, self._like)

    def fault(self, message: str) -> NoReturn:
        """What is wrong with what comes next."""
        raise Fault(self.token.column, message)

    def end(self) -> None:
        self.take("end")


class Literal(NamedTuple):
    """[x_attribute ∈ values], or its negation. `values` are codes, increasing."""

    attribute: int
    values: tuple[int, ...]
    negated: bool


@dataclass(frozen=True)
class Query:
    """Π literals, its complement, or the parity of some binary attributes: 1 where an even number is 1.

    Canonical: one literal an attribute, by increasing attribute; of a predicate and its negation the
    shorter is stored; a product of one literal is never complemented.
    """

    literals: tuple[Literal, ...]
    complement: bool = False
    parity: tuple[int, ...] = ()

    def holds(self, record: Sequence[int]) -> bool:
        """Whether a record (one code per attribute) satisfies the query."""
        if self.parity:
            return sum(record[j] for j in self.parity) % 2 == 0
        return (
            all((record[j] in values) != negated for j, values, negated in self.literals) != self.complement
        )

    def text(self, domain: Domain) -> str:
        """The query in the language; `parse` reads it back as the same query."""
        if self.parity:
            return f"parity({', '.join(attribute_text(domain, j) for j in self.parity)})"
        conditions = []
        for attribute, values, negated in self.literals:
            accepted = language.bit_set(values)
            if negated != self.complement:  # ¬Π f = some ¬f
                accepted ^= language.everything(domain.column_of(attribute)[1])
            conditions.append(condition_text(domain, attribute, accepted))
        return (" | " if self.complement else " & ").join(conditions)


def canonical(accepted: int, size: int) -> tuple[tuple[int, ...], bool]:
    """The codes of a predicate and whether the literal negates it: of the two the shorter.

    Of two equally long, the one without code 0; so `= 0` of a binary attribute is the negated `= 1`.
    """
    count = accepted.bit_count()
    negated = 2 * count > size or (2 * count == size and bool(accepted & 1))
    return tuple(language.codes_in(accepted ^ ((1 << size) - 1) if negated else accepted)), negated


def texts_of(domain: Domain, rows: ProductRows) -> list[str]:
    """The text of each query, in the order in which they were asked for; each condition is put into words once."""
    texts = [""] * (len(rows.positions) + len(rows.parity_positions))
    words: dict[int, str] = {}
    # ¬Π f = some ¬f: in a complement every literal is flipped, and "or" joins them.
    flipped = np.where(
        rows.literals == NONE, np.int32(NONE), rows.literals ^ rows.complement[:, None].astype(np.int32)
    )
    for position, literals, complement in zip(
        rows.positions.tolist(), flipped.tolist(), rows.complement.tolist(), strict=True
    ):
        conditions = []
        for literal in literals:
            if literal == NONE:
                continue
            text = words.get(literal)
            if text is None:
                predicate, negated = divmod(literal, 2)
                values = tuple(rows.predicates.accepted(predicate).tolist())
                attribute = int(rows.predicates.attribute[predicate])
                text = words[literal] = Query((Literal(attribute, values, bool(negated)),)).text(domain)
            conditions.append(text)
        texts[position] = (" | " if complement else " & ").join(conditions)
    for position, attributes in zip(rows.parity_positions.tolist(), rows.parities.tolist(), strict=True):
        members = tuple(attribute for attribute in attributes if attribute != NONE)
        texts[position] = Query((), parity=members).text(domain)
    return texts
