"""`dualquery demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualquery.cli.flags import QuietFlag
from dualquery.privacy.budget import Budget, default_delta
from dualquery.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dualquery.releases.release import Release
    from dualquery.table.records import Records

QUESTIONS = (
    "age >= 55 & sex = female",
    "education = university & income >= 45000",
    "region = capital & housing = rents",
    "employment = retired & health in {good, 'very good'}",
    "smokes = yes & !(commute = car)",
)


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder for the survey and its release.")
    ] = Path("demo-release"),
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", metavar="ε", help="The privacy budget.")] = 1.0,
    graph: Annotated[
        bool, typer.Option("--graph", help="Payments between accounts instead: a graph.")
    ] = False,
    points: Annotated[bool, typer.Option("--points", help="Where customers live instead: points.")] = False,
    codes: Annotated[
        bool, typer.Option("--codes", help="A register of codes instead: look-ups and lists.")
    ] = False,
    quiet: QuietFlag = False,
) -> None:
    """Release an invented survey of 20,000 people, compare it with the truth, and say where the report is.

    Examples:

    ```
    dualquery demo --out demo-release
    dualquery demo --graph --out payments
    ```
    """
    from dualquery.errors import ReleaseError

    if graph + points + codes > 1:
        raise typer.BadParameter("a demonstration shows one table: --graph, --points or --codes.")
    if out.exists():
        raise ReleaseError(f"'{out}' exists already; choose another folder with --out, or remove it")
    if codes:
        from dualquery.cli import demo_codes

        demo_codes.show(out, epsilon, quiet)
    elif graph or points:
        from dualquery import example_special
        from dualquery.cli import demo_special

        invented = example_special.payments if graph else example_special.customers
        demo_special.show(invented, out, epsilon, quiet=quiet)
    else:
        _show_survey(out, epsilon, quiet=quiet)


def _show_survey(out: Path, epsilon: float, *, quiet: bool) -> None:
    from dualquery import example
    from dualquery.cli import output
    from dualquery.cli.output import ProgressBars
    from dualquery.cli.release import print_summary

    delta = default_delta(example.PEOPLE)
    budget = Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE)
    table, schema, folder = out / "survey.csv", out / "schema.toml", out / "release"
    with ProgressBars(wanted=not quiet) as progress:
        import dualquery
        from dualquery.releases.make import release
        from dualquery.table.schema import read_schema

        _write_survey(out, table, schema)
        described = read_schema(schema)
        records = dualquery.encode(table, described)
        made = release(records, schema=described, workload=example.QUERIES, budget=budget, progress=progress)
        made.save(folder, csv=True)
        rows = _error_rows(made, records)
    if quiet:
        return
    print("A survey that nobody answered was written, and released:\n")
    print(f"  dualquery release {table} --schema {schema} --queries {example.QUERIES} \\")
    print(f"      --epsilon {epsilon:g} --delta {delta:g} --csv --out {folder}\n")
    print_summary(folder, made.certificate)
    print("\n*** what follows is not private: internal, do not publish (and these people are invented) ***\n")
    output.print_table(
        "Errors, as fractions of the table",
        ["queries", "number", "mean", "max", "L1 of a table"],
        rows,
    )
    output.print_table("Some questions", ["query", "truth", "release"], _question_rows(made, records))
    print(f"Open {folder / 'report.html'} in a browser, and ask more:\n")
    print(f'  dualquery answer {folder} "{QUESTIONS[0]}"')


def _write_survey(out: Path, table: Path, schema: Path) -> None:
    import pyarrow.csv

    from dualquery import example
    from dualquery.errors import ReleaseError

    try:
        out.mkdir(parents=True)
        pyarrow.csv.write_csv(example.survey(), table)
        schema.write_text(example.SCHEMA, encoding="utf-8")
    except OSError as error:
        raise ReleaseError(f"'{out}' cannot be written: {error.strerror}") from None


def _error_rows(made: Release, records: Records) -> list[list[str]]:
    from dualquery.cli.output import fraction
    from dualquery.releases.evaluate import evaluate

    rows = []
    for order in (1, 2, 3):
        found = evaluate(made, records, f"marginals:{order}")
        assert found.tables is not None, "marginals are tables"
        rows.append(
            [
                f"all {order}-way tables",
                f"{found.queries:,}",
                fraction(found.mean_error),
                fraction(found.max_error),
                fraction(found.tables.mean_l1),
            ]
        )
    return rows


def _question_rows(made: Release, records: Records) -> list[list[str]]:
    from dualquery.queries.families import from_texts

    truth = from_texts(records.domain, QUESTIONS).fractions(records)
    return [
        [text, f"{share:.4f}", str(answer)]
        for text, share, answer in zip(QUESTIONS, truth, made.answer_all(QUESTIONS), strict=True)
    ]
