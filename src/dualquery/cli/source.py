"""Where the private table of a command is, and who counts it: flags that several commands have."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dualquery.errors import DataError

if TYPE_CHECKING:
    from dualquery.table.schema import Schema
    from dualquery.table.source import Source


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


def table_of(table: str, named: str | None) -> Source:
    """A file, a pattern of files, or a table of a database."""
    from dualquery.table.postgresql import PostgresTable, is_database

    if is_database(table):
        return PostgresTable(table, named or "")
    if named is not None:
        raise DataError("--table names a table of a database, and TABLE is a file; leave it out")
    return table


def source_of(table: str, named: str | None, schema: Schema, engine: Engine, master: str | None) -> Source:
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
    frame: Source = spark_frame(table, names, master or "local[*]")
    return frame
