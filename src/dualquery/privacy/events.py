"""What happened: one frozen record, in exact rationals, for each use of private data.

An event says what was done and carries the bounds that hold for it alone; what several events cost together
is for the interpreters of `accounting`. `renyi(order)` bounds the Rényi divergence at a whole order α > 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from dualquery.errors import BudgetError
from dualquery.privacy.conversion import UNITS, fire_units

Json: TypeAlias = dict[str, str | int]


@dataclass(frozen=True)
class Selection:
    """Draws of the exponential mechanism whose log-weights move within `range` (ε) between neighbours.

    Each draw is ε-DP and, because its privacy loss lies in an interval of width ε (bounded range), ε²/8-zCDP
    (Dong, Durfee, Rogers 2020; Cesar, Rogers 2021).
    """

    range: Fraction
    draws: int

    def __post_init__(self) -> None:
        _require(self.range >= 0, "The range of a selection's log-weights cannot be negative.")
        _require(self.draws >= 1, "A selection draws at least once.")

    @property
    def rho(self) -> Fraction:
        return self.draws * self.range**2 / 8

    @property
    def pure(self) -> Fraction:
        return self.draws * self.range

    def renyi(self, order: int) -> Fraction:
        return order * self.rho

    def words(self) -> str:
        draws = "one draw" if self.draws == 1 else f"{self.draws} draws"
        return f"{draws} of the exponential mechanism, log-weights within a range of {float(self.range):.6g}"

    def to_json(self) -> Json:
        return {"event": "selection", "range": str(self.range), "draws": self.draws, "rho": _rho(self)}


@dataclass(frozen=True)
class GaussianMeasurement:
    """Discrete Gaussian noise of variance parameter σ² on integers of L2 sensitivity Δ₂.

    Δ₂²/(2σ²)-zCDP (Canonne, Kamath, Steinke 2020; proof in docs/privacy.md); no pure bound exists.
    """

    sensitivity_squared: Fraction
    variance: Fraction

    def __post_init__(self) -> None:
        _require(self.sensitivity_squared >= 0, "A squared sensitivity cannot be negative.")
        _require(self.variance > 0, "The variance of Gaussian noise must be positive.")

    @property
    def rho(self) -> Fraction:
        return self.sensitivity_squared / (2 * self.variance)

    def renyi(self, order: int) -> Fraction:
        return order * self.rho

    def words(self) -> str:
        return (
            f"discrete Gaussian noise of variance {float(self.variance):.6g} "
            f"for a squared L2 sensitivity of {float(self.sensitivity_squared):.6g}"
        )

    def to_json(self) -> Json:
        return {
            "event": "gaussian noise",
            "sensitivity_squared": str(self.sensitivity_squared),
            "variance": str(self.variance),
            "rho": _rho(self),
        }


@dataclass(frozen=True)
class LaplaceMeasurement:
    """Discrete Laplace noise of scale b on integers of L1 sensitivity Δ₁: ε = Δ₁/b, hence ε²/2-zCDP."""

    sensitivity: Fraction
    scale: Fraction

    def __post_init__(self) -> None:
        _require(self.sensitivity >= 0, "A sensitivity cannot be negative.")
        _require(self.scale > 0, "The scale of Laplace noise must be positive.")

    @property
    def rho(self) -> Fraction:
        return self.pure**2 / 2

    @property
    def pure(self) -> Fraction:
        return self.sensitivity / self.scale

    def renyi(self, order: int) -> Fraction:
        return order * self.rho

    def words(self) -> str:
        return (
            f"discrete Laplace noise of scale {float(self.scale):.6g} "
            f"for an L1 sensitivity of {float(self.sensitivity):.6g}"
        )

    def to_json(self) -> Json:
        return {
            "event": "laplace noise",
            "sensitivity": str(self.sensitivity),
            "scale": str(self.scale),
            "rho": _rho(self),
        }


@dataclass(frozen=True)
class Epoch:
    """One epoch of the textbook's sparse vector, up to and with its first "above": ε-DP, hence ε²/2-zCDP.

    (Dwork and Roth 2014, Theorem 3.23; for integers docs/privacy.md, "Threshold tests".)
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        _require(self.epsilon > 0, "The epsilon of an epoch must be positive.")

    @property
    def rho(self) -> Fraction:
        return self.pure**2 / 2

    @property
    def pure(self) -> Fraction:
        return self.epsilon

    def renyi(self, order: int) -> Fraction:
        return order * self.rho

    def words(self) -> str:
        return f"one epoch of the sparse vector technique, epsilon = {float(self.epsilon):.6g}"

    def to_json(self) -> Json:
        return {"event": "epoch", "epsilon": str(self.epsilon), "rho": _rho(self)}


@dataclass(frozen=True)
class Fire:
    """One fire of a hazard test with rates e^{ε(±x−θ)}, where a neighbour moves x by at most K (`sensitivity`).

    It costs D = [−Kε(α−1) − ln(1 − (α−1)(e^{Kε} − 1))] / (α−1) at the order α and has no price at any other:
    hence neither ρ nor a pure ε. A test that does not fire is no event. (docs/privacy.md, "Threshold tests".)
    """

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
        _require(
            order == self.order,
            f"This test is priced at the order {self.order}, and the ledger keeps the order {order}.",
        )
        return self.cost

    def words(self) -> str:
        return (
            f"one fire of a hazard test, epsilon = {float(self.epsilon):.6g} for a sensitivity of "
            f"{self.sensitivity}, {float(self.cost):.6g} at the Rényi order {self.order}"
        )

    def to_json(self) -> Json:
        return {
            "event": "fire",
            "epsilon": str(self.epsilon),
            "sensitivity": self.sensitivity,
            "order": self.order,
            "cost": str(self.cost),
        }


Concentrated: TypeAlias = Selection | GaussianMeasurement | LaplaceMeasurement | Epoch
Event: TypeAlias = Concentrated | Fire


def _rho(event: Concentrated) -> str:
    return f"{float(event.rho):.6g}"


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BudgetError(sentence)
