"""The folder of a release, written aside and renamed, so that a half-written one never stands in its place.

synthetic.parquet     the synthetic records (or answers.parquet: queries and answers), as many as the table has
rows.parquet          all of them, where there are more (`releases.frames`)
synthetic.csv         the same, on request
NAME.parquet          of a database each of its tables, with keys that fit (rows.NAME.parquet, replicas.NAME.parquet)
replicas.parquet      what was released of the release's own rows, for error bars (`mechanisms.error_bars`)
measurements.parquet  what was measured with noise (`releases.frames`)
edges.parquet, …      what another kind of table leaves instead (`kinds`)
registry.json, .html  the facts for a register of deployments, on request (`releases.registry`)
report.html           the certificate in words, and pictures of the synthetic records
certificate.json      what was done and what it cost, with the digest of every other file, and a seal

Whoever writes holds a lock on the folder aside (flock), which the operating system gives back when the process ends,
however it ends. So the next release of the same name can tell what a killed one left from what a living one writes.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from dualquery.errors import DataError, ReleaseError, SchemaError
from dualquery.fitting.fitter import REPLICAS
from dualquery.fitting.measured import Measured
from dualquery.kinds import kind_named
from dualquery.loops import together
from dualquery.mechanisms.artefact import ANSWERS, SYNTHETIC, SyntheticRecords, SyntheticUnits
from dualquery.mechanisms.error_bars import MOST_DRAWN, Draw, Replica, tables_drawn
from dualquery.releases.certificate import Certificate
from dualquery.releases.frames import (
    as_table,
    files_of,
    for_people,
    listed,
    of_table,
    rows_file,
    units_for_people,
)
from dualquery.releases.release import Release
from dualquery.releases.seal import CERTIFICATE, check_files, check_seal, digests, read_private_key, sealed
from dualquery.table.domain import Domain
from dualquery.table.encoding import decode, encode
from dualquery.table.records import Records
from dualquery.table.units import Units, joined_units

try:
    import fcntl
except ImportError:  # not posix: age alone tells what was left
    fcntl = None  # type: ignore[assignment]

OLD = 24 * 3600  # seconds after which what cannot be locked at all counts as left


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A folder beside `path`, on the same file system; whatever is left of it at the end is removed."""
    with _in_a_sentence(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path)
        while True:
            with _made(path.parent / f".{path.name}.{secrets.token_hex(8)}.partial") as aside:
                if aside is not None:
                    yield aside
                    return


@contextmanager
def _made(folder: Path) -> Iterator[Path | None]:
    """A new folder with our lock on it, gone at the end; None where somebody was quicker than the lock."""
    lock: int | None = None
    mine = True  # said before it is made, so that an interrupt at any moment finds what to remove
    try:
        try:
            os.mkdir(folder)
        except OSError:
            mine = False
            raise
        try:
            lock = _opened(folder)
            ours = locked(lock) is not False and folder.exists()
        except FileNotFoundError:
            ours = False
        yield folder if ours else None
    finally:
        if mine:
            _remove(folder)
        if lock is not None:
            os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder, even if an interrupt comes meanwhile."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def sweep(path: Path) -> None:
    """Remove what killed releases of the same name have left beside `path`; living ones keep theirs."""
    left = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}\.partial")
    with suppress(OSError):
        for each in sorted(path.parent.iterdir()):
            if left.fullmatch(each.name) and each.is_dir() and not each.is_symlink():
                _sweep_one(each)


def _sweep_one(folder: Path) -> None:
    with suppress(OSError):
        lock = _opened(folder)
        try:
            free = locked(lock)
            if free or (free is None and time.time() - folder.stat().st_mtime > OLD):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            if lock is not None:
                os.close(lock)


def _opened(folder: Path) -> int | None:
    return None if fcntl is None else os.open(folder, os.O_RDONLY)


def locked(handle: int | None) -> bool | None:
    """Whether the lock was free and is ours now; None where this file system has no locks."""
    if handle is None or fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


SYNTHETIC_CSV = "synthetic.csv"
REPLICAS_FILE = "replicas.parquet"
MEASURED_FILE = "measurements.parquet"
REPORT = "report.html"


def refuse_occupied(folder: str | os.PathLike[str]) -> None:
    """ReleaseError where a release could not be written; to be asked before any budget is spent."""
    path = Path(folder)
    with _in_a_sentence(path):
        if (path / CERTIFICATE).exists():
            raise ReleaseError(f"'{path}' already holds a release; choose another folder, or remove it first")
        if path.is_dir() and any(path.iterdir()):
            raise ReleaseError(f"the folder '{path}' is not empty; choose another one for the release")
        if path.exists() and not path.is_dir():
            raise ReleaseError(f"'{path}' is a file; choose a folder for the release")
    with written_aside(path):
        pass


def save(
    release: Release,
    folder: str | os.PathLike[str],
    *,
    csv: bool = False,
    registry: bool = False,
    sign: str | os.PathLike[str] | None = None,
) -> None:
    """Write a release, signed by the key in the file `sign`: all of it, or nothing."""
    from dualquery.releases.report import report_html

    path = Path(folder)
    key = None if sign is None else read_private_key(sign)
    refuse_occupied(path)
    with written_aside(path) as aside:
        parts: list[Callable[[], None]] = [partial(_write_files, files_of(release), aside)]
        if release.replicas:
            parts.append(partial(_write_replicas, release, aside / REPLICAS_FILE))
        if release.measured:
            told = as_table(release.domain, release.measured)
            parts.append(partial(_write_files, {MEASURED_FILE: told}, aside))
        together(lambda part: part(), parts)
        if csv:
            for name, each in csv_files(release).items():
                write_csv(each, aside / name)
        certificate = release.certificate.with_files(digests(aside))
        if registry:
            from dualquery.releases.registry import facts_text, page

            (aside / "registry.json").write_text(facts_text(certificate), encoding="utf-8")
            (aside / "registry.html").write_text(page(certificate), encoding="utf-8")
        # The page shows the certificate as it is now; its own digest and the seal come afterwards.
        (aside / REPORT).write_text(report_html(release, certificate), encoding="utf-8")
        certificate = sealed(certificate.with_files(digests(aside)), key)
        (aside / CERTIFICATE).write_text(certificate.to_json(), encoding="utf-8")
        together(_to_disk, list(aside.iterdir()))
        _folder_to_disk(aside)
        os.rename(aside, path)
        _folder_to_disk(path.parent)


def read_certificate(folder: Path) -> Certificate:
    """The certificate in a folder, once its seal and all files have been found to be as they were."""
    try:
        certificate = Certificate.from_json((folder / CERTIFICATE).read_text(encoding="utf-8"))
        check_seal(certificate)
        check_files(folder, certificate)
    except (FileNotFoundError, NotADirectoryError):
        where = "is not a release" if folder.exists() else "does not exist"
        raise ReleaseError(
            f"'{folder}' {where}; a release is a folder that `dualquery release` wrote"
        ) from None
    except OSError as error:
        raise _unreadable(folder, error) from None
    except UnicodeDecodeError:
        raise ReleaseError("certificate.json is damaged: it is not text in UTF-8") from None
    return certificate


def _unreadable(folder: Path, error: OSError) -> ReleaseError:
    return ReleaseError(f"the release '{folder}' cannot be read: {error.strerror or 'it is damaged'}")


def load(folder: str | os.PathLike[str]) -> Release:
    """The release that a folder holds, once its seal and all its files have been found to be as they were."""
    path = Path(folder)
    certificate = read_certificate(path)
    try:
        domain = certificate.schema.domain
        stored = kind_named(domain.kind).stored_in(certificate["files"], domain)
        if stored is None:
            raise ReleaseError(f"the certificate in '{path}' names no data file")
        most = {SYNTHETIC: certificate["synthetic_rows"] or 0, ANSWERS: certificate["workload"]["queries"]}
        tables = {}
        for name in stored.names(domain):
            file = rows_file(name) if rows_file(name) in certificate["files"] else name
            tables[name] = _read(path / file, most.get(name))
        artefact = stored.read(domain, tables)
        measured = _read_measured(path / MEASURED_FILE, certificate, domain)
        if not isinstance(artefact, SyntheticRecords):
            return Release(certificate, domain, artefact, measured=measured)
        replicas = _read_replicas(path / REPLICAS_FILE, certificate, artefact.records)
        return Release(certificate, domain, artefact, replicas, measured)
    except OSError as error:
        raise _unreadable(path, error) from None
    except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException, DataError, SchemaError):
        raise ReleaseError(f"the release '{path}' is damaged, or was changed by hand") from None


def _read(file: Path, most: int | None = None) -> pa.Table:
    """One of our files. (`pyarrow.parquet.read_table` would import pandas, where it is installed, to do the same.)

    A small file may claim very many rows: what it says of itself is compared before any is unpacked.
    """
    with pyarrow.parquet.ParquetFile(file) as parquet:
        if most is not None and parquet.metadata.num_rows > most:
            raise DataError(f"{file.name} has more rows than the certificate says")
        return parquet.read()


def csv_files(release: Release) -> dict[str, pa.Table]:
    if isinstance(release.artefact, SyntheticUnits):
        tables = units_for_people(release, release.artefact).tables
        return {f"{name}.csv": table for name, table in tables.items()}
    return {SYNTHETIC_CSV: for_people(release)}


def _write_files(tables: Mapping[str, pa.Table], folder: Path) -> None:
    for name, each in tables.items():
        pyarrow.parquet.write_table(each, folder / name, compression="zstd")


def _write_replicas(release: Release, file: Path) -> None:
    """The rows of all replicas one below the other: their tables are drawn again from the released rows.

    Of units they are the rows of all tables, each in a file of its own.
    """
    halves = [half for replica in release.replicas for half in replica.halves]
    if isinstance(halves[0], Units):
        whole = SyntheticUnits(joined_units([half for half in halves if isinstance(half, Units)]))
        for name, table in whole.files().items():
            pyarrow.parquet.write_table(table, _beside(file, name), compression="zstd")
        return
    rows = pa.concat_tables(together(decode, halves), promote_options="default")
    pyarrow.parquet.write_table(rows, file, compression="zstd")


def _beside(file: Path, name: str) -> Path:
    return file.with_name(f"{file.stem}.{name}")


def _replica_rows(file: Path, released: Records) -> Records:
    most = REPLICAS * released.rows
    if not isinstance(released, Units):
        return encode(_read(file, most=most), released.domain)
    room = {f"{each.name}.parquet": most * each.at_most for each in released.database.tables}
    tables = {name: _read(_beside(file, name), rows) for name, rows in room.items()}
    return SyntheticUnits.of_files(released.domain, tables).records


def _read_replicas(file: Path, certificate: Certificate, released: Records) -> tuple[Replica, ...]:
    said = certificate["replicas"]
    number, draw = said["number"], Draw(said["records"], said["seed"], said.get("atoms"))
    if not number:
        return ()
    rows = _replica_rows(file, released)
    if number != REPLICAS or rows.rows % number or draw.records > MOST_DRAWN:
        raise DataError("the replicas are not as many as the certificate says")
    tables = tables_drawn(released, draw)
    each = np.array_split(np.arange(rows.rows), number)
    halves = [[rows.take(half) for half in np.array_split(part, 2)] for part in each]
    return tuple(Replica(table, (one, other)) for table, (one, other) in zip(tables, halves, strict=True))


def _read_measured(file: Path, certificate: Certificate, domain: Domain) -> tuple[Measured, ...]:
    said = certificate.get("measured", ())
    if not said:
        return ()
    measured = of_table(domain, _read(file, most=len(said)))
    if [*map(Certificate.of, listed(domain, measured))] != [*map(Certificate.of, said)]:
        raise DataError("the measurements are not those that the certificate lists")
    return measured


def write_csv(table: pa.Table, file: str | os.PathLike[str] | None) -> str | None:
    if file is not None:
        pyarrow.csv.write_csv(flat(table), file)
        return None
    text = pa.BufferOutputStream()
    pyarrow.csv.write_csv(flat(table), text)
    return str(text.getvalue().to_pybytes().decode("utf-8"))


def write_csv_files(release: Release, folder: str | os.PathLike[str] | None) -> None:
    if folder is None:
        raise ReleaseError("a database is several tables; name the folder that gets a CSV file for each")
    path = Path(folder)
    with _in_a_sentence(path):
        path.mkdir(parents=True, exist_ok=True)
        for name, table in csv_files(release).items():
            write_csv(table, path / name)


def flat(table: pa.Table) -> pa.Table:
    """The table in types that a text file can hold: lists of items become ids between blanks."""
    columns = []
    for column in table.columns:
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            texts = column.cast(pa.list_(pa.string()))
            columns.append(pc.binary_join(texts, " "))
        elif pa.types.is_dictionary(column.type):
            columns.append(column.cast(pa.string()))
        else:
            columns.append(column)
    return pa.table(columns, names=table.column_names)


@contextmanager
def _in_a_sentence(path: Path) -> Iterator[None]:
    """What the operating system refuses, as an error of ours."""
    try:
        yield
    except OSError as error:
        raise ReleaseError(f"the release cannot be written to '{path}': {_reason(error)}") from None


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC or "No space left" in str(error):
        return "the disk is full; nothing was written"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "permission denied; nothing was written"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return "a file stands in the way; nothing was written"
    if error.errno == errno.ENOTEMPTY:
        return "something else was written there meanwhile"
    return f"{error.strerror or error}; nothing was written"


def _to_disk(file: Path) -> None:
    """Wait until the bytes are on the disk: a full one may say so only then."""
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _folder_to_disk(folder: Path) -> None:
    """Wait until the names of a folder are on the disk, where the system can tell."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
