"""What may be spent: ε, δ, between which tables, and by which theorem the spending is added up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from numbers import Real

from dualquery.errors import BudgetError
from dualquery.privacy.neighbours import Neighbours

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
