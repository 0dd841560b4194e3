"""A release: synthetic records (or bare answers) and their certificate. Asking it anything costs nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.counting import true_counts as counts_in  # here of synthetic records, which are public
from dualquery.queries.language.canonical import Query, to_groups
from dualquery.queries.language.reader import Reader
from dualquery.queries.query import Group
from dualquery.releases.certificate import Certificate
from dualquery.table.domain import Domain
from dualquery.table.encoding import decode
from dualquery.table.records import Records

if TYPE_CHECKING:
    import pandas
    import polars


@dataclass(frozen=True)
class Answer:
    """The fraction of the records that satisfy a query, and how far off it is predicted to be."""

    query: str
    value: float
    error: float | None

    def __str__(self) -> str:
        """`0.142 ± 0.003`: the error with one digit, or two when it begins with 1; the value to match."""
        if not self.error:
            return f"{self.value:.4f}"
        digits = -math.floor(math.log10(self.error))
        digits += round(self.error * 10**digits, 1) < 2
        digits = min(max(digits, 0), 12)
        return f"{self.value:.{digits}f} ± {self.error:.{digits}f}"


@dataclass(frozen=True)
class BareAnswers:
    """Answers of a mechanism that gives no synthetic records: query texts in canonical form, and values."""

    texts: Sequence[str]
    values: NDArray[np.float64]

    @cached_property
    def places(self) -> dict[str, int]:
        return {text: i for i, text in enumerate(self.texts)}

    def table(self) -> pa.Table:
        return pa.table({"query": pa.array(self.texts, pa.string()), "answer": self.values})


@dataclass(frozen=True, eq=False)
class Release:
    """What `release` makes and a folder holds. Exactly one of `records` and `bare_answers` is not None."""

    certificate: Certificate
    domain: Domain
    records: Records | None
    bare_answers: BareAnswers | None = None

    def answer(self, text: str) -> Answer:
        """One query in the query language: `age >= 50 & sex = Female`."""
        return self.answers([text])[0]

    def answers(self, texts: Iterable[str], *, places: Sequence[str] | None = None) -> list[Answer]:
        """Many queries at once. An error names the place of the query that it is about, or its number."""
        texts = list(texts)
        if places is None:
            places = [f"query {number}" if len(texts) > 1 else "" for number in range(1, len(texts) + 1)]
        reader = Reader(self.domain)
        queries = [reader.read(text, place=place) for text, place in zip(texts, places, strict=True)]
        if not queries:
            return []
        values = self._values(queries)
        predicted = self.certificate.predicted_error
        return [
            Answer(query.text(self.domain), value, predicted.of_answer(value))
            for query, value in zip(queries, values.tolist(), strict=True)
        ]

    def _values(self, queries: list[Query]) -> NDArray[np.float64]:
        if self.records is not None:
            return fractions_in(self.records, to_groups(self.domain, queries))
        assert self.bare_answers is not None
        found = []
        for query in queries:
            text = query.text(self.domain)
            place = self.bare_answers.places.get(text)
            if place is None:
                raise QueryError(
                    f"this release holds answers and no records, and '{text}' is not among its queries; "
                    "release with a mechanism that makes synthetic records"
                )
            found.append(self.bare_answers.values[place])
        return np.array(found)

    def to_arrow(self) -> pa.Table:
        """The synthetic records with readable values; without records, the queries and answers."""
        if self.records is not None:
            return decode(self.records)
        assert self.bare_answers is not None
        return self.bare_answers.table()

    def to_pandas(self) -> pandas.DataFrame:
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        import polars

        frame: Any = polars.from_arrow(self.to_arrow())
        return frame

    def save(self, folder: str | os.PathLike[str], *, csv: bool = False) -> None:
        """Write the folder of the release: all of it, or nothing."""
        from dualquery.releases.folder import save

        save(self, folder, csv=csv)

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> Release:
        """The release that a folder holds."""
        from dualquery.releases.folder import load

        return load(folder)


def fractions_in(records: Records, groups: Iterable[Group]) -> NDArray[np.float64]:
    """The fraction of some public records that satisfy each query of some groups."""
    counts = np.concatenate([counts_in(group, records) for group in groups])
    return counts / records.rows
