"""The folder of a release, written aside and renamed, so that a half-written one never stands in its place.

synthetic.parquet     the synthetic records (or answers.parquet: queries and answers)
synthetic.csv         the same, on request
certificate.json      what was done and what it cost, with the digest of each data file
report.html           the certificate in words, and pictures of the synthetic records
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from dualquery.errors import DataError, ReleaseError, SchemaError
from dualquery.mechanisms.artefact import BareAnswers, SyntheticRecords
from dualquery.releases.certificate import Certificate
from dualquery.releases.release import Release
from dualquery.releases.report import report_html
from dualquery.table.encoding import encode

SYNTHETIC = "synthetic.parquet"
SYNTHETIC_CSV = "synthetic.csv"
ANSWERS = "answers.parquet"
CERTIFICATE = "certificate.json"
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
    with _written_aside(path):
        pass


def save(release: Release, folder: str | os.PathLike[str], *, csv: bool = False) -> None:
    """Write a release: all of it, or nothing."""
    path = Path(folder)
    refuse_occupied(path)
    table = release.to_arrow()
    with _written_aside(path) as aside:
        data = SYNTHETIC if release.records is not None else ANSWERS
        pyarrow.parquet.write_table(table, aside / data, compression="zstd")
        if csv:
            pyarrow.csv.write_csv(flat(table), aside / SYNTHETIC_CSV)
        certificate = release.certificate.with_files(
            {file.name: _digest(file) for file in sorted(aside.iterdir())}
        )
        (aside / CERTIFICATE).write_text(certificate.to_json(), encoding="utf-8")
        (aside / REPORT).write_text(report_html(release, certificate), encoding="utf-8")
        for file in aside.iterdir():
            _to_disk(file)
        os.rename(aside, path)


def load(folder: str | os.PathLike[str]) -> Release:
    """The release that a folder holds, once its data has been found to match its certificate."""
    path = Path(folder)
    try:
        certificate = Certificate.from_json((path / CERTIFICATE).read_text(encoding="utf-8"))
        domain = certificate.schema.domain
        data = next((name for name in (SYNTHETIC, ANSWERS) if name in certificate["files"]), None)
        if data is None:
            raise ReleaseError(f"the certificate in '{path}' names no data file")
        if _digest(path / data) != certificate["files"][data]:
            raise ReleaseError(f"'{path / data}' is damaged: it does not match its certificate")
        if data == SYNTHETIC:
            return Release(certificate, domain, SyntheticRecords(encode(path / data, domain)))
        table = pyarrow.parquet.read_table(path / data)
        answers = BareAnswers(table["query"].to_pylist(), table["answer"].to_numpy())
        return Release(certificate, domain, answers)
    except FileNotFoundError:
        where = "is not a release" if path.exists() else "does not exist"
        raise ReleaseError(
            f"'{path}' {where}; a release is a folder that `dualquery release` wrote"
        ) from None
    except OSError as error:
        raise ReleaseError(
            f"the release '{path}' cannot be read: {error.strerror or 'it is damaged'}"
        ) from None
    except (KeyError, TypeError, ValueError, pa.ArrowException, DataError, SchemaError):
        raise ReleaseError(f"the release '{path}' is damaged, or was changed by hand") from None


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
def _written_aside(path: Path) -> Iterator[Path]:
    """A directory beside `path`, on the same file system; whatever is left of it at the end is removed."""
    with _in_a_sentence(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
        try:
            aside.chmod(0o777 & ~_umask())  # mkdtemp's directories are for the owner only
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def _to_disk(file: Path) -> None:
    """Wait until the bytes are on the disk: a full one may say so only then."""
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())
