"""Releases that are published beside an interactive table: asking them is free, and says so."""

from __future__ import annotations

from collections.abc import Mapping

from dualquery.asking.answers import Badge, Left, OnlineAnswer
from dualquery.asking.telling import Bars, answer_of
from dualquery.errors import QueryError
from dualquery.queries.kept_columns import KeptColumns
from dualquery.queries.question import Question, QuestionReader
from dualquery.releases.release import Release


class Published:
    """Releases by name. Each has a schema of its own."""

    def __init__(self, releases: Mapping[str, Release]) -> None:
        self.releases = dict(releases)
        self._readers = {name: QuestionReader(release.domain) for name, release in releases.items()}
        self._columns = {
            name: None if release.records is None else KeptColumns(release.records)
            for name, release in releases.items()
        }

    def read(self, name: str, text: str) -> Question:
        if name not in self.releases:
            names = ", ".join(self.releases) or "none"
            raise QueryError(f"no release '{name}' is published beside this table; there are: {names}")
        return self._readers[name].read(text)

    def answer(self, name: str, question: Question, left: Left) -> OnlineAnswer:
        """What a release says. Not for several threads at once."""
        release, columns = self.releases[name], self._columns[name]
        values = (
            release.artefact.fractions(question.group)
            if columns is None
            else columns.counts(question.group) / columns.records.rows
        )
        return answer_of(question, Badge.RELEASE, values, Bars(release).of(question, values), None, left)
