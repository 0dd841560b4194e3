"""A release: synthetic records (or bare answers) and their certificate. Asking it anything costs nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dualquery.errors import DualQueryError, QueryError
from dualquery.fitting.measured import Measured
from dualquery.mechanisms.artefact import Artefact, SyntheticRecords
from dualquery.mechanisms.error_bars import LEVEL, Replica, bar_from_mean, narrowest
from dualquery.queries.families import groups_of
from dualquery.queries.group import NONE, Group
from dualquery.releases.certificate import Certificate, RowsFrom
from dualquery.releases.frames import answers_table, as_frame, cells_table
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Fractions, Integers

if TYPE_CHECKING:
    import pandas
    import polars

    from dualquery.plots import Figure


@dataclass(frozen=True)
class Answer:
    """The fraction of the records that satisfy a query, and the 95% bar: how far off it may be, in 19 of 20 cases."""

    query: str
    value: float
    error: float | None

    def __str__(self) -> str:
        """`0.142 ± 0.006 (95%)`: the bar with one digit, or two when it begins with 1; the value to match."""
        level = f" ({LEVEL:.0%})" if self.error else ""
        return with_bar(self.value, self.error) + level


def with_bar(value: float, bar: float | None) -> str:
    """`0.142 ± 0.006`: the bar with one digit, or two when it begins with 1; the value to match."""
    if not bar:
        return f"{value:.4f}"
    digits = -math.floor(math.log10(bar))
    digits += round(bar * 10**digits, 1) < 2
    digits = min(max(digits, 0), 12)
    return f"{value:,.{digits}f} ± {bar:,.{digits}f}"


def listed_texts(texts: Iterable[str]) -> list[str]:
    """Some texts as a list; a single text is most likely a mistake for a list of one."""
    if isinstance(texts, str):
        raise QueryError(f"give a list of queries, [{texts!r}], or ask `answer` for one")
    found = list(texts)
    for each in found:
        if not isinstance(each, str):
            raise QueryError(
                f"expected one query as text, got {type(each).__name__}; use answers([...]) for several"
            )
    return found


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
    measured: tuple[
        Measured, ...
    ] = ()  # with noise, in records (`fitting.measured`); empty where nothing was

    @property
    def records(self) -> Records | None:
        """The synthetic records, where the release consists of records."""
        return records_of(self.artefact)

    @property
    def public_rows(self) -> int | None:
        """The number of records of the private table, where it is public and not measured."""
        records = self.certificate["records"]
        return None if records["from"] == RowsFrom.MEASURED.value else int(records["rows"])

    def answer(self, text: str) -> Answer:
        """One query in the query language: `age >= 50 & sex = Female`."""
        return self.answer_all([text])[0]

    def answers(self, texts: Iterable[str], *, frame: str = "pandas") -> Any:
        """Many queries as a frame: query, share and bar, and counts where the number of records is public.

        `frame` is pandas, polars or arrow. An error names the query that it is about.
        """
        return as_frame(answers_table(self, self.answer_all(texts)), frame)

    def table(self, by: str | Sequence[str], *, where: str | None = None, frame: str = "pandas") -> Any:
        """Every cell over some attributes as a frame: their values, share and bar, and counts as in `answers`.

        With `where`, a query, only records that satisfy it are counted; shares are still of the whole table.
        """
        return as_frame(cells_table(self, by, where), frame)

    def sql(self, text: str, *, frame: str = "pandas") -> Any:
        """What DuckDB makes of a SELECT from `data`, the synthetic rows, with a bar beside every number it computes.

        `count` and `sum` are scaled to the number of records of the private table (`releases.sql`).
        """
        from dualquery.releases.sql import sql_table

        return as_frame(sql_table(self, text), frame)

    def plot(self, by: str | Sequence[str], *, where: str | None = None) -> Figure:
        """A picture of one attribute, with bars, or of two: notebooks show it, and `save` writes an SVG file."""
        from dualquery.releases.report import plotted

        return plotted(self, by, where)

    def answer_all(self, texts: Iterable[str], *, places: Sequence[str] | None = None) -> list[Answer]:
        """Many queries at once. An error names the place of the query that it is about, or its number."""
        texts = listed_texts(texts)
        if places is None:
            places = [f"query {number}" if len(texts) > 1 else "" for number in range(1, len(texts) + 1)]
        groups = groups_of(self.domain, texts, places)
        return [answer for group in groups for answer in self.answers_of(group, group.texts(_all(group)))]

    def answers_of(self, group: Group, texts: Iterable[str] | None = None) -> list[Answer]:
        """The answer to every query of a group, without its text where none are given."""
        values = self.artefact.fractions(group)
        bars = self._bars(group, values)
        said = [""] * group.size if texts is None else texts
        return [Answer(*each) for each in zip(said, values.tolist(), bars, strict=True)]

    def _bars(self, group: Group, values: Fractions) -> Sequence[float | None]:
        """The bar of each answer: of its own noise, from replicas, or from the mean error that was predicted."""
        own = self.artefact.bars(group)
        if own is not None:
            return own.tolist()
        if not self.replicas:
            mean = self.certificate.predicted_error.mean
            return [None if mean is None else bar_from_mean(mean)] * len(values)
        errors = [each.seen(group).errors for each in self.replicas]
        widths = self.certificate.predicted_error.curves.bars(values, _orders(group), errors)
        least = narrowest(self.certificate["records"]["rows"], self.artefact.rows or 1)
        return np.maximum(least, widths).tolist()

    @property
    def columns(self) -> list[str]:
        """The names of the columns that `to_pandas` has."""
        return list(self.to_arrow().column_names)

    def __len__(self) -> int:
        """The number of synthetic records; without records, of answers."""
        return int(self.to_arrow().num_rows) if self.artefact.rows is None else self.artefact.rows

    def __bool__(self) -> bool:
        """A release is one, also where it has no rows."""
        return True

    def head(self, rows: int = 5) -> pandas.DataFrame:
        """The first rows. They are synthetic: none is a person."""
        return self.to_arrow().slice(0, max(rows, 0)).to_pandas()

    def describe(self) -> pandas.DataFrame:
        """What pandas says of each column of the synthetic rows; without error bars, which `table` has."""
        return self.to_pandas().describe(include="all")

    def to_csv(self, file: str | os.PathLike[str] | None = None) -> str | None:
        """Write the synthetic records, or the answers, as a CSV file; without a file, give back its text."""
        from dualquery.releases.folder import write_csv

        return write_csv(self.to_arrow(), file)

    def __repr__(self) -> str:
        from dualquery.releases.report import in_short

        return in_short(self)

    def _repr_html_(self) -> str:
        from dualquery.releases.report import card

        return card(self)

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


def each_answered(release: Release, texts: Sequence[str], places: Sequence[str]) -> list[Answer | QueryError]:
    """An answer to each text, or what is wrong with it and where it stands.

    All are answered at once, or where that fails each half by itself: few mistakes among many texts cost little.
    """
    try:
        return [*release.answer_all(texts, places=places)]
    except QueryError as error:
        if len(texts) == 1:
            said, place = str(error), places[0]
            return [QueryError(said if said.startswith(place) else f"{place}: {said}")]
    half = len(texts) // 2
    first, rest = ((texts[part], places[part]) for part in (slice(half), slice(half, None)))
    return [*each_answered(release, *first), *each_answered(release, *rest)]


def _all(group: Group) -> Integers:
    return np.arange(group.size, dtype=np.int64)


def _orders(group: Group) -> Integers:
    """How many attributes each query is about."""
    rows = group.products(_all(group))
    orders = np.zeros(group.size, np.int64)
    orders[rows.positions] = (rows.literals != NONE).sum(axis=1)
    orders[rows.parity_positions] = (rows.parities != NONE).sum(axis=1)
    return orders
