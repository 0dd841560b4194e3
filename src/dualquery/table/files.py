"""Opening a private file, and saying what is wrong with it without quoting it.

An error is an output too. A message names the file, columns of the schema and how many bytes were
read; never a cell, and never a name that only the file has, because the first line of a file without
a header is a record.
"""

from __future__ import annotations

import codecs
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from dualquery.errors import DataError, SchemaError

# In these a letter changes the meaning of those behind it.
STATEFUL = (
    "utf-7",
    "iso2022",
    "hz",
    "punycode",
    "idna",
    "raw-unicode",
    "unicode-escape",
)
COMPRESSION = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


def kind_of(path: Path) -> str:
    """The suffix that says what a file is, without that of its compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSION:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def open_file(path: Path, encoding: str | None = None) -> Any:
    """The bytes of a file as a stream, unpacked; those of a text in another encoding as UTF-8."""
    stream = pa.input_stream(str(path), compression=COMPRESSION.get(path.suffix.lower()))
    return stream if encoding is None else pa.transcoding_input_stream(stream, encoding, "utf-8")


def known_encoding(name: str) -> str:
    """The encoding of this name, if no record can be read into another one (docs/schema.md)."""
    try:
        found = codecs.lookup(name)
    except LookupError:
        raise SchemaError(f"no encoding '{name}' is known; try latin-1, cp1252, utf-16 or gbk") from None
    if not found._is_text_encoding or found.name.startswith(STATEFUL):
        raise SchemaError(f"a text in '{name}' cannot be read line by line; save it as UTF-8")
    return found.name


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what can go wrong with a file into one sentence that quotes nothing of it."""
    try:
        yield
    except UnicodeDecodeError:
        raise DataError(f"'{path}' is not text in the encoding that was named for it") from None
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}'") from None
    except PermissionError:
        raise DataError(f"'{path}' may not be read by this user") from None
    except (OSError, EOFError, pa.ArrowException, ValueError, KeyError, OverflowError, RecursionError):
        # The readers raise all of these on a damaged file; a DataError is none of them.
        message = f"'{path}' cannot be read: it is cut short, damaged, or not what its name says"
        if path.is_dir():
            message = (
                f"folder '{path}' holds a file that is no Parquet, or is damaged; give other kinds of files by a "
                f"pattern in quotes: '{path / '*.csv'}'"
            )
        raise DataError(message) from None


def choose(names: Sequence[str] | None, found: Sequence[str], where: str) -> list[int]:
    """The position of each name: blanks around a name do not matter unless they must."""
    if names is None:
        return list(range(len(found)))
    exact, trimmed = Counter(found), Counter(name.strip() for name in found)
    place = {name.strip(): position for position, name in enumerate(found)}
    place |= {name: position for position, name in enumerate(found)}
    for name in names:
        times = exact[name] or trimmed[name]
        if times == 0:
            # What it has instead is not said: in a file without a header those are the cells of a record.
            raise DataError(
                f"{where} has no column '{name}'; its columns must be named as in the schema, "
                "those of a text file in its first line"
            )
        if times > 1:
            raise DataError(f"{where} has more than one column '{name}'")
    return [place[name] for name in names]


def quoted_path(path: str | os.PathLike[str]) -> str:
    return f"'{os.fspath(path)}'"


def after(count: int) -> str:
    """How far the reading came, in the words of a message."""
    return f"after {count:,} bytes"
