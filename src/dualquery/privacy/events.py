"""What happened: one frozen record, in exact rationals, for each use of private data.

An event says what was done and carries the bounds that hold for it alone; what several events cost together
is for `accounting`. `renyi(order)` bounds the Rényi divergence at a whole order α > 1. `for_records(k)` is the
same event between tables that differ in k records: k neighbours on end, along which moves add up, so that a range or
a sensitivity is k times, and its square k² times, what it is for one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import ClassVar, TypeAlias

from dualquery.errors import require
from dualquery.privacy.conversion import PI, UNITS, fire_units


class _Written:
    """An event as the certificate writes it: its kind, then its fields."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, str | int]:
        known = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {
            "event": self.kind,
            **{name: str(value) if isinstance(value, Fraction) else value for name, value in known.items()},
        }


class _Concentrated(_Written, ABC):
    """An event that is ρ-zCDP: D_α ≤ αρ at every order."""

    @property
    @abstractmethod
    def rho(self) -> Fraction: ...

    def renyi(self, order: int) -> Fraction:
        return order * self.rho

    @abstractmethod
    def mu_squared(self, rounding: Fraction) -> Fraction | None:
        """μ² of a real Gaussian that hides no more, discrete noise being a rounding that gives up r²; None: none."""

    def to_json(self) -> dict[str, str | int]:
        return {**super().to_json(), "rho": f"{float(self.rho):.6g}"}


class _Pure(_Concentrated):
    """An event that is ε-DP, hence ε²/2-zCDP (Bun and Steinke 2016, Proposition 1.4)."""

    @property
    @abstractmethod
    def pure(self) -> Fraction: ...

    @property
    def rho(self) -> Fraction:
        return self.pure**2 / 2

    def mu_squared(self, rounding: Fraction) -> Fraction:
        """π(2ε)²/8: its loss lies in [−ε, ε], a range of 2ε."""
        return PI * self.rho


@dataclass(frozen=True)
class Selection(_Concentrated):
    """Draws of the exponential mechanism whose log-weights move within `range` (ε) between neighbours.

    Each draw is ε-DP and, because its privacy loss lies in an interval of width ε (bounded range), ε²/8-zCDP
    (Dong, Durfee, Rogers 2020; Cesar, Rogers 2021).
    """

    kind = "selection"

    range: Fraction
    draws: int

    def __post_init__(self) -> None:
        require(self.range >= 0, "The range of a selection's log-weights cannot be negative.")
        require(self.draws >= 1, "A selection draws at least once.")

    @property
    def rho(self) -> Fraction:
        return self.draws * self.range**2 / 8

    def mu_squared(self, rounding: Fraction) -> Fraction:
        """π ε²/8 a draw: bounded range is Gaussian differential privacy (docs/privacy.md, "Bounded range")."""
        return PI * self.rho

    @property
    def pure(self) -> Fraction:
        return self.draws * self.range

    def for_records(self, records: int) -> Selection:
        return Selection(records * self.range, self.draws)

    def words(self) -> str:
        draws = "one draw" if self.draws == 1 else f"{self.draws} draws"
        return f"{draws} of the exponential mechanism, log-weights within a range of {float(self.range):.6g}"


@dataclass(frozen=True)
class GaussianMeasurement(_Concentrated):
    """Discrete Gaussian noise of variance parameter σ² on integers of L2 sensitivity Δ₂.

    Δ₂²/(2σ²)-zCDP (Canonne, Kamath, Steinke 2020; proof in docs/privacy.md); no pure bound exists.
    """

    kind = "gaussian noise"

    sensitivity_squared: Fraction
    variance: Fraction

    def __post_init__(self) -> None:
        require(self.sensitivity_squared >= 0, "A squared sensitivity cannot be negative.")
        require(self.variance > 0, "The variance of Gaussian noise must be positive.")

    @property
    def moved(self) -> Fraction:
        return self.sensitivity_squared

    def same_noise(self, other: object) -> bool:
        return isinstance(other, GaussianMeasurement) and other.variance == self.variance

    @property
    def rho(self) -> Fraction:
        return self.sensitivity_squared / (2 * self.variance)

    def mu_squared(self, rounding: Fraction) -> Fraction | None:
        """Δ₂²/(σ² − r²)."""
        if self.sensitivity_squared == 0:
            return Fraction(0)
        return self.sensitivity_squared / (self.variance - rounding) if self.variance > rounding else None

    def for_records(self, records: int) -> GaussianMeasurement:
        return GaussianMeasurement(records**2 * self.sensitivity_squared, self.variance)

    def words(self) -> str:
        return (
            f"discrete Gaussian noise of variance {float(self.variance):.6g} "
            f"for a squared L2 sensitivity of {float(self.sensitivity_squared):.6g}"
        )


@dataclass(frozen=True)
class LaplaceMeasurement(_Pure):
    """Discrete Laplace noise of scale b on integers of L1 sensitivity Δ₁: ε = Δ₁/b, hence ε²/2-zCDP."""

    kind = "laplace noise"

    sensitivity: Fraction
    scale: Fraction

    def __post_init__(self) -> None:
        require(self.sensitivity >= 0, "A sensitivity cannot be negative.")
        require(self.scale > 0, "The scale of Laplace noise must be positive.")

    @property
    def moved(self) -> Fraction:
        return self.sensitivity

    def same_noise(self, other: object) -> bool:
        return isinstance(other, LaplaceMeasurement) and other.scale == self.scale

    @property
    def pure(self) -> Fraction:
        return self.sensitivity / self.scale

    def for_records(self, records: int) -> LaplaceMeasurement:
        return LaplaceMeasurement(records * self.sensitivity, self.scale)

    def words(self) -> str:
        return (
            f"discrete Laplace noise of scale {float(self.scale):.6g} "
            f"for an L1 sensitivity of {float(self.sensitivity):.6g}"
        )


@dataclass(frozen=True)
class Epoch(_Pure):
    """One epoch of the textbook's sparse vector, up to and with its first "above": ε-DP, hence ε²/2-zCDP.

    (Dwork and Roth 2014, Theorem 3.23; for integers docs/privacy.md, "Threshold tests".)
    """

    kind = "epoch"

    epsilon: Fraction

    def __post_init__(self) -> None:
        require(self.epsilon > 0, "The epsilon of an epoch must be positive.")

    @property
    def pure(self) -> Fraction:
        return self.epsilon

    def for_records(self, records: int) -> Epoch:
        return Epoch(records * self.epsilon)

    def words(self) -> str:
        return f"one epoch of the sparse vector technique, epsilon = {float(self.epsilon):.6g}"


@dataclass(frozen=True)
class Fire(_Written):
    """One fire of a hazard test with rates e^{ε(±x−θ)}, where a neighbour moves x by at most K (`sensitivity`).

    It costs D = [−Kε(α−1) − ln(1 − (α−1)(e^{Kε} − 1))] / (α−1) at the order α and has no price at any other:
    hence neither ρ nor a pure ε. A test that does not fire is no event. (docs/privacy.md, "Threshold tests".)
    """

    kind = "fire"

    epsilon: Fraction
    sensitivity: int
    order: int

    def __post_init__(self) -> None:
        _ = self.cost  # refuses what has no finite price

    @property
    def cost(self) -> Fraction:
        """D in whole units, rounded up. It follows from the other fields, so that it cannot be understated."""
        units = fire_units(epsilon=self.epsilon, sensitivity=self.sensitivity, order=self.order)
        return Fraction(units, UNITS)

    def renyi(self, order: int) -> Fraction:
        require(
            order == self.order,
            f"This test is priced at the order {self.order}, and the ledger keeps the order {order}.",
        )
        return self.cost

    def for_records(self, records: int) -> Fire:
        """BudgetError where a fire has no price for so many records at this order."""
        return Fire(self.epsilon, records * self.sensitivity, self.order)

    def words(self) -> str:
        return (
            f"one fire of a hazard test, epsilon = {float(self.epsilon):.6g} for a sensitivity of "
            f"{self.sensitivity}, {float(self.cost):.6g} at the Rényi order {self.order}"
        )

    def to_json(self) -> dict[str, str | int]:
        return {**super().to_json(), "cost": str(self.cost)}


@dataclass(frozen=True)
class EarlierRelease(_Concentrated):
    """A release of the same table that was made before, under a ledger of its own which could pay ρ at the most."""

    kind = "earlier release"

    cost: Fraction

    def __post_init__(self) -> None:
        require(self.cost > 0, "A release costs something.")

    @property
    def rho(self) -> Fraction:
        return self.cost

    def mu_squared(self, rounding: Fraction) -> None:
        """ρ alone is known of it, and ρ-zCDP is not Gaussian differential privacy."""
        return

    def for_records(self, records: int) -> EarlierRelease:
        """k²ρ (Bun and Steinke 2016, Proposition 1.9)."""
        return EarlierRelease(records**2 * self.cost)

    def words(self) -> str:
        return f"an earlier release of the same table, rho = {float(self.cost):.6g}"


Concentrated: TypeAlias = Selection | GaussianMeasurement | LaplaceMeasurement | Epoch | EarlierRelease
Event: TypeAlias = Concentrated | Fire
