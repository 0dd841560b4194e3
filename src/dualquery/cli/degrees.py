"""`dualquery degrees`."""

from __future__ import annotations

from typing import Annotated

import typer

from dualquery.cli.flags import JsonFlag


def degrees(
    widest: Annotated[
        int, typer.Option("--widest", metavar="K", min=1, help="The widest disjunction of the table.")
    ] = 32,
    error: Annotated[
        float, typer.Option("--error", metavar="α", help="The error that a polynomial may have.")
    ] = 0.01,
    attributes: Annotated[
        int, typer.Option("--attributes", metavar="D", min=1, help="Attributes (or blocks) for the weight.")
    ] = 50,
    json: JsonFlag = False,
) -> None:
    """Print the least degree of a polynomial that stands for a disjunction of k attributes, by k.

    Example:

    ```
    dualquery degrees --widest 16
    ```
    """
    from dualquery.cli import output
    from dualquery.errors import QueryError
    from dualquery.mechanisms.monomials import chebyshev_degree, check_width, least_degree

    check_width(widest)
    if not 0 < error < 0.5:
        raise QueryError(f"--error lies between 0 and ½, and {error:g} does not")
    rows = []
    for k in range(1, widest + 1):
        best = least_degree(k, error)
        rows.append(
            {
                "k": k,
                "chebyshev": chebyshev_degree(k, error),
                "minimax": best.degree,
                "error": best.error,
                "weight": best.weight(max(attributes, best.degree)),
            }
        )
    if json:
        output.print_json({"error": error, "attributes": attributes, "degrees": rows})
        return
    output.print_table(
        f"Degrees with an error of at most {error:g}, and weights over {attributes} attributes",
        ["k", "Chebyshev", "minimax", "its error", "its weight"],
        [
            [f"{r['k']}", f"{r['chebyshev']}", f"{r['minimax']}", f"{r['error']:.4f}", f"{r['weight']:.3g}"]
            for r in rows
        ],
    )
