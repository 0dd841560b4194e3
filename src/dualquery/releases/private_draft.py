"""A schema that is found privately: what it measures, what that costs, and the schema with its certificate.

    8%     a histogram: how many cells have each form (empty, a whole number, two decimals, a date, text …)
    2%     a number: how many texts differ
    90%    of numbers and dates a tree of 4 histograms (`table.binning`), a quarter each; of texts one histogram, of
           which the frequent ones are shown (`privacy.curator`)

Every column that the steward does not state has the same part of the budget, and d of them together move d times
as far as one in squared L2 norm. What is measured next of a column follows what was found of it, so the budget is
adaptive and its accounting a filter. A tenth of δ is kept for the thresholds of texts, δ_c = δ/(10 d) a column.
Everything is charged as one entry, before a cell is counted, and stays charged.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError, DataError, SchemaError
from dualquery.ledger.book import Place, PrepaidLedger, ledger_of
from dualquery.privacy.budget import Accounting, Budget, Neighbours, decimal
from dualquery.privacy.curator import Curator, threshold
from dualquery.privacy.ledger import Portion, portion
from dualquery.privacy.noise import Gaussian
from dualquery.queries.derived import Multiplied
from dualquery.queries.statistics import ONE_CELL, Countable, DistinctTexts, SortedCells, Together
from dualquery.randomness import entropy_from
from dualquery.releases import draft_columns
from dualquery.releases.arguments import (
    GivenBudget,
    GivenSchema,
    budget_from,
    checked_rows,
    checked_seed,
    schema_from,
)
from dualquery.releases.draft_columns import (
    DATES,
    FORMS,
    NUMBERS,
    Looks,
    Reading,
    forms_of,
    sorted_by,
    texts_table,
)
from dualquery.releases.seal import canonical
from dualquery.table.binning import LEVELS, OPENS_OCTAVE, Tree, number_of_bins
from dualquery.table.domain import Column, Domain
from dualquery.table.draft import Draft, check_bins, unfit
from dualquery.table.drafting import LeftOut
from dualquery.table.reading import AnyTable, describe, read_table
from dualquery.table.reading.source import WantedColumns, is_path, known_encoding
from dualquery.table.schema import Schema, protected
from dualquery.types import Progress, Reals, silent

FORMS_SHARE, DISTINCT_SHARE = Fraction(8, 100), Fraction(2, 100)
FAILURE_SHARE = Fraction(1, 10)  # of δ, for texts that only one of two neighbours holds
HOPELESS = 0.1  # of the records: what is rarer is not seen, and a draft that sees no more is refused
FORMAT = "dualquery draft 1"
MARK = "# measured, ε = "  # behind each line that was measured
_SPARE = Fraction(1, 100)  # of a level, left over: a budget is never spent to the last unit
_TOO_SMALL = (
    "the budget is too small to measure a schema with; state more of it (--known), or use a larger epsilon"
)


@dataclass(frozen=True)
class DraftPlan:
    """What a private draft will measure and with how much noise, from public things alone."""

    columns: tuple[str, ...]  # that are measured
    budget: Budget  # of the measurements
    failure: Fraction  # of all lists of texts together, beside it
    rows: int | None  # the number of records, where it is public
    forms: Portion
    distinct: Portion

    @staticmethod
    def of(columns: tuple[str, ...], given: Budget, rows: int | None) -> DraftPlan:
        """The noise for so many columns within a budget, of whose δ a part is kept for thresholds."""
        if given.accounting not in (Accounting.TIGHTEST, Accounting.GAUSSIAN, Accounting.ZCDP):
            raise BudgetError(
                "a private draft is paid for by gaussian or by zcdp accounting; choose one of these"
            )
        failure = decimal(given.delta) * FAILURE_SHARE
        accounting = Accounting.ZCDP if given.accounting is Accounting.ZCDP else Accounting.GAUSSIAN
        kept = float(decimal(given.delta) - failure)
        while decimal(kept) + failure > decimal(given.delta):
            kept = math.nextafter(kept, 0.0)
        budget = replace(given, delta=kept, accounting=accounting, adaptive=True)
        number = len(columns)
        forms = portion(budget, FORMS_SHARE, _moved(budget, SortedCells, number), _TOO_SMALL)
        share = DISTINCT_SHARE / (1 - FORMS_SHARE)
        distinct = portion(forms.left, share, _moved(budget, DistinctTexts, number), _TOO_SMALL)
        return DraftPlan(columns, budget, failure, rows, forms, distinct)

    @property
    def words(self) -> str:
        """The promise, with the δ of thresholds."""
        whole = float(decimal(self.budget.delta) + self.failure)
        return replace(self.budget, delta=whole).words()

    @property
    def failure_each(self) -> Fraction:
        """δ_c, of the list of one column."""
        return self.failure / len(self.columns)

    @property
    def parts(self) -> Fraction:
        """In how many parts what is left is cut at first, of which a level of one column costs one.

        Trees that end early, and columns that are left out, leave their parts to the others.
        """
        return len(self.columns) * LEVELS + _SPARE

    def level(self, left: Budget, parts: Fraction, columns: int = 1, levels: int = 1) -> Portion:
        """Noise for so many columns, at so many levels at once, of a budget that is so many parts."""
        moved = _moved(self.budget, SortedCells, columns)
        return portion(left, columns * levels / parts, moved, _TOO_SMALL)

    def least(self) -> float:
        """How many records must share a text, or an octave of numbers, to be seen for sure."""
        octave = self.level(self.distinct.left, self.parts)
        listed = self.level(self.distinct.left, self.parts, levels=LEVELS)
        assert isinstance(listed.noise, Gaussian)
        moving = self.budget.neighbours.records_per_person or 1
        shown = (
            threshold(listed.noise, records=moving, failure=self.failure_each, times=listed.times)
            / listed.times
        )
        return max(shown, OPENS_OCTAVE * octave.noise.deviation / octave.times)

    def lines(self) -> list[str]:
        """What a person should know beforehand."""
        least = self.least()
        columns = "1 column" if len(self.columns) == 1 else f"{len(self.columns):,} columns"
        rare = f"about {least:,.0f} records"
        if self.rows is not None:
            rare += f" ({100 * least / self.rows:.2g}% of the records)"
        return [
            f"{columns} would be measured, with ε = {self.budget.epsilon:g} for all of them together.",
            f"Values in fewer than {rare} become 'other', and numbers farther out than all but so many are clamped.",
        ]

    def refuse_hopeless(self) -> None:
        least = self.least()
        if self.rows is not None and least > HOPELESS * self.rows:
            raise BudgetError(
                f"with this budget a value in fewer than {100 * least / self.rows:.2g}% of the records is not seen, "
                "so the draft would be of little use; state what is public (--known), use a larger ε, or insist "
                "(--force); nothing was charged"
            )


def _moved(budget: Budget, kind: type[SortedCells] | type[DistinctTexts], columns: int) -> Any:
    """How far neighbours move so many histograms, or so many numbers of texts, side by side."""
    one = ONE_CELL if kind is SortedCells else DistinctTexts("").bound()
    return budget.neighbours.sensitivity(sum([one] * (columns - 1), one))


def private_draft(
    table: AnyTable,
    *,
    budget: GivenBudget,
    ledger: Place | None = None,
    dataset: str | None = None,
    known: GivenSchema | None = None,
    unit: str | None = None,
    records: int | None = None,
    quantiles: int | None = None,
    for_epsilon: float | None = None,
    encoding: str | None = None,
    force: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Draft:
    """A schema for a table, found with differential privacy and paid for by `budget`: public as it stands.

    What the schema `known` states is taken from there and costs nothing; all other columns are measured. The names of
    columns are taken to be public. `ledger` and `dataset` name the book that is charged with the whole budget, as one
    entry, before a cell is counted. `unit` names the column that says whose record a row is, for neighbours that
    protect a person. `records` declares the number of records where neighbours do not share it. Numbers get as
    many bins as `quantiles` says, or as suit the ε that the release will have (`for_epsilon`, 1 where nobody says). A
    draft that would see little more than noise is refused, unless `force`. `seed` makes it repeatable, and so not
    private.
    """
    tell = silent if progress is None else progress
    check_bins(quantiles, for_epsilon)
    plan, read, stated, left_out = _prepared(table, budget, known, unit, records, encoding)
    seed = checked_seed(seed)
    if not force:
        plan.refuse_hopeless()
    unit = stated.unit if stated is not None and unit is None else unit
    moving = plan.budget.neighbours.records_per_person
    whom = protected(None if moving is None else unit)
    paying = ledger_of(
        plan.budget, ledger=ledger, dataset=dataset, kind="private draft", unit=whom, failure=plan.failure
    )
    wanted = read.select([*plan.columns, *([] if unit is None else [unit])])
    counter = MemoryCounter(texts_table(wanted, unit=unit, records_per_person=moving))
    entropy = entropy_from(seed)
    curator = Curator(counter, paying, entropy)
    entry = paying.prepay().to_json() if isinstance(paying, PrepaidLedger) else None
    found = _Found(curator, plan)
    bins = quantiles
    if bins is None:
        rows = plan.rows or max(1, round(found.rows))
        bins = number_of_bins(rows, for_epsilon)
    made = found.columns(bins, tell)
    every = {} if stated is None else {column.name.strip(): column for column in stated.domain.columns}
    every |= {name: column for name, column in made.items() if not isinstance(column, LeftOut)}
    columns = tuple(every[name.strip()] for name in read.column_names if name.strip() in every)
    left_out = (*left_out, *(each for each in made.values() if isinstance(each, LeftOut)))
    if not columns:
        raise DataError("nothing was found that a schema can be made of; what was charged stays charged")
    described = Schema(Domain(columns), unit=unit, encoding=encoding)
    if stated is not None:
        domain = Domain(columns, stated.domain.rules)
        described = replace(stated, domain=domain, unit=unit, encoding=encoding or stated.encoding)
    described = replace(described, draft=not entropy.private)  # whoever knows a seed can undo the noise
    measured = frozenset(name for name, each in made.items() if not isinstance(each, LeftOut))
    origin = (
        f"'{Path(table).name}'" if is_path(table) else describe(table)
    )  # where it lies is nobody's business
    draft = Draft(described, left_out, True, origin, measured, f"{MARK}{plan.budget.epsilon:g}")
    certificate: dict[str, Any] = {
        "format": FORMAT,
        "table": origin,
        "promise": plan.words,
        "epsilon": plan.budget.epsilon,
        "delta": float(decimal(plan.budget.delta) + plan.failure),
        "failure": float(plan.failure),
        "neighbours": str(plan.budget.neighbours),
        "accounting": plan.budget.accounting.value,
        "entropy": entropy.statement,
        "private": entropy.private,
        "book": entry,
        "stated": [] if stated is None else [column.name for column in stated.domain.columns],
        "left_out": {each.name: each.reason for each in left_out},
        "measured": found.said,
        "events": [event.to_json() for event in paying.events],
        "schema_sha256": hashlib.sha256(str(draft).encode()).hexdigest(),
    }
    seal = hashlib.sha256(canonical(certificate)).hexdigest()
    return replace(draft, certificate={**certificate, "seal": seal})


def draft_plan(
    table: AnyTable,
    *,
    budget: GivenBudget,
    known: GivenSchema | None = None,
    unit: str | None = None,
    records: int | None = None,
    encoding: str | None = None,
) -> DraftPlan:
    """What a private draft would measure, and with how much noise: nothing is counted or charged."""
    return _prepared(table, budget, known, unit, records, encoding)[0]


def _prepared(
    table: AnyTable,
    budget: GivenBudget,
    known: GivenSchema | None,
    unit: str | None,
    records: int | None,
    encoding: str | None,
) -> tuple[DraftPlan, pa.Table, Schema | None, tuple[LeftOut, ...]]:
    """The plan, the table as it was read, what is stated, and the columns that cannot be told from others by name."""
    stated = None if known is None else _usable(schema_from(known))
    if stated is not None:
        if unit is not None and stated.unit not in (None, unit):
            raise SchemaError(f"the stated part names the unit '{stated.unit}'; leave one of them out")
        unit = unit or stated.unit
        encoding = encoding or stated.encoding
    read = read_table(table, WantedColumns(encoding=None if encoding is None else known_encoding(encoding)))
    _check_header(read.column_names, stated, unit, describe(table))
    relation = budget.neighbours if isinstance(budget, Budget) else Neighbours.REPLACE
    if relation.records_per_person is not None and unit is None:
        raise DataError("records per person need the column that says whose record a row is (--unit)")
    rows = read.num_rows if relation.size_is_public else checked_rows("records", records)
    if relation.size_is_public and not read.num_rows:
        raise DataError(f"{describe(table)} has no rows below the names of its columns")
    settled = budget_from(budget, lambda: rows or 0)
    taken = {unit, *(() if stated is None else (column.name.strip() for column in stated.domain.columns))}
    wanted, left_out = [], []
    times = Counter(name.strip() for name in read.column_names)
    for place, name in enumerate(read.column_names, start=1):
        if name.strip() in taken:
            continue
        if (found := unfit(name, place, times)) is not None:
            left_out.append(found)
        else:
            wanted.append(name)
    if not wanted:
        raise SchemaError(
            "every column is stated already, so there is nothing to measure; use that schema as it is"
        )
    return DraftPlan.of(tuple(wanted), settled, rows), read, stated, tuple(left_out)


def _usable(stated: Schema) -> Schema:
    """A schema that states a part of what is public."""
    if stated.draft or stated.marked:
        raise SchemaError(
            "what is stated must be public: this schema is a draft, or has lines that were read off the data"
        )
    if stated.domain.kind != "records" or stated.long or stated.drops_rows:
        raise SchemaError(
            "a private draft is for tables of attributes of which every row is a record; write this schema by hand"
        )
    return stated


def _check_header(names: list[str], stated: Schema | None, unit: str | None, where: str) -> None:
    """Names become public: refuse those that look like a record, and what names a column that is not there."""
    known = {name.strip() for name in names}
    wanted = [] if stated is None else [column.name for column in stated.domain.columns]
    for name in (*wanted, *([] if unit is None else [unit])):
        if name.strip() not in known:
            raise SchemaError(f"{where} has no column '{name}', which is stated")
    if any(FORMS[form] in (*NUMBERS, *DATES) for form in forms_of([name.strip() for name in names])):
        raise DataError(
            f"the first line of {where} looks like a record and not like names of columns, which become public; "
            "write the names of the columns above it"
        )


class _Found:
    """What is measured, stage by stage: public numbers, and what is left of the budget."""

    def __init__(self, curator: Curator, plan: DraftPlan) -> None:
        self._curator, self._plan = curator, plan
        self._left, self._parts = plan.distinct.left, plan.parts
        names = plan.columns
        forms, sigma = self._measure([SortedCells(each, len(FORMS), forms_of) for each in names], plan.forms)
        distinct, off = self._measure([DistinctTexts(each) for each in names], plan.distinct)
        self._looks = [
            Looks(name, part, sigma, float(number), off, plan.rows)
            for name, part, number in zip(names, np.split(forms, len(names)), distinct, strict=True)
        ]
        self.rows = plan.rows or float(forms.sum() / len(names))
        self.said: dict[str, Any] = {
            each.name: {
                "forms": dict(zip(FORMS, each.forms.tolist(), strict=True)),
                "forms_sigma": sigma,
                "distinct": each.distinct,
                "distinct_sigma": off,
            }
            for each in self._looks
        }

    def columns(self, bins: int, tell: Progress) -> dict[str, Column | LeftOut]:
        """An attribute of each column that was measured, or why there is none."""
        made: dict[str, Column | LeftOut] = {}
        grown: dict[str, tuple[Looks, Reading, Tree]] = {}
        for looks in self._looks:
            reading = draft_columns.reading_of(looks)
            if (left := draft_columns.left_out(looks, self.rows)) is not None:
                made[looks.name] = left
            elif reading is not None:
                grown[looks.name] = looks, reading, Tree(reading.unit)
                if not reading.dates:
                    self.said[looks.name]["reads"] = [reading.decimal_comma, reading.currency]
        lists = len(self._looks) - len(grown) - len(made)
        for level in range(LEVELS):
            tell("measuring where numbers lie", level, LEVELS)
            growing = {name: (each[1], each[2]) for name, each in grown.items() if not each[2].done}
            self._parts = (
                len(growing) * (LEVELS - level) + lists * LEVELS
            ) + _SPARE  # what is needed at most
            self._grow(growing)
        self._parts = lists * LEVELS + _SPARE
        for looks in self._looks:
            if looks.name in grown:
                made[looks.name] = draft_columns.numbers(*grown[looks.name], bins)
            elif looks.name not in made:
                made[looks.name] = self._texts(looks)
        return {name: made[name] for name in self._plan.columns}

    def _grow(self, trees: Mapping[str, tuple[Reading, Tree]]) -> None:
        """One more level of all trees, as one event."""
        if not trees:
            return
        edges = {name: tree.edges for name, (_, tree) in trees.items()}
        asked = [
            SortedCells(name, len(edges[name]) - 1, sorted_by(edges[name], reading.read))
            for name, (reading, _) in trees.items()
        ]
        counts, sigma = self._measure(asked, self._paid(len(trees)))
        ends = np.cumsum([each.classes for each in asked])[:-1]
        for (name, (_, tree)), part in zip(trees.items(), np.split(counts, ends), strict=True):
            tree.fill(part, sigma)
            level = {"edges": edges[name].tolist(), "counts": part.tolist(), "sigma": sigma}
            self.said[name].setdefault("levels", []).append(level)

    def _texts(self, looks: Looks) -> Column | LeftOut:
        paid = self._paid(1, LEVELS)
        assert isinstance(paid.noise, Gaussian)
        found = self._curator.frequent(
            looks.name, noise=paid.noise, times=paid.times, failure=self._plan.failure_each
        )
        shares = {text: number / paid.times for text, number in found.items()}
        sigma = paid.noise.deviation / paid.times
        self.said[looks.name] |= {"texts": shares, "texts_sigma": sigma}
        return draft_columns.texts(looks, shares, sigma, self.rows)

    def _paid(self, columns: int, levels: int = 1) -> Portion:
        """Noise for so many columns at so many levels, out of what is left."""
        paid = self._plan.level(self._left, self._parts, columns, levels)
        self._left, self._parts = paid.left, self._parts - columns * levels
        return paid

    def _measure(self, asked: Sequence[Countable], paid: Portion) -> tuple[Reals, float]:
        """The numbers of several countables as one event, and their σ."""
        what: Countable = Together(tuple(asked))
        what = what if paid.times == 1 else Multiplied(what, paid.times)
        noisy = self._curator.measure(what, noise=paid.noise)
        return noisy / paid.times, paid.noise.deviation / paid.times
