"""`dualquery answer`, `fit`, `refit`, `evaluate`, `verify`, `key create`: commands about a release in a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dualquery.cli import output
from dualquery.cli.flags import SPEC, argument, option, source_of, table_of, with_flags
from dualquery.errors import QueryError, writing

if TYPE_CHECKING:
    from dualquery.releases.evaluate import Evaluation
    from dualquery.releases.release import Release
    from dualquery.table.domain import Domain
    from dualquery.table.reading import AnyTable
    from dualquery.types import Progress


@with_flags(
    queries=argument("[QUERY]...", "Queries; `-` reads them from the standard input."),
    file=option("A file with one query per line; `-` as above.", "FILE", "--file", "-f"),
    given=option("Shares among the records that satisfy this query.", "QUERY"),
)
def answer(
    folder: Path,
    queries: list[str] | None = None,
    file: Path | None = None,
    by: list[str] | None = None,
    given: str | None = None,
    of: str | None = None,
    json: bool = False,
) -> None:
    """Answer queries from a release alone. **Costs no privacy**, as often as you like.

    A query of several that cannot be answered is named, the others are answered, and the exit code is 1.

    Examples:

    ```
    dualquery answer released "age >= 50 & sex = Female & !(workclass = Private)"
    dualquery answer released --by region,sex "age >= 50"
    dualquery answer released "smokes = yes" --given "sex = male"
    dualquery answer released --file questions.txt --json
    dualquery answer households "any(person.age >= 65) & region = West"
    dualquery answer households --of person "age >= 65 & household.region = West"
    ```
    """
    asked: list[tuple[str, str]] = []  # the text, and where it stands
    for number, text in enumerate(queries or [], start=1):
        place = f"query {number}" if len(queries or []) > 1 else ""
        asked += _lines(Path("-")) if text == "-" else [(text, place)]
    if file is not None:
        asked += _lines(file)
    if by:
        if len(asked) > 1:
            raise QueryError("with --by give one query at most, the condition that records must satisfy")
        _print_table(_release(folder, of), by, asked[0][0] if asked else None, given, json=json)
        return
    if not asked:
        nothing = "there is no query to answer; write one after the folder, or name a file with --file"
        raise QueryError(nothing if file is None else f"'{file}' holds no query; write one per line")
    _print_answers(_release(folder, of), asked, given, json=json)


def _release(folder: Path, of: str | None) -> Release:
    """The release in a folder, or what it says of the rows of one of its tables."""
    from dualquery.releases.release import Release

    made = Release.load(folder)
    return made if of is None else made.of(of)


def _print_answers(release: Release, asked: list[tuple[str, str]], given: str | None, *, json: bool) -> None:
    """One answer per line; what cannot be answered goes to the standard error, and the exit code is 1."""
    from dualquery.mechanisms.error_bars import LEVEL
    from dualquery.releases.release import each_answered

    found = each_answered(release, [text for text, _ in asked], [place for _, place in asked], given)
    if len(found) == 1 and isinstance(found[0], QueryError):
        raise found[0]
    pairs = [(text.strip(), each) for (text, _), each in zip(asked, found, strict=True)]
    refused = [each for each in found if isinstance(each, QueryError)]
    if json:
        output.print_json(
            [
                {"query": text, "refused": str(each)}
                if isinstance(each, QueryError)
                else {"query": text, "answer": each.value, "error": each.error, "level": LEVEL}
                for text, each in pairs
            ]
        )
    elif len(pairs) == 1:
        print(pairs[0][1])
    else:
        output.print_lines([[str(each), text] for text, each in pairs if not isinstance(each, QueryError)])
    for each in refused:
        output.say("Error", str(each))
    if refused:
        raise typer.Exit(1)


def _print_table(
    release: Release, by: list[str], where: str | None, given: str | None, *, json: bool
) -> None:
    """One row per cell: its values, its share and, where the number of records is public, its count."""
    from dualquery.mechanisms.error_bars import LEVEL
    from dualquery.releases.release import with_bar

    names = _attributes(by, release.domain)
    table = release.table(names, where=where, given=given, frame="arrow")
    rows = table.to_pylist()
    if json:
        output.print_json([{**row, "level": LEVEL} for row in rows])
        return
    numbers = {"share": "bar", "count": "count_bar"} if "count" in table.column_names else {"share": "bar"}
    cells = [
        [*(row[name] for name in names), *(with_bar(row[n], row[bar]) for n, bar in numbers.items())]
        for row in rows
    ]
    among = "" if where is None else f" of records with {where}"
    among += "" if given is None else f" among records with {given}"
    title = f"Shares{among} by {', '.join(names)}, with {LEVEL:.0%} bars"
    output.print_table(title, [*names, *numbers], cells)


def _attributes(given: list[str], domain: Domain) -> list[str]:
    """Names between commas; a name that holds a comma itself stands alone behind its flag."""
    found: list[str] = []
    for text in given:
        found += [text] if domain.find(text) is not None else [name.strip() for name in text.split(",")]
    return found


def _lines(file: Path) -> list[tuple[str, str]]:
    """The queries of a file or of the standard input."""
    from dualquery.queries.families import lines_of
    from dualquery.table.toml_text import contents

    if str(file) != "-":
        return lines_of(contents(file, f"file '{file}'", QueryError), f"'{file}'")
    try:
        return lines_of(sys.stdin.read(), "the standard input")
    except UnicodeDecodeError:
        raise QueryError("the standard input is not text in UTF-8") from None


@with_flags(prior_origin=(str | None, None), prior_key=(Path | None, None))
def refit(
    folder: Path, prior: list[str], out: Path, sign: Path | None = None, quiet: bool = False, **given: Any
) -> None:
    """Make a release again from what it measured, with rows that are public by now. **Free.**

    Example:

    ```
    dualquery refit released --prior released-2023 --out refitted
    ```
    """
    with output.ProgressBars(wanted=not quiet) as progress:
        from dualquery.releases.folder import refuse_occupied
        from dualquery.releases.refit import refit as refitted
        from dualquery.releases.release import Release
        from dualquery.releases.seal import read_private_key

        refuse_occupied(out)
        if sign is not None:
            read_private_key(sign)
        made = refitted(Release.load(folder), prior=prior, progress=progress, **given)
        progress("writing the release", 0, 1)
        made.save(out, sign=sign)
    if not quiet:
        print(f"{made.certificate['notes'][-1]}; written to {out}")


@with_flags(
    tables=argument(
        "TABLES", "A Parquet or JSON file with one row per noisy table: columns, cells, variance."
    ),
    origin=option("Where the tables come from, as the certificate says it.", "WORDS"),
    records=option(
        "The number of records, where it is public. [default: as the tables tell]", "N", "--records", min=1
    ),
)
def fit(
    tables: str, schema: Path, origin: str, out: Path, records: int | None = None, quiet: bool = False
) -> None:
    """Make rows with bars from noisy tables that others measured. **Free**: nothing private is read.

    The cells of a table are counts, the last attribute fastest; variance is that of the noise of one cell.

    Example:

    ```
    dualquery fit census-tables.parquet --schema schema.toml --origin "census office, 2021" --out fitted
    ```
    """
    with output.ProgressBars(wanted=not quiet) as progress:
        from dualquery.releases.folder import refuse_occupied
        from dualquery.releases.refit import fit as fitted

        refuse_occupied(out)
        made = fitted(tables, schema=schema, origin=origin, records=records, progress=progress)
        progress("writing the release", 0, 1)
        made.save(out)
    if not quiet:
        print(f"{made!r}; written to {out}")
        output.print_warnings([*made.certificate["warnings"], *made.certificate["notes"]])


@with_flags(
    table=argument("TABLE", "The private table it was made from."),
    queries=option(f"{SPEC} [default: those of the release]", "SPEC", "--queries", "-q"),
    html=option("Write a page: pictures, pMSE, models, nearest records, an attack.", "FILE"),
    target=option("With --html: the column that models are trained to tell.", "COLUMN"),
    holdout=option("With --html: records that were never in the table, for an attack.", "TABLE"),
)
def evaluate(
    folder: Path,
    table: str,
    named: str | None = None,
    queries: list[str] | None = None,
    html: Path | None = None,
    target: str | None = None,
    holdout: str | None = None,
    of: str | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Compare a release with the truth. **Not private: internal, do not publish.**

    Examples:

    ```
    dualquery evaluate released people.csv
    dualquery evaluate released people.csv --html quality.html --target smokes
    dualquery evaluate released people.csv --queries marginals:2 --json
    ```
    """
    with output.ProgressBars(wanted=not (json or quiet)) as progress:
        from dualquery.queries.families import from_spec
        from dualquery.releases.evaluate import evaluate as compare
        from dualquery.releases.release import Release

        if html is None and (target or holdout):
            raise QueryError("--target and --holdout are for the page; name its file with --html")
        release = Release.load(folder)
        if html is not None:
            _quality(release, table_of(table, named), html, target, holdout, progress)
        if of is not None and not queries:
            raise QueryError("say with --queries what is asked of the rows of a table, like marginals:2")
        domain = release.domain if of is None else release.of(of).domain
        asked = from_spec(domain, queries) if queries else None
        source = source_of(table, named, release.certificate.schema_read)
        found = compare(release, source, asked, of=of, progress=progress)
    if json:
        output.print_json(found.to_json())
    else:
        print_evaluation(found)


def _quality(
    release: Release, table: AnyTable, html: Path, target: str | None, holdout: str | None, progress: Progress
) -> None:
    import os

    from dualquery.releases.quality import quality, quality_page

    found = quality(release, table, target=target, holdout=holdout, progress=progress)
    with (
        writing(html),
        os.fdopen(
            os.open(html, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as stream,
    ):
        stream.write(quality_page(found, release))


def print_evaluation(found: Evaluation) -> None:
    """Errors, as fractions of the table, under the stamp."""
    print(f"*** {found.stamp} ***\n")
    short = output.fraction
    synthetic = "" if found.synthetic_rows is None else f", {found.synthetic_rows:,} synthetic"
    facts = {
        "queries": f"{found.queries:,} ({found.workload})",
        "records": f"{found.rows:,} in the table{synthetic}",
        "mean error": _beside(found.mean_error, found.predicted_mean_error),
        "rms error": short(found.rms_error),
        "median error": short(found.median_error),
        "95% are below": short(found.percentile_95_error),
        "max error": _beside(found.max_error, found.predicted_max_error),
    }
    if (l1 := found.tables) is not None:
        facts["tables"] = (
            f"{l1.tables:,}, summed error (L1) {short(l1.mean_l1)} on average, {short(l1.max_l1)} at worst"
        )
    output.print_facts(facts)
    print()
    if found.hanging:
        output.print_table(
            "Of the rows that hang on units: L1 of tables, errors of questions",
            ["what", "number", "mean", "max"],
            [
                [each.what, f"{each.number:,}", short(each.mean), short(each.largest)]
                for each in found.hanging
            ],
        )
    rows = [
        (
            output.shortened(each.query),
            f"{each.truth:.4f}",
            f"{each.answer:.4f}",
            short(abs(each.truth - each.answer)),
        )
        for each in found.worst
    ]
    output.print_table("Largest errors", ["query", "truth", "release", "error"], rows)


def _beside(found: float, predicted: float | None) -> str:
    shown = output.fraction(found)
    return shown if predicted is None else f"{shown} (predicted {output.fraction(predicted)})"


@with_flags(
    key=option("The public key of whoever released it. [default: the one that the folder names]", "FILE")
)
def verify(folder: Path, key: Path | None = None, json: bool = False) -> None:
    """Check that a release is as it was sealed: its files, its certificate, its signature.

    Examples:

    ```
    dualquery verify released
    dualquery verify released --key steward.pub
    ```
    """
    from dualquery.releases.verify import verify as check

    found = check(folder, key)
    if json:
        output.print_json({"folder": str(folder), **found.to_json()})
    else:
        output.print_facts(found.facts())


@with_flags(file=argument("FILE", "Where to write the private key; FILE.pub is written too."))
def create(file: Path, quiet: bool = False) -> None:
    """Make a key that signs releases: FILE for you alone, FILE.pub for everybody.

    Example:

    ```
    dualquery key create steward
    ```
    """
    from dualquery.releases.seal import create_key

    public = create_key(file)
    if not quiet:
        print(f"Sign with {file}, which only you should be able to read. Give {public} to everybody.")
