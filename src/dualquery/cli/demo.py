"""`dualquery demo`: an invented table, released and compared with the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dualquery.cli.flags import QuietFlag, option, with_flags
from dualquery.privacy.budget import Budget, default_delta
from dualquery.privacy.neighbours import Neighbours

if TYPE_CHECKING:
    from dualquery.example import Example
    from dualquery.releases.release import Release
    from dualquery.table.records import Records
    from dualquery.types import Progress


@with_flags(
    out=typer.Option("--out", "-o", metavar="DIR", help="A new folder for the table and its release."),
    epsilon=typer.Option("--epsilon", "-e", metavar="ε", help="The privacy budget."),
    kind=option(
        "The kind of table: records, graph (payments), points (customers), codes (a register), database "
        "(households), or one of a package.",
        "NAME",
    ),
    households=option("The same as --kind database: households and their persons."),
    series=option("A table that grows: four quarters, and a picture of their errors."),
)
def demo(
    out: Path = Path("demo-release"),
    epsilon: float = 1.0,
    kind: str = "records",
    households: bool = False,
    series: bool = False,
    quiet: QuietFlag = False,
) -> None:
    """Release an invented survey of 20,000 people, compare it with the truth, and say where the report is.

    Examples:

    ```
    dualquery demo --out demo-release
    dualquery demo --kind graph --out payments
    dualquery demo --households --out households
    dualquery demo --series --out growing
    ```
    """
    from dualquery import example
    from dualquery.errors import DualQueryError, ReleaseError
    from dualquery.registry import KINDS

    if households:
        if kind not in ("records", "database"):
            raise DualQueryError(f"--households is a demo of its own; leave out --kind {kind}")
        kind = "database"
    if out.exists():
        raise ReleaseError(f"'{out}' exists already; choose another folder with --out, or remove it")
    if kind not in KINDS or KINDS[kind].example is None:
        raise DualQueryError(f"there is no example of a table of '{kind}'; there are {', '.join(KINDS)}")
    if not series:
        _show(KINDS[kind].example(out), out, epsilon, quiet=quiet)
    elif kind == "records":
        _grow(example.growing(out), out, epsilon, quiet=quiet)
    else:
        raise DualQueryError("the series of the demo is a table of records; leave out --kind or --series")


def _show(example: Example, out: Path, epsilon: float, *, quiet: bool) -> None:
    """Write the example, release it, and print errors and some questions with the truth beside the answers."""
    import dualquery
    from dualquery.cli import output
    from dualquery.cli.output import ProgressBars
    from dualquery.cli.release import print_summary

    delta = default_delta(example.rows)
    budget = Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.named(example.neighbours))
    table, schema, folder = out / example.table, out / "schema.toml", out / "release"
    with ProgressBars(wanted=not quiet) as progress:
        _write(example, out)
        described = dualquery.read_schema(schema)
        records = dualquery.encode(table, described)
        made = dualquery.release(
            records, schema=described, workload=example.queries, budget=budget, progress=progress
        )
        made.save(folder, csv=True)
        errors = _error_rows(example, made, records)
    if quiet:
        return
    print(f"{example.title}, written and released:\n")
    print(f"  dualquery release {table} --schema {schema} --queries '{example.queries}' \\")
    print(
        f"      --epsilon {epsilon:g} --delta {delta:g} --neighbours {example.neighbours} --csv --out {folder}\n"
    )
    print_summary(folder, made.certificate)
    print("\n*** what follows is not private: internal, do not publish (and all of it is invented) ***\n")
    headings = ["queries", "number", "mean", "max", *(["L1 of a table"] if len(errors[0]) > 4 else [])]
    output.print_table("Errors, as fractions of the table", headings, errors)
    output.print_table(
        "Some questions", ["query", "truth", "release"], _question_rows(example, made, records)
    )
    print(f"Open {folder / 'report.html'} in a browser, and ask more:\n")
    print(f'  dualquery answer {folder} "{example.questions[0]}"')


def _grow(example: Example, out: Path, epsilon: float, *, quiet: bool) -> None:
    """The example quarter by quarter: each by itself, as a series, and all so far, beside the truth."""
    import numpy as np

    from dualquery import plots
    from dualquery.cli import output
    from dualquery.cli.output import ProgressBars, fraction
    from dualquery.example import QUARTERS
    from dualquery.ledger.books import create
    from dualquery.table.schema import read_schema

    budget = Budget(epsilon, default_delta(example.rows), Neighbours.named(example.neighbours))
    table, schema, ledger, folder = (
        out / name for name in (example.table, "schema.toml", "survey.ledger", "series")
    )
    with ProgressBars(wanted=not quiet) as progress:
        _write(example, out)
        calendar = read_schema(schema).calendar
        create(
            ledger,
            name="survey",
            epsilon=epsilon,
            delta=budget.delta,
            neighbours=budget.neighbours,
            calendar=calendar,
        )
        found = [
            _quarter(example, out, ledger, folder, budget, number, progress)
            for number in range(len(QUARTERS))
        ]
    curves = dict(zip(("by itself", "in the series", "all so far"), np.array(found).T.tolist(), strict=True))
    title = "Mean error of tables of two attributes (L1)"
    plots.Figure(title, plots.lines(QUARTERS, curves, title)).save(out / "errors.svg")
    if quiet:
        return
    promise = f"--epsilon {epsilon:g} --delta {budget.delta:g} --neighbours {example.neighbours}"
    print(f"{example.title}, released quarter by quarter:\n")
    print(f"  dualquery ledger create {ledger} --dataset survey {promise} \\")
    print("      --by received --calendar quarter")
    print(f"  dualquery series append {folder} {table} --schema {schema} --ledger {ledger} \\")
    print(f"      {promise} --period {QUARTERS[0]}     # then without --period: the quarter after the last\n")
    print(f"Each record is in one quarter, so all four together cost nobody more than ε = {epsilon:g}.\n")
    print("*** what follows is not private: internal, do not publish (and all of it is invented) ***\n")
    longest = max(map(max, curves.values()))
    rows = [
        [name, *map(fraction, errors), "█" * round(30 * errors[1] / longest)]
        for name, errors in zip(QUARTERS, found, strict=True)
    ]
    output.print_table(title, ["quarter", *curves, ""], rows)
    print(f"Open {out / 'errors.svg'} in a browser, and ask more, free:\n")
    print(f'  dualquery series ask {folder} "{example.questions[0]}"')
    print(f'  dualquery series ask {folder} --so-far "{example.questions[0]}"')


def _quarter(
    example: Example,
    out: Path,
    ledger: Path,
    folder: Path,
    budget: Budget,
    number: int,
    progress: Progress,
) -> list[float]:
    """Errors of a quarter by itself (invented people need no ledger), in the series, and of all so far."""
    import dualquery
    from dualquery import Series
    from dualquery.example import QUARTERS
    from dualquery.releases.evaluate import evaluate

    table, name, schema = out / example.table, QUARTERS[number], dualquery.read_schema(out / "schema.toml")
    series = Series(ledger, schema, folder, workload=example.queries)
    alone = dualquery.release(
        table, schema=schema, workload=example.queries, budget=budget, period=name, progress=progress
    )
    made = series.append(table, budget, period=name, progress=progress)
    found = []
    for each, span in ((alone, name), (made, name), (series.so_far(bars=False), f"{QUARTERS[0]}..{name}")):
        judged = evaluate(each, dualquery.encode(table, schema.during(span)), example.judged[0])
        assert judged.tables is not None, "all tables of two attributes"
        found.append(judged.tables.mean_l1)
    return found


def _write(example: Example, out: Path) -> None:
    import pyarrow.csv

    from dualquery.errors import ReleaseError

    try:
        out.mkdir(parents=True)
        for name, contents in example.files.items():
            if isinstance(contents, str):
                (out / name).write_text(contents, encoding="utf-8")
            else:
                pyarrow.csv.write_csv(contents, out / name)
    except OSError as error:
        raise ReleaseError(f"'{out}' cannot be written: {error.strerror}") from None


def _error_rows(example: Example, made: Release, records: Records) -> list[list[str]]:
    from dualquery.cli.output import fraction
    from dualquery.releases.evaluate import evaluate

    rows = []
    for spec in example.judged or (None,):
        found = evaluate(made, records, spec)
        named = spec or "those asked for"
        if named.startswith("marginals:"):
            named = f"all {named.removeprefix('marginals:')}-way tables"
        errors = [fraction(found.mean_error), fraction(found.max_error)]
        tables = [fraction(found.tables.mean_l1)] if found.tables is not None else []
        rows.append([named, f"{found.queries:,}", *errors, *tables])
    return rows


def _question_rows(example: Example, made: Release, records: Records) -> list[list[str]]:
    from dualquery.queries.families import from_texts

    truth = from_texts(records.domain, example.questions).fractions(records)
    return [
        [text, f"{share:.4f}", str(answer)]
        for text, share, answer in zip(
            example.questions, truth, made.answer_all(example.questions), strict=True
        )
    ]
