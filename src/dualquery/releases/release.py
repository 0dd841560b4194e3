"""A release: synthetic records (or bare answers) and their certificate. Asking it anything costs nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dualquery.errors import DualQueryError
from dualquery.mechanisms.artefact import Artefact, BareAnswers, Fractions, SyntheticRecords
from dualquery.mechanisms.error_bars import LEVEL, Orders, Replica, bar_from_mean, narrowest
from dualquery.mechanisms.filed import Filed
from dualquery.queries.group import Group
from dualquery.queries.language.grouping import to_groups
from dualquery.queries.language.reader import Reader
from dualquery.queries.special import language_of
from dualquery.releases.certificate import Certificate
from dualquery.table.domain import Domain
from dualquery.table.records import Records

if TYPE_CHECKING:
    import pandas
    import polars


@dataclass(frozen=True)
class Answer:
    """The fraction of the records that satisfy a query, and the 95% bar: how far off it may be, 19 times of 20."""

    query: str
    value: float
    error: float | None

    def __str__(self) -> str:
        """`0.142 ± 0.006 (95%)`: the bar with one digit, or two when it begins with 1; the value to match."""
        if not self.error:
            return f"{self.value:.4f}"
        digits = -math.floor(math.log10(self.error))
        digits += round(self.error * 10**digits, 1) < 2
        digits = min(max(digits, 0), 12)
        return f"{self.value:.{digits}f} ± {self.error:.{digits}f} ({LEVEL:.0%})"


def records_of(artefact: Artefact) -> Records | None:
    """The synthetic records, where an artefact consists of records."""
    return artefact.records if isinstance(artefact, SyntheticRecords) else None


@dataclass(frozen=True, eq=False)
class Release:
    """What `release` makes and a folder holds: an artefact, and the certificate that goes with it."""

    certificate: Certificate
    domain: Domain
    artefact: Artefact
    replicas: tuple[Replica, ...] = ()

    @property
    def records(self) -> Records | None:
        """The synthetic records, where the release consists of records."""
        return records_of(self.artefact)

    def answer(self, text: str) -> Answer:
        """One query in the query language: `age >= 50 & sex = Female`."""
        return self.answers([text])[0]

    def answers(self, texts: Iterable[str], *, places: Sequence[str] | None = None) -> list[Answer]:
        """Many queries at once. An error names the place of the query that it is about, or its number."""
        texts = list(texts)
        if places is None:
            places = [f"query {number}" if len(texts) > 1 else "" for number in range(1, len(texts) + 1)]
        language = language_of(self.domain)
        if language is not None:
            return self._special_answers(language.groups(self.domain, texts, places) if texts else ())
        reader = Reader(self.domain)
        queries = [reader.read(text, place=place) for text, place in zip(texts, places, strict=True)]
        if not queries:
            return []
        groups = to_groups(self.domain, queries)
        values = np.concatenate([self.artefact.fractions(group) for group in groups])
        widths = self._bars(
            groups, values, np.array([len(query.literals or query.parity) for query in queries])
        )
        return [
            Answer(query.text(self.domain), value, bar)
            for query, value, bar in zip(queries, values.tolist(), widths, strict=True)
        ]

    def _special_answers(self, groups: Sequence[Group]) -> list[Answer]:
        """The same of a special table, whose questions have no literals."""
        found: list[Answer] = []
        for group in groups:
            values = self.artefact.fractions(group)
            bars = self._bars([group], values, np.ones(group.size, np.int64))
            texts = group.texts(np.arange(group.size, dtype=np.int64))
            found += [Answer(*each) for each in zip(texts, values.tolist(), bars, strict=True)]
        return found

    def _bars(self, groups: Sequence[Group], values: Fractions, orders: Orders) -> Sequence[float | None]:
        """The bar of each answer: of its own noise, from replicas, or from the mean error that was predicted."""
        if isinstance(self.artefact, BareAnswers | Filed):
            return np.concatenate([self.artefact.bars(group) for group in groups]).tolist()
        if not self.replicas:
            mean = self.certificate.predicted_error.mean
            return [None if mean is None else bar_from_mean(mean)] * len(values)
        errors = [np.concatenate([each.seen(group).errors for group in groups]) for each in self.replicas]
        widths = self.certificate.predicted_error.curves.bars(values, orders, errors)
        least = narrowest(self.certificate["records"]["rows"], self.artefact.rows or 1)
        return np.maximum(least, widths).tolist()

    def to_arrow(self) -> pa.Table:
        """The synthetic records with readable values; without records, the queries and answers."""
        return self.artefact.to_arrow()

    def to_pandas(self) -> pandas.DataFrame:
        return self.to_arrow().to_pandas()

    def to_networkx(self) -> Any:
        """The released graph, where the table was a graph."""
        made = getattr(self.artefact, "to_networkx", None)
        if made is None:
            raise DualQueryError(
                "this release is no graph; to_networkx() is for tables with a section [graph]"
            )
        return made()

    def to_polars(self) -> polars.DataFrame:
        import polars

        frame: Any = polars.from_arrow(self.to_arrow())
        return frame

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        csv: bool = False,
        sign: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write the folder of the release: all of it, or nothing. `sign` names a file with a private key."""
        from dualquery.releases.folder import save

        save(self, folder, csv=csv, sign=sign)

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> Release:
        """The release that a folder holds, once its seal and its files have been checked."""
        from dualquery.releases.folder import load

        return load(folder)
