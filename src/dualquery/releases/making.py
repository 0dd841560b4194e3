"""From a private table to a release, in the order that keeps the promise.

Read the table; fix everything public; plan from that alone; open a ledger; let the mechanism play through the
curator; write the certificate from what the ledger paid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dualquery.counting.counter import Counter
from dualquery.counting.memory import MemoryCounter
from dualquery.counting.opening import open_counter
from dualquery.counting.spark import SparkCounter, is_spark_frame
from dualquery.errors import BudgetError, DataError, DualQueryError, SchemaError
from dualquery.mechanisms.mechanism import Progress, Task, silent
from dualquery.privacy.book.book import Place
from dualquery.privacy.book.prepaid import PrepaidLedger, ledger_of
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import UNITS, epsilon_of, rho_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.neighbours import Neighbours, Sensitivity
from dualquery.privacy.noise import Gaussian, Laplace, Noise
from dualquery.privacy.statistics import number_of_records
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.randomness import entropy_from
from dualquery.releases.certificate import RowsFrom, certify
from dualquery.releases.persons import check_records, records_per_person
from dualquery.releases.planning import checked_options, plan_for, warnings_of
from dualquery.releases.prediction import PredictedError
from dualquery.releases.release import Release
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.table.schema import Schema
from dualquery.table.source import Source

SHARE_FOR_ROWS = Fraction(1, 100)  # of the budget, where the number of records must be measured


def release(
    table: Source | Records | Counter,
    *,
    budget: Budget,
    workload: Workload | str,
    domain: Domain | None = None,
    schema: Schema | Domain | None = None,
    mechanism: str | None = None,
    seed: int | None = None,
    public_rows: int | None = None,
    progress: Progress | None = None,
    ledger: Place | None = None,
    dataset: str | None = None,
    **options: object,
) -> Release:
    """A differentially private release of a table, made for a workload of queries.

    `table` is a pandas, Polars or Arrow table, a path, a pattern of paths, encoded records, or a counter of records
    (`dualquery.counting`: wherever they are); `domain` (or `schema`) says what
    is public about it. Without `mechanism` the program chooses. Options of mechanisms are given by name
    (`rounds=40`). `seed` makes the release repeatable, and so not private. Where neighbours may differ in their
    number of records, `public_rows` declares it; without it 1% of the budget measures it. `ledger` (a file or a URL)
    and `dataset` name the book that is charged with the whole budget before a count is read, and stays charged if
    the release fails (docs/ledger.md).
    """
    tell = silent if progress is None else progress
    described = _described(table, domain, schema)
    if isinstance(workload, str):
        workload = from_spec(described.domain, workload)
    if workload.domain != described.domain:
        raise DualQueryError("the workload was made for another schema than the table's")
    wanted = checked_options(options)
    refuse_dropping(described, budget.neighbours)
    paying = ledger_of(budget, ledger=ledger, dataset=dataset)
    counter = _counter(table, described, budget.neighbours, wanted.get("memory"), tell)
    entropy = entropy_from(seed)
    curator = Curator(counter, paying, entropy)
    known = known_rows(curator, counter, public_rows)
    task = Task(workload, known.rows, known.left, known.variance)
    tell("planning", 0, 1)
    chosen, plan = plan_for(task, wanted, mechanism)
    tell("planning", 1, 1)
    entry = paying.prepay().to_json() if isinstance(paying, PrepaidLedger) else None  # now at the latest
    outcome = chosen.run(plan, curator, entropy.public_generator(), tell)
    certificate = certify(
        plan=plan,
        mechanism=chosen,
        schema=described,
        ledger=paying,
        entropy=entropy,
        rows_from=known.source,
        synthetic_rows=outcome.artefact.rows,
        predicted_error=PredictedError.of(
            plan.mean_error, plan.max_error, answers=outcome.answers, bars=outcome.error_bars
        ),
        warnings=warnings_of(budget, known.rows, seed=seed, draft=described.draft),
        notes=(*plan.notes, *outcome.notes),
        book=entry,
    )
    return Release(certificate, workload.domain, outcome.artefact)


def _counter(
    table: Source | Records | Counter, schema: Schema, neighbours: Neighbours, memory: object, tell: Progress
) -> Counter:
    """Whoever counts the records, of each person no more than these neighbours allow for."""
    if isinstance(table, Records):
        table = MemoryCounter(table, progress=lambda done, total: tell("counting", done, total))
    if isinstance(table, Counter):
        check_records(table.records_per_person, schema, neighbours)
        return table
    return counter_of(table, schema, neighbours, memory, tell)


def counter_of(
    table: Source, schema: Schema, neighbours: Neighbours, memory: object, tell: Progress
) -> Counter:
    """A table read so that these neighbours stay neighbours."""
    if is_spark_frame(table):
        return SparkCounter(
            table,
            schema,
            records_per_person=records_per_person(schema, neighbours),
            progress=lambda done, total: tell("counting", done, total),
        )
    return open_counter(
        table,
        schema,
        records_per_person=records_per_person(schema, neighbours),
        memory=memory if isinstance(memory, int) else None,
        tell=tell,
        progress=lambda done, total: tell("counting", done, total),
    )


def shared_rows(counter: Counter, neighbours: Neighbours) -> int | None:
    """The number of records, where these neighbours share it."""
    return counter.true_rows if neighbours.size_is_public else None


def refuse_dropping(schema: Schema, neighbours: Neighbours) -> None:
    """Where the number of records is public, no record may decide whether it is counted.

    The neighbours of the promise are rows of the file. A row that is dropped for its contents changes the public
    number between them; where the number is private, dropping looks at one row by itself and is harmless.
    """
    if schema.drops_rows and neighbours.size_is_public:
        raise SchemaError(
            "the schema drops rows by what they contain, which would give away how many do, because the number of "
            "records is public between these neighbours; declare a value for what is missing, or release with "
            "--neighbours add-remove"
        )


@dataclass(frozen=True)
class KnownRows:
    """The number of records as the public knows it, how, and the budget left for the mechanism."""

    rows: int
    source: RowsFrom
    left: Budget
    variance: float | None = None  # of the noise with which it was measured


def known_rows(curator: Curator, counter: Counter, declared: int | None) -> KnownRows:
    """Under replacement the length of the table is public; otherwise declared, or measured and paid for."""
    budget = curator.ledger.budget
    if budget.neighbours.size_is_public:
        # Between these neighbours the length is no secret, so an error may depend on it.
        if declared is not None and declared != counter.true_rows:
            raise DataError("the declared number of records is not that of the table; leave it out")
        if counter.true_rows == 0:
            raise DataError("the table has no rows")
        return KnownRows(counter.true_rows, RowsFrom.TABLE, budget)
    if declared is not None:
        if declared < 1:
            raise BudgetError("the declared number of records must be at least 1")
        return KnownRows(declared, RowsFrom.DECLARED, budget)
    noise, left = price_of_rows(budget)
    measured = int(curator.measure(number_of_records(counter.domain), noise=noise)[0])
    return KnownRows(max(1, measured), RowsFrom.MEASURED, left, noise.deviation**2)


def price_of_rows(budget: Budget) -> tuple[Noise, Budget]:
    """Noise for the number of records that costs `SHARE_FOR_ROWS` of a budget, and what is left of it.

    One count, changed by at most Δ between neighbours: 1, or K where a person's K records move together. Pure:
    Laplace noise of scale b costs ε = Δ/b, and ε adds up. zCDP: Gaussian noise of variance σ² costs ρ = Δ²/(2σ²),
    and ρ adds up; what is left is the largest ε whose ρ is at most the rest.
    """
    # As `number_of_records` has it, of any domain: a record counts as one, and two records count alike.
    moved = budget.neighbours.sensitivity(alone=Sensitivity(1, 1), apart=Sensitivity(0, 0))
    if budget.accounting is Accounting.PURE:
        price = decimal(budget.epsilon) * SHARE_FOR_ROWS
        rest = Fraction(math.floor(decimal(budget.epsilon) * UNITS) - math.ceil(price * UNITS), UNITS)
        if rest > 0:
            # Rounded down once more: a float may print above the fraction that it came from.
            return Laplace(scale=moved.l1 / price), replace(budget, epsilon=_below(float(rest), rest))
    elif budget.accounting is Accounting.ZCDP:
        rho = rho_of(epsilon=budget.epsilon, delta=budget.delta)
        price = rho * SHARE_FOR_ROWS
        rest = rho - Fraction(math.ceil(price * UNITS), UNITS)
        if price > 0 and rest > 0:
            epsilon_left = epsilon_of(rest, delta=budget.delta)
            while rho_of(epsilon=epsilon_left, delta=budget.delta) > rest:
                epsilon_left *= 1 - 1e-9
            return Gaussian(variance=moved.l2_squared / (2 * price)), replace(budget, epsilon=epsilon_left)
    else:
        raise BudgetError(
            f"with {budget.accounting.value} accounting and neighbours of which one may have more records, the "
            "number of records must be declared as public"
        )
    raise BudgetError(
        "the budget is too small to measure the number of records; declare it as public (--records)"
    )


def _below(x: float, bound: Fraction) -> float:
    while decimal(x) > bound:
        x = math.nextafter(x, 0.0)
    return x


def _described(
    table: Source | Records | Counter, domain: Domain | None, schema: Schema | Domain | None
) -> Schema:
    given = [each for each in (domain, schema) if each is not None]
    encoded = table.domain if isinstance(table, Records | Counter) else None
    if encoded is not None and not given:
        return Schema.of(encoded)
    if len(given) != 1:
        raise DualQueryError("say what is public about the table: give one of domain and schema")
    described = Schema.of(given[0])
    if encoded is not None and encoded != described.domain:
        raise DualQueryError("the records were encoded with another schema")
    return described
