"""Many questions from somebody's list: one that cannot be answered keeps nobody from the others."""

from __future__ import annotations

from collections.abc import Sequence

from dualquery.errors import QueryError
from dualquery.queries.language.canonical import Query
from dualquery.queries.language.reader import Reader
from dualquery.releases.release import Answer, Release


def each_answered(release: Release, texts: Sequence[str], places: Sequence[str]) -> list[Answer | QueryError]:
    """An answer to each text, or what is wrong with it and where it stands."""
    reader = Reader(release.domain)
    found: list[Query | QueryError] = []
    for text, place in zip(texts, places, strict=True):
        try:
            found.append(reader.read(text, place=place))
        except QueryError as error:
            found.append(error)
    good = [each for each in found if isinstance(each, Query)]
    try:
        answers: list[Answer | QueryError] = [*release.answer_queries(good)]
    except QueryError:  # a release without records does not know every query
        named = [place for each, place in zip(found, places, strict=True) if isinstance(each, Query)]
        answers = [_alone(release, query, place) for query, place in zip(good, named, strict=True)]
    rest = iter(answers)
    return [next(rest) if isinstance(each, Query) else each for each in found]


def _alone(release: Release, query: Query, place: str) -> Answer | QueryError:
    try:
        return release.answer_queries([query])[0]
    except QueryError as error:
        return QueryError(f"{place}: {error}" if place else str(error))
