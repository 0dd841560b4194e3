"""Rows that are public already, as a release is given them: other releases, and files or frames with an origin.

Nothing in a prior is protected: its rows may come out as they are. For every fixed prior the release is as private
as its certificate says; one that was itself released privately is a charge of its own, in the same ledger where it is
of the same table. Whether a prior is the private table is judged by what was named, never by what stands in it: a
refusal that compared contents would tell who is in the table.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DataError, DualQueryError
from dualquery.fitting.prior import PublicRows
from dualquery.queries.tables import attribute_codes
from dualquery.releases.release import Release
from dualquery.releases.sentences import why_not_private
from dualquery.releases.verify import verify
from dualquery.table.dates import Dates
from dualquery.table.domain import Categorical, Domain, Numeric
from dualquery.table.encoding import encode
from dualquery.table.reading import read_table
from dualquery.table.reading.postgresql import PostgresTable
from dualquery.table.reading.source import WantedColumns
from dualquery.table.records import Records
from dualquery.table.schema import Schema

CERTIFICATE = "certificate.json"
Entry = dict[str, Any]  # of the certificate


def public_rows(
    given: Any, origin: str | None, schema: Schema, table: Any, key: str | os.PathLike[str] | None = None
) -> tuple[PublicRows | None, list[Entry]]:
    """The rows of one prior or of several, and how the certificate names them.

    With a public `key` every prior is to be the folder of a release that is signed by it.
    """
    priors = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    if not priors:
        if origin is not None:
            raise DualQueryError("a prior's origin was given and no prior; name it with --prior")
        if key is not None:
            raise DualQueryError("a key for priors was given and no prior; name it with --prior")
        return None, []
    if schema.domain.kind != "records" or not all(is_plain(column) for column in schema.domain.columns):
        raise DualQueryError(
            "a prior is for one table of attributes: no database, graph, points or codes, and no blocks of items"
        )
    found, entries = [], []
    for each in priors:
        refuse_same(each, table)
        rows, entry = _read(each, origin, schema, key)
        found.append(rows)
        entries.append(entry)
    codes = np.concatenate([each.codes for each in found])
    weights = np.concatenate([each.weights * (each.number / each.weights.sum()) for each in found])
    return PublicRows(codes, weights, sum(each.number for each in found)), entries


def is_plain(column: object) -> bool:
    return isinstance(column, Categorical | Numeric | Dates)


def refuse_same(given: object, table: object, word: str = "prior") -> None:
    """Refuse a prior, or totals, that are named by the same words as the private table."""
    if _same(given, table):
        raise DualQueryError(
            f"the {word} named here is the private table itself, and what is in it may be released as it is; name "
            "something that is public"
        )


def _same(prior: object, table: object) -> bool:
    """Whether the same thing was named twice, or one name stands for a file that the other stands for, too."""
    if prior is table or (isinstance(prior, PostgresTable) and prior == table):
        return True
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
) -> tuple[PublicRows, Entry]:
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
    codes, lacks = codes_of(given, schema, f"the prior '{origin}'")
    return PublicRows.of(codes), _entry(origin, codes, len(codes), lacks)


def _of_release(release: Release, schema: Schema) -> tuple[PublicRows, Entry]:
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
    codes, lacks = codes_of(release.to_arrow(), schema, "the prior")
    records = int(release.certificate["records"]["rows"])
    rows = replace(PublicRows.of(codes), number=float(min(records, len(codes))))
    return rows, _entry(origin, codes, records, lacks)


def _entry(origin: str, codes: NDArray[np.int32], records: int, lacks: Sequence[str]) -> Entry:
    digest = hashlib.sha256(np.ascontiguousarray(codes, "<i4").tobytes()).hexdigest()
    return {"origin": origin, "records": records, "digest": f"sha256:{digest}", "lacks": list(lacks)}


def codes_of(given: Any, schema: Schema, words: str) -> tuple[NDArray[np.int32], list[str]]:
    """A row of codes for each public row, −1 where it has no such column, and the names of these columns."""
    names = list(schema.domain.names())
    try:
        table = read_table(given, WantedColumns(encoding=schema.encoding))
    except DataError as problem:
        raise DataError(f"{words}: {problem}") from None
    there = set(table.column_names)
    known = [j for j, name in enumerate(names) if name in there]
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
