"""What flags look like: those that several commands share, and one for every wish that some mechanism grants.

A command is a function, and each of its parameters a flag: `with_flags` finds its look by its name, among those given
and then in `SHARED`. Flags of mechanisms are made from the fields of `mechanisms.wishes`: a wish is a flag of `plan`
and of `release`, in the same words.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualquery.errors import BudgetError, DataError
from dualquery.mechanisms import wishes
from dualquery.privacy.budget import Accounting, Budget, Neighbours, default_delta

if TYPE_CHECKING:
    from dualquery.table.reading import AnyTable
    from dualquery.table.schema import Schema
    from dualquery.table.units import AnyDatabase

SPEC = (
    "What to ask: `marginals:K[:ATTRIBUTE]`, `random:K:COUNT[:SEED]`, `random-literals:K:COUNT[:SEED]`, "
    "`parities:K`, `disjunctions:K[:COUNT[:SEED]]`, `ranges:ATTRIBUTE:COUNT[:SEED]`, `tables:A*B,A*C`, "
    "`regress:Y ~ A + B`, or a file with one query per line. Join several with `+`, or give the flag again."
)
RELEASED_BY = [each.value for each in Accounting if each is not Accounting.RENYI]  # which is for questions
RELATED_BY = ["replace", "add-remove", "person-replace", "person-add-remove"]
LAST = ("json", "quiet")  # in help


class Machines(Enum):
    LOCAL = "local"
    CUDA = "cuda"
    SPARK = "spark"


def argument(metavar: str, help: str, **look: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, **look)


def option(help: str, metavar: str | None = None, *names: str, **look: Any) -> Any:
    """A flag of the name of its parameter, or of other names."""
    return typer.Option(*names, help=help, metavar=metavar, **look)


def _beginning(names: list[str]) -> Callable[[str], list[str]]:
    """What a shell proposes: the names that begin as typed so far."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _theorem(given: str | Accounting) -> Accounting:
    """An accounting by its name; typer hands over the default as it is."""
    if isinstance(given, Accounting):
        return given
    if given not in RELEASED_BY:
        raise typer.BadParameter(f"'{given}' is not one of {', '.join(RELEASED_BY)}.")
    return Accounting(given)


def _relation(context: typer.Context, given: str | Neighbours) -> Neighbours:
    """Neighbours by their name, and K of persons, which is read first (it is eager)."""
    name = given if isinstance(given, str) else given.value
    try:
        return Neighbours.named(name, context.params.get("records_per_person"))
    except BudgetError as problem:
        raise typer.BadParameter(str(problem)) from None


SHARED: dict[str, Any] = {
    "table": argument(
        "TABLE",
        "The private table: CSV, Parquet, Arrow, transactions, …, a pattern of files in quotes, or a database.",
    ),
    "folder": argument("DIR", "The folder of a release."),
    "schema": option("The public description of the table, in TOML.", "FILE"),
    "queries": option(SPEC, "SPEC", "--queries", "-q"),
    "epsilon": option("The privacy budget: smaller is more private.", "ε", "--epsilon", "-e"),
    "out": option("The folder to write.", "DIR", "--out", "-o"),
    "delta": option(
        "The probability of an exception. [default: 1/n² for n records, at most 10⁻⁶; 0 with pure accounting]",
        "δ",
    ),
    "mechanism": option(
        "How to release. [default: the program chooses]",
        "NAME",
        "--mechanism",
        "-m",
        autocompletion=_beginning(list(wishes.WISHES)),
    ),
    "accounting": option(
        "The theorem that adds up the cost; `tightest` is the best that the mechanism allows.",
        f"[{'|'.join(RELEASED_BY)}]",
        parser=_theorem,
        autocompletion=_beginning(RELEASED_BY),
    ),
    "neighbours": option(
        "What is hidden: the values of one record, or also whether it is there at all; or all records of one person.",
        f"[{'|'.join(RELATED_BY)}]",
        "--neighbours",
        "--neighbors",
        parser=lambda given: given,  # typer hands over the default as it is
        callback=_relation,
        autocompletion=_beginning(RELATED_BY),
    ),
    "records_per_person": option(
        "How many records of each person count, where neighbours are persons; more are dropped.",
        "K",
        is_eager=True,  # so that --neighbours knows it
    ),
    "records": option(
        "The number of records, if it is public. [default: a release measures it with 1% of the budget]",
        "N",
        "--records",
        "--public-rows",
        min=1,
    ),
    "ledger": option(
        "The ledger (a file or a `postgresql://` URL) that is charged with the whole budget beforehand.",
        "LEDGER",
    ),
    "dataset": option("The dataset in the ledger. [default: the only one]", "NAME"),
    "prior": option(
        "What is public already: the folder of a release, or a file (of a database its folder) with --prior-origin. "
        "May be repeated.",
        "ROWS",
    ),
    "prior_origin": option("Where a prior's file comes from, as the certificate says it.", "WORDS"),
    "prior_key": option("The public key that every release named by --prior is to be signed with.", "FILE"),
    "draft": option(
        "The certificate of the private draft that the schema is from: its counts are used again.", "FILE"
    ),
    "totals": option(
        "Public counts of a few columns, which the released rows meet exactly. May be repeated.", "TABLE"
    ),
    "period": option(
        "Only the records of this period of the schema's calendar, like `2024-Q3`, or of `2024-Q1..2024-Q3`.",
        "PERIOD",
    ),
    "by": option("A whole table: attributes with commas between them, like `region,sex`.", "NAMES"),
    "of": option("Of a database: ask about the rows of this table, and not about units.", "TABLE"),
    "check": option(
        "The share of the budget with which the release measures its own error; 0: it does not.", "SHARE"
    ),
    "accept": option(
        "What good enough means, said beforehand: a TOML file with sections `[[criterion]]`.", "FILE"
    ),
    "threads": option(
        "How many threads may work at once; what comes out is the same. [default: all cores]", "N", min=1
    ),
    "named": option(
        "The table or view, where TABLE is a database: `postgresql://user@host/database`.", "NAME", "--table"
    ),
    "engine": option(
        "Who counts: this machine, its GPU (which fits, too), or a Spark cluster (Parquet only).",
        f"[{'|'.join(each.value for each in Machines)}]",
    ),
    "master": option(
        "With `--engine spark`: the cluster, like `local-cluster[2,1,2048]`, `yarn` or `sc://host`. "
        "[default: local[*]]",
        "URL",
    ),
    "sign": option("Sign the certificate with this private key.", "FILE"),
    "json": option("Print JSON, for a program to read; no progress bar."),
    "quiet": option("Print nothing but errors."),
}


def budget_from(
    epsilon: float,
    delta: float | None,
    *,
    rows: int | None,
    neighbours: Neighbours,
    accounting: Accounting = Accounting.TIGHTEST,
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


def with_flags(**flags: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Say what the parameters of a command look like that are not as in `SHARED`.

    What is no parameter, a type and a default, is a flag that the command gets among its `**given`, to hand on; as a
    third it may have a look of its own.
    """

    def complete(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        kinds = {
            each.name: (each.annotation, each.default) for each in own if each.kind is not each.VAR_KEYWORD
        }
        looks = dict(SHARED)
        for name, flag in flags.items():
            if name in kinds:
                looks[name] = flag
            else:
                kinds[name] = flag[:2]
                looks[name] = flag[2] if len(flag) > 2 else SHARED[name]
        in_order = sorted(kinds, key=lambda name: name in LAST)
        return _shown(command, [_parameter(name, *kinds[name], looks[name]) for name in in_order])

    return complete


def _parameter(name: str, kind: Any, default: Any, look: Any) -> inspect.Parameter:
    if kind is bool:  # said by its name alone, without the `--no-…` that typer would add
        look.param_decls = ("--" + name.replace("_", "-"),)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=Annotated[kind, look])


def _shown(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def with_mechanism_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for each option of a mechanism; it gets those that were said by their names."""
    own = inspect.signature(command).parameters

    @functools.wraps(command)
    def completed(**named: Any) -> None:
        command(**{name: value for name, value in named.items() if name in own or value is not None})

    def complete(*, packages: bool) -> Hashable:
        added = wishes.options(packages=packages)
        flags = [_parameter(name, *_wish(name, option)) for name, option in added.items()]
        _shown(completed, [*own.values(), *flags])
        return command.__name__, tuple(added.items())

    complete(packages=False)
    del completed.__wrapped__
    _COMPLETE[command.__name__] = complete
    return completed


_COMPLETE: dict[str, Callable[..., Hashable]] = {}  # by the name of the command


def ask_packages(command: str) -> Hashable:
    """Give a command the flags of mechanisms that packages add, where it has flags of mechanisms; which it has."""
    return _COMPLETE[command](packages=True) if command in _COMPLETE else None


def _wish(name: str, option: wishes.Option) -> tuple[Any, None, Any]:
    """The type, the default and the look of an option of mechanisms."""
    flag = option.flag
    limits = {"min": flag.least, "max": flag.most, "parser": flag.parser}
    look = typer.Option(
        *(flag.names or ["--" + name.replace("_", "-")]),
        help=f"{flag.help} [{', '.join(option.mechanisms)}]",
        metavar=flag.metavar,
        rich_help_panel="Options of mechanisms",
        **{key: limit for key, limit in limits.items() if limit is not None},  # type: ignore[arg-type]
    )
    return (Any if flag.parser is not None else option.kind | None), None, look


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
    from dualquery.table.database import Database
    from dualquery.table.units import wanted_of

    database = schema.domain if isinstance(schema.domain, Database) else None
    if database and named is not None:
        raise DataError("the tables of a database are named in its schema; leave --table out")
    if database and engine is not Machines.SPARK:
        return table
    if engine is not Machines.SPARK:
        if master is not None:
            raise DataError("--master names a Spark cluster; say --engine spark too")
        return table_of(table, named)
    if named is not None:
        raise DataError("with --engine spark a table is Parquet, not one of a database; leave --table out")
    from dualquery.counting.spark import spark_frame

    if database:
        wanted = wanted_of(database)
        return {
            name: spark_frame(f"{table}/{name}.parquet", wanted[name][0], master or "local[*]")
            if name in wanted
            else f"{table}/{name}.parquet"
            for name in (*wanted, *database.lookups)
        }
    names = [column.name for column in schema.domain.columns]
    stamped = None if schema.within is None else schema.within.calendar.column
    names += [each for each in (schema.unit, stamped) if each is not None and each not in names]
    frame: AnyTable = spark_frame(table, names, master or "local[*]")
    return frame
