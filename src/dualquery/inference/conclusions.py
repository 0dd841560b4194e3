"""What can be concluded from a release: estimates of any function, regressions, and tables for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa

from dualquery.errors import QueryError
from dualquery.inference.draws import DRAWS, EVENLY, Imputations, numbers_in, whole_codes
from dualquery.inference.estimates import combined, half_width
from dualquery.inference.functions import (
    READS_NOTHING,
    Function,
    aligned,
    columns_read,
    numbers_of,
    takes_part,
)
from dualquery.inference.regressions import Family, check, designed, fitted
from dualquery.mechanisms.error_bars import Replica
from dualquery.queries.language import unknown_name
from dualquery.queries.models import ModelFormula, read_formula
from dualquery.table.domain import Domain, Items
from dualquery.table.encoding import decode
from dualquery.table.records import Records
from dualquery.types import Reals, Set

NumbersOf = Callable[[pa.Table], tuple[list[str], Reals]]  # of a table: names, and a number under each


@dataclass(frozen=True, eq=False)
class Conclusions:
    """Of one release: draws around what it measured, and its replicas."""

    draws: Imputations
    replicas: tuple[Replica, ...]

    @property
    def domain(self) -> Domain:
        return self.draws.domain

    @cached_property
    def repeated(self) -> list[tuple[pa.Table, pa.Table]]:
        """Of each replica its table, and what was released of it."""
        return [(decode(each.table), decode(joined_records(each))) for each in self.replicas]

    def estimate(self, function: Function, columns: Sequence[str] | None = None) -> pa.Table:
        """Of every number that a function makes of a frame, estimate and interval (`inference.estimates`)."""
        if not callable(function):
            raise QueryError(f"expected a function of a pandas frame, got {type(function).__name__}")
        self._refuse_without_draws()
        table = self.draws.table
        given = columns is not None
        columns = columns_read(function, table) if columns is None else columns
        attributes = self.attributes(columns)
        columns = list(columns)
        if not columns:
            raise QueryError(READS_NOTHING)
        self._refuse_unmeasured(list(combinations(attributes, 2)))
        alone = given or takes_part(function, table, columns)

        def made(of: pa.Table) -> tuple[list[str], Reals]:
            return numbers_of(function, of.select(columns) if alone else of)

        names, rows = made(table)
        draws, sampling = self._of_draws(made, names, attributes)
        return combined(names, draws, rows, self._of_replicas(made, names), sampling)

    def _of_draws(
        self, made: NumbersOf, names: list[str], attributes: Sequence[int]
    ) -> tuple[Reals | None, Reals]:
        """A function of every draw, and its variance in tables of n records drawn from them."""
        if self.draws.measured is None:
            return None, self._sampling_of_rows(made, names)
        drawn = self.draws.of(attributes)
        many = np.array([aligned(names, *made(each)) for each in self.draws.evenly(drawn)])
        few = np.array([aligned(names, *made(each)) for each in self.draws.by_chance(drawn)])
        return many, self._sampling(many - few)

    def _sampling(self, apart: Reals) -> Reals:
        """u, of differences between very many records and n of them, or `EVENLY` where these are fewer."""
        part = min(1.0, EVENLY / self.draws.records)
        found: Reals = np.mean(apart**2, axis=0) * part
        return found

    def _sampling_of_rows(self, made: NumbersOf, names: list[str]) -> Reals:
        rng, table = np.random.default_rng([self.draws.seed, 3]), self.draws.table
        size = min(self.draws.records, EVENLY)
        rows = aligned(names, *made(table))
        few = [
            aligned(names, *made(table.take(pa.array(np.sort(rng.integers(0, table.num_rows, size))))))
            for _ in range(DRAWS)
        ]
        return self._sampling(np.array(few) - rows)

    def _of_replicas(self, made: NumbersOf, names: list[str]) -> Reals:
        """The errors of a function in the replicas, one row each."""
        errors = [aligned(names, *made(told)) - aligned(names, *made(known)) for known, told in self.repeated]
        return np.array(errors).reshape(len(errors), len(names))

    def regress(self, formula: str, family: str = "linear") -> pa.Table:
        """The coefficients of a model, each with its interval and p."""
        model, law = read_formula(self.domain, formula), Family.named(family)
        check(self.domain, model, law)
        self._refuse_without_draws()
        self._refuse_unmeasured(model.sets, formula)
        names, rows, own = self._fitted_to(self.draws.released, model, law, sampling=True)
        errors = [
            self._fitted_to(joined_records(each), model, law)[1] - self._fitted_to(each.table, model, law)[1]
            for each in self.replicas
        ]
        draws, sampling = None, own / self.draws.records
        if self.draws.measured is not None:
            draws, sampling = self._regressed(model, law)
        found = combined(names, draws, rows, np.array(errors).reshape(-1, len(names)), sampling, tested=True)
        if all(each is None for each in found.column("estimate").to_pylist()):
            raise QueryError(f"nothing can be said of '{formula}': {found.column('note')[0].as_py()}")
        return found

    def _regressed(self, model: ModelFormula, law: Family) -> tuple[Reals, Reals]:
        drawn = self.draws.of(model.attributes, model.interactions)
        codes = {j: whole_codes(self.draws.released, j)[drawn.rows] for j in model.attributes}
        numbers = {j: self.draws.numbers_of(j)[drawn.rows] for j in model.attributes}
        found = []
        for place, weights in enumerate(drawn.weights):
            moved = drawn.numbers[place]
            mine = {
                j: moved.get(self.domain.name(j), numbers[j]) / self.draws.unit(j) for j in model.attributes
            }
            found.append(fitted(designed(self.domain, model, codes, mine), weights, law, sampling=True))
        sampling = np.mean([each.variance for each in found], axis=0) / self.draws.records
        return np.array([each.coefficients for each in found]), sampling

    def _fitted_to(
        self, records: Records, model: ModelFormula, law: Family, *, sampling: bool = False
    ) -> tuple[list[str], Reals, Reals]:
        """A model of plain rows."""
        codes = {j: whole_codes(records, j) for j in model.attributes}
        table = self.draws.table if records is self.draws.released else decode(records)
        numbers = {j: numbers_in(records, table, j) / self.draws.unit(j) for j in model.attributes}
        design = designed(self.domain, model, codes, numbers)
        found = fitted(design, np.ones(records.rows), law, sampling=sampling)
        return design.names, found.coefficients, found.variance

    def imputations(self, number: int = DRAWS, columns: Sequence[str] | None = None) -> list[pa.Table]:
        """So many tables of n records, for programs that combine them by Rubin's rules."""
        if isinstance(number, bool) or not isinstance(number, int) or not 2 <= number <= DRAWS:
            raise QueryError(f"the number of imputations is a whole number from 2 to {DRAWS}, got {number!r}")
        if self.draws.measured is None:
            raise QueryError(
                "this release kept no measurements of tables to draw imputations around; release with the mechanism "
                "projection"
            )
        names = [column.name for column in self.domain.columns] if columns is None else list(columns)
        attributes = self.attributes(names)
        self._refuse_unmeasured(list(combinations(attributes, 2)))
        drawn = self.draws.of(attributes)
        made = zip(range(number), self.draws.by_chance(drawn, most=None), strict=False)
        return [table.select(names) for _, table in made]

    def bars(self, made: NumbersOf, attributes: Sequence[int]) -> tuple[list[str], Reals, list[float]]:
        """NumbersOf as the rows give them, and the half-width of what is known of each; NaN where nothing is."""
        names, rows = made(self.draws.table)
        errors = self._of_replicas(made, names)
        drawn = self.draws.of(attributes)
        around = np.array([aligned(names, *made(each)) for each in self.draws.evenly(drawn)]) - rows
        measured = self.draws.measured is not None
        return (
            names,
            rows,
            [half_width(errors[:, i], around[:, i], measured=measured) for i in range(len(names))],
        )

    def attributes(self, columns: Iterable[str]) -> list[int]:
        """The numbers of some columns; a block of items is no single attribute."""
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise QueryError(f"give columns as a list, columns=[{columns!r}]")
        found = []
        for name in columns:
            attribute = self.domain.find(name) if isinstance(name, str) else None
            if attribute is None:
                blocks = {column.name for column in self.domain.columns if isinstance(column, Items)}
                if name in blocks:
                    raise QueryError(
                        f"'{name}' is a block of items, of which functions cannot be estimated; ask `answers`"
                    )
                raise QueryError(unknown_name(self.domain, str(name)))
            found.append(attribute)
        return sorted(set(found))

    def _refuse_without_draws(self) -> None:
        if self.draws.measured is None and not self.replicas:
            raise QueryError(
                "this release has neither measurements nor replicas, so nothing tells how far off a number is; "
                "release "
                "with the mechanism projection"
            )

    def _refuse_unmeasured(self, sets: Sequence[Set], formula: str | None = None) -> None:
        """What was never measured together is only a guess of the fit: say so, and what to release."""
        lacking = [] if self.draws.measured is None else self.draws.missing(sets)
        if not lacking:
            return
        said = "; ".join(self._listed(members) for members in lacking[:4])
        spec = f"regress:{formula}" if formula else "tables:" + ",".join(map(self._spec, sets[:6]))
        more = f" (and {len(lacking) - 4} more)" if len(lacking) > 4 else ""
        raise QueryError(
            f"this release never measured together {said}{more}, so it cannot tell; release with a workload that "
            f"asks for it, such as '{spec}', and a budget that pays for it"
        )

    def _listed(self, members: Set) -> str:
        *names, last = [self.domain.name(j) for j in members]
        return f"{', '.join(names)} and {last}"

    def _spec(self, members: Set) -> str:
        return "*".join(self.domain.name(j) for j in members)


def joined_records(replica: Replica) -> Records:
    """What was released of a replica's table, as records again."""
    first, second = replica.halves
    return first.with_more(second)
