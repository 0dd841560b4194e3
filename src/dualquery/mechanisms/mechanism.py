"""What every mechanism has in common: a plan made from public quantities, then a run that follows it.

A plan needs no data. It fixes every parameter before the first coin is tossed, lists what will be asked of the
curator and what each step costs, and says how good the result should be; `dualquery plan` prints it and the
certificate repeats it. A run takes the plan, a curator and public chance, recomputes nothing, and gives back an
artefact.

What a user may ask for is one frozen dataclass a mechanism (`wishes`); what a run goes by is another, made by the
plan.

From beliefs to what is released: which iterate, as rows and as answers.

What every mechanism hands out keeps the rules of the schema: rows that break one are mended (`queries.rules`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from textwrap import shorten
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from dualquery.beliefs.factored import Factored, Products, RunningAnswers
from dualquery.errors import BudgetError, DualQueryError
from dualquery.fitting.inside import placed
from dualquery.fitting.measured import Measured
from dualquery.fitting.prior import Trust
from dualquery.fitting.public_rows import PublicRows
from dualquery.fitting.public_units import PublicUnits
from dualquery.fitting.totals import Totals
from dualquery.game import Snapshot
from dualquery.mechanisms.artefact import Artefact, BareAnswers, SyntheticRecords, synthetic, usual_rows
from dualquery.mechanisms.wishes import TAKEN, flags_of
from dualquery.privacy.accounting import refuse_nothing
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Event
from dualquery.privacy.ledger import Ledger, equal_prices, least_gaussian
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import MOST_PUBLIC_ROWS
from dualquery.queries.rules import obeyed
from dualquery.queries.statistics import Bound
from dualquery.queries.workload import Workload
from dualquery.randomness import Entropy
from dualquery.table.domain import Domain
from dualquery.table.records import Records, has_places
from dualquery.types import Fractions, Progress

Wishes = TypeVar("Wishes")  # what a user may ask a mechanism for (`wishes`)
Parameters = TypeVar("Parameters")  # what a run of it goes by


@dataclass(frozen=True)
class Task:
    """All that is public before the data is touched.

    `rows` is the public number of records: the table's own length where neighbours share it, else declared, or
    measured with noise of variance `rows_variance`. `places` says whether records know where in its bin a number
    lies: those that are encoded from cells do.
    """

    workload: Workload
    rows: int
    budget: Budget
    rows_variance: float | None = None
    places: bool = False
    prior: PublicRows | PublicUnits | None = None  # what is public already (`fitting.prior`)
    totals: Totals | None = None  # that rows are to meet (`fitting.totals`)
    earlier: tuple[Measured, ...] = ()  # of the same table, paid for before (`fitting.measured.CellSums`)

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MOST_PUBLIC_ROWS:
            raise DualQueryError(
                f"a table here has at least one record and at most {MOST_PUBLIC_ROWS:,}, and {self.rows:,} is not "
                "between them; declare the number that the table has, roughly (--records)"
            )

    @property
    def domain(self) -> Domain:
        return self.workload.domain


class AnotherAccounting(BudgetError):
    """A plan that would be better, or possible at all, by a theorem that pays for more: the next of `paid_by`.

    Where the user named no accounting and the number of records is public, the release is planned again by that one.
    Where the number was measured (`Task.rows_variance`) the accounting stands already: a plan does without.
    """


def hidden() -> Any:
    """A field that a run needs and a certificate does not show."""
    return field(repr=False, metadata={"hidden": True})


def shown(parameters: Any) -> dict[str, int | float | str]:
    """The parameters as the certificate repeats them; those of parts stand beside the others."""
    out: dict[str, int | float | str] = {}
    for each in fields(parameters):
        value = getattr(parameters, each.name)
        if each.metadata.get("hidden") or value is None:
            continue
        if is_dataclass(value):
            out.update(shown(value))
        else:
            out[each.name] = value.value if isinstance(value, Enum) else value
    return out


@dataclass(frozen=True)
class Step:
    """Something that will be asked of the curator, so many times."""

    words: str
    event: Event
    times: int = 1


@dataclass(frozen=True, kw_only=True)
class Plan(Generic[Parameters]):
    """Every parameter of a run, what it will ask of the curator, and what to expect; from public things alone."""

    mechanism: str = ""  # its name, which `Mechanism.plan_for` writes down: nobody can pose as another
    task: Task
    reason: str  # one sentence: why this mechanism, and where its parameters come from
    parameters: Parameters
    steps: tuple[Step, ...]
    mean_error: float  # predicted, as a fraction of the table
    max_error: float
    seconds: float
    bytes: int
    notes: tuple[str, ...] = ()
    records: bool = True  # whether synthetic records leave

    def __repr__(self) -> str:
        """A few lines: the whole of it is in the fields."""
        budget, workload = self.task.budget, self.task.workload
        return "\n".join(
            [
                f"Plan: {self.mechanism}, {workload.size:,} queries ({shorten(workload.spec, 80)}), "
                f"{self.task.rows:,} records",
                f"  budget   ε = {budget.epsilon:g}, δ = {budget.delta:g}, neighbours {budget.neighbours}, "
                f"accounting {budget.accounting}",
                f"  error    {self.mean_error:.2g} on average, {self.max_error:.2g} at most, predicted",
                f"  run      {self.seconds:.2g} s, {self.bytes / 1e6:,.0f} MB, predicted",
                f"  because  {shorten(self.reason, 300)}",
            ]
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    artefact: Artefact
    answers: Fractions | None = None  # to the workload, where there are no records to count
    belief: Snapshot | None = None  # of a learning data player, for whoever compares
    notes: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = ()  # with noise, as far as others can make use of it
    trust: Trust | None = None  # how far public rows were believed; None where there were none
    settled: Plan[Any] | None = (
        None  # the plan, with what the run has chosen fixed: what a replica does again
    )


Run = Callable[[Plan[Parameters], Curator, np.random.Generator, Progress], Outcome]


@dataclass(frozen=True)
class Mechanism(Generic[Wishes, Parameters]):
    """A mechanism by its name (`wishes.MECHANISMS`): what may be asked of it, its plan and its run."""

    registered_in: ClassVar[str] = "mechanisms"

    name: str
    words: str  # what it is, in a sentence
    wishes: type[Wishes]
    plan: Callable[[Task, Wishes], Plan[Parameters]]
    run: Run[Parameters] = field(repr=False)
    paid_by: tuple[Accounting, ...] = (Accounting.ZCDP,)  # what can add up its events, the tightest first
    # The plan of a replica (`mechanisms.error_bars`); None where replicas would not show the errors.
    replica: Callable[[Plan[Parameters]], Plan[Parameters]] | None = field(default=None, repr=False)
    plays: tuple[str, ...] | None = ("records",)  # kinds of tables (`Domain.kind`); None: any
    starts_from_prior: bool = False  # whether `Task.prior` and `Task.earlier` mean something to it

    def __post_init__(self) -> None:
        taken = sorted(TAKEN.intersection(flags_of(self.wishes)))
        if taken:
            raise DualQueryError(f"'{taken[0]}' is an argument of every release, and cannot be a wish")

    def accepts(self, options: Iterable[str]) -> bool:
        return all(name in flags_of(self.wishes) for name in options)

    def plan_for(self, task: Task, options: Mapping[str, object]) -> Plan[Parameters]:
        """The plan, after refusing options that this mechanism would ignore."""
        for name in options:
            if not self.accepts([name]):
                given = "--" + name.replace("_", "-")
                raise DualQueryError(f"{given} means nothing to the mechanism '{self.name}'; leave it out")
        if (theorem := task.budget.accounting) not in self.paid_by:
            names = " or ".join(each.value for each in self.paid_by)
            raise BudgetError(
                f"the mechanism '{self.name}' is not paid for by {theorem.value} accounting; use {names}"
            )
        refuse_nothing(task.budget)
        self.check_plays(task.domain.kind)
        if task.prior is not None and not self.starts_from_prior:
            raise DualQueryError(
                f"the mechanism '{self.name}' does not start from a prior; leave out --prior or --mechanism"
            )
        if task.earlier and not self.starts_from_prior:
            raise DualQueryError(
                f"the mechanism '{self.name}' has no use for what a draft measured; leave out --draft or --mechanism"
            )
        return replace(self.plan(task, self.wishes(**options)), mechanism=self.name)

    def check_plays(self, kind: str) -> None:
        if self.plays is not None and kind not in self.plays:
            raise DualQueryError(
                f"the mechanism '{self.name}' plays tables of {' or '.join(self.plays)}, and this is a table of "
                f"{kind}; leave --mechanism out, or name one that plays it"
            )


AnyMechanism = Mechanism[Any, Any]


def affordable(budget: Budget, steps: Iterable[Step]) -> bool:
    """Whether a fresh ledger pays for every step. The ledger itself decides."""
    ledger = Ledger(budget)
    try:
        for step in steps:
            for _ in range(step.times):
                ledger.charge(step.event)
    except BudgetError:
        return False
    return True


def least_noise(budget: Budget, bound: Bound) -> Noise:
    """The noise of one measurement that costs the whole budget: Laplace under pure ε, else Gaussian."""
    moved = budget.neighbours.sensitivity(bound)
    if budget.accounting is Accounting.PURE:
        return equal_prices(budget, 1).noise(moved)
    return least_gaussian(budget, [moved])


Chosen = TypeVar("Chosen", bound=Enum)


def choice(kind: type[Chosen], given: str | None, usual: Chosen, name: str) -> Chosen:
    if given is None:
        return usual
    for each in kind:
        if each.value == given:
            return each
    names = ", ".join(str(each.value) for each in kind)
    raise DualQueryError(f"{name} must be one of {names}, got '{given}'")


def part_of(whole: Fraction, share: float) -> Fraction:
    """A share of something exact, the share rounded to a ten-thousandth."""
    return whole * Fraction(share).limit_denominator(10_000)


NO_RECORDS = "this mechanism answers the workload and makes no synthetic records"

Reply = TypeVar("Reply")


class Iterate(Enum):
    """Which distribution is released."""

    LAST = "last"
    AVERAGE = "average"


class AverageBelief:
    """The mean of the answers that were given, which is all that is left of the iterates."""

    def __init__(self, workload: Workload, answers: Fractions) -> None:
        self._workload = workload
        self._answers = answers

    def answers(self, workload: Workload) -> Fractions:
        if workload is not self._workload and workload.digest() != self._workload.digest():
            raise DualQueryError("an average of iterates answers the workload that it was made for")
        return self._answers


def released_iterate(
    plan: Plan[Any], replied: Iterator[Factored], rng: np.random.Generator, progress: Progress
) -> Outcome:
    """The last reply of a learning data player as records, or the average of all: rows drawn from each in turn."""
    chosen, workload = plan.parameters, plan.task.workload
    if chosen.iterate is Iterate.LAST:
        return released(last(replied), chosen.synthetic_rows, rng)
    running, answers, rows = RunningAnswers(Products.of(workload)), np.zeros(workload.size), []
    for reply in replied:
        answers += running.answers(reply)
        rows.append(reply.sample(-(-chosen.synthetic_rows // chosen.rounds), rng))
    records = Records.from_rows(workload.domain, np.concatenate(rows))
    return Outcome(
        artefact=SyntheticRecords(records), belief=AverageBelief(workload, answers / chosen.rounds)
    )


def iterates_before(start: Factored, replied: Iterable[Factored]) -> Iterator[Factored]:
    """A₀ … A_{T−1}, what each round's query was chosen against; the last reply is played for and left out."""
    before = start
    for reply in replied:
        yield before
        before = reply


def last(replied: Iterator[Reply]) -> Reply:
    """The last of all replies."""
    return deque(replied, maxlen=1).pop()


def released(distribution: Factored, rows: int, rng: np.random.Generator) -> Outcome:
    records = Records.from_rows(distribution.domain, distribution.sample(rows, rng))
    return Outcome(artefact=SyntheticRecords(records), belief=distribution)


def answers_only(workload: Workload, answers: Fractions, bars: Fractions) -> Outcome:
    """Answers between 0 and 1, each with how far off it may be (in 19 of 20 cases), and no records."""
    answers = np.clip(answers, 0.0, 1.0)
    artefact = BareAnswers(list(workload.texts()), answers, bars)
    return Outcome(artefact=artefact, answers=answers, notes=(NO_RECORDS,))


def joined_rows(task: Task, again: float | None, variance: float) -> tuple[float, float]:
    """The number of records and the variance of its noise: as public, or with a second measurement of it."""
    if task.rows_variance is None or again is None:
        return float(task.rows), task.rows_variance or 0.0
    weight = 1 / task.rows_variance + 1 / variance
    return max(1.0, (task.rows / task.rows_variance + again / variance) / weight), 1 / weight


def synthetic_rows(task: Task, wanted: int | None) -> int:
    """As many rows as asked for; by default as the table has, within bounds that a computer can hold."""
    if wanted is not None and wanted < 1:
        raise DualQueryError("a synthetic table has at least one row")
    return wanted or usual_rows(task.rows)


def finished(outcome: Outcome, rows: int, entropy: Entropy, totals: Totals | None = None) -> Outcome:
    """The outcome with records that keep all rules and meet totals, and whose numbers have places in their bins.

    Nothing is drawn where there are neither rules nor totals nor such numbers. `rows` is the number of records of the
    table.
    """
    artefact = outcome.artefact
    if not isinstance(artefact, SyntheticRecords):
        return outcome
    domain = artefact.records.domain
    placed_here = not domain.inner and any(map(has_places, domain.columns))
    if not (domain.rules or totals is not None or placed_here):
        return outcome
    generator = entropy.public_generator()
    records = finished_records(artefact.records, outcome.measured, rows, generator, totals)
    return replace(outcome, artefact=synthetic(records))


def finished_records(
    records: Records,
    measured: Sequence[Measured],
    rows: int,
    rng: np.random.Generator,
    totals: Totals | None = None,
) -> Records:
    """Records that keep all rules and meet totals, with places by what was measured inside bins, if anything was.

    Units meet totals alone: a database has no rules, and numbers of its tables are spread over their bins.
    """
    if records.domain.rules:
        records = obeyed(records, rng)
    if totals is not None:
        records = totals.met(records, rng)
    return records if records.domain.inner else placed(records, measured, rows, rng)
