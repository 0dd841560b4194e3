"""Kinds of tables: records, graphs, points, codes; each is one value of `Kind`.

What a kind of table is: everything that asks "which kind?" asks a value of `Kind`.

A table is a table of records unless its schema has a section of another kind, [graph], [points], [codes], or one that
a package adds (`register`). Its records are encoded, kept, counted and owned by persons as any records are, by the
columns of its domain. What is asked of them, what plays, what leaves and what the report says of it belong to the
kind.

Tables of records: attributes with public values, asked in the query language.

The rule that picks a mechanism looks at the task alone: accounting, domain, workload, number of records. The evidence
for each of its branches is in docs/evidence.md, made by `experiments/choosing.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from dualquery import example
from dualquery.beliefs.weighted_rows import WeightedRows
from dualquery.errors import DualQueryError
from dualquery.example import Example
from dualquery.mechanisms.artefact import ANSWERS, SYNTHETIC, Artefact, BareAnswers, SyntheticRecords
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.plots import Figure
from dualquery.privacy.budget import Accounting
from dualquery.queries.families import QUERIES
from dualquery.queries.workload import Grammar, affordable_order
from dualquery.registry import KINDS
from dualquery.table.domain import Domain, is_transactions

if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import AnyMechanism, Plan, Task

TIGHTEST_FIRST = (Accounting.GAUSSIAN, Accounting.ZCDP, Accounting.PURE)  # where nobody names a mechanism
# Names of mechanisms from the best on, each with the reason in a sentence.
Preferences = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Stored:
    """How an artefact is kept in a folder: its files, how they are read again, and what the report says of them."""

    files: tuple[str, ...]
    read: Callable[[Any, dict[str, pa.Table]], Artefact]  # of a domain and the tables of these files
    use: str  # what they are; code between backquotes
    title: str = ""  # over the pictures
    figures: Callable[[Any], list[Figure]] = lambda artefact: []
    more: Callable[[Any], tuple[str, ...]] = lambda domain: ()  # further files, which the schema names

    def names(self, domain: Any) -> tuple[str, ...]:
        return (*self.files, *self.more(domain))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of table. A new one is a `Domain`, groups of queries, a grammar, mechanisms and what they release."""

    registered_in: ClassVar[str] = "kinds"

    domain: type[Domain]  # reads and writes the section of a schema, which has the name of the kind
    grammar: Grammar
    # What plays where nobody names a mechanism: the first that can be paid.
    prefers: Callable[[Task], Preferences]
    stored: tuple[Stored, ...] = ()  # what may leave besides synthetic records and bare answers
    record: str = "record"
    records: str = "records"
    table: str = "a table"
    protects: str  # where one record is protected, and not a person
    fractions: str = "fractions of the table"  # what answers and errors are
    example: Callable[[Path], Example] | None = None  # for `dualquery demo`, with files in that folder
    # Where questions are asked one at a time: what is believed at first, of a domain and what was released of it
    # (None: nothing was); and the SPEC that the first release is made for (None: no release comes first).
    believes: Callable[[Any, Any], WeightedRows] | None = None
    first: Callable[[Any], str | None] = lambda domain: None

    @property
    def name(self) -> str:
        return self.domain.kind

    def stored_in(self, files: Mapping[str, object], domain: Domain) -> Stored | None:
        """What these files of a release of this domain hold; None where they hold nothing that is known."""
        known = (*self.stored, RECORDS_STORED, ANSWERS_STORED)
        return next((each for each in known if all(name in files for name in each.names(domain))), None)


RECORDS_STORED = Stored(
    (SYNTHETIC,),
    SyntheticRecords.of_files,
    f"`{SYNTHETIC}` is an ordinary table: open it with whatever you would have opened the real one with. Its rows "
    "are no records: standard errors and p-values computed from them are wrong; `dualquery regress` and "
    "`Release.estimate` give intervals that hold. Asking it anything costs no privacy, as often as you like.",
)
ANSWERS_STORED = Stored(
    (ANSWERS,),
    BareAnswers.of_files,
    f"`{ANSWERS}` holds the questions and their answers. Reading them costs no privacy.",
)


def not_of_this_table() -> DualQueryError:
    return DualQueryError(
        "the release must consist of records with the schema of the table, or of the graph, curves or cells of its "
        "kind; make another"
    )


def kind_named(name: str) -> Kind:
    """The kind of this name; a certificate of a kind that is not known here speaks of records."""
    found: Kind = KINDS[name if name in KINDS else "records"]
    return found


def choose(task: Task, options: Mapping[str, object]) -> Plan[Any]:
    """The plan of the mechanism that suits a task best, with one sentence that says why.

    It is the first of those that its kind of table prefers that makes a plan. Options decide nothing: one that the
    mechanism whose turn it is does not have is refused, with the names of those that have it.
    """
    refused: list[str] = []
    for name, why in kind_named(task.domain.kind).prefers(task):
        mechanism = MECHANISMS[name]
        for option in options:
            if not mechanism.accepts([option]):
                raise DualQueryError("; ".join([*refused, _not_of_all(option, mechanism, task)]))
        try:
            plan = mechanism.plan_for(task, options)
        except DualQueryError as problem:
            refused.append(f"{name}: {problem}")
            continue
        return replace(plan, reason=f"{why} {plan.reason[:1].upper()}{plan.reason[1:]}")
    raise DualQueryError(f"no mechanism fits: {'; '.join(refused)}")


def _not_of_all(option: str, mechanism: AnyMechanism, task: Task) -> str:
    """Which mechanisms of this kind of table have an option that the one to be chosen does not have."""
    kind = task.domain.kind
    having = [
        each.name
        for each in MECHANISMS.values()
        if each.accepts([option]) and (each.plays is None or kind in each.plays)
    ]
    given = "--" + option.replace("_", "-")
    return (
        f"{given} means nothing to the mechanism '{mechanism.name}', which would be chosen here; leave it out, or "
        f"name a mechanism that has it with --mechanism: {', '.join(having) or 'none plays this kind of table'}"
    )


if TYPE_CHECKING:
    from dualquery.mechanisms.mechanism import Task

# n ε / Δ, Δ by how far a neighbour moves a table: below it MWEM beats projection (docs/evidence.md)
FEW_RECORDS = 600
ORDER = 3  # of the tables that the first release is made for where questions follow, or less


def preferences(task: Task) -> Preferences:
    """Projection where Gaussian noise can be paid for, or Laplace noise under pure ε and there are enough records for
    it; MWEM where not and the universe is small enough to hold; DualQuery, which needs neither, for all else."""
    if task.budget.accounting in (Accounting.ZCDP, Accounting.GAUSSIAN):
        return [
            *_for_disjunctions(task),
            (
                "projection",
                "Chosen because the budget pays for Gaussian noise, where projection is the most accurate.",
            ),
            (
                "dualquery",
                "Chosen because the workload is too wide to measure, and DualQuery need not measure it.",
            ),
        ]
    if task.budget.accounting is Accounting.PURE:
        return _under_pure_epsilon(task)
    no_noise = (
        f"Chosen because {task.budget.accounting.value} accounting rules out Gaussian noise, and the universe"
    )
    return [("mwem", f"{no_noise} can be held."), ("dualquery", f"{no_noise} is large.")]


def _for_disjunctions(task: Task) -> Preferences:
    """Of wide baskets that are asked disjunctions alone, parities: rows miss a little of every rare item."""
    if not is_transactions(task.domain):
        return []
    from dualquery.mechanisms.parities import asks_wide_disjunctions

    if not asks_wide_disjunctions(task.workload):
        return []
    why = (
        "Chosen because all queries are disjunctions over very many items, where items, pairs and triples summed up "
        "are more accurate than rows."
    )
    return [("parities", why)]


def _under_pure_epsilon(task: Task) -> Preferences:
    """Noise of scale Δ/ε on every table is too much for few records: then MWEM measures fewer numbers."""
    from dualquery.mechanisms.shares import closure

    records = task.rows * task.budget.epsilon / task.budget.neighbours.largest(alone=1, apart=2)
    projection = (
        "projection",
        "Chosen because under pure ε projection, with Laplace noise on signed tables, is the most accurate.",
    )
    mwem = (
        "mwem",
        f"Chosen because there are few records for the noise ({records:,.0f} times its scale, less than "
        f"{FEW_RECORDS}), and the universe can be held.",
    )
    dual_query = (
        "dualquery",
        "Chosen because the pairs of the workload are too many to measure, and DualQuery need not measure them.",
    )
    try:
        closure(task.workload.scope)
    except DualQueryError:
        return [dual_query]
    if records < FEW_RECORDS:
        return [mwem, projection, dual_query]
    return [projection, ("mwem", "Chosen because the universe can be held."), dual_query]


def believes(domain: Domain, artefact: Artefact | None) -> WeightedRows:
    if not isinstance(artefact, SyntheticRecords):
        raise not_of_this_table()
    return WeightedRows(artefact.records)


RECORDS = Kind(
    domain=Domain,
    grammar=QUERIES,
    prefers=preferences,
    protects="It protects one record. A person with several records in the table, or a household, is protected less.",
    example=example.people,
    believes=believes,
    first=lambda domain: f"marginals:{affordable_order(domain, min(ORDER, domain.width))}",
)
