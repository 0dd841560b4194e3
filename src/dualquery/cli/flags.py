"""Flags that several commands share, and one flag for every wish that some mechanism grants.

The latter are made from the fields of `mechanisms.wishes`, from which the signatures of commands are completed: a
wish is a flag of `plan` and of `release`, in the same words.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from dualquery.errors import BudgetError, DataError
from dualquery.mechanisms import wishes
from dualquery.privacy.budget import Accounting, Budget, default_delta
from dualquery.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dualquery.table.linking import AnyDatabase
    from dualquery.table.reading import AnyTable
    from dualquery.table.schema import Schema

SPEC = (
    "What to ask: `marginals:K[:ATTRIBUTE]`, `random:K:COUNT[:SEED]`, `random-literals:K:COUNT[:SEED]`, "
    "`parities:K`, `disjunctions:K[:COUNT[:SEED]]`, `ranges:ATTRIBUTE:COUNT[:SEED]`, `tables:A*B,A*C`, "
    "`regress:Y ~ A + B`, or a file with one query per line. Join several with `+`, or give the flag again."
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
    ),
]
MechanismFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        "-m",
        metavar="NAME",
        help="How to release. [default: the program chooses]",
        autocompletion=_beginning(list(wishes.WISHES)),
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
        help="How many records of each person count, where neighbours are persons; more are dropped.",
    ),
]
RecordsFlag: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--records",
        "--public-rows",
        metavar="N",
        min=1,
        help="The number of records, if it is public. [default: a release measures it with 1% of the budget]",
    ),
]
TableArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="The private table: CSV, Parquet, Arrow, transactions, …, a pattern of files in quotes, or a database.",
    ),
]
FolderArgument: TypeAlias = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release.")]
ChargedFlag: TypeAlias = Annotated[
    str | None,
    typer.Option("--dataset", metavar="NAME", help="The dataset in the ledger. [default: the only one]"),
]
DatasetFlag: TypeAlias = Annotated[
    str | None, typer.Option("--dataset", metavar="NAME", help="The dataset. [default: all of the ledger]")
]
PriorFlag: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--prior",
        metavar="ROWS",
        help="What is public already: the folder of a release, or a file with --prior-origin. May be repeated.",
    ),
]
PriorOriginFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--prior-origin", metavar="WORDS", help="Where a prior's file comes from, as the certificate says it."
    ),
]
PriorKeyFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--prior-key",
        metavar="FILE",
        help="The public key that every release named by --prior is to be signed with.",
    ),
]
DraftFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--draft",
        metavar="FILE",
        help="The certificate of the private draft that the schema is from: its counts are used again.",
    ),
]
TotalsFlag: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--totals",
        metavar="TABLE",
        help="Public counts of a few columns, which the released rows meet exactly. May be repeated.",
    ),
]
PeriodFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--period",
        metavar="PERIOD",
        help="Only the records of this period of the schema's calendar, like `2024-Q3`, or of `2024-Q1..2024-Q3`.",
    ),
]
ByFlag: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--by", metavar="NAMES", help="A whole table: attributes with commas between them, like `region,sex`."
    ),
]
OfFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--of", metavar="TABLE", help="Of a database: ask about the rows of this table, and not about units."
    ),
]
CheckFlag: TypeAlias = Annotated[
    float,
    typer.Option(
        "--check",
        metavar="SHARE",
        help="The share of the budget with which the release measures its own error; 0: it does not.",
    ),
]
AcceptFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--accept",
        metavar="FILE",
        help="What good enough means, said beforehand: a TOML file with sections `[[criterion]]`.",
    ),
]
ThreadsFlag: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        help="How many threads may work at once; what comes out is the same. [default: all cores]",
    ),
]
JsonFlag: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, for a program to read; no progress bar.")
]
QuietFlag: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


def budget_from(
    epsilon: float, delta: float | None, *, rows: int | None, neighbours: Neighbours, accounting: Accounting
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


def argument(metavar: str, help: str, **look: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, **look)


def option(help: str, metavar: str | None = None, **look: Any) -> Any:
    return typer.Option(help=help, metavar=metavar, **look)


def with_flags(**flags: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Say by its name how each parameter of a command looks: an `argument` or an `option`.

    A pair of a type and a default is a flag of its own, which the command gets among its `**given`.
    """

    def complete(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = {each.name: each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD}
        for name, flag in flags.items():
            if name in own:
                own[name] = own[name].replace(annotation=_switch(name, Annotated[own[name].annotation, flag]))
            else:
                kind, default = _switch(name, flag[0]), flag[1]
                keyword = inspect.Parameter.KEYWORD_ONLY
                own[name] = inspect.Parameter(name, keyword, default=default, annotation=kind)
        command.__signature__ = signature.replace(parameters=list(own.values()))  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in own.values()}
        return command

    return complete


def _switch(name: str, kind: Any) -> Any:
    """Truth values are said by their name alone, without the `--no-…` that typer would add."""
    if kind.__origin__ is bool and not kind.__metadata__[0].param_decls:
        kind.__metadata__[0].param_decls = ("--" + name.replace("_", "-"),)
    return kind


def with_mechanism_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `options` (a dict) a flag for each option of a mechanism."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "options"]

    @functools.wraps(command)
    def completed(**named: Any) -> None:
        given = {each.name: named.pop(each.name) for each in own}
        command(**given, options={name: value for name, value in named.items() if value is not None})

    def complete(*, packages: bool) -> None:
        added = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_flag(name, option)
            )
            for name, option in wishes.options(packages=packages).items()
        ]
        completed.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        completed.__annotations__ = {each.name: each.annotation for each in [*own, *added]}

    complete(packages=False)
    del completed.__wrapped__
    _COMPLETE[command.__name__] = complete
    return completed


_COMPLETE: dict[str, Callable[..., None]] = {}  # by the name of the command


def ask_packages(command: str) -> None:
    """Give a command the flags of mechanisms that packages add, where it has flags of mechanisms."""
    if command in _COMPLETE:
        _COMPLETE[command](packages=True)


def _flag(name: str, option: wishes.Option) -> Any:
    flag = option.flag
    ends = {"min": flag.least, "max": flag.most}
    limits: dict[str, Any] = {end: limit for end, limit in ends.items() if limit is not None}
    if flag.parser is not None:
        limits["parser"] = flag.parser
    described = typer.Option(
        *(flag.names or ["--" + name.replace("_", "-")]),
        help=f"{flag.help} [{', '.join(option.mechanisms)}]",
        metavar=flag.metavar,
        rich_help_panel="Options of mechanisms",
        **limits,
    )
    return Annotated[Any if flag.parser is not None else option.kind | None, described]


class Machines(Enum):
    LOCAL = "local"
    CUDA = "cuda"
    SPARK = "spark"


NamedTableFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NAME",
        help="The table or view, where TABLE is a database: `postgresql://user@host/database`.",
    ),
]
EngineFlag: TypeAlias = Annotated[
    Machines,
    typer.Option(
        "--engine",
        metavar=f"[{'|'.join(each.value for each in Machines)}]",
        help="Who counts: this machine, its GPU (which fits, too), or a Spark cluster (Parquet only).",
    ),
]
MasterFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="With `--engine spark`: the cluster, like `local-cluster[2,1,2048]`, `yarn` or `sc://host`. "
        "[default: local[*]]",
    ),
]


def table_of(table: str, named: str | None) -> AnyTable:
    from dualquery.table.reading.postgresql import PostgresTable, is_database

    if is_database(table):
        return PostgresTable(table, named or "")
    if named is not None:
        raise DataError("--table names a table of a database, and TABLE is a file; leave it out")
    return table


def source_of(
    table: str,
    named: str | None,
    schema: Schema,
    engine: Machines = Machines.LOCAL,
    master: str | None = None,
) -> AnyTable | AnyDatabase:
    if schema.domain.inner:  # its tables are named in the schema
        if named is not None or engine is Machines.SPARK:
            raise DataError(
                "the tables of a database are named in its schema, and read here; leave --table out"
            )
        return table
    if engine is not Machines.SPARK:
        if master is not None:
            raise DataError("--master names a Spark cluster; say --engine spark too")
        return table_of(table, named)
    if named is not None:
        raise DataError("with --engine spark a table is Parquet, not one of a database; leave --table out")
    from dualquery.counting.spark import spark_frame

    names = [column.name for column in schema.domain.columns]
    stamped = None if schema.within is None else schema.within.calendar.column
    names += [each for each in (schema.unit, stamped) if each is not None and each not in names]
    frame: AnyTable = spark_frame(table, names, master or "local[*]")
    return frame
