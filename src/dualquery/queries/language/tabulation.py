"""Questions as an analyst writes them: a query, or a whole table, `region by sex`.

    question   = formula | name "by" name { "by" name } | "by" name

A table over one attribute is `by region`, because a bare name is no condition. A column that is called `by` needs
quotes where it stands in a table.
"""

from __future__ import annotations

from dualquery.errors import QueryError
from dualquery.queries.language.reader import Reader
from dualquery.queries.language.tokens import Fault, Token, pointing_at, tokens_of
from dualquery.queries.language.wording import attribute_text
from dualquery.table.domain import Domain

BY = "by"


class TableReader(Reader):
    """Reads queries, and tables too."""

    def read_members(self, text: str) -> tuple[int, ...] | None:
        """The attributes of the table that a text asks for, increasing; None where it does not ask for a table."""
        if BY not in text.lower():
            return None
        try:
            tokens = tokens_of(text)
            if not _asks_for_a_table(tokens):
                return None
            self._tokens, self._next = tokens, int(_is_by(tokens[0]))
            return self._members()
        except Fault as fault:
            raise QueryError(pointing_at(text, fault.column, str(fault), "")) from None

    def _members(self) -> tuple[int, ...]:
        found: list[int] = []
        while True:
            column = self._token.column
            attribute = self._name()
            if attribute in found:
                raise Fault(column, f"'{self._domain.name(attribute)}' stands twice in this table")
            found.append(attribute)
            if self._token.kind == "end":
                return tuple(sorted(found))
            if not self._takes_word(BY):
                self._expected("'by' or the end of the question")


def table_text(domain: Domain, members: tuple[int, ...]) -> str:
    """A table in the language; `read_members` reads it back as the same table."""
    names = [_quoted(attribute_text(domain, j)) for j in members]
    return f" {BY} ".join(names) if len(names) > 1 else f"{BY} {names[0]}"


def _quoted(name: str) -> str:
    return f"'{name}'" if name.lower() == BY else name


def _is_by(token: Token) -> bool:
    return token.kind == "word" and token.text.lower() == BY


def _asks_for_a_table(tokens: list[Token]) -> bool:
    """Whether a `by` stands where a condition could not have it: behind a name, or in front of one."""
    names = ("word", "quoted")
    if _is_by(tokens[0]):
        return tokens[1].kind in names and tokens[1].text.lower() not in ("in", "is")
    if tokens[0].kind not in names:
        return False
    after = tokens[4] if len(tokens) > 4 and tokens[1].kind == "[" and tokens[3].kind == "]" else tokens[1]
    return _is_by(after)
