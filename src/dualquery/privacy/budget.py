"""Which two tables must be hard to tell apart, and how far that lets a sum over records move.

A countable adds up a contribution φ(x) of each record x, so it can say two things about itself without knowing what a
neighbour is, for any norm (`queries.statistics`):

    alone    the largest ‖φ(x)‖ of one record,
    apart    the largest ‖φ(x) − φ(y)‖ of two.

A relation is what turns them into a sensitivity. Brute force holds every statistic and every score against its
definition (tests/privacy/definitions.py). A relation that does not say how far it moves a sum cannot be made: nothing
falls into a cheaper branch.

A *person* has at most K records, and all of them move at once. With records A of a person replaced by B, |A| and
|B| at most K, pair up min(|A|, |B|) of them: Σ_B φ − Σ_A φ has at most K terms, each a difference φ(y) − φ(x) or a
single ±φ(x), so that its norm is at most K·max(alone, apart), and K·alone where A or B is empty. Both are attained
by K equal records.

What may be spent: ε, δ, between which tables, and by which theorem the spending is added up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, ClassVar

from dualquery.errors import BudgetError, require

if TYPE_CHECKING:  # flags of the command line need the names of relations, and nothing heavy
    from dualquery.queries.statistics import Bound

MOST_RECORDS = 1_000_000  # of a person; the noise of so many drowns any table
PARTS = 64  # of a record, where those of earlier periods count in part (`table.persons`)


@dataclass(frozen=True)
class Sensitivity:
    """How far some whole numbers can move: the sum of the moves (L1), and the sum of their squares (L2²)."""

    l1: int
    l2_squared: int


@dataclass(frozen=True)
class Neighbours(ABC):
    """One relation between tables. A ledger keeps one."""

    REPLACE: ClassVar[Neighbours]
    ADD_REMOVE: ClassVar[Neighbours]
    IN_PARTS: ClassVar[Neighbours]
    value: ClassVar[str]  # its name on the command line and on the certificate
    change: ClassVar[str]  # "suppose that one record (one person's records) …"
    size_is_public: ClassVar[bool]  # whether neighbours have the same number of records

    def __str__(self) -> str:
        return self.value

    @property
    def records_per_person(self) -> int | None:
        """K where a person is protected; None where it is one record, whoever it belongs to."""
        return None

    @abstractmethod
    def words(self) -> str:
        """The relation in words, for the certificate."""

    @abstractmethod
    def largest(self, *, alone: int, apart: int) -> int:
        """The largest norm of the move of a sum over records; also the range in which scores move."""

    @abstractmethod
    def largest_squared(self, *, alone: int, apart: int) -> int:
        """The same for the square of a norm, given the squares of `alone` and `apart`."""

    def sensitivity(self, bound: Bound) -> Sensitivity:
        """Of a sum over records, given both norms of one contribution and of the difference of two."""
        return Sensitivity(
            self.largest(alone=bound.alone[0], apart=bound.apart[0]),
            self.largest_squared(alone=bound.alone[1], apart=bound.apart[1]),
        )

    def each(self, bound: Bound) -> int:
        """How far any one of the numbers can move."""
        together = self.sensitivity(bound).l1
        return (
            together
            if bound.each is None
            else min(together, self.largest(alone=bound.each, apart=bound.each))
        )

    @staticmethod
    def named(name: str, records_per_person: int | None = None) -> Neighbours:
        """The relation of this name; those of persons need to know how many records a person may have."""
        for relation in RELATIONS:
            if relation.value == name:
                require(
                    records_per_person is None,
                    f"neighbours '{name}' are about one record, so records per person mean nothing there; "
                    f"leave them out, or ask for 'person-{name}'",
                )
                return relation
        for other in (_InParts(), ReplaceWithin()):
            if other.value == name:
                return other
        for kind in (PersonAddRemove, PersonReplace):
            if kind.value == name:
                if records_per_person is None:
                    raise BudgetError(
                        f"neighbours '{name}' need the number of records that count of each person "
                        "(--records-per-person)"
                    )
                return kind(records_per_person)
        names = ", ".join(relation.value for relation in (*RELATIONS, *person_relations(1)))
        raise BudgetError(f"neighbours must be one of {names}, got '{name}'")


class _OneRecord(Neighbours):
    """Relations that move one record: its norm, or the square of one, is all that moves."""

    def largest_squared(self, *, alone: int, apart: int) -> int:
        return self.largest(alone=alone, apart=apart)


@dataclass(frozen=True)
class _Replace(_OneRecord):
    value = "replace"
    change = "were replaced by any other record"
    size_is_public = True

    def words(self) -> str:
        return "tables that differ in the values of one record; the number of records is public"

    def largest(self, *, alone: int, apart: int) -> int:
        return apart


@dataclass(frozen=True)
class _AddRemove(_OneRecord):
    value = "add-remove"
    change = "were left out of the table, or added to it"
    size_is_public = False

    def words(self) -> str:
        return "tables of which one has one record more; the number of records is private"

    def largest(self, *, alone: int, apart: int) -> int:
        return alone


@dataclass(frozen=True)
class _InParts(_OneRecord):
    """A record is there or not, and counts as many times as its period says, at most `PARTS` times.

    The relation of the records is the ordinary one, and so is its name in a book; what is counted moves more.
    """

    value = "add-remove-in-parts"
    change = "were left out of the table, or added to it"
    size_is_public = False

    def __str__(self) -> str:
        return "add-remove"

    def words(self) -> str:
        return (
            f"tables of which one has one record more, which counts as up to {PARTS} parts by its period; the "
            "number of records is private"
        )

    def largest(self, *, alone: int, apart: int) -> int:
        return PARTS * alone

    def largest_squared(self, *, alone: int, apart: int) -> int:
        return PARTS**2 * alone


@dataclass(frozen=True)
class ReplaceWithin(_OneRecord):
    """A record is replaced by one that is alike in some attributes, of which totals of this very table are public.

    Tables with other totals are no neighbours, so nothing is promised about these attributes. Counts of sets inside
    of them do not move at all; any other sum moves no farther than between two records (`moves`).
    """

    attributes: tuple[str, ...] = ()

    value = "replace-within"
    size_is_public = True

    @property
    def change(self) -> str:  # type: ignore[override]
        return f"were replaced by any other with the same {self.named_attributes}"

    @property
    def named_attributes(self) -> str:
        return " and ".join([", ".join(self.attributes[:-1]), *self.attributes[-1:]]).removeprefix(" and ")

    def words(self) -> str:
        return (
            f"tables that differ in one record, and there not in {self.named_attributes}, of which totals are "
            "public; the number of records is public"
        )

    def moves(self, attributes: Iterable[str]) -> bool:
        """Whether a neighbour can have other counts of the table over these attributes."""
        return not set(attributes) <= set(self.attributes)

    def largest(self, *, alone: int, apart: int) -> int:
        if not self.attributes:
            raise BudgetError(f"'{self.value}' is for a release with totals of this very table (--totals)")
        return apart


@dataclass(frozen=True)
class _OnePerson(Neighbours):
    """Relations that move all records of one person, at most K of them; their number is never public."""

    records: int  # K

    size_is_public = False

    def __post_init__(self) -> None:
        whole = isinstance(self.records, int) and not isinstance(self.records, bool)
        require(
            whole and 1 <= self.records <= MOST_RECORDS,
            f"records per person must be a whole number from 1 to {MOST_RECORDS:,}, got {self.records}",
        )

    def __str__(self) -> str:
        return f"{self.value} (at most {_records(self.records)} each)"

    @property
    def records_per_person(self) -> int:
        return self.records

    @abstractmethod
    def _one(self, alone: int, apart: int) -> int:
        """What one of K equal records moves."""

    def largest(self, *, alone: int, apart: int) -> int:
        return self.records * self._one(alone, apart)

    def largest_squared(self, *, alone: int, apart: int) -> int:
        return self.records**2 * self._one(alone, apart)


@dataclass(frozen=True)
class PersonAddRemove(_OnePerson):
    """One person's records, at most K, are there or not."""

    value = "person-add-remove"
    change = "were left out of the table with all their records, or added to it"

    def words(self) -> str:
        return (
            f"tables of which one has one person more, with at most {_records(self.records)}; the numbers of "
            "persons and of records are private"
        )

    def _one(self, alone: int, apart: int) -> int:
        return alone


@dataclass(frozen=True)
class PersonReplace(_OnePerson):
    """One person's records, at most K, become others, at most K and not necessarily as many."""

    value = "person-replace"
    change = "had had any other records instead"

    def words(self) -> str:
        return (
            f"tables that differ in the records of one person, at most {_records(self.records)} in each; the "
            "number of persons is public, the number of records is private"
        )

    def _one(self, alone: int, apart: int) -> int:
        return max(alone, apart)


def _records(number: int) -> str:
    return "one record" if number == 1 else f"{number:,} records"


def person_relations(records: int) -> tuple[Neighbours, ...]:
    return (PersonAddRemove(records), PersonReplace(records))


RELATIONS: tuple[Neighbours, ...] = (_Replace(), _AddRemove())
Neighbours.REPLACE, Neighbours.ADD_REMOVE = RELATIONS
Neighbours.IN_PARTS = _InParts()


MOST_USUAL_EPSILON, MOST_USUAL_DELTA = 5.0, 1e-5  # above them the user is warned
PROMISES_LITTLE = 10.0  # from this ε on nobody may speak of "almost the same probability"
MOST_EPSILON = 1e9  # beyond any use: it stands for "no noise" where something is checked without any


class Accounting(Enum):
    """The theorem that adds up what the events cost. `TIGHTEST` is none yet: planning settles it (`paid_by`)."""

    TIGHTEST = "tightest"
    ZCDP = "zcdp"
    GAUSSIAN = "gaussian"
    THEOREM_4_3 = "theorem-4.3"
    PURE = "pure"
    RENYI = "renyi"

    def __str__(self) -> str:
        return self.value

    def words(self) -> str:
        return _ACCOUNTING_WORDS[self]


_ACCOUNTING_WORDS = {
    Accounting.TIGHTEST: "the tightest theorem that the mechanism allows",
    Accounting.ZCDP: "zero-concentrated differential privacy (conversion of Canonne, Kamath, Steinke 2020)",
    Accounting.GAUSSIAN: "Gaussian differential privacy, exact for discrete Gaussian noise (Dong, Roth, Su 2022)",
    Accounting.THEOREM_4_3: "advanced composition (Theorem 4.3 of Gaboardi et al., 2014)",
    Accounting.PURE: "sums of pure differential privacy (Theorem 4.2 of Gaboardi et al., 2014)",
    Accounting.RENYI: (
        "a cap on the Rényi divergence at one whole order, for questions one at a time "
        "(conversion of Canonne, Kamath, Steinke 2020)"
    ),
}


@dataclass(frozen=True, init=False)
class Budget:
    """(ε, δ)-differential privacy between `neighbours`, added up by `accounting`; both may be given by name.

    `adaptive`: the sizes of later events may follow earlier outputs, as they do where the number of records is
    measured first. What is promised then is the whole budget, and the accounting must be a filter (docs/privacy.md).
    """

    epsilon: float
    delta: float
    neighbours: Neighbours = Neighbours.REPLACE
    accounting: Accounting = Accounting.TIGHTEST
    adaptive: bool = False

    def __init__(
        self,
        epsilon: float,
        delta: float | None = None,
        neighbours: Neighbours | str = Neighbours.REPLACE,
        accounting: Accounting | str = Accounting.TIGHTEST,
        *,
        adaptive: bool = False,
    ) -> None:
        theorem = _accounting(accounting)
        if delta is None and theorem is not Accounting.PURE:
            raise BudgetError(
                "say delta too, well below one over the number of records, like Budget(1, 1e-6); only pure "
                "accounting needs none"
            )
        for name, value in (("epsilon", epsilon), ("delta", delta or 0)):
            if isinstance(value, bool) or not isinstance(value, Real):
                raise BudgetError(f"{name} must be a number, got {value!r}.")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", 0.0 if delta is None else delta)
        object.__setattr__(self, "neighbours", _neighbours(neighbours))
        object.__setattr__(self, "accounting", theorem)
        object.__setattr__(self, "adaptive", adaptive)
        self.__post_init__()

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= MOST_EPSILON:
            raise BudgetError(
                f"epsilon must be a positive number of at most {MOST_EPSILON:g}, and {self.epsilon} is not."
            )
        if self.delta == 0 and self.accounting is not Accounting.PURE:
            raise BudgetError(
                "delta may be 0 only with pure accounting; choose a delta well below one over the number of "
                "records, or ask for pure accounting."
            )
        if self.delta != 0 and not 0 < self.delta < 1:
            raise BudgetError(f"delta must lie between 0 and 1, and {self.delta} does not.")
        if self.adaptive and self.accounting is Accounting.THEOREM_4_3:
            raise BudgetError(
                "Theorem 4.3 adds up draws whose sizes are fixed before anything is measured: with it the number of "
                "records must be declared as public (--records); or use zcdp accounting."
            )

    def words(self) -> str:
        return (
            f"({self.epsilon:g}, {self.delta:g})-differential privacy between {self.neighbours.words()}; "
            f"accounting by {self.accounting.words()}"
        )


def _accounting(given: Accounting | str) -> Accounting:
    if isinstance(given, Accounting):
        return given
    names = [each.value for each in Accounting]
    if given not in names:
        raise BudgetError(f"accounting must be one of {', '.join(names)}, got {given!r}")
    return Accounting(given)


def _neighbours(given: Neighbours | str) -> Neighbours:
    if isinstance(given, Neighbours):
        return given
    if not isinstance(given, str):
        raise BudgetError(f"neighbours are given by name, like 'replace', and {given!r} is no name")
    if given.startswith("person-"):
        raise BudgetError(
            f"neighbours '{given}' need the number of records that count of each person: PersonReplace(3) or "
            "PersonAddRemove(3)"
        )
    return Neighbours.named(given)


@dataclass(frozen=True)
class Spent:
    """What a ledger has paid: (ε, δ), and ρ in units of 10⁻¹² where the theorem knows one."""

    rho_units: int | None
    epsilon: float
    delta: float


def default_delta(rows: int) -> float:
    """δ = min(1/n², 10⁻⁶): over all n records together, the chance of a failure stays below 1/n, and below n/10⁶."""
    return min(1 / max(rows, 1) ** 2, 1e-6)


def budget_warnings(budget: Budget, rows: int) -> list[str]:
    """Sentences where a promise is weaker than it looks.

    With δ > 1/n publishing a random record in the clear would be allowed; δ > 10⁻⁵ is more than is usual for any
    table; ε > 5 allows near certainty about a record that was unlikely before.
    """
    found = []
    if rows * decimal(budget.delta) > 1:
        found.append(
            f"delta = {budget.delta:g} is more than one over the number of records: a promise that weak would "
            "allow publishing a whole record now and then; one over its square is usual."
        )
    elif budget.delta > MOST_USUAL_DELTA:
        found.append(
            f"delta = {budget.delta:g} is large: with that probability the promise may fail altogether; use at most "
            f"{MOST_USUAL_DELTA:g}."
        )
    if budget.epsilon > MOST_USUAL_EPSILON:
        factor = f"exp({budget.epsilon:g})" if budget.epsilon > 50 else f"{math.exp(budget.epsilon):,.0f}"
        found.append(
            f"epsilon = {budget.epsilon:g} is large: what is concluded about somebody may become {factor} times as "
            f"likely because of their record; use at most {MOST_USUAL_EPSILON:g}, better 1."
        )
    return found


def decimal(value: float) -> Fraction:
    """The rational that a float prints as: 0.3 means 3/10 to whoever typed it and on the certificate."""
    return Fraction(repr(float(value)))
