"""`dualquery schema draft` and `dualquery schema check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualquery.cli.flags import argument, budget_from, option, table_of, with_flags
from dualquery.cli.output import ProgressBars, say
from dualquery.errors import SchemaError, writing
from dualquery.privacy.budget import Neighbours

if TYPE_CHECKING:
    from dualquery.releases.arguments import GivenBudget


@with_flags(
    table=argument("TABLE", "The private table; it is not read where there is a public one."),
    public_reference=option(
        "A public table of the same kind (a past census, a code book): the draft is then public.", "FILE"
    ),
    quantiles=option(
        "How many bins numbers get. [default: as suits the number of rows and --for-epsilon]", "COUNT"
    ),
    for_epsilon=option(
        "The ε that a release will have, a hint for the number of bins; nothing is spent. [default: 1]", "ε"
    ),
    epsilon=option(
        "Find the schema privately, for this ε: it is then public as it stands. Needs --ledger, which is charged.",
        "ε",
    ),
    ledger=(
        str | None,
        None,
        option("The ledger that a private draft is charged to, with its whole budget, beforehand.", "LEDGER"),
    ),
    dataset=(str | None, None),
    known=(
        Path | None,
        None,
        option(
            "A schema of the columns that are public already: they cost nothing. For private drafts.", "FILE"
        ),
    ),
    unit=(
        str | None,
        None,
        option("The column that says whose record a row is; needed where a person is protected.", "COLUMN"),
    ),
    dry_run=option("Say what a private draft would see, and stop: nothing is counted or charged."),
    force=(bool, False, option("Make a private draft even where it would see little.")),
    protect=option(
        "Of a whole database: the table whose rows are protected. [default: what its keys say]", "TABLE"
    ),
    public=option(
        "Of a whole database: a table that protects nobody, like a code list. May be repeated.", "TABLE"
    ),
    encoding=option("The encoding of a text file that is not UTF-8, such as `latin-1` or `cp1252`.", "NAME"),
    out=option("Where to write it. [default: print it]", "FILE"),
)
def draft(
    table: str | None = None,
    public_reference: str | None = None,
    quantiles: int | None = None,
    for_epsilon: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbours: Neighbours = Neighbours.REPLACE,
    records_per_person: int | None = None,
    records: int | None = None,
    dry_run: bool = False,
    encoding: str | None = None,
    named: str | None = None,
    protect: str | None = None,
    public: list[str] | None = None,
    out: Path | None = None,
    quiet: bool = False,
    **private: Any,
) -> None:
    """Write a first schema for a table: **read off the private data**, to be edited, or privately with `--epsilon`.

    Examples:

    ```
    dualquery schema draft people.csv --out schema.toml
    dualquery schema draft people.csv --epsilon 0.3 --ledger people.ledger --known codes.toml --out schema.toml
    dualquery schema draft postgresql://user@host/census --protect household --public job
    ```
    """
    from dualquery.table.draft import certificate_beside, database_draft, schema_draft
    from dualquery.table.reading import declared

    for file in () if out is None else (out, certificate_beside(out)) if epsilon is not None else (out,):
        if file.exists():
            raise SchemaError(f"'{file}' exists already; choose another name, or remove it first")
    whole = None
    if table is not None and named is None and public_reference is None and epsilon is None:
        whole = declared(table)
    if whole is not None:
        text = database_draft(whole, protect, public or ())
        if out is None:
            print(text, end="")
        else:
            with writing(out, SchemaError):
                out.write_text(text, encoding="utf-8")
        return
    if protect is not None or public:
        raise SchemaError(
            "--protect and --public are for a whole database of PostgreSQL or SQLite that declares keys"
        )
    source = None if table is None else table_of(table, named)
    bins: dict[str, Any] = {"quantiles": quantiles, "for_epsilon": for_epsilon}
    if epsilon is None:
        only = {"delta": delta, **private, "dry-run": dry_run, "records": records}
        if given := [flag for flag, value in only.items() if value is not None and value is not False]:
            raise SchemaError(
                f"--{given[0]} is for a private draft; say its ε too (--epsilon), or leave it out"
            )
        made = schema_draft(source, public_reference=public_reference, encoding=encoding, **bins)
    else:
        if source is None or public_reference is not None:
            raise SchemaError("a private draft reads the private table; give it, and no public one")
        from dualquery.releases.private_draft import draft_plan, private_draft

        budget = _budget(epsilon, delta, neighbours, records)
        if dry_run:
            known, unit = private["known"], private["unit"]
            plan = draft_plan(
                source, budget=budget, known=known, unit=unit, records=records, encoding=encoding
            )
            print("\n".join(plan.lines()))
            return
        if private["ledger"] is None:
            raise SchemaError(
                "a private draft is charged to a ledger, so that it and the release add up: name it (--ledger); for "
                "the number of bins that suit the ε of a release, say --for-epsilon"
            )
        with ProgressBars(wanted=not quiet) as tell:
            made = private_draft(
                source, budget=budget, records=records, encoding=encoding, progress=tell, **bins, **private
            )
    if out is None:
        print(str(made), end="")
    else:
        made.save(out)
    if not quiet and made.certificate is not None:
        kept = "" if out is None else f"; the certificate is '{certificate_beside(out)}'"
        say("Note", f"this schema is public as it stands{kept}.")
    if not quiet and not made.public:
        where = "the text" if out is None else f"'{out}'"
        say(
            "Warning",
            f"{where} was read off the private table, so it is private too. Go through the lines that end in "
            "'# from the data', keep only what anybody would know without seeing the table, and delete these "
            "remarks and the line 'draft = true' before you release anything with it.",
        )


def _budget(epsilon: float, delta: float | None, neighbours: Neighbours, records: int | None) -> GivenBudget:
    """ε alone where the public number of records gives δ."""
    if delta is None and neighbours is Neighbours.REPLACE:
        return epsilon
    return budget_from(epsilon, delta, rows=records, neighbours=neighbours)


@with_flags(
    schema=argument("FILE", "The schema."), table=argument("TABLE", "The private table that it should fit.")
)
def check(schema: Path, table: str | None = None, named: str | None = None, quiet: bool = False) -> None:
    """Say what a schema still lacks, and which columns of a table it does not fit: **internal, do not publish**.

    Example:

    ```
    dualquery schema check schema.toml people.csv
    ```
    """
    from dualquery.queries.rules import checked

    found = checked(schema, None if table is None else table_of(table, named))
    if not quiet:
        print("\n".join(found.lines()))
    if not found.sound:
        raise SchemaError(f"'{schema}' has {found.wrong} to fix before a release can be made with it")
