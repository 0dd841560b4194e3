"""Flags that several commands share, and one flag for every option of a mechanism.

The latter are kept as a table, from which the signatures of commands are completed: an option of
`mechanisms.plan.Options` is a flag of `plan` and of `release`, in the same words.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from dualquery.errors import BudgetError, DualQueryError
from dualquery.privacy.budget import Accounting, Budget, default_delta
from dualquery.privacy.neighbours import Neighbours

SPEC = (
    "What to ask: `marginals:K`, `random:K:COUNT[:SEED]`, `parities:K`, `ranges:ATTRIBUTE:COUNT[:SEED]`, or "
    "a file with one query a line. Join several with `+`, or give the flag again."
)

SchemaFlag: TypeAlias = Annotated[
    Path, typer.Option("--schema", metavar="FILE", help="The public description of the table, in TOML.")
]
QueriesFlag: TypeAlias = Annotated[list[str], typer.Option("--queries", "-q", metavar="SPEC", help=SPEC)]
EpsilonFlag: TypeAlias = Annotated[
    float, typer.Option("--epsilon", "-e", metavar="ε", help="The privacy budget: smaller is more private.")
]
DeltaFlag: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--delta",
        metavar="δ",
        help="The probability of an exception. [default: 1/n² for n records; 0 with pure accounting]",
        show_default=False,
    ),
]
MechanismFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        "-m",
        metavar="NAME",
        help="How to release. [default: the program chooses]",
        show_default=False,
    ),
]
AccountingFlag: TypeAlias = Annotated[
    Accounting, typer.Option("--accounting", help="The theorem that adds up the cost.")
]
NeighboursFlag: TypeAlias = Annotated[
    Neighbours,
    typer.Option(
        "--neighbours", help="What is hidden: the values of one record, or also whether it is there at all."
    ),
]
JsonFlag: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, for a program to read; no progress bar.")
]
QuietFlag: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


def budget_from(
    epsilon: float,
    delta: float | None,
    *,
    rows: int | None,
    neighbours: Neighbours,
    accounting: Accounting,
) -> Budget:
    """The budget that the flags describe; without a public number of rows, δ has no default."""
    if delta is None:
        if accounting is Accounting.PURE:
            delta = 0.0
        elif rows is None:
            raise BudgetError(
                "the number of records is private between these neighbours, so delta has no default: give "
                "--delta, or declare the number with --records"
            )
        else:
            delta = default_delta(rows)
    return Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)


@dataclass(frozen=True)
class OptionFlag:
    """The flag of one option: its type, where help shows it, and what help says."""

    kind: Any
    panel: str
    help: str
    metavar: str
    names: tuple[str, ...] = ()
    least: float | None = None
    parser: Callable[[str], Any] | None = None

    def option(self, names: Sequence[str]) -> Any:
        limits: dict[str, Any] = {} if self.least is None else {"min": self.least}
        if self.parser is not None:
            limits["parser"] = self.parser
        return typer.Option(
            *names, help=self.help, metavar=self.metavar, rich_help_panel=self.panel, **limits
        )


def size_in_bytes(text: str) -> int:
    """`512MB`, `1.5 GB` or a plain number of bytes."""
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    number = text.strip().upper().rstrip("KMGTB").strip()
    unit = text.strip().upper()[len(number) :].strip()
    try:
        size = float(number) * units[unit]
    except (ValueError, KeyError):
        raise DualQueryError(f"--memory should read like 2GB or 500MB, and '{text}' does not") from None
    if not 0 < size < 2**63:
        raise DualQueryError("--memory must be a positive size")
    return int(size)


DUAL_QUERY, MWEM, PROJECTION = "DualQuery", "MWEM and private multiplicative weights", "Projection"
SIZES = "Sizes"

MECHANISM_FLAGS: dict[str, OptionFlag] = {
    "learning_rate": OptionFlag(
        float,
        DUAL_QUERY,
        "How strongly a player learns (η); also of private multiplicative weights.",
        "η",
        least=0.0,
    ),
    "samples": OptionFlag(int, DUAL_QUERY, "Queries drawn a round (s).", "N", least=1),
    "rounds": OptionFlag(
        int, DUAL_QUERY, "Rounds of the game (T); also of MWEM and adaptive projection.", "N", least=1
    ),
    "alpha": OptionFlag(
        float, DUAL_QUERY, "The error wanted: fixes parameters by the theory.", "α", least=0.0
    ),
    "beta": OptionFlag(
        float, DUAL_QUERY, "The chance that the theory may fail; with --alpha.", "β", least=0.0
    ),
    "free": OptionFlag(
        str, DUAL_QUERY, "Attributes that no drawn query decides: zeros, random or density (priced).", "HOW"
    ),
    "oracle": OptionFlag(
        str, DUAL_QUERY, "Who finds the best response: search, or exact (needs the extra `exact`).", "WHO"
    ),
    "iterate": OptionFlag(str, MWEM, "Which distribution to release: last or average.", "WHICH"),
    "updates": OptionFlag(
        str, MWEM, "Updates a round: repeated over all measurements, or once as in Figure 1.", "HOW"
    ),
    "start": OptionFlag(
        str, MWEM, "The first distribution: uniform, or noisy (a measured histogram, priced).", "WHICH"
    ),
    "measured": OptionFlag(str, MWEM, "What is selected and measured: queries, tables or parities.", "WHAT"),
    "part_cells": OptionFlag(
        int, MWEM, "The most cells that one part of the distribution may have.", "N", least=2
    ),
    "items_per_record": OptionFlag(
        int, PROJECTION, "The most items of a record that count; the rest is dropped.", "N", least=1
    ),
    "synthetic_rows": OptionFlag(
        int, SIZES, "The number of synthetic records.", "N", names=("--rows", "--synthetic-rows"), least=1
    ),
    "memory": OptionFlag(Any, SIZES, "The most memory to use, like 2GB.", "SIZE", parser=size_in_bytes),
}


def with_mechanism_flags(
    *, without: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that takes `options` (a dict) a flag for each; names `without` are its own."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "options"]
        added = []
        for field, flag in MECHANISM_FLAGS.items():
            names = [name for name in flag.names if name not in without] or ["--" + field.replace("_", "-")]
            kind = flag.kind if flag.parser is not None else flag.kind | None
            annotation: Any = Annotated[kind, flag.option(names)]
            added.append(
                inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            )

        @functools.wraps(command)
        def completed(**named: Any) -> None:
            wanted = {field: named.pop(field) for field in MECHANISM_FLAGS}
            command(**named, options={field: value for field, value in wanted.items() if value is not None})

        completed.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        completed.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
        del completed.__wrapped__
        return completed

    return decorated
