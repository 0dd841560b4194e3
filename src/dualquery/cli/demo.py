"""`dualquery demo`, an invented table that is released and compared with the truth; `audit`; and `desk`, a page."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dualquery.cli import output
from dualquery.cli.flags import argument, option, with_flags
from dualquery.cli.output import ProgressBars, fraction
from dualquery.errors import writing
from dualquery.privacy.budget import Budget, Neighbours, default_delta

if TYPE_CHECKING:
    from dualquery.audits.case import Finding
    from dualquery.example import Example
    from dualquery.releases.release import Release
    from dualquery.releases.series import Series
    from dualquery.table.records import Records
    from dualquery.types import Progress


@with_flags(
    out=option("A new folder for the table and its release.", "DIR", "--out", "-o"),
    epsilon=option("The privacy budget.", "ε", "--epsilon", "-e"),
    kind=option(
        "The kind of table: records, graph (payments), points (customers), codes (a register), database "
        "(households), or one of a package.",
        "NAME",
    ),
    series=option("A table that grows: four quarters, and a picture of their errors."),
)
def demo(
    out: Path = Path("demo-release"),
    epsilon: float = 1.0,
    kind: str = "records",
    series: bool = False,
    quiet: bool = False,
) -> None:
    """Release an invented survey of 20,000 people, compare it with the truth, and say where the report is.

    Examples:

    ```
    dualquery demo --out demo-release
    dualquery demo --kind graph --out payments
    dualquery demo --kind database --out households
    dualquery demo --series --out growing
    ```
    """
    from dualquery import example
    from dualquery.errors import DualQueryError, ReleaseError
    from dualquery.registry import KINDS

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
    from dualquery.example import QUARTERS
    from dualquery.ledger.books import create
    from dualquery.releases.series import Series
    from dualquery.table.schema import read_schema

    budget = Budget(epsilon, default_delta(example.rows), Neighbours.named(example.neighbours))
    table, schema, ledger, folder = (
        out / name for name in (example.table, "schema.toml", "survey.ledger", "series")
    )
    with ProgressBars(wanted=not quiet) as progress:
        _write(example, out)
        described = read_schema(schema)
        delta, relation = budget.delta, budget.neighbours
        create(
            ledger,
            name="survey",
            epsilon=epsilon,
            delta=delta,
            neighbours=relation,
            calendar=described.calendar,
        )
        series = Series(ledger, described, folder, workload=example.queries)
        found = [_quarter(example, table, series, budget, name, progress) for name in QUARTERS]
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
    example: Example, table: Path, series: Series, budget: Budget, name: str, progress: Progress
) -> list[float]:
    """Errors of a quarter by itself (invented people need no ledger), in the series, and of all so far."""
    import dualquery
    from dualquery.example import QUARTERS
    from dualquery.releases.evaluate import evaluate

    schema, asked = series.schema, example.queries
    alone = dualquery.release(
        table, schema=schema, workload=asked, budget=budget, period=name, progress=progress
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

    with writing(out):
        out.mkdir(parents=True)
        for name, contents in example.files.items():
            if isinstance(contents, str):
                (out / name).write_text(contents, encoding="utf-8")
            else:
                pyarrow.csv.write_csv(contents, out / name)


def _error_rows(example: Example, made: Release, records: Records) -> list[list[str]]:
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
    answers = made.answer_all(example.questions)
    return [
        [text, f"{share:.4f}", str(answer)]
        for text, share, answer in zip(example.questions, truth, answers, strict=True)
    ]


@with_flags(
    mechanisms=argument(
        "[MECHANISM]...",
        "What to audit: mechanisms by name, `measure`, `select`, `exceeds`, or `file to folder`. "
        "[default: everything]",
        show_default=False,
    ),
    quick=option("Fewer runs: about a minute."),
    runs=option("Runs on each table. [default: by case]", "N", min=1, show_default=False),
    seed=option("Make the audit repeatable, for tests.", "N", show_default=False),
)
def audit(
    mechanisms: list[str] | None = None,
    quick: bool = False,
    runs: int | None = None,
    seed: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Attack the mechanisms, and compare what an adversary can prove with what is claimed.

    Every case releases two neighbouring tables many times, chooses an event on half of the runs and bounds the
    privacy loss on the other half. The exit code is 1 where a bound lies above its claim.

    Examples:

    ```
    dualquery audit --quick
    dualquery audit mwem dualquery --runs 50000 --json
    ```
    """
    from dualquery.audits import audit as attack
    from dualquery.audits import chosen_cases

    with ProgressBars(wanted=not (json or quiet)) as progress:
        found = attack(chosen_cases(mechanisms or []), quick=quick, runs=runs, seed=seed, progress=progress)
    if json:
        output.print_json(found.to_json())
    elif not quiet:
        columns = [
            "mechanism",
            "neighbours",
            "claimed ε (δ)",
            "proven ε",
            "ratio",
            "runs",
            "seen in",
            "verdict",
        ]
        title = f"What an adversary can prove, at {found.confidence:.1%} confidence over all cases"
        output.print_table(title, columns, [_row(each) for each in found.findings])
        broken, whole = len(found.broken), len(found.findings)
        print(f"{broken} of {whole} claims are broken." if broken else f"All {whole} claims hold.")
    if found.broken:
        raise typer.Exit(1)


def _row(each: Finding) -> list[str]:
    delta = f" ({each.claim.delta:g})" if each.claim.delta else ""
    claim, runs = f"{each.claim.epsilon:.3f}{delta}", f"{each.runs:,}" if each.runs else "exact"
    proven = (f"{each.found:.3f}", f"{each.ratio:.2f}")
    return [each.mechanism, each.pair, claim, *proven, runs, each.event, each.verdict.value]


@with_flags(
    folder=argument("[FOLDER]", "Where your tables lie, and releases are written. [default: this folder]"),
    port=option(
        "Where it listens, on this machine alone. [default: any that is free]", "PORT", min=0, max=65535
    ),
    browser=option("Open the page in your browser."),
)
def desk(folder: Path = Path("."), port: int = 0, browser: bool = False, quiet: bool = False) -> None:
    """Open a page on this machine that goes from a file to a signed release, and shows the command behind each step.

    It prints a link with a token; nobody without it is answered. It ends with Ctrl-C.

    Examples:

    ```
    dualquery desk
    dualquery desk survey-2025 --browser
    ```
    """
    from dualquery.desk import run, shown_by_browser

    with ExitStack() as during:

        def ready(link: str) -> None:
            if not quiet:
                print(f"Your desk: {link} (stop with Ctrl-C)", flush=True)
            if browser:
                during.enter_context(shown_by_browser(link))

        run(folder, port=port, ready=ready)
