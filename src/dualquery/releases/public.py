"""What is public already, as a release is given it: rows (priors), and totals.

*Priors* are other releases, and files or frames with an origin. Nothing in a prior is protected: its rows may come
out as they are. For every fixed prior the release is as private as its certificate says; one that was itself released
privately is a charge of its own, in the same ledger where it is of the same table. Whether a prior is the private
table is judged by what was named, never by what stands in it: a refusal that compared contents would tell who is in
the table.

*Totals* are tables of a few attributes with a column of counts. Those that others have published are constants, and
the promise of a release stays as it is. Totals of the very table that is released say something of its records: then
the promise is `ReplaceWithin` (`privacy.budget`).
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dualquery.errors import BudgetError, DataError, DualQueryError
from dualquery.fitting.public_rows import PublicRows
from dualquery.fitting.public_units import PublicUnits
from dualquery.fitting.totals import Totals
from dualquery.ledger.book import Place
from dualquery.mechanisms.artefact import SyntheticUnits
from dualquery.privacy.budget import Budget, ReplaceWithin
from dualquery.queries.tables import attribute_codes
from dualquery.releases.release import Release
from dualquery.releases.sentences import why_not_private
from dualquery.releases.verify import verify
from dualquery.table.database import Database
from dualquery.table.dates import Dates
from dualquery.table.domain import Categorical, Domain, Numeric
from dualquery.table.encoding import encode
from dualquery.table.reading import read_table
from dualquery.table.reading.postgresql import PostgresTable
from dualquery.table.reading.source import WantedColumns
from dualquery.table.records import Records
from dualquery.table.schema import Schema
from dualquery.table.units import Units, joined_units, units_in
from dualquery.types import Integers, Set

CERTIFICATE = "certificate.json"
MOST_CELLS = 1_000_000  # of one table of totals
Entry = dict[str, Any]  # of the certificate


def public_rows(
    given: Any, origin: str | None, schema: Schema, table: Any, key: str | os.PathLike[str] | None = None
) -> tuple[PublicRows | PublicUnits | None, list[Entry]]:
    """The rows of one prior or of several, or the units of a database, and how the certificate names them.

    With a public `key` every prior is to be the folder of a release that is signed by it.
    """
    priors = _listed(given)
    if not priors:
        for said, what in ((origin, "a prior's origin"), (key, "a key for priors")):
            if said is not None:
                raise DualQueryError(f"{what} was given and no prior; name it with --prior")
        return None, []
    if not isinstance(schema.domain, Database):
        _refuse_special(schema, "a prior is for a database or")
    found, entries = [], []
    for each in priors:
        refuse_same(each, table)
        rows, entry = _read(each, origin, schema, key)
        found.append(rows)
        entries.append(entry)
    return _joined(found), entries


def _joined(found: Sequence[PublicRows | PublicUnits]) -> PublicRows | PublicUnits:
    """Several priors as one: each row or unit counts as much as its own prior says."""
    number = sum(each.number for each in found)
    units = [each.units for each in found if isinstance(each, PublicUnits)]
    if units:
        return PublicUnits(joined_units(units), number)
    rows = [each for each in found if isinstance(each, PublicRows)]
    weights = np.concatenate([each.weights * (each.number / each.weights.sum()) for each in rows])
    return PublicRows(np.concatenate([each.codes for each in rows]), weights, number)


def _listed(given: Any) -> list[Any]:
    """One or several, or none."""
    return [] if given is None else list(given) if isinstance(given, list | tuple) else [given]


def _refuse_special(schema: Schema, words: str) -> None:
    plain = all(isinstance(column, Categorical | Numeric | Dates) for column in schema.domain.columns)
    if schema.domain.kind != "records" or not plain:
        raise DualQueryError(
            f"{words} for one table of attributes: no graph, points or codes, and no blocks of items"
        )


def refuse_same(given: object, table: object, word: str = "prior") -> None:
    """Refuse a prior, or totals, that are named by the same words as the private table."""
    if _same(given, table):
        raise DualQueryError(
            f"the {word} named here is the private table itself, which would be taken to be public; name something "
            "that is public"
        )


def _same(prior: object, table: object) -> bool:
    """Whether the same thing was named twice, or one name stands for a file that the other stands for, too."""
    if prior is table or (isinstance(prior, PostgresTable) and prior == table):
        return True
    if isinstance(prior, Mapping):
        return any(_same(each, table) for each in prior.values())
    if isinstance(table, Mapping):
        return any(_same(prior, each) for each in table.values())
    mine = {_identity(file): within for file, within in _files_of(prior)}
    others = ((_identity(file), within) for file, within in _files_of(table))
    return any(
        file in mine and (mine[file] == within or not mine[file] or not within) for file, within in others
    )


def _files_of(named: object) -> list[tuple[str, str]]:
    """The files that a name stands for, and the table in each where it says one ('' where it does not)."""
    if not isinstance(named, str | os.PathLike):
        return []
    text = os.fsdecode(os.fspath(named))
    if os.path.isdir(text):
        inside = os.path.join(glob.escape(text), "**", "*")
        return [(text, ""), *((each, "") for each in glob.iglob(inside, recursive=True))]
    if os.path.exists(text):
        return [(text, "")]
    file, _, within = text.partition("#")
    return [(each, within) for each in [file, *glob.iglob(file, recursive=True)]]


def _identity(file: str) -> object:
    """Alike for two names of one file, as `os.path.samefile` has it."""
    try:
        found = os.stat(file)
    except OSError:
        return file
    return found.st_dev, found.st_ino


def lacking(entries: Sequence[Entry], schema: Schema) -> tuple[str, ...]:
    """Of priors that do not have all columns, which are used."""
    names = schema.domain.names()
    return tuple(
        f"the prior '{each['origin']}' is used for {', '.join(n for n in names if n not in each['lacks'])}; it has "
        f"no {', '.join(each['lacks'])}"
        for each in entries
        if each["lacks"]
    )


def _read(
    given: Any, origin: str | None, schema: Schema, key: str | os.PathLike[str] | None
) -> tuple[PublicRows | PublicUnits, Entry]:
    folder = isinstance(given, str | os.PathLike) and (Path(given) / CERTIFICATE).is_file()
    if key is not None and not folder:
        raise DualQueryError(
            "a key signs folders of releases, and one of the priors is none; leave out that prior, or --prior-key"
        )
    if folder:
        verify(given, key)
        given = Release.load(given)
    if isinstance(given, Release):
        return _of_release(given, schema)
    files = [file for file, _ in _files_of(given)]
    if files and "://" not in files[0] and not any(map(os.path.exists, files)):
        raise DataError(f"there is no prior '{given}'; name the folder of a release, or a file")
    if origin is None or not origin.strip():
        raise DualQueryError(
            "say where the prior's rows come from and why they are public: --prior-origin 'census sample 2023'"
        )
    if isinstance(schema.domain, Database):
        units = _units_in(given, schema, f"the prior '{origin}'")
        return PublicUnits(units, float(units.rows)), _entry(origin, _codes_of_units(units), units.rows, ())
    codes, lacks = codes_of(given, schema, f"the prior '{origin}'")
    return PublicRows.of(codes).smoothed(schema.domain), _entry(origin, codes, len(codes), lacks)


def _of_release(release: Release, schema: Schema) -> tuple[PublicRows | PublicUnits, Entry]:
    """A release's rows stand for the records that it was made of, and no more."""
    if release.records is None:
        raise DualQueryError("the prior is a release without records; make one that has synthetic rows")
    if not release.certificate.private:
        raise DualQueryError(
            f"the prior is a release that promises nothing by itself: {why_not_private(release.certificate)}; make a "
            "private one, or name the file of its rows with its origin if they are public"
        )
    spent = release.certificate["spent"]
    origin = f"a release of ε = {spent['epsilon']:g}, made {release.certificate['created'][:10]}"
    records = int(release.certificate["records"]["rows"])
    if isinstance(schema.domain, Database):
        if not isinstance(release.artefact, SyntheticUnits):
            raise DataError(
                "the prior is a release of one table, and the schema describes a database; name another"
            )
        # What its rows had looked up stands in its tables.
        plain = tuple(replace(each, lookups=()) for each in schema.domain.tables)
        own = replace(schema, domain=replace(schema.domain, tables=plain))
        units = replace(_units_in(release.artefact.tables, own, "the prior"), domain=schema.domain)
        entry = _entry(origin, _codes_of_units(units), records, ())
        return PublicUnits(units, float(min(records, units.rows))), entry
    codes, lacks = codes_of(release.to_arrow(), schema, "the prior")
    rows = replace(PublicRows.of(codes), number=float(min(records, len(codes))))
    return rows, _entry(origin, codes, records, lacks)


def _units_in(given: Any, schema: Schema, words: str) -> Units:
    """Public units, read as private ones are: what fits no unit of the schema is left out."""
    assert isinstance(schema.domain, Database), "asked of a database"
    try:
        units = units_in(given, schema.domain, schema.encoding)
    except DataError as problem:
        raise DataError(f"{words}: {problem}") from None
    if not units.rows:
        raise DataError(f"{words} has no {schema.domain.root.name} that the schema allows")
    return units


def _codes_of_units(units: Units) -> NDArray[np.int32]:
    rows = [each.records.to_rows().ravel() for each in units.members]
    return np.concatenate([units.to_rows().ravel(), *rows]).astype(np.int32)


def _entry(origin: str, codes: NDArray[np.int32], records: int, lacks: Sequence[str]) -> Entry:
    return {"origin": origin, "records": records, "digest": _digest(codes, "<i4"), "lacks": list(lacks)}


def _digest(numbers: NDArray[Any], kind: str) -> str:
    return f"sha256:{hashlib.sha256(np.ascontiguousarray(numbers, kind).tobytes()).hexdigest()}"


def _whole_table(given: Any, schema: Schema, words: str) -> pa.Table:
    try:
        return read_table(given, WantedColumns(encoding=schema.encoding))
    except DataError as problem:
        raise DataError(f"{words}: {problem}") from None


def codes_of(given: Any, schema: Schema, words: str) -> tuple[NDArray[np.int32], list[str]]:
    """A row of codes for each public row, −1 where it has no such column, and the names of these columns."""
    names, table = list(schema.domain.names()), _whole_table(given, schema, words)
    known = [j for j, name in enumerate(names) if name in table.column_names]
    if not known:
        raise DataError(f"{words} has none of the columns of the schema: {', '.join(names[:10])}")
    columns = Domain(tuple(schema.domain.columns[j] for j in known))
    part = replace(schema, domain=columns, unit=None, calendar=None, within=None)
    try:
        records: Records = encode(table, part)
    except DataError as problem:
        raise DataError(f"{words}: {problem}") from None
    if not records.rows:
        raise DataError(f"{words} has no rows")
    codes = np.full((records.rows, len(names)), -1, np.int32)
    codes[:, known] = attribute_codes(records, list(range(len(known)))).T.astype(np.int32)
    return codes, [name for j, name in enumerate(names) if j not in known]


# Totals


def public_totals(given: Any, schema: Schema, table: Any) -> tuple[Totals | None, list[Entry]]:
    """One table or several, and how the certificate names them."""
    tables, domain = _listed(given), schema.domain
    if not tables:
        return None, []
    if isinstance(schema.domain, Database):
        schema = _of_root(schema, schema.domain)
    _refuse_special(schema, "totals are for a database or")
    found = []
    for number, each in enumerate(tables, start=1):
        refuse_same(each, table, "table of totals")
        words = (
            f"'{os.fspath(each)}'" if isinstance(each, str | os.PathLike) else f"table {number} of the totals"
        )
        found.append(_totals_in(each, schema, words))
    made, entries = Totals.of(domain, found), []
    for members, counts in found:
        said = {"attributes": [schema.domain.name(j) for j in members], "records": int(counts.sum())}
        entries.append({**said, "digest": _digest(counts, "<i8")})
    return made, entries


def _of_root(schema: Schema, database: Database) -> Schema:
    """Totals of a database are of attributes of its units; how many rows hang on one is settled by the rows."""
    if not database.root.columns:
        raise DualQueryError("totals of a database are of attributes of its protected table, and it has none")
    return replace(schema, domain=database.root.domain)


def _totals_in(given: Any, schema: Schema, words: str) -> tuple[Set, Integers]:
    """The attributes and the table; the one column that is no attribute holds the counts."""
    names, cells = list(schema.domain.names()), _whole_table(given, schema, words)
    counts = [name for name in cells.column_names if name not in names]
    if len(counts) != 1 or len(cells.column_names) < 2:
        raise DataError(
            f"{words} should have columns of the schema (of a database those of its protected table) and one more, "
            "with whole numbers; it has "
            f"{', '.join(cells.column_names[:10]) or 'none'}"
        )
    number = _whole(cells[counts[0]])
    if number is None:
        raise DataError(f"{words}: '{counts[0]}' should hold whole numbers from 0 up, and nothing else")
    codes, lacks = codes_of(cells.drop_columns(counts), schema, words)
    if len(codes) != len(number):
        raise DataError(f"{words} has rows that the schema drops; take them out")
    members = tuple(j for j, name in enumerate(names) if name not in lacks)
    shape = tuple(int(schema.domain.sizes[j]) for j in members)
    if np.prod([float(size) for size in shape]) > MOST_CELLS:
        raise DataError(
            f"{words} is about more than {MOST_CELLS:,} combinations; give totals of fewer columns"
        )
    out = np.zeros(shape, np.int64)
    np.add.at(out, tuple(codes[:, j] for j in members), number)
    return members, out


def _whole(column: pa.ChunkedArray) -> Integers | None:
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.utf8_trim_whitespace(column)
        found = pc.cast(column, pa.int64())
    except pa.ArrowInvalid:
        return None
    if found.null_count:
        return None
    number: Integers = found.to_numpy()
    return None if (number < 0).any() else number


def refuse_rows_beside(options: Mapping[str, object], totals: Totals | None) -> None:
    """Rows that meet totals are as many as these count."""
    if totals is not None and options.get("synthetic_rows"):
        raise DualQueryError("rows that meet totals are as many as these count; leave out --synthetic-rows")


def relation_of(budget: Budget, totals: Totals | None, ledger: Place | None) -> Budget:
    """The budget, whose relation knows the attributes that totals of this very table are about."""
    if not isinstance(budget.neighbours, ReplaceWithin):
        return budget
    if totals is None:
        raise BudgetError(
            "--neighbours replace-within is for totals of this very table; name them with --totals"
        )
    if ledger is not None:
        raise BudgetError(
            "a ledger promises something of whole records, and --neighbours replace-within does not; leave one out"
        )
    return replace(budget, neighbours=ReplaceWithin(totals.names))


def refuse_another_number(budget: Budget, totals: Totals | None, rows: int | None) -> None:
    """Totals of this very table count its records, whose number is public."""
    if isinstance(budget.neighbours, ReplaceWithin) and totals is not None and totals.number != rows:
        raise DataError(
            f"the totals count {totals.number:,} records and the table has {rows:,}, so they are not totals of this "
            "very table; use --neighbours replace or add-remove"
        )


def doubts_of(budget: Budget, totals: Totals | None, rows: int) -> list[str]:
    """What a reader must know where totals count as many records as the table is known to have."""
    alike = totals is not None and budget.neighbours.size_is_public and totals.number == rows
    if not alike or isinstance(budget.neighbours, ReplaceWithin):
        return []
    return [
        f"the totals count {rows:,} records, as many as the table has: if they are totals of this very table, the "
        "promise does not hold for what they are about; then release with --neighbours replace-within"
    ]
