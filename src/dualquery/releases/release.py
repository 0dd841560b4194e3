"""A release: synthetic records (or bare answers) and their certificate. Asking it anything costs nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dualquery.errors import DualQueryError, QueryError
from dualquery.fitting.measured import Measured
from dualquery.fitting.prior import Trust
from dualquery.mechanisms.artefact import Artefact, SyntheticRecords, SyntheticUnits
from dualquery.mechanisms.error_bars import ANY, LEVEL, Replica, bar_from_mean, narrowest
from dualquery.mechanisms.floors import floors, hanging_more
from dualquery.queries.families import groups_of
from dualquery.queries.group import NONE, Group
from dualquery.queries.language.units import rows_groups_of
from dualquery.queries.views import OverUnits
from dualquery.releases.certificate import Certificate, RowsFrom
from dualquery.releases.frames import answers_table, as_frame, cells_table
from dualquery.table.database import Database
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Flags, Fractions, Integers

if TYPE_CHECKING:
    import pandas
    import polars

    from dualquery.inference.conclusions import Conclusions
    from dualquery.plots import Figure


@dataclass(frozen=True)
class Answer:
    """The fraction of the records that satisfy a query, and the 95% bar: how far off it may be, in 19 of 20 cases."""

    query: str
    value: float
    error: float | None

    def __str__(self) -> str:
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
    measured: tuple[Measured, ...] = ()  # with noise, in records (`fitting.measured`)
    about: str = ""  # the table of a database whose rows these are (`of`)

    @property
    def records(self) -> Records | None:
        """The synthetic records, where the release consists of records."""
        return records_of(self.artefact)

    @property
    def public_rows(self) -> int | None:
        """The number of records of the private table, where it is public and not measured.

        Of rows that hang on units (`of`) it is not known.
        """
        records = self.certificate["records"]
        if self.domain.kind != self.certificate.schema.domain.kind:
            return None
        return None if records["from"] == RowsFrom.MEASURED.value else int(records["rows"])

    @property
    def tables(self) -> dict[str, pandas.DataFrame]:
        """The synthetic tables of a database by their names, with keys that fit each other.

        They have as many units as the database is thought to have, where nobody asked for a number of them.
        """
        from dualquery.releases.frames import units_for_people

        return {name: table.to_pandas() for name, table in units_for_people(self, self._units).tables.items()}

    @property
    def _units(self) -> SyntheticUnits:
        if not isinstance(self.artefact, SyntheticUnits):
            raise QueryError("this release holds one table, and not those of a database; it is to_pandas()")
        return self.artefact

    def of(self, table: str) -> Release:
        """The same release as one of the rows of a table of its database, each with what is known of its unit.

        Shares are then those of all rows of that table: of all persons, and not of households.
        """
        units = self._units.records
        if table == units.database.root.name:
            return self
        names = [each.name for each in units.database.children]
        if table not in names:
            raise QueryError(f"the database has no table '{table}'; there are {', '.join(names)}")
        if table not in self._of_tables:
            replicas = tuple(each.joined(table) for each in self.replicas)
            rows = SyntheticRecords(units.joined(table))
            self._of_tables[table] = replace(
                self,
                domain=rows.records.domain,
                artefact=rows,
                replicas=replicas,
                measured=(),
                about=table,
            )
        return self._of_tables[table]

    @cached_property
    def _of_tables(self) -> dict[str, Release]:
        """What `of` has made, and would make again."""
        return {}

    def answer(self, text: str, *, given: str | None = None, of: str | None = None) -> Answer:
        """One query in the query language: `age >= 50 & sex = Female`.

        With `given`, another query, the share among the records that satisfy that one. Of a database the records are
        units, asked with any, all and count, or the rows of the table that `of` names.
        """
        asked = self if of is None else self.of(of)
        return (asked.answer_all([text]) if given is None else asked.answer_given([text], given))[0]

    def answers(
        self,
        texts: Iterable[str],
        *,
        given: str | None = None,
        of: str | None = None,
        frame: str = "pandas",
    ) -> Any:
        """Many queries as a frame: query, share and bar, and counts where the number of records is public.

        With `given`, a query, shares are among the records that satisfy it, and there are no counts. `frame` is
        pandas, polars or arrow. An error names the query that it is about. `of` is as in `answer`.
        """
        if of is not None:
            return self.of(of).answers(texts, given=given, frame=frame)
        found = self.answer_all(texts) if given is None else self.answer_given(texts, given)
        return as_frame(answers_table(self, found, counts=given is None), frame)

    def table(
        self,
        by: str | Sequence[str],
        *,
        where: str | None = None,
        given: str | None = None,
        frame: str = "pandas",
    ) -> Any:
        """Every cell over some attributes as a frame: their values, share and bar, and counts as in `answers`.

        With `where`, a query, only records that satisfy it are counted; shares are still of the whole table. With
        `given` instead they are shares among those records.
        """
        return as_frame(cells_table(self, by, where, given), frame)

    def sql(self, text: str, *, frame: str = "pandas") -> Any:
        """What DuckDB makes of a SELECT from `data`, the synthetic rows, with a bar beside every number it computes.

        `count` and `sum` are scaled to the number of records of the private table (`releases.sql`). Where a bar is
        null, the notes say why: `attrs["notes"]` of a pandas frame.
        """
        from dualquery.releases.sql_bars import notes_of, sql_table

        found = sql_table(self, text)
        made = as_frame(found, frame)
        if frame == "pandas":
            made.attrs["notes"] = notes_of(found)
        return made

    @cached_property
    def conclusions(self) -> Conclusions:
        """Draws around what was measured, made when they are first asked for and kept with the release."""
        from dualquery.releases.frames import conclusions

        return conclusions(self)

    def estimate(
        self,
        function: Callable[[pandas.DataFrame], Any],
        columns: Sequence[str] | None = None,
        *,
        frame: str = "pandas",
    ) -> Any:
        """Any numbers of the table, with 95% intervals for the table and for the population it was drawn from.

        `function` is given pandas frames with the columns of the table and gives a number, or a dict of numbers by
        name. One row a number: estimate, se, low, high (of the private table); population_se, population_low,
        population_high (of whatever it is a random sample of); noise, that of the release over the sampling error;
        note, why nothing can be said. `columns` are those that it reads, found out where they are not given.
        """
        return as_frame(self.conclusions.estimate(function, columns), frame)

    def regress(self, formula: str, family: str = "linear", *, frame: str = "pandas") -> Any:
        """The coefficients of a regression, `income ~ age + sex`, with intervals as those of `estimate`, and p.

        `family` is linear, logistic or poisson. A number counts as it is, of another attribute every value but the
        first; `a*b` adds their product. p is the chance of so large an estimate where the population's is 0.
        """
        return as_frame(self.conclusions.regress(formula, family), frame)

    def imputations(
        self, number: int = 20, columns: Sequence[str] | None = None, *, frame: str = "pandas"
    ) -> list[Any]:
        """So many tables of n rows, each drawn around what was measured.

        Programs for multiple imputation combine them: estimate each, then Rubin's rules. Their spread is that of the
        noise; a single one says nothing about it.
        """
        return [as_frame(table, frame) for table in self.conclusions.imputations(number, columns)]

    def plot(self, by: str | Sequence[str], *, where: str | None = None) -> Figure:
        """A picture of one attribute, with bars, or of two: notebooks show it, and `save` writes an SVG file."""
        from dualquery.releases.report import plotted

        return plotted(self, by, where)

    def answer_all(self, texts: Iterable[str], *, places: Sequence[str] | None = None) -> list[Answer]:
        """Many queries at once. An error names the place of the query that it is about, or its number."""
        texts = listed_texts(texts)
        if places is None:
            places = [f"query {number}" if len(texts) > 1 else "" for number in range(1, len(texts) + 1)]
        groups = self._groups(texts, places)
        return [answer for group in groups for answer in self.answers_of(group, group.texts(_all(group)))]

    def answer_given(
        self, texts: Iterable[str], given: str, *, places: Sequence[str] | None = None
    ) -> list[Answer]:
        """Shares among the records that satisfy `given`: r = a/b, of a both and b the condition.

        a and c = b − a are shares of different records, of which r = a/(a + c) is made:
        bar(r)² = ((1 − r)² bar(a)² + r² bar(c)²) / b².
        """
        texts = listed_texts(texts)
        self.answer_all([given], places=["given"])  # what is wrong with it is told of it alone
        self.answer_all(texts, places=places)
        pairs = [part for text in texts for part in (f"({text}) & ({given})", given)]
        groups = self._groups(pairs, ["the query with given"] * len(pairs))
        values = np.concatenate([self.artefact.fractions(group) for group in groups])
        orders, hanging = (
            np.concatenate([told(group) for group in groups])[::2] for told in (_orders, _hanging)
        )
        own = [self.artefact.bars(group) for group in groups]
        whole, both = values[1::2], values[::2]
        share = np.clip(both / np.maximum(whole, 1e-300), 0.0, 1.0)
        if self.replicas and own[0] is None:
            errors = [np.concatenate([each.seen(group).errors for group in groups]) for each in self.replicas]
            parts = [self._beyond(group, self.artefact.fractions(group)) for group in groups]
            beyond = [np.concatenate(each)[::2] for each in zip(*parts, strict=True)]
            others = [each[1::2] - each[::2] for each in errors]
            first = self._from_replicas(both, orders, hanging, [each[::2] for each in errors], *beyond)
            rest = self._from_replicas(np.maximum(whole - both, 0.0), orders, hanging, others, *beyond)
        else:
            told = [bar for group in groups for bar in self._bars(group, self.artefact.fractions(group))]
            first = rest = np.array([math.nan if bar is None else bar for bar in told[::2]])
        bars = np.sqrt((1 - share) ** 2 * first**2 + share**2 * rest**2) / np.maximum(whole, 1e-300)
        known = whole > 0
        told = np.where(known, share, math.nan).tolist()
        widths = [min(bar, 1.0) if bar == bar else None for bar in np.where(known, bars, math.nan).tolist()]
        return [Answer(*each) for each in zip(texts, told, widths, strict=True)]

    def _groups(self, texts: Sequence[str], places: Sequence[str]) -> tuple[Group, ...]:
        """The questions of some texts; those about rows of a database are read as such."""
        known = self.certificate.schema.domain
        if isinstance(known, Database) and self.domain.kind == "records":
            return rows_groups_of(known, self.domain, texts, places)
        return groups_of(self.domain, texts, places)

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
        kinds = _orders(group), _hanging(group)
        return self._from_replicas(values, *kinds, errors, *self._beyond(group, values)).tolist()

    def _beyond(self, group: Group, values: Fractions) -> tuple[Fractions, Fractions]:
        """What replicas do not show: beside their bars, and below which no bar is."""
        rows = self.certificate["records"]["rows"]
        if self.records is None or not self.measured:
            return np.zeros(len(values)), np.zeros(len(values))
        if isinstance(group, OverUnits):
            return hanging_more(group, values, self.measured), np.zeros(len(values))
        trust = Trust(**self.certificate.get("trust", {"records": 0.0, "share": 0.0}))
        beyond = floors(group, values, self.measured, self.records, rows, trust)
        return beyond.more, beyond.least

    def _from_replicas(
        self,
        values: Fractions,
        orders: Integers,
        hanging: Flags,
        errors: Sequence[Fractions],
        more: Fractions,
        least: Fractions,
    ) -> Fractions:
        """Bars of questions about so many attributes, from their errors in the replicas."""
        predicted = self.certificate.predicted_error
        widths = predicted.about(self.about).bars(values, orders, errors)
        if hanging.any():
            widths = np.where(hanging, predicted.about(ANY).bars(values, orders, errors), widths)
        fewest = narrowest(self.certificate["records"]["rows"], self.artefact.rows or 1)
        bars: Fractions = np.maximum(fewest, np.maximum(np.hypot(widths, more), least))
        return bars

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

    def describe(self, *, frame: str = "pandas") -> Any:
        """One row per column: of numbers mean, sd and quartiles, of others the most frequent value; with bars."""
        from dualquery.releases.frames import described

        return as_frame(described(self), frame)

    def to_csv(self, file: str | os.PathLike[str] | None = None) -> str | None:
        """Write the synthetic records, or the answers, as a CSV file; without a file, give back its text.

        Of a database `file` is a folder, which gets a file for each table.
        """
        from dualquery.releases.folder import write_csv, write_csv_files

        if isinstance(self.artefact, SyntheticUnits):
            write_csv_files(self, file)
            return None
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
        frame: polars.DataFrame = as_frame(self.to_arrow(), "polars")
        return frame

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        csv: bool = False,
        registry: bool = False,
        sign: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write the folder of the release: all of it, or nothing. `sign` names a file with a private key.

        With `registry` it also holds the facts for a register of deployments: registry.json, registry.html.
        """
        from dualquery.releases.folder import save

        save(self, folder, csv=csv, registry=registry, sign=sign)

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> Release:
        """The release that a folder holds, once its seal and its files have been checked."""
        from dualquery.releases.folder import load

        return load(folder)


def each_answered(
    release: Release, texts: Sequence[str], places: Sequence[str], given: str | None = None
) -> list[Answer | QueryError]:
    """An answer to each text, or what is wrong with it and where it stands.

    All are answered at once, or where that fails each half by itself: few mistakes among many texts cost little.
    """
    try:
        if given is not None:
            return [*release.answer_given(texts, given, places=places)]
        return [*release.answer_all(texts, places=places)]
    except QueryError as error:
        if len(texts) == 1:
            said, place = str(error), places[0]
            return [QueryError(said if said.startswith(place) else f"{place}: {said}")]
    half = len(texts) // 2
    first, rest = ((texts[part], places[part]) for part in (slice(half), slice(half, None)))
    return [*each_answered(release, *first, given), *each_answered(release, *rest, given)]


def _all(group: Group) -> Integers:
    return np.arange(group.size, dtype=np.int64)


def _hanging(group: Group) -> Flags:
    """Whether each question is about how many rows of a unit satisfy something."""
    return np.full(group.size, isinstance(group, OverUnits))


def _orders(group: Group) -> Integers:
    """How many attributes each query is about."""
    if isinstance(group, OverUnits):
        return group.orders
    rows = group.products(_all(group))
    orders = np.zeros(group.size, np.int64)
    orders[rows.positions] = (rows.literals != NONE).sum(axis=1)
    orders[rows.parity_positions] = (rows.parities != NONE).sum(axis=1)
    return orders
