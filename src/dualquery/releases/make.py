"""From a private table to a release, in the order that keeps the promise.

Read the table; fix everything public; plan from that alone; open a ledger; let the mechanism play through the
curator; write the certificate from what the ledger paid.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dualquery.counting import Counter, MemoryCounter
from dualquery.counting.opening import machines_of, open_counter
from dualquery.errors import BudgetError, DataError, DualQueryError, SchemaError
from dualquery.ledger.book import Place, PrepaidLedger, accounting_of, ledger_of
from dualquery.mechanisms.error_bars import MOST_SEEDS, Draw, made_replicas
from dualquery.mechanisms.mechanism import finished
from dualquery.privacy.budget import PARTS, Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.rules import check_rules
from dualquery.randomness import entropy_from
from dualquery.releases.acceptance import GivenAcceptance, Wanted, doubts
from dualquery.releases.arguments import (
    GivenBudget,
    GivenSchema,
    GivenWorkload,
    budget_from,
    checked_options,
    checked_rows,
    checked_seed,
    for_callers,
    notes_of_machines,
    schema_from,
    workload_from,
)
from dualquery.releases.certificate import PredictedError, certify
from dualquery.releases.check import SHARE, Check, Unchecked, certified, checked, scales_of
from dualquery.releases.frames import listed
from dualquery.releases.plan import (
    Request,
    Settled,
    check_plays,
    check_records,
    foreign_code,
    known_rows,
    measures_rows,
    plan_checked,
    records_per_person,
    refuse_hopeless,
    refuse_unmet,
    settle,
    shared_rows,
    warnings_of,
)
from dualquery.releases.public import (
    doubts_of,
    lacking,
    public_rows,
    public_totals,
    refuse_another_number,
    refuse_rows_beside,
    relation_of,
)
from dualquery.releases.release import Release, records_of
from dualquery.releases.reuse import GivenDraft, earlier_of, refuse_another_table
from dualquery.table.domain import Domain
from dualquery.table.persons import RunningSpan, Span
from dualquery.table.reading import AnyTable
from dualquery.table.records import Records
from dualquery.table.schema import Schema
from dualquery.table.units import AnyDatabase
from dualquery.types import Progress, silent


@for_callers
def release(
    table: AnyTable | AnyDatabase | Records | Counter,
    *,
    budget: GivenBudget,
    workload: GivenWorkload,
    domain: Domain | None = None,
    schema: GivenSchema | None = None,
    mechanism: str | None = None,
    seed: int | None = None,
    records: int | None = None,
    progress: Progress | None = None,
    ledger: Place | None = None,
    dataset: str | None = None,
    prior: Any = None,
    prior_origin: str | None = None,
    prior_key: str | os.PathLike[str] | None = None,
    draft: GivenDraft | None = None,
    totals: Any = None,
    period: str | Span | None = None,
    check: float = SHARE,
    accept: GivenAcceptance | None = None,
    threads: int | None = None,
    engine: str | None = None,
    **options: object,
) -> Release:
    """A differentially private release of a table, made for a workload of queries.

    `table` is a pandas, Polars or Arrow table, a path, a pattern of paths, a Spark DataFrame (counted in its
    executors, docs/schema.md), of a database a folder, an SQLite file or a dict of tables by name, encoded records,
    or a counter of records; `schema` (a path, a dict, a Schema or a
    Domain) says what is public about it. `workload` is a SPEC (`marginals:3`), a list of queries or a Workload,
    `budget` a Budget or ε alone (δ = min(1/n², 10⁻⁶) then, and a record is replaced). Without `mechanism` the program
    chooses. Options of mechanisms are given by name (`rounds=40`). A budget that names no accounting gets the
    tightest that the mechanism allows. `seed` makes the release repeatable, and so not private. Where neighbours may
    differ in their number of records, `records` declares it; without it 1% of the budget measures it. `ledger` (a
    file or a URL) and `dataset` name the book that is charged with the whole budget before a count is read, and stays
    charged if the release fails (docs/certificate.md). `prior` is what is public already: a release or its folder, or
    a file or frame (of a database what it would be read from) together with its `prior_origin`; several in a list
    (with `prior_key` all are folders that this key has signed). It is believed as far as the noisy measurements bear
    it out (docs/how_it_works.md). `draft` is the private draft that the schema is from, or its certificate: its
    counts are used again. `totals` are public tables of counts (a file or a frame, several in a list) that the
    released rows are to meet exactly. `period` names a period of the schema's calendar, like `2024-Q3`, a longer one,
    or two with .. between them: its records alone are read, one by one, whatever the table holds (docs/schema.md).
    `check` is the share of the budget with which the release measures its own error (0: it does not), and `accept` a
    file (or a dict) that says beforehand what good enough is.
    `threads` (all cores) changes how long it takes, and no byte. `engine="cuda"` counts and fits on a GPU
    (docs/cli.md).
    """
    tell = silent if progress is None else progress
    described = public_schema(table, domain, schema).during(period)
    workload = workload_from(described.domain, workload)
    check_rules(described.domain)
    check_plays(mechanism, described.domain.kind)
    public, priors = public_rows(prior, prior_origin, described, table, prior_key)
    if draft is not None and not isinstance(table, Records | Counter):
        refuse_another_table(draft, table)
    meeting, counted = public_totals(totals, described, table)
    checking = Wanted.of(check, accept, described.domain)
    wanted, seed = checked_options(options), checked_seed(seed)
    refuse_rows_beside(wanted, meeting)
    records = checked_rows("records", records)
    budget, table = _budget(budget, table, described, wanted, tell)
    budget = relation_of(budget, meeting, ledger)
    by = None if ledger is None else accounting_of(ledger, dataset)
    filtered = by is Accounting.GAUSSIAN  # what such a book adds up is the limit of a filter
    budget = replace(budget, adaptive=filtered or measures_rows(budget, records))
    earlier, drafted = (
        ((), None)
        if draft is None
        else earlier_of(draft, described, budget.neighbours, ledger=ledger, dataset=dataset, seed=seed)
    )
    asked = Request(workload, wanted, mechanism, public, earlier, checking, meeting)
    booked: Settled | None = None
    prepaid: Ledger | None = None
    if ledger is not None:
        booked = settle(asked, budget, None, booked=by)
        if measures_rows(budget, records):
            refuse_hopeless(asked, booked.budget)
        # Of persons' records that were encoded before nobody knows which column names them.
        named = described.unit is not None or budget.neighbours.records_per_person is None
        prepaid = ledger_of(
            booked.budget,
            ledger=ledger,
            dataset=dataset,
            span=described.within,
            unit=described.protects if named else "",
        )
    counter = counting(table, described, budget.neighbours, wanted.get("memory"), tell)
    tell("planning", 0, 1)
    rows = shared_rows(counter, budget.neighbours) or records
    refuse_another_number(budget, meeting, rows)
    settled = booked or settle(asked, budget, rows, places=counter.knows_places)
    paying = prepaid or Ledger(settled.budget)
    entropy = entropy_from(seed)
    curator = Curator(counter, paying, entropy)
    known = known_rows(curator, counter, records)
    task = replace(asked.of(known.task(workload, places=counter.knows_places)), totals=meeting)
    chosen, plan, reserved = settled.planned or plan_checked(task, asked)
    refuse_unmet(plan, meeting)
    plan = replace(plan, task=replace(plan.task, totals=meeting))
    tell("planning", 1, 1)
    entry = paying.prepay().to_json() if isinstance(paying, PrepaidLedger) else None  # now at the latest
    allowed = () if isinstance(reserved, Unchecked) else curator.allow(reserved.event)
    outcome = finished(
        chosen.run(plan, curator, entropy.public_generator(), tell), task.rows, entropy, meeting
    )
    draw = Draw.of(
        outcome.artefact, task.rows, int(entropy.public_generator().integers(MOST_SEEDS)), outcome.trust
    )
    seen = checked(reserved, curator, allowed, records_of(outcome.artefact), checking, draw.seed, tell)
    replicas = made_replicas(chosen, plan, outcome, draw, tell)
    predicted, scales = PredictedError.of(plan, records_of(outcome.artefact), replicas, draw.seed), {}
    measured = outcome.measured
    if isinstance(seen, Check):
        scales = scales_of(seen, predicted.curves, replicas)
        predicted = predicted.scaled(scales)
        measured = (*measured, seen.measured())
    accepted = checking.accepted(seen)
    whole = known.rows if meeting is None else meeting.number
    certificate = certify(
        plan=plan,
        mechanism=chosen,
        schema=described,
        ledger=paying,
        entropy=entropy,
        rows_from=known.source,
        outcome=outcome,
        rows_for_people=None if wanted.get("synthetic_rows") else whole,
        replicas={"number": len(replicas), **draw.to_json()},
        predicted_error=predicted,
        accounting_reason=settled.why,
        warnings=[
            *foreign_code(chosen),
            *warnings_of(budget, known.rows, described, seed=seed),
            *doubts_of(budget, meeting, known.rows),
            *doubts(accepted),
        ],
        notes=(
            *plan.notes,
            *outcome.notes,
            *lacking(priors, described),
            *notes_of_machines(),
            *(() if described.within is None else described.within.notes),
        ),
        engine=machines_of(counter),
        measured=listed(workload.domain, measured),
        check=certified(seen, scales, checking.share),
        accepted=accepted,
        book=entry,
        prior=priors,
        draft=drafted,
        totals=counted,
    )
    return Release(certificate, workload.domain, outcome.artefact, replicas, measured)


def _budget(
    given: GivenBudget,
    table: AnyTable | AnyDatabase | Records | Counter,
    schema: Schema,
    options: Mapping[str, object],
    tell: Progress,
) -> tuple[Budget, AnyTable | AnyDatabase | Records | Counter]:
    """The budget, and the table, opened where ε stands alone and the public number of records gives δ."""
    if isinstance(given, Budget):
        return given, table
    budget_from(given, lambda: 2)  # refuses at once what is no budget
    counter = counting(table, schema, Neighbours.REPLACE, options.get("memory"), tell)
    return budget_from(given, lambda: shared_rows(counter, Neighbours.REPLACE) or 0), counter


def counting(
    table: AnyTable | AnyDatabase | Records | Counter,
    schema: Schema,
    neighbours: Neighbours,
    memory: object,
    tell: Progress,
) -> Counter:
    """Whoever counts the records, of each person no more than these neighbours allow for: they stay neighbours."""
    refuse_dropping(schema, neighbours)
    refuse_parts(schema, neighbours)
    progress = partial(tell, "counting")
    if isinstance(table, Records):
        table = MemoryCounter(table, progress=progress)
    if isinstance(table, Counter):
        check_records(table.records_per_person, schema, neighbours)
        if table.within != schema.within:
            raise DataError(
                "the records are encoded already, and it is not known to which period each belongs; give the table "
                "itself, so that the program keeps those of the period"
            )
        return table
    return open_counter(
        table,
        schema,
        records_per_person=records_per_person(schema, neighbours),
        memory=memory if isinstance(memory, int) else None,
        tell=tell,
        progress=progress,
    )


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


def refuse_parts(schema: Schema, neighbours: Neighbours) -> None:
    """A record of a running span counts as many times as its period says, which other neighbours do not know."""
    within = schema.within
    if isinstance(within, RunningSpan) and (neighbours != Neighbours.IN_PARTS or within.whole > PARTS):
        raise BudgetError("a record of a running span counts in parts; release it through a Series")


def public_schema(
    table: AnyTable | AnyDatabase | Records | Counter, domain: Domain | None, schema: GivenSchema | None
) -> Schema:
    given = [each for each in (domain, schema) if each is not None]
    encoded = table.domain if isinstance(table, Records | Counter) else None
    if encoded is not None and not given:
        return Schema.of(encoded)
    if len(given) != 1:
        raise DualQueryError("say what is public about the table: give one of domain and schema")
    described = schema_from(given[0])
    if encoded is not None and encoded != described.domain:
        raise DualQueryError("the records were encoded with another schema")
    return described
