"""`dualquery audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dualquery.cli.flags import JsonFlag, QuietFlag, argument, option, with_flags

if TYPE_CHECKING:
    from dualquery.audits.case import Finding


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
    json: JsonFlag = False,
    quiet: QuietFlag = False,
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
    from dualquery.audits.audit import audit as attack
    from dualquery.audits.audit import chosen_cases
    from dualquery.cli import output
    from dualquery.cli.output import ProgressBars

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
        broken, all_of_them = len(found.broken), len(found.findings)
        print(
            f"{broken} of {all_of_them} claims are broken." if broken else f"All {all_of_them} claims hold."
        )
    if found.broken:
        raise typer.Exit(1)


def _row(each: Finding) -> list[str]:
    delta = f" ({each.claim.delta:g})" if each.claim.delta else ""
    return [
        each.mechanism,
        each.pair,
        f"{each.claim.epsilon:.3f}{delta}",
        f"{each.found:.3f}",
        f"{each.ratio:.2f}",
        f"{each.runs:,}" if each.runs else "exact",
        each.event,
        each.verdict.value,
    ]
