"""The sparse vector technique of the textbook: any number of "below", one "above", for the price of one.

AboveThreshold (Dwork and Roth 2014, Algorithm 1) for integers. An *epoch* draws its threshold noise once, tests
with fresh noise each, and closes after the first "above"; it costs ε whether it closes or not, paid when it
opens. The noise of a test is never its answer: whoever wants a number measures afresh. (`hazard` has a test
that is several times cheaper; this one serves pure and zCDP accounting.) Proof: docs/privacy.md, "Threshold
tests".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dualquery.errors import BudgetError
from dualquery.privacy.events import Concentrated, Epoch
from dualquery.privacy.hazard import FarSide
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import discrete_laplace
from dualquery.randomness import Entropy


@dataclass(frozen=True)
class SparseVector:
    """The public parameters of epochs: ε of each, θ in records, and how far a neighbour moves x."""

    epsilon: Fraction
    threshold: int  # θ
    sensitivity: int = 1  # Δ

    def __post_init__(self) -> None:
        _ = self.event
        if self.sensitivity < 1:
            raise BudgetError("The sensitivity of a test is a whole number of at least 1.")

    @property
    def event(self) -> Epoch:
        return Epoch(self.epsilon)

    @property
    def threshold_scale(self) -> Fraction:
        """2Δ/ε, of the noise that an epoch draws once."""
        return 2 * self.sensitivity / self.epsilon

    @property
    def query_scale(self) -> Fraction:
        """4Δ/ε, of the noise that every test draws."""
        return 4 * self.sensitivity / self.epsilon

    def open(self, ledger: Ledger, entropy: Entropy, *follow_up: Concentrated) -> OpenEpoch:
        """Pay for an epoch, and for what is measured at its end, all or nothing; then draw its threshold."""
        ledger.charge(self.event, *follow_up)
        return OpenEpoch(self, entropy)


class OpenEpoch:
    """One epoch: a noisy threshold that nobody else sees. Made by `SparseVector.open`, which pays for it."""

    def __init__(self, law: SparseVector, entropy: Entropy) -> None:
        self._law = law
        self._entropy = entropy
        self._noisy_threshold = law.threshold + self._noise(law.threshold_scale)
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def exceeds(self, x: int) -> bool:
        """Whether |x| + fresh noise reaches the noisy threshold; the first True closes the epoch."""
        if self._closed:
            raise BudgetError('This epoch ended with its first "above"; open another, which costs its price.')
        self._closed = abs(x) + self._noise(self._law.query_scale) >= self._noisy_threshold
        return self._closed

    def _noise(self, scale: Fraction) -> int:
        return int(discrete_laplace(1, scale=scale, entropy=self._entropy)[0])


class Epochs:
    """One epoch after another, each opened when it is first needed: a law for the curator's `exceeds`.

    An epoch is paid for together with the measurement that ends it. Whoever asks for another measurement while it
    is open pays for that one, too, because any test may be the last. All of it out of one ledger: an epoch that
    one table has paid for is not open for another.
    """

    def __init__(self, law: SparseVector) -> None:
        self._law = law
        self._ledger: Ledger | None = None
        self._epoch: OpenEpoch | None = None
        self._paid: set[Concentrated] = set()  # the measurements that may end the open epoch

    @property
    def sensitivity(self) -> int:
        return self._law.sensitivity

    def pay(
        self, ledger: Ledger, entropy: Entropy, follow_up: Concentrated
    ) -> Callable[[int], FarSide | None]:
        """Where no epoch is open, pay for one and for the measurement that ends it; then the test."""
        if self._ledger not in {None, ledger}:
            raise BudgetError("These epochs are paid for by another ledger; make new ones for this table.")
        if self._epoch is None or self._epoch.closed:
            self._epoch = self._law.open(ledger, entropy, follow_up)
            self._ledger, self._paid = ledger, {follow_up}
        elif follow_up not in self._paid:
            ledger.charge(follow_up)
            self._paid.add(follow_up)
        epoch = self._epoch
        return lambda x: FarSide.FAR if epoch.exceeds(x) else None
