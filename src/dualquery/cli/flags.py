"""Flags that several commands share, and one flag for every wish that some mechanism grants.

The latter are made from the fields of `mechanisms.wishes`, from which the signatures of commands are completed: a
wish is a flag of `plan` and of `release`, in the same words.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer

from dualquery.errors import BudgetError, DataError
from dualquery.mechanisms.wishes import WISHES, Flag, flags_of
from dualquery.privacy.budget import Accounting, Budget, default_delta
from dualquery.privacy.neighbours import Neighbours

SPEC = (
    "What to ask: `marginals:K[:ATTRIBUTE]`, `random:K:COUNT[:SEED]`, `random-literals:K:COUNT[:SEED]`, "
    "`parities:K`, `disjunctions:K[:COUNT[:SEED]]`, "
    "`ranges:ATTRIBUTE:COUNT[:SEED]`, or a file with one query a line. Join several with `+`, or give the flag again."
)


RELEASED_BY = [each.value for each in Accounting if each is not Accounting.RENYI]  # which is for questions


RELATED_BY = ["replace", "add-remove", "person-replace", "person-add-remove"]


def _beginning(names: list[str]) -> Callable[[str], list[str]]:
    """What a shell proposes: the names that begin as typed so far."""

    def proposed(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return proposed


def _theorem(given: str | Accounting) -> Accounting:
    """An accounting by its name; typer hands over the default as it is."""
    if isinstance(given, Accounting):
        return given
    if given not in RELEASED_BY:
        raise typer.BadParameter(f"'{given}' is not one of {', '.join(RELEASED_BY)}.")
    return Accounting(given)


def _relation(context: typer.Context, given: str | Neighbours) -> Neighbours:
    """Neighbours by their name, and K of persons, which is read first (it is eager)."""
    try:
        return Neighbours.named(
            given if isinstance(given, str) else given.value, context.params.get("records_per_person")
        )
    except BudgetError as problem:
        raise typer.BadParameter(str(problem)) from None


SchemaFlag: TypeAlias = Annotated[
    Path, typer.Option("--schema", metavar="FILE", help="The public description of the table, in TOML.")
]
QueriesFlag: TypeAlias = Annotated[list[str], typer.Option("--queries", "-q", metavar="SPEC", help=SPEC)]
EpsilonFlag: TypeAlias = Annotated[
    float, typer.Option("--epsilon", "-e", metavar="ε", help="The privacy budget: smaller is more private.")
]
DeltaFlag: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--delta",
        metavar="δ",
        help="The probability of an exception. [default: 1/n² for n records, at most 10⁻⁶; 0 with pure accounting]",
        show_default=False,
    ),
]
MechanismFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        "-m",
        metavar="NAME",
        help="How to release. [default: the program chooses]",
        show_default=False,
        autocompletion=_beginning(list(WISHES)),
    ),
]
AccountingFlag: TypeAlias = Annotated[
    Accounting,
    typer.Option(
        "--accounting",
        parser=_theorem,
        metavar=f"[{'|'.join(RELEASED_BY)}]",
        help="The theorem that adds up the cost; `tightest` is the best that the mechanism allows.",
        autocompletion=_beginning(RELEASED_BY),
    ),
]
NeighboursFlag: TypeAlias = Annotated[
    Neighbours,
    typer.Option(
        "--neighbours",
        "--neighbors",
        parser=lambda given: given,  # typer hands over the default as it is
        callback=_relation,
        metavar=f"[{'|'.join(RELATED_BY)}]",
        autocompletion=_beginning(RELATED_BY),
        help="What is hidden: the values of one record, or also whether it is there at all; or all records of "
        "one person.",
    ),
]
RecordsPerPersonFlag: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--records-per-person",
        metavar="K",
        is_eager=True,  # so that --neighbours knows it
        show_default=False,
        help="How many records of each person count, where neighbours are persons; more are dropped.",
    ),
]
DatasetFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dataset", metavar="NAME", help="The dataset. [default: all there are]", show_default=False
    ),
]
ByFlag: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="NAMES",
        help="A whole table: attributes with commas between them, like `region,sex`.",
        show_default=False,
    ),
]
JsonFlag: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, for a program to read; no progress bar.")
]
QuietFlag: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


def budget_from(
    epsilon: float,
    delta: float | None,
    *,
    rows: int | None,
    neighbours: Neighbours,
    accounting: Accounting,
) -> Budget:
    """The budget that the flags describe; without a public number of rows, δ has no default."""
    if delta is None:
        if accounting is Accounting.PURE:
            delta = 0.0
        elif rows is None:
            raise BudgetError(
                "the number of records is private between these neighbours, so delta has no default: give "
                "--delta, or declare the number with --records"
            )
        else:
            delta = default_delta(rows)
    return Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)


@dataclass(frozen=True)
class WishFlag:
    """One option of one or more mechanisms, as a flag."""

    flag: Flag
    kind: Any
    mechanisms: tuple[str, ...]

    def annotation(self, field: str) -> Any:
        """The type of the command's parameter, as typer reads it."""
        names = list(self.flag.names) or ["--" + field.replace("_", "-")]
        limits: dict[str, Any] = {} if self.flag.least is None else {"min": self.flag.least}
        if self.flag.parser is not None:
            limits["parser"] = self.flag.parser
        option = typer.Option(
            *names,
            help=f"{self.flag.help} [{', '.join(self.mechanisms)}]",
            metavar=self.flag.metavar,
            rich_help_panel="Options of mechanisms",
            **limits,
        )
        return Annotated[Any if self.flag.parser is not None else self.kind, option]


def wish_flags() -> dict[str, WishFlag]:
    """Every option of every mechanism, in the order of the mechanisms, with those that understand it."""
    found: dict[str, WishFlag] = {}
    for name, wishes in WISHES.items():
        kinds = get_type_hints(wishes)
        for field, flag in flags_of(wishes).items():
            known = found.get(field, WishFlag(flag, kinds[field], ()))
            found[field] = replace(known, mechanisms=(*known.mechanisms, name))
    return found


def with_mechanism_flags() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that takes `options` (a dict) a flag for each."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "options"]
        known = wish_flags()
        added = [
            inspect.Parameter(
                field,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=flag.annotation(field),
            )
            for field, flag in known.items()
        ]

        @functools.wraps(command)
        def completed(**named: Any) -> None:
            wanted = {field: named.pop(field) for field in known}
            command(**named, options={field: value for field, value in wanted.items() if value is not None})

        completed.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        completed.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
        del completed.__wrapped__
        return completed

    return decorated


if TYPE_CHECKING:
    from dualquery.table.reading import AnyTable
    from dualquery.table.schema import Schema


class Engine(Enum):
    """Where the records are counted."""

    LOCAL = "local"
    SPARK = "spark"


NamedTableFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NAME",
        show_default=False,
        help="The table or view, where TABLE is a database: `postgresql://user@host/database`.",
    ),
]
EngineFlag: TypeAlias = Annotated[
    Engine,
    typer.Option(
        "--engine", help="Who counts: this machine, or the executors of a Spark cluster (Parquet only)."
    ),
]
MasterFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        show_default=False,
        help="With `--engine spark`: the cluster, like `local-cluster[2,1,2048]`, `yarn` or `sc://host`. "
        "[default: local[*]]",
    ),
]


def table_of(table: str, named: str | None) -> AnyTable:
    """A file, a pattern of files, or a table of a database."""
    from dualquery.table.reading.postgresql import PostgresTable, is_database

    if is_database(table):
        return PostgresTable(table, named or "")
    if named is not None:
        raise DataError("--table names a table of a database, and TABLE is a file; leave it out")
    return table


def source_of(table: str, named: str | None, schema: Schema, engine: Engine, master: str | None) -> AnyTable:
    """The table for whoever counts it."""
    if engine is Engine.LOCAL:
        if master is not None:
            raise DataError("--master names a Spark cluster; say --engine spark too")
        return table_of(table, named)
    if named is not None:
        raise DataError("with --engine spark a table is Parquet, not one of a database; leave --table out")
    from dualquery.counting.spark import spark_frame

    names = [column.name for column in schema.domain.columns]
    if schema.unit is not None and schema.unit not in names:
        names.append(schema.unit)
    frame: AnyTable = spark_frame(table, names, master or "local[*]")
    return frame
