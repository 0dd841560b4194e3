"""The journal: entries as lines, a state that follows from it to the byte, and stops, clean and unclean, anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

import dualquery
from dualquery import BudgetError, LedgerError, Online
from dualquery.interactive import (
    KINDS,
    Answered,
    Bought,
    Burned,
    Charged,
    Closed,
    Fired,
    Fixed,
    JournalEntry,
    MemoryJournal,
    Opened,
    Planned,
    Prepaid,
    Reopened,
    Rested,
    Serving,
    read,
    written,
)
from dualquery.interactive.answers import Badge
from dualquery.interactive.opening import first_release
from dualquery.table.records import Records
from tests.interactive.conftest import BUDGET, DOMAIN, records, release_of

pytestmark = pytest.mark.usefixtures("few_rows")

ENTRIES: list[JournalEntry] = [
    Planned(7),
    Opened(1, "d", "r", 10, "1.0", "1e-06", "replace", 22, 100, 0, "{}"),
    Prepaid(1, 5),
    Answered("sex = m", "verified", "5f" * 32, 0.01, 3, 'a "note" — ü'),
    Fired(1, "region by sex", 2, "too low", (3, -4), "n"),
    Charged(1, "sex = m", "3/7", 9),
    Bought(1, "sex = m", (5,)),
    Fixed("00" * 32, "11" * 32),
    Serving(),
    Rested(),
    Burned(1),
    Closed(),
    Reopened(),
]
SURPRISES = [
    "region = south",
    "region = north & sex = f",
    "region by sex",
    "age >= 50",
    "rare = yes",
    "region = east",
]


def with_surprises(
    journal: MemoryJournal, lean: float = 0.2, share: float = 0.7, seed: int | None = 5
) -> Online:
    return dualquery.online(
        records(), schema=DOMAIN, budget=BUDGET, release=release_of(lean, share), journal=journal, seed=seed
    )


def spent(entries: Iterable[JournalEntry]) -> int:
    return sum(e.units for e in entries if isinstance(e, Planned | Opened | Prepaid | Charged))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.kind)
def test_an_entry_is_one_line_and_back(entry: JournalEntry) -> None:
    line = written(entry)
    assert "\n" not in line
    assert line.isascii()
    assert read(line) == entry
    assert written(read(line)) == line


def test_every_kind_is_tried() -> None:
    assert {type(entry) for entry in ENTRIES} == set(KINDS.values())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "null",
        "[1]",
        '{"kind":"closed","more":1}',
        '{"kind":"gone"}',
        '{"kind": "closed"}',
        '{"kind":"burned"}',
    ],
)
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(LedgerError):
        read(line)


def test_replaying_the_journal_makes_the_same_hypothesis_to_the_byte() -> None:
    journal = MemoryJournal()
    online = with_surprises(journal)
    answers = [online.ask(text) for text in SURPRISES]
    online.buy("sex = m & age >= 30", error=0.004)
    assert {answer.badge for answer in answers} >= {Badge.MEASURED, Badge.NOT_CONTRADICTED}
    assert online.status().updates >= 3
    online.close()
    lines = [written(entry) for entry in journal.entries()]
    again = with_surprises(MemoryJournal(map(read, lines)), seed=None)
    assert again.fingerprint() == online.fingerprint()
    assert again.fingerprint() != with_surprises(MemoryJournal()).fingerprint()
    status, before = again.status(), online.status()
    assert (status.spent, status.left, status.updates) == (before.spent, before.left, before.updates)
    assert status.answers == before.answers
    # What was measured is still known.
    for answer in answers:
        if answer.badge is Badge.MEASURED:
            told = again.ask(answer.question)
            assert (told.values, told.bound, told.cost.units) == (answer.values, answer.bound, 0)


def test_a_clean_stop_burns_nothing_and_an_unclean_one_a_single_fire() -> None:
    journal = MemoryJournal()
    first = with_surprises(journal)
    first.ask("region = south")
    fires = first.status().fires_left
    first.close()
    second = with_surprises(journal)
    assert second.status().fires_left == fires
    second.ask("rare = yes")
    third = with_surprises(journal)  # the second one was never closed, nor did it rest
    assert third.status().fires_left == fires - 1
    assert third.status().spent == second.status().spent + third.price.units
    assert [e.slot for e in journal.entries() if isinstance(e, Burned)] == [2]
    assert spent(journal.entries()) == third.status().spent


def test_a_stop_with_no_test_under_way_burns_nothing() -> None:
    """While it is opened, before its first test, after the last answer: kill after kill."""
    journal = MemoryJournal()
    first = with_surprises(journal)
    spent_at_first = first.status().spent
    for _ in range(3):
        assert with_surprises(journal).status().spent == spent_at_first  # opened, and killed
    online = with_surprises(journal)
    assert online.ask("rare = yes").badge is Badge.NOT_CONTRADICTED
    online.ask("rare = yes", test=False)
    online.buy("sex = m", error=0.05)
    online.rest()
    online.rest()
    spent_at_rest = online.status().spent
    for length in range(len(journal.entries()) - 3, len(journal.entries()) + 1):
        again = with_surprises(MemoryJournal(journal.entries()[:length]))
        burned = again.status().spent - spent(journal.entries()[:length])
        assert burned == (again.price.units if length < len(journal.entries()) else 0)
    again = with_surprises(journal)
    assert again.status().spent == spent_at_rest
    again.ask("region = east & sex = m")
    assert isinstance(journal.entries()[-2], Serving), "rested, it says so again before it tests"


def test_a_purchase_that_was_killed_is_delivered_to_its_buyer_without_another_charge() -> None:
    journal = MemoryJournal()
    online = with_surprises(journal)
    price = online.quote("sex = m", error=0.02).most.units
    online.buy("sex = m", error=0.02, buyer="ada")
    assert isinstance(journal.entries()[-1], Bought)
    kept = journal.entries()[:-1]  # killed between the charge and the answer
    for buyer, question, error in [
        ("bob", "sex = m", 0.02),
        ("ada", "sex = m", 0.01),
        ("ada", "sex = f", 0.02),
    ]:
        other = with_surprises(MemoryJournal(kept))
        before = other.status().spent
        assert other.quote(question, error=error, buyer=buyer).most.units > 0
        other.buy(question, error=error, buyer=buyer)
        assert other.status().spent > before, "somebody else, something else: that is no credit"
    journal = MemoryJournal(kept)
    again = with_surprises(journal)
    before = again.status().spent
    assert again.quote("sex = m", error=0.02, buyer="ada").most.units == 0
    answer = again.buy("sex = m", error=0.02, buyer="ada")
    assert answer.badge is Badge.BOUGHT
    assert answer.cost.units == price
    assert again.status().spent == before == spent(journal.entries())
    assert again.buy("sex = m", error=0.02, buyer="ada").cost.units == 0, "a credit is used once"
    assert len([e for e in journal.entries() if isinstance(e, Charged)]) == 1
    assert with_surprises(journal).status().spent == before


def test_another_table_is_refused_unless_its_owner_says_that_it_changed() -> None:
    journal = MemoryJournal()
    with_surprises(journal).close()
    (fixed,) = (e for e in journal.entries() if isinstance(e, Fixed))
    codes = records().to_rows()
    codes[17, 0] = (codes[17, 0] + 1) % DOMAIN.sizes[0]  # one record
    other = Records.from_rows(DOMAIN, codes)

    def opened(**options: bool) -> Online:
        return dualquery.online(
            other, schema=DOMAIN, budget=BUDGET, release=release_of(0.2, 0.7), journal=journal, **options
        )

    length = len(journal.entries())
    with pytest.raises(LedgerError, match=r"another table.*--table-changed"):
        opened()
    assert len(journal.entries()) == length
    opened(table_changed=True).close()
    opened().close()
    opened(table_changed=True).close()  # it did not change again
    assert len([e for e in journal.entries() if isinstance(e, Fixed)]) == 2
    with pytest.raises(LedgerError, match="another table"):
        with_surprises(journal)
    again = MemoryJournal()
    with_surprises(again)
    (second,) = (e for e in again.entries() if isinstance(e, Fixed))
    assert second.key != fixed.key
    assert second.digest != fixed.digest, "the digest of a table is keyed"


def test_a_release_that_was_paid_for_and_stopped_is_made_without_another_charge() -> None:
    journal = MemoryJournal()
    first = first_release(records(), schema=DOMAIN, budget=BUDGET, journal=journal, seed=1)
    paid = spent(journal.entries())
    second = first_release(records(), schema=DOMAIN, budget=BUDGET, journal=journal, seed=1, resume=True)
    assert spent(journal.entries()) == paid
    assert second.certificate["budget"] == first.certificate["budget"]
    with pytest.raises(LedgerError, match="another release"):
        first_release(records(), schema=DOMAIN, budget=BUDGET, share=0.2, journal=journal, resume=True)
    with pytest.raises(LedgerError, match="another table"):
        first_release(
            records().take(np.arange(20_000)[::-1]),
            schema=DOMAIN,
            budget=BUDGET,
            journal=journal,
            resume=True,
        )


def test_stopped_after_any_entry_it_goes_on_and_never_spends_less() -> None:
    """Every prefix of a journal is what some crash has left."""
    journal = MemoryJournal()
    online = with_surprises(journal)
    for text in SURPRISES:
        online.ask(text)
    online.buy("sex = m", error=0.01)
    online.rest()
    online.ask("age >= 50 & sex = m")
    entries = journal.entries()
    price = online.price.units
    for length in range(len(entries) + 1):
        prefix = MemoryJournal(entries[:length])
        before = spent(prefix.entries())
        again = with_surprises(prefix)
        status = again.status()
        assert before <= status.spent <= before + price + (release_cost() if length == 0 else 0)
        assert status.spent == spent(prefix.entries()) <= status.cap
        marks = [e for e in entries[:length] if isinstance(e, Serving | Rested)]
        tests = [e for e in entries[:length] if isinstance(e, Prepaid | Fired)]
        may_be_open = marks[-1:] == [Serving()] and isinstance(tests[-1], Prepaid)
        assert len([e for e in prefix.entries() if isinstance(e, Burned)]) == may_be_open
        assert again.ask("rare = yes").badge is not Badge.NOT_CHECKED


def release_cost() -> int:
    journal = MemoryJournal()
    with_surprises(journal)
    (opened,) = (e for e in journal.entries() if isinstance(e, Opened))
    return opened.units


def test_nothing_is_read_before_the_payment_is_durable_nor_told_before_the_outcome_is() -> None:
    diary: list[str] = []

    class Watched(MemoryJournal):
        durable = 0

        def append(self, *entries: JournalEntry) -> int:
            diary.extend(f"append {entry.kind}" for entry in entries)
            return super().append(*entries)

        def sync(self, position: int) -> None:
            diary.append(f"sync {position}")
            self.durable = max(self.durable, position)

    journal = Watched()
    online = with_surprises(journal)
    counts = online._curator._counter.true_counts
    seen: list[int] = []

    def watched(countable, *, kept=False):
        assert journal.durable == len(journal.entries()), "what pays is on disk"
        seen.append(len(diary))
        diary.append("read")
        return counts(countable, kept=kept)

    online._curator._counter.true_counts = watched
    diary.clear()
    online.ask("region = south")
    serving = ["append serving", "sync 4"]
    assert diary == [*serving, "read", "append fired", "append prepaid", "sync 6", "sync 6"]
    diary.clear()
    online.buy("sex = m", error=0.02)
    assert diary == ["append charged", "sync 7", "read", "append bought", "sync 8"]
    diary.clear()
    online.ask("rare = yes")
    assert diary == ["read", "append answered", "sync 9"]


@pytest.mark.parametrize("failing", ["append", "sync"])
@pytest.mark.parametrize("act", ["silent", "fire", "buy"])
def test_a_journal_that_fails_stops_everything_and_tells_nothing(failing: str, act: str) -> None:
    class Full(MemoryJournal):
        full = False

        def append(self, *entries: JournalEntry) -> int:
            if self.full and failing == "append":
                raise OSError("no space left")
            return super().append(*entries)

        def sync(self, position: int) -> None:
            if self.full and failing == "sync":
                raise OSError("no space left")

    journal = Full()
    online = with_surprises(journal)
    before = online.status().spent
    journal.full = True
    acts = {
        "silent": lambda: online.ask("rare = yes"),
        "fire": lambda: online.ask("region = south"),
        "buy": lambda: online.buy("sex = m", error=0.02),
    }
    with pytest.raises(OSError, match="space"):
        acts[act]()
    journal.full = False
    for later in acts.values():
        with pytest.raises(LedgerError, match="journal"):
            later()
    again = with_surprises(journal)  # over what did get written
    assert again.status().spent >= before
    assert again.ask("rare = yes").badge is Badge.NOT_CONTRADICTED


def test_a_journal_of_another_table_release_budget_or_rule_is_refused() -> None:
    journal = MemoryJournal()
    with_surprises(journal).close()
    with pytest.raises(LedgerError, match="belongs to another"):
        with_surprises(journal, share=0.5)
    with pytest.raises(LedgerError, match="belongs to another"):
        dualquery.online(
            records(),
            schema=DOMAIN,
            budget=replace(BUDGET, epsilon=1.1),
            release=release_of(0.2, 0.7),
            journal=journal,
        )
    with pytest.raises(LedgerError, match="belongs to another"):
        dualquery.online(
            records(),
            schema=DOMAIN,
            budget=BUDGET,
            release=release_of(0.2, 0.7),
            journal=journal,
            questions=100,
        )
    with pytest.raises(LedgerError, match="give the release"):
        dualquery.online(records(), schema=DOMAIN, budget=BUDGET, journal=journal)
    assert with_surprises(journal).ask("rare = yes").badge is Badge.NOT_CONTRADICTED


def test_an_edited_journal_that_pays_less_is_refused() -> None:
    journal = MemoryJournal()
    online = with_surprises(journal)
    online.ask("region = south")
    entries = list(journal.entries())
    cheaper = [replace(e, units=1) if isinstance(e, Prepaid) else e for e in entries]
    with pytest.raises(LedgerError, match="does not follow"):
        with_surprises(MemoryJournal(cheaper))
    unpaid = [e for e in entries if not isinstance(e, Prepaid)]
    with pytest.raises(LedgerError, match="does not follow"):
        with_surprises(MemoryJournal(unpaid))


def test_a_release_is_paid_for_before_it_is_made_and_once() -> None:
    journal = MemoryJournal()
    release = first_release(
        records(), schema=DOMAIN, budget=BUDGET, workload="marginals:1", journal=journal, seed=1
    )
    planned, fixed = journal.entries()
    assert isinstance(fixed, Fixed)
    assert isinstance(planned, Planned)
    online = dualquery.online(
        records(), schema=DOMAIN, budget=BUDGET, release=release, journal=journal, seed=1
    )
    assert online.status().spent == planned.units + online.price.units
    assert online.status().fires_left == 5
    with pytest.raises(BudgetError, match="second one"):
        first_release(records(), schema=DOMAIN, budget=BUDGET, workload="marginals:1", journal=journal)
