"""What the pages of the mechanisms quote: projection beside MWEM under pure ε, and DualQuery."""

from __future__ import annotations

from collections.abc import Callable

from experiments import dualquery_figure_4 as figure_4
from experiments.harness import distinct
from experiments.page_parts.files import plain, rows_of, table
from experiments.spread import samples_by

# Projection


def pure() -> str:
    """Projection beside MWEM where noise is that of Laplace: mean errors."""
    rows = [row for row in rows_of("choosing") if str(row["case"]).endswith(", pure")]
    mean = samples_by(rows, ("case", "mechanism", "epsilon"), "mean_error")
    budgets = sorted(distinct(rows, "epsilon"))
    lines = [
        [
            str(case).removesuffix(", pure"),
            *(
                " / ".join(plain(mean[case, name, each].mean) for name in ("mwem", "projection"))
                for each in budgets
            ),
        ]
        for case in distinct(rows, "case")
    ]
    return table(("mean error of MWEM / of projection", *(f"ε = {each:g}" for each in budgets)), lines)


# DualQuery


def widths() -> str:
    """DualQuery as in its paper, whose free values are random, beside ours, whose values follow a density."""
    rows = rows_of("dualquery_figure_4")
    mean = samples_by(rows, ("attributes", "method"), "mean_error")
    every = distinct(rows, "attributes")
    ratios = [mean[width, figure_4.PAPERS].mean / mean[width, figure_4.PLANNED].mean for width in every]
    return (
        f"From {min(every):,} to {max(every):,} attributes of biased data the mean error is {plain(min(ratios))} to "
        f"{plain(max(ratios))} times lower than as in the paper, by all differences together.\n"
    )


def price() -> str:
    """What the paper's parameters on KDD99 cost."""
    row = rows_of("dualquery_figure_3")[0]
    return (
        f"The paper's run on KDD99 costs ε = {row['epsilon_theorem_4_3']:.2f} by Theorem 4.3 as printed and "
        f"{row['epsilon_rho']:.2f} by ρ, for a record added or removed.\n"
    )


PARTS: dict[str, Callable[[], str]] = {
    "pure": pure,
    "free values in wide tables": widths,
    "the price of a run": price,
}
