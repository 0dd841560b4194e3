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


@with_flags(
    out=typer.Option("--out", "-o", metavar="DIR", help="A new folder for the table and its release."),
    epsilon=typer.Option("--epsilon", "-e", metavar="ε", help="The privacy budget."),
    kind=option(
        "The kind of table: records, graph (payments), points (customers), codes (a register), or one of a "
        "package.",
        "NAME",
    ),
)
def demo(
    out: Path = Path("demo-release"), epsilon: float = 1.0, kind: str = "records", quiet: QuietFlag = False
) -> None:
    """Release an invented survey of 20,000 people, compare it with the truth, and say where the report is.

    Examples:

    ```
    dualquery demo --out demo-release
    dualquery demo --kind graph --out payments
    ```
    """
    from dualquery.errors import DualQueryError, ReleaseError
    from dualquery.registry import KINDS

    if out.exists():
        raise ReleaseError(f"'{out}' exists already; choose another folder with --out, or remove it")
    if kind not in KINDS or KINDS[kind].example is None:
        raise DualQueryError(f"there is no example of a table of '{kind}'; there are {', '.join(KINDS)}")
    _show(KINDS[kind].example(out), out, epsilon, quiet=quiet)


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
        named = spec.replace("marginals:", "all ") + "-way tables" if spec else "those asked for"
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
