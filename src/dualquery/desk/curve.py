"""ε against the error that a release would have: plans, which need no data but the public number of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dualquery.desk.commands import SCHEMA, Released
from dualquery.desk.jobs import written
from dualquery.errors import DualQueryError
from dualquery.privacy.budget import Budget, default_delta
from dualquery.privacy.neighbours import Neighbours
from dualquery.queries.families import from_spec
from dualquery.releases.plan import settled_plan
from dualquery.table.reading import read_table
from dualquery.table.reading.source import WantedColumns
from dualquery.table.schema import read_schema
from dualquery.table.toml_text import figure

POINTS = tuple(float(x) for x in (0.1, 0.2, 0.5, 1, 2, 5, 10))


def curve_of(asked: Released, folder: Path) -> dict[str, Any]:
    """For each ε of a row of them the errors that a plan predicts, and the command that says the same of one.

    Between neighbours that share the number of records it is public, and read off the table; otherwise the curator
    says about how many there are.
    """
    schema = read_schema(folder / asked.file(SCHEMA))
    neighbours = Neighbours.named(asked.neighbours, asked.records_per_person)
    rows = asked.expected or _rows(asked, folder) if neighbours.size_is_public else asked.expected
    if rows is None:
        raise DualQueryError(
            "say about how many records the table has: their number is private between these neighbours"
        )
    workload = from_spec(schema.domain, asked.queries)
    records, about = (rows, None) if neighbours.size_is_public else (None, rows)
    delta = asked.delta if asked.delta is not None else default_delta(rows)
    points = []
    for epsilon in sorted({*POINTS, asked.epsilon}):
        try:
            settled = settled_plan(schema, workload, Budget(epsilon, delta, neighbours), about, records)
        except DualQueryError as refusal:
            points.append({"epsilon": epsilon, "refused": str(refusal)})
            continue
        made = settled.plan
        points.append(
            {
                "epsilon": epsilon,
                "mean": made.mean_error,
                "max": made.max_error,
                "mechanism": made.mechanism,
                "seconds": made.seconds,
                "check": settled.check_words,
            }
        )
    flag = ["--records" if neighbours.size_is_public else "--expected-records", str(rows)]
    specs = [part for spec in asked.queries for part in ("--queries", spec)]
    command = ["plan", "--schema", asked.file(SCHEMA), *flag, *specs, "--epsilon", figure(asked.epsilon)]
    command += [] if asked.delta is None else ["--delta", figure(asked.delta)]
    return {
        "points": points,
        "rows": rows,
        "delta": delta,
        "queries": workload.size,
        "spec": workload.spec,
        "command": written(command),
    }


def _rows(asked: Released, folder: Path) -> int | None:
    """The number of rows of a file; of a table of persons, or of a database, the curator says it."""
    schema = read_schema(folder / asked.file(SCHEMA))
    if asked.named is not None or schema.unit is not None:
        return None
    first = schema.domain.columns[0].name
    return int(read_table(folder / asked.table, WantedColumns([first], encoding=schema.encoding)).num_rows)
