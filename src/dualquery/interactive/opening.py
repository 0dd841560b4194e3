"""Open a table for questions: read it, make or take a release, replay the journal, pay for the first fire."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from fractions import Fraction

from dualquery.beliefs.weighted_rows import WeightedRows, WholeUniverse
from dualquery.counting import Counter
from dualquery.counting.opening import ColumnCounter, true_digest
from dualquery.errors import BudgetError, DualQueryError, LedgerError
from dualquery.interactive import (
    FORMAT,
    Burned,
    Fixed,
    Journal,
    JournalEntry,
    MemoryJournal,
    Opened,
    Planned,
    Reopened,
)
from dualquery.interactive.answers import Json, named, refuse_not_private, words_of
from dualquery.interactive.online import Online
from dualquery.interactive.rule import (
    PROMISED,
    QUESTIONS,
    SHARE,
    OnlineRule,
    State,
    budget_of_release,
    cap_of,
    check_wishes,
    of_questions,
    order_of,
)
from dualquery.kinds import kind_named, not_of_this_table
from dualquery.privacy.accounting import rho_cap
from dualquery.privacy.budget import Accounting, Budget, Neighbours, decimal
from dualquery.privacy.conversion import UNITS, units
from dualquery.privacy.curator import Curator
from dualquery.queries.group import Digest
from dualquery.queries.question import QuestionReader
from dualquery.queries.workload import Workload
from dualquery.randomness import entropy_from
from dualquery.releases.arguments import for_callers
from dualquery.releases.make import counting, public_schema
from dualquery.releases.make import release as make_release
from dualquery.releases.plan import shared_rows, warnings_of
from dualquery.releases.release import Release
from dualquery.table.domain import Domain
from dualquery.table.reading import AnyTable
from dualquery.table.records import Records
from dualquery.table.schema import Schema
from dualquery.types import Progress, silent

UNKNOWN_ROWS = (
    "the number of records is private between these neighbours, and no release measures it; say how many there are "
    "about, by records= or --records"
)


@for_callers
def online(
    table: AnyTable | Records | Counter,
    *,
    budget: Budget,
    domain: Domain | None = None,
    schema: Schema | Domain | None = None,
    release: Release | None = None,
    share: float = float(SHARE),
    workload: Workload | str | None = None,
    questions: int = QUESTIONS,
    tolerance: float | None = None,
    test: str = "hazard",
    published: Mapping[str, Release] | None = None,
    journal: Journal | None = None,
    records: int | None = None,
    table_changed: bool = False,
    seed: int | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Online:
    """A private table that answers questions one at a time (docs/service.md).

    All that is ever told together keeps the `budget` (by renyi accounting). Without `release` one is made
    with a share of the budget; an earlier release of the table is taken as it is, and what it cost counts.
    `tolerance` is how far off, as a fraction of the table, an answer may be before it should be noticed; without it,
    what a fire of 1% of the budget can notice. `test` is how questions are tested: by the "hazard" test; or by the
    textbook's "sparse-vector" from a uniform start, without a release: online private multiplicative weights, which
    promises how far off all of so many `questions` can be, for universes that can be held (`status().accuracy`).

    `journal` keeps what happened; without it, for the life of the process. A journal that has entries goes on from
    them, with the release that it began with, and with the same records unless `table_changed`: what is told of the
    old and the new ones together keeps the budget, too. A table that takes more than `memory` bytes lies on disk
    while it is asked, and so do the bit columns that questions need.
    """
    public, budget = _askable(public_schema(table, domain, schema)), of_questions(budget)
    given = release is not None or workload is not None
    released = starts_from_release(test, public.domain, given=given, share=share)
    first = share if released and release is None else None
    check_wishes(budget, share=first, questions=questions, tolerance=tolerance, test=test)
    private, others = seed is None and (release is None or release.certificate.private), published or {}
    if private:
        refuse_not_private(others)
    kept = MemoryJournal() if journal is None else journal
    entries = list(kept.entries())
    counter = counting(table, public, budget.neighbours, memory, silent if progress is None else progress)
    if released and release is None:
        if entries:
            raise LedgerError("this journal goes on from a release; give the release that it began with")
        release = first_release(
            counter, schema=public, budget=budget, share=share, workload=workload, records=records,
            journal=kept, seed=seed, progress=progress,
        )  # fmt: skip
        entries = list(kept.entries())
    if release is not None and release.domain != public.domain:
        raise not_of_this_table()
    rows = shared_rows(counter, budget.neighbours)  # n as the public knows it
    if rows is None and records is None:
        if release is None:
            raise BudgetError(UNKNOWN_ROWS)
        rows = int(release.certificate["records"]["rows"])
    rule = OnlineRule.of(
        budget, rows=rows or records or 0, questions=questions, tolerance=tolerance, test=test,
        domain=public.domain,
    )  # fmt: skip
    fixed = _fixed(counter, entries, changed=table_changed)
    state = State(rule, hypothesis_of(rule, release, public.domain), QuestionReader(public.domain))
    opened = _opened(state, release, entries)
    _replay(state, kept, entries, opened, fixed)
    rule.test.prepare()
    beside = named(others, release)
    said = {} if release is None else json.loads(release.certificate.to_json())
    earlier = () if release is None else release.certificate["warnings"]
    warnings = [
        *warnings_of(budget, rule.rows, public, seed=seed),
        *(f"of the release that it starts from: {each}" for each in earlier),
    ]
    certificate: dict[str, Json] = {
        "promise": budget.words() + words_of(beside),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "neighbours": str(budget.neighbours),
        "order": rule.order,
        "cap": rule.cap,
        "rows": rule.rows,
        "release": opened.release,
        "release_units": opened.units,
        **{name: said.get(name) for name in ("check", "measured")},  # its own error, and what it measured
        "test": {
            "name": rule.test_name,
            "epsilon": str(rule.test.epsilon),
            "threshold": rule.test.threshold,
        },
        "measurement_rho": str(rule.measurement),
        "price": rule.price,
        "accuracy": None
        if rule.accuracy is None
        else {**vars(rule.accuracy), "words": rule.accuracy.words()},
        "private": private and (release is None or release.certificate.private),
        "published": [*beside],
        "warnings": [*warnings],
        "digest": hashlib.sha256(repr(opened).encode()).hexdigest(),
    }
    curator = Curator(ColumnCounter(counter), state.ledger, entropy_from(seed))
    return Online(state, curator, kept, release, published=others, certificate=certificate)


def starts_from_release(test: str, domain: Domain, *, given: bool, share: float) -> bool:
    """Whether the hypothesis begins as a release, which is `given` or made; refuse one where it must not."""
    if test == PROMISED and given:
        raise BudgetError(
            "online private multiplicative weights starts from a uniform hypothesis, which its promise is about; "
            "leave release and workload out, or take the hazard test"
        )
    if test != PROMISED and (given or kind_named(domain.kind).first(domain) is not None):
        return True
    if share != float(SHARE):
        raise BudgetError("no release is made first here, and the share of one means nothing; leave it out")
    return False


def hypothesis_of(rule: OnlineRule, release: Release | None, domain: Domain) -> WeightedRows:
    if rule.accuracy is not None:
        return WholeUniverse(domain, factor=rule.accuracy.factor)
    believes = kind_named(domain.kind).believes
    assert believes is not None, "a table that is asked has a hypothesis"
    return believes(domain, None if release is None else release.artefact)


@for_callers
def first_release(
    table: AnyTable | Records | Counter,
    *,
    budget: Budget,
    domain: Domain | None = None,
    schema: Schema | Domain | None = None,
    share: float = float(SHARE),
    workload: Workload | str | None = None,
    records: int | None = None,
    journal: Journal | None = None,
    resume: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Release:
    """The release that a table starts from, for a share of its budget; charged to the journal before.

    Of records it is a projection, made for all tables of three attributes unless a `workload` is named; of graphs and
    points what the program chooses for them; of codes a workload must be named.

    To `resume` is to make the release that the journal has paid for, and that nobody has seen: it was stopped before
    it was whole.
    """
    public, budget = _askable(public_schema(table, domain, schema)), of_questions(budget)
    if budget.accounting is not Accounting.RENYI:
        OnlineRule.of(budget, rows=1)  # which says what to do
    part = budget_of_release(budget, decimal(share))
    if workload is None:
        workload = kind_named(public.domain.kind).first(public.domain)
    if workload is None:
        raise DualQueryError(
            f"nobody can list what a table of {public.domain.kind} is asked; name a workload, or start without a "
            "release"
        )
    if journal is not None:
        tell = silent if progress is None else progress
        table = counting(table, public, budget.neighbours, None, tell)
        _pay(journal, _release_units(part, order_of(budget)), table, cap=cap_of(budget), resume=resume)
    return make_release(
        table,
        budget=part,
        schema=public,
        workload=workload,
        mechanism="projection" if public.domain.kind == "records" else None,
        records=records,
        seed=seed,
        progress=progress,
    )


def _pay(journal: Journal, cost: int, counter: Counter, *, cap: int, resume: bool) -> None:
    """A release is paid for, on disk, and its records are fixed; nothing more where that was done before."""
    entries = list(journal.entries())
    paid = [entry for entry in entries if isinstance(entry, Planned | Opened)]
    fixed = _fixed(counter, entries)
    if resume and paid:
        if paid != [Planned(cost)]:
            raise LedgerError(
                "the journal has paid for another release than this one, or that one was finished; go on with the "
                "budget and the share that it was begun with"
            )
        return
    if sum(entry.units for entry in paid) + cost > cap:
        raise BudgetError(
            "the journal has paid for a release already, and a second one would exceed its budget"
        )
    journal.sync(journal.append(Planned(cost), *fixed))


def _askable(schema: Schema) -> Schema:
    if kind_named(schema.domain.kind).believes is None:
        raise DualQueryError(
            f"this is a table of {schema.domain.kind}, a kind that is not asked one question at a time; release it, "
            "and ask the release"
        )
    return schema


def _opened(state: State, release: Release | None, entries: Sequence[JournalEntry]) -> Opened:
    """What this opening says; a journal that began with something else is refused by whoever compares."""
    rule = state.rule
    cost = 0 if release is None else _release_units(_budget_on(release, rule.budget), rule.order)
    planned = sum(entry.units for entry in entries if isinstance(entry, Planned))
    if 0 < planned < cost:
        raise LedgerError("the journal has paid for a smaller release than this one")
    digest = Digest()
    domain = state.reader.domain
    digest.add_domain(domain)
    # Of a graph also whether edges have directions, and what is public of vertices.
    if domain.kind != "records":
        digest.add_text("kind", "\n".join(domain.sections(repr)))
    return Opened(
        format=FORMAT,
        domain=digest.hexdigest(),
        release=state.hypothesis.fingerprint(),
        rows=rule.rows,
        epsilon=repr(rule.budget.epsilon),
        delta=repr(rule.budget.delta),
        neighbours=str(rule.budget.neighbours),
        order=rule.order,
        cap=rule.cap,
        units=0 if planned else cost,
        rule=rule.to_json(),
    )


def _fixed(counter: Counter, entries: Sequence[JournalEntry], *, changed: bool = False) -> list[Fixed]:
    """What fixes the records of a journal: nothing new, where they are those that were asked before."""
    before = [entry for entry in entries if isinstance(entry, Fixed)]
    if before and hmac.compare_digest(true_digest(counter, before[-1].key), before[-1].digest):
        return []
    if before and not changed:
        raise LedgerError(
            "this is another table than the one that was asked before: its records, or their order, differ. Bring "
            "that one back; or, if the table was changed on purpose, open it once with --table-changed"
        )
    key = secrets.token_hex(32)
    return [Fixed(key, true_digest(counter, key))]


def _replay(
    state: State, journal: Journal, entries: Sequence[JournalEntry], opened: Opened, fixed: Sequence[Fixed]
) -> None:
    """The state of a journal; what an unclean stop has left open is burned. New entries are durable at the end."""
    earlier = [entry for entry in entries if isinstance(entry, Opened)]
    if earlier and earlier != [opened]:
        raise LedgerError(
            "this journal belongs to another table, release, budget or rule; open it with what it began with"
        )
    for entry in entries:
        state.replay(entry)
    added: list[JournalEntry] = []
    if not earlier:
        state.pay_release(opened)
        added.append(opened)
    else:
        added.append(Reopened())
        # The threshold of an epoch is forgotten (`journal.Burned`), or a test may be open (`journal.Rested`).
        lost = state.account.tested and state.rule.test_name == PROMISED
        if state.open_slot is not None and (lost or state.account.serving):
            state.open_slot.close()
            added.append(Burned(state.account.slot))
    added.extend(fixed)
    for entry in added:
        state.apply(entry)
    journal.sync(journal.append(*added))


def _budget_on(release: Release, budget: Budget) -> Budget:
    """The budget that a release was made with; refused where its promise is about other neighbours."""
    written = release.certificate["budget"]
    neighbours = Neighbours.named(written["neighbours"], written["records_per_person"])
    if neighbours != budget.neighbours:
        raise BudgetError(
            f"the release is about neighbours '{neighbours}', and the budget about '{budget.neighbours}', which do "
            "not add up; use the neighbours of the release"
        )
    return Budget(
        epsilon=written["epsilon"],
        delta=written["delta"],
        neighbours=neighbours,
        accounting=Accounting(written["accounting"]),
    )


def _release_units(budget: Budget, order: int) -> int:
    """The most that a release within a budget can cost, at an order."""
    return units(order * Fraction(rho_cap(budget), UNITS))
