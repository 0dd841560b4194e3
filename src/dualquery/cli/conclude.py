"""`dualquery sql`, `regress` and `imputations`: what can be computed and concluded from a release in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualquery.cli import output
from dualquery.cli.flags import argument, option, with_flags
from dualquery.errors import writing

if TYPE_CHECKING:
    import pyarrow as pa

BAR = "_bar"


@with_flags(query=argument("SELECT", "A SELECT from `data`, the synthetic rows."))
def sql(folder: Path, query: str, json: bool = False) -> None:
    """Ask a release in SQL: each computed number comes with its 95% bar. **Costs no privacy.**

    Counts and sums are those of the private table. Needs DuckDB: pip install 'dualquery[sql]'.

    Examples:

    ```
    dualquery sql released "select region, count(*), avg(income) from data group by region"
    dualquery sql released "select corr(age, income) from data where sex = 'female'" --json
    ```
    """
    from dualquery.mechanisms.error_bars import LEVEL
    from dualquery.releases.release import Release
    from dualquery.releases.sql_bars import notes_of

    found = Release.load(folder).sql(query, frame="arrow")
    if json:
        output.print_json({"rows": found.to_pylist(), "level": LEVEL, "notes": notes_of(found)})
        return
    heads, rows = _with_bars(found)
    output.print_table(f"From the synthetic rows, with {LEVEL:.0%} bars", heads, rows)
    for note in notes_of(found):
        output.say("Note", note)


def _with_bars(found: pa.Table) -> tuple[list[str], list[list[str]]]:
    from dualquery.releases.release import with_bar

    names = found.column_names
    barred = {name for name in names if f"{name}{BAR}" in names}
    heads = [name for name in names if name.removesuffix(BAR) not in barred or not name.endswith(BAR)]

    def cell(row: dict[str, Any], name: str) -> str:
        value, bar = row[name], row.get(f"{name}{BAR}")
        if name not in barred or value is None:
            return "" if value is None else str(value)
        return f"{float(value):,.6g} ± ?" if bar is None else with_bar(float(value), bar)

    return heads, [[cell(row, name) for name in heads] for row in found.to_pylist()]


@with_flags(
    formula=argument("FORMULA", "Like `income ~ age + sex`."),
    family=option("linear, logistic or poisson.", "NAME"),
)
def regress(folder: Path, formula: str, family: str = "linear", json: bool = False) -> None:
    """A regression from a release alone, with intervals that count its noise. **Costs no privacy.**

    Intervals are those of the population that the table is a sample of; with --json also those of the table itself.

    Examples:

    ```
    dualquery regress released "income ~ age + sex"
    dualquery regress released "smokes = yes ~ age * sex" --family logistic
    ```
    """
    from dualquery.mechanisms.error_bars import LEVEL
    from dualquery.releases.release import Release

    rows = Release.load(folder).regress(formula, family, frame="arrow").to_pylist()
    if json:
        output.print_json({"formula": formula, "family": family, "level": LEVEL, "terms": rows})
        return
    said = []
    for each in rows:
        if each["estimate"] is not None:
            ends = _with_ends(each["estimate"], each["population_low"], each["population_high"])
            noise = "" if each["noise"] is None else f"{each['noise']:.1f}"
            said.append([each["name"], *ends, _chance(each["p"]), noise])
    title = f"{formula} ({family}), {LEVEL:.0%} intervals for the population"
    output.print_table(title, ["term", "estimate", "from", "to", "p", "noise"], said)
    output.say("Note", "the column noise is that of the release, in sampling errors of as many records")
    for each in rows:
        if each["note"] is not None:
            output.say("Note", f"about {each['name']}: {each['note']}")


@with_flags(
    out=option("The CSV file to write.", "FILE", "--out", "-o"),
    number=option("How many tables.", "M", min=2),
    columns=option("Only these, with commas between them. [default: all]", "NAMES"),
)
def imputations(folder: Path, out: Path, number: int = 20, columns: str | None = None) -> None:
    """Write tables for programs of multiple imputation, one below the other. **Costs no privacy.**

    The column `.imp` says which table a row is of: estimate each, then combine by Rubin's rules.

    Example:

    ```
    dualquery imputations released --number 20 --columns age,sex,income --out imputations.csv
    ```
    """
    import pyarrow as pa

    from dualquery.releases.folder import write_csv
    from dualquery.releases.release import Release

    names = None if columns is None else [name.strip() for name in columns.split(",")]
    tables = Release.load(folder).imputations(number, names, frame="arrow")
    numbered = [
        each.add_column(0, ".imp", pa.array([place] * each.num_rows))
        for place, each in enumerate(tables, start=1)
    ]
    with writing(out):
        write_csv(pa.concat_tables(numbered, promote_options="permissive"), out)


def _with_ends(estimate: float, low: float, high: float) -> tuple[str, ...]:
    """An estimate with its bar, and the ends of its interval with as many digits."""
    from dualquery.releases.release import with_bar

    numbers = [with_bar(each, high - estimate) for each in (estimate, low, high)]
    return numbers[0], *(each.partition(" ± ")[0] for each in numbers[1:])


def _chance(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
