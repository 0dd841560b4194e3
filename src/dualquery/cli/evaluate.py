"""`dualquery evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualquery.cli.flags import SPEC, JsonFlag, QuietFlag
from dualquery.cli.source import NamedTableFlag, table_of

if TYPE_CHECKING:
    from dualquery.releases.evaluation import Evaluation


def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The private table it was made from.")],
    named: NamedTableFlag = None,
    queries: Annotated[
        list[str] | None,
        typer.Option(
            "--queries",
            "-q",
            metavar="SPEC",
            help=f"{SPEC} [default: those of the release]",
            show_default=False,
        ),
    ] = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare a release with the truth. **Not private: internal, do not publish.**

    Examples:

    ```
    dualquery evaluate released people.csv
    dualquery evaluate released people.csv --queries marginals:2 --json
    ```
    """
    from dualquery.cli import output
    from dualquery.cli.progress import ProgressBars

    with ProgressBars(wanted=not (json or quiet)) as progress:
        from dualquery.queries.families import from_spec
        from dualquery.releases.evaluation import evaluate as compare
        from dualquery.releases.release import Release

        release = Release.load(folder)
        asked = from_spec(release.domain, queries) if queries else None
        found = compare(release, table_of(table, named), asked, progress=progress)
    if json:
        output.print_json(found.to_json())
    else:
        print_evaluation(found)


def print_evaluation(found: Evaluation) -> None:
    """Errors, as fractions of the table, under the stamp."""
    from dualquery.cli import output

    print(f"*** {found.stamp} ***\n")
    facts = {
        "queries": f"{found.queries:,} ({found.workload})",
        "records": f"{found.rows:,} in the table"
        + ("" if found.synthetic_rows is None else f", {found.synthetic_rows:,} synthetic"),
        "mean error": _beside(found.mean_error, found.predicted_mean_error),
        "rms error": output.fraction(found.rms_error),
        "median error": output.fraction(found.median_error),
        "95% are below": output.fraction(found.percentile_95_error),
        "max error": _beside(found.max_error, found.predicted_max_error),
    }
    if found.tables is not None:
        facts["tables"] = (
            f"{found.tables.tables:,}, summed error (L1) {output.fraction(found.tables.mean_l1)} on average, "
            f"{output.fraction(found.tables.max_l1)} at worst"
        )
    output.print_facts(facts)
    print()
    output.print_table(
        "Largest errors",
        ["query", "truth", "release", "error"],
        [
            [
                output.shortened(each.query),
                f"{each.truth:.4f}",
                f"{each.answer:.4f}",
                output.fraction(abs(each.truth - each.answer)),
            ]
            for each in found.worst
        ],
    )


def _beside(found: float, predicted: float | None) -> str:
    from dualquery.cli.output import fraction

    return fraction(found) if predicted is None else f"{fraction(found)} (predicted {fraction(predicted)})"
