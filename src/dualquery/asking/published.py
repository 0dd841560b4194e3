"""Releases that are published beside an interactive table: asking them is free, and says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dualquery.asking.answers import Badge, Json, Left, OnlineAnswer
from dualquery.asking.telling import AnswerBars, answer_of
from dualquery.errors import BudgetError, QueryError
from dualquery.queries.kept_columns import KeptColumns
from dualquery.queries.question import Question, QuestionReader
from dualquery.releases.release import Release
from dualquery.releases.sentences import why_not_private


def refuse_not_private(published: Mapping[str, Release]) -> None:
    """A promise about a table is worth nothing beside a release of it that promises nothing."""
    for name, release in published.items():
        if not release.certificate.private:
            raise BudgetError(
                f"the release '{name}' is not private ({why_not_private(release.certificate)}), and nothing that is "
                "published beside it could be; publish only private releases"
            )


def named(published: Mapping[str, Release], start: Release) -> list[dict[str, Json]]:
    """What is published beside a table, each with its own promise, and whether the table's promise covers it.

    The release that the table starts from is paid for out of its cap. Any other has a promise of its own, and if it
    is about the same people the two add up.
    """
    found: list[dict[str, Json]] = []
    for name, release in published.items():
        budget = release.certificate["budget"]
        found.append(
            {
                "name": name,
                "epsilon": budget["epsilon"],
                "delta": budget["delta"],
                "neighbours": budget["neighbours"],
                "covered": release.certificate == start.certificate,
            }
        )
    return found


def words_of(published: Sequence[Mapping[str, Json]]) -> str:
    """What the promise does not cover, in a sentence; nothing where it covers all."""
    others = [
        f"{each['name']} (ε = {each['epsilon']:g}, δ = {each['delta']:g})"
        for each in published
        if not each["covered"]
    ]
    return (
        f"; not covered, and to be added where they are about the same people: {', '.join(others)}"
        if others
        else ""
    )


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
        return answer_of(
            question, Badge.RELEASE, values, AnswerBars(release).of(question, values), None, left
        )
