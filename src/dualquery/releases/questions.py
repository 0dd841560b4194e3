"""Many questions from somebody's list: one that cannot be answered keeps nobody from the others."""

from __future__ import annotations

from collections.abc import Sequence

from dualquery.errors import QueryError
from dualquery.queries.language.canonical import Query
from dualquery.queries.language.reader import Reader
from dualquery.queries.special import language_of
from dualquery.releases.release import Answer, Release


def each_answered(release: Release, texts: Sequence[str], places: Sequence[str]) -> list[Answer | QueryError]:
    """An answer to each text, or what is wrong with it and where it stands."""
    if language_of(release.domain) is not None:
        return [_alone(release, text, place) for text, place in zip(texts, places, strict=True)]
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
        named = [
            (text, place)
            for each, text, place in zip(found, texts, places, strict=True)
            if isinstance(each, Query)
        ]
        answers = [_alone(release, text, place) for text, place in named]
    rest = iter(answers)
    return [next(rest) if isinstance(each, Query) else each for each in found]


def _alone(release: Release, text: str, place: str) -> Answer | QueryError:
    try:
        return release.answer_all([text], places=[place])[0]
    except QueryError as error:
        said = str(error)
        return QueryError(said if not place or said.startswith(place) else f"{place}: {said}")
