"""Text tables: CSV and its kin, one strict grammar that is checked before anything is parsed; transactions.

    file    = header line end { record line end }          the last line end may be missing
    record  = cell { delimiter cell }                      as many cells as the header has
    cell    = { any byte but delimiter, quote, CR, LF }
            | quote { any byte but quote | quote quote } quote
    line end = LF | CR LF

An empty line is no record, except in a table of one column, where it is a record with an empty cell.
In this grammar a byte stands inside quotes exactly where the number of quotes before it is odd, and
a record ends at a line feed outside quotes. So a record with an odd number of quotes leaves the whole
file with an odd number, and the file is refused: none can swallow the ones after it (docs/schema.md).

The checker sees every byte before the parser does, and counts the records; the parser must find as many.

*Transactions* are a line of item ids a record. A record ends at its newline and nowhere else, so no line can reach
into another. An empty line is a record without items.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.table.reading.source import WantedColumns, after, choose, file_source, open_file, quoted_path

TRANSACTIONS = {".txt", ".dat"}  # the suffixes of files that may hold some
DELIMITERS = (",", ";", "\t", "|")
BLOCK = 1 << 22  # bytes at a time, and the longest record that is read; more where the header is long
PIECE = 1 << 18  # bytes that are checked at a time: what is made of them stays in the cache
LINES = 1 << 24  # bytes of transactions at a time
HEADER = 1 << 16  # bytes read at first; more where a header line is longer
LONGEST_HEADER = 1 << 28
MARK = b"\xef\xbb\xbf"  # that some programs put before UTF-8 text
NOT_UTF8 = (
    'is not UTF-8 text; name its encoding: encoding = "latin-1" in [table], or --encoding latin-1 for a draft'
)
QUOTE, LF, CR = 34, 10, 13


def delimited_batches(stream: Any, names: Sequence[str] | None, where: str) -> Iterator[pa.Table]:
    """The named columns of a text table as texts, an empty cell as null; all of them without names.

    A block at a time, of anything that can be read; at least one table, be it without rows.
    """
    start, before, end = _through_header(stream, where)
    header, delimiter = _header(start[:end], names, where)
    chosen = choose(names, header, where)
    called = list(names) if names is not None else [header[i] for i in chosen]
    block = max(BLOCK, 64 * end)
    checker = Checker(
        ord(delimiter), width=len(header), longest=block, skipped=len(before), where=where,
        lines=before.count(b"\n"),
    )  # fmt: skip
    options, rows = _options([str(position) for position in chosen], delimiter, len(header), block), 0
    try:
        reader = pyarrow.csv.open_csv(CheckedFile(stream, start, checker), **options)
        yield pa.Table.from_batches([], reader.schema).rename_columns(called)
        for batch in reader:
            rows += batch.num_rows
            yield pa.Table.from_batches([batch]).rename_columns(called)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise DataError(f"{where} {NOT_UTF8}") from None
        raise
    if rows != checker.records - 1:
        raise DataError(f"{where} was not read record by record; save it as Parquet, or report this as a bug")


def _through_header(stream: Any, where: str) -> tuple[bytes, bytes, int]:
    """The first bytes from the header on, those that stood before it, and where among the first it ends."""
    start = more = stream.read(HEADER)
    while True:
        text = start.removeprefix(MARK).lstrip(b"\r\n")
        end = _first_record_end(text, np.flatnonzero(np.frombuffer(text, np.uint8) == QUOTE))
        if end or not more or len(text) > LONGEST_HEADER:
            break
        start += (more := stream.read(max(len(start), 1)))
    if not text:
        raise DataError(f"{where} is empty: it has no header line")
    if not end and more:
        raise DataError(f"{where} has no header line: no line ends {after(len(start))}")
    # The parser wants a line end behind the header even where nothing follows.
    before = start[: len(start) - len(text)]
    return (text, before, end) if end else (text + b"\n", before, len(text))


def _header(line: bytes, names: Sequence[str] | None, where: str) -> tuple[list[str], str]:
    """The cells of the header, and the delimiter that finds most of the columns asked for there."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise DataError(f"{where} {NOT_UTF8}") from None
    best: tuple[int, list[str], str] | None = None
    for delimiter in DELIMITERS:
        try:
            header = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        except (csv.Error, StopIteration):
            continue
        stripped = {name.strip() for name in header} | set(header)
        score = len(header) if names is None else sum(name in stripped for name in names)
        if best is None or score > best[0]:
            best = (score, header, delimiter)
    if best is None or (names and best[0] == 0):
        # What stands there may be a record, so it is not quoted.
        raise DataError(f"{where} does not begin with a header line that names the columns of the schema")
    return best[1], best[2]


def _options(labels: list[str], delimiter: str, width: int, block: int) -> dict[str, Any]:
    # Dictionaries keep repeated cells once: small, and every distinct cell is looked at only once.
    text = pa.dictionary(pa.int32(), pa.string())
    return {
        # Columns go by their position. The header is a row like any other, and is not a record.
        "read_options": pyarrow.csv.ReadOptions(
            block_size=block, column_names=[str(i) for i in range(width)], skip_rows_after_names=1
        ),
        "parse_options": pyarrow.csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=width > 1
        ),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(labels, text),
            include_columns=labels,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    }


class CheckedFile(io.RawIOBase):
    """A file for the parser whose every byte has passed the checker first."""

    def __init__(self, stream: Any, start: bytes, checker: Checker) -> None:
        self._stream, self._start, self._checker = stream, start, checker

    def readable(self) -> bool:
        return True

    def read(self, count: int = -1) -> bytes:
        block, self._start = self._start[:count] or self._stream.read(count), self._start[count:]
        for place in range(0, len(block), PIECE):
            self._checker.feed(block[place : place + PIECE])
        if not block:
            self._checker.finish()
        return block


class Checker:
    """Checks the grammar above a block of bytes at a time, and counts the records, header included.

    Whole records are checked as soon as they are there; an unfinished one waits for the next block.
    """

    def __init__(
        self, delimiter: int, *, width: int, longest: int, skipped: int, where: str, lines: int = 0
    ) -> None:
        self.records = 0
        self._delimiter, self._width, self._longest, self._where = delimiter, width, longest, where
        self._read = skipped  # bytes before the record that is waiting
        self._lines = lines  # line ends among them
        self._waiting = b""

    def feed(self, block: bytes) -> None:
        """Takes the next bytes of the file."""
        text = self._waiting + block if self._waiting else block
        letters = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(letters == QUOTE)
        end = _last_record_end(text, quotes)
        # A record longer than a block holds what was waiting.
        if self._waiting and len(text) > self._longest:
            first = _first_record_end(text, quotes) or len(text)
            if first > self._longest:
                what = f"a record of more than {self._longest:,} bytes or a quote that is not closed"
                self._refuse(0, what)
        if end:
            self._check(letters[:end], quotes[: np.searchsorted(quotes, end)])
        self._read += end
        self._lines += text.count(b"\n", 0, end)
        self._waiting = text[end:]

    def finish(self) -> None:
        """Takes note that the file is over."""
        rest = self._waiting
        if rest.count(b'"') % 2:
            self._refuse(0, "a quote that is not closed, in the record")
        if rest.endswith(b"\r"):
            self._refuse(len(rest) - 1, "a carriage return that ends no line", rest)
        if rest:
            self._waiting = b""
            self.feed(rest + b"\n")

    def _check(self, letters: NDArray[np.uint8], quotes: NDArray[np.int64]) -> None:
        """Checks whole records: the last letter is a line feed outside quotes."""
        feed, delimiter, returning = letters == LF, letters == self._delimiter, letters == CR
        if len(quotes):
            self._check_quotes(letters, quotes)
            inside = np.logical_xor.accumulate(letters == QUOTE)
            for mask in (feed, delimiter, returning):
                mask &= ~inside
        if returning.any():
            returns = np.flatnonzero(returning)
            if len(alone := returns[letters[returns + 1] != LF]):
                self._refuse(int(alone[0]), "a carriage return that ends no line", letters)
        ends = np.flatnonzero(feed)
        starts = np.concatenate([[0], ends[:-1] + 1])
        cells = np.add.reduceat(delimiter, starts, dtype=np.int32) + 1
        lines = len(ends)
        if (cells != self._width).any():
            # An empty line is no record, and the only line that may have another number of cells.
            empty = (ends == starts) | (letters[starts] == CR)
            if len(ragged := np.flatnonzero((cells != self._width) & ~empty)):
                place = int(starts[ragged[0]])
                self._refuse(place, "a line with more or fewer cells than its header", letters)
            lines -= int(empty.sum())
        self.records += lines

    def _check_quotes(self, letters: NDArray[np.uint8], quotes: NDArray[np.int64]) -> None:
        """Every other quote opens, the ones between close; two in a row inside are one quote of the text."""
        opening, closing = quotes[0::2], quotes[1::2]
        before = np.where(opening > 0, letters[opening - 1], LF)
        behind = letters[closing + 1]
        well_opened = (before == self._delimiter) | (before == LF) | (before == QUOTE)
        well_closed = (behind == self._delimiter) | (behind == LF) | (behind == CR) | (behind == QUOTE)
        strays = [*opening[~well_opened][:1], *closing[~well_closed][:1]]
        if strays:
            what = "a stray quote (a cell with quotes stands in quotes, those inside doubled)"
            self._refuse(int(min(strays)), what, letters)

    def _refuse(self, offset: int, what: str, text: bytes | NDArray[np.uint8] = b"") -> NoReturn:
        line = self._lines + bytes(text[:offset]).count(b"\n") + 1
        raise DataError(f"{self._where} has {what}: line {line:,}, {after(self._read + offset)}")


def _first_record_end(text: bytes, quotes: NDArray[np.int64]) -> int:
    """Behind the first line feed outside quotes; 0 where there is none."""
    end = -1
    while (end := text.find(b"\n", end + 1)) >= 0:
        before = int(np.searchsorted(quotes, end))
        if before % 2 == 0:
            return end + 1
        if before == len(quotes):
            break
        end = int(quotes[before])  # no line feed before the quote that closes is outside
    return 0


def _last_record_end(text: bytes, quotes: NDArray[np.int64]) -> int:
    """Behind the last line feed outside quotes; 0 where there is none."""
    end = len(text)
    while (end := text.rfind(b"\n", 0, end)) >= 0:
        before = int(np.searchsorted(quotes, end))
        if before % 2 == 0:
            return end + 1
        end = int(quotes[before - 1])  # no line feed behind the quote that opens is outside
    return 0


def _text(path: Path, wanted: WantedColumns) -> Iterator[pa.Table]:
    with open_file(path, None if wanted.lines else wanted.encoding) as stream:
        if wanted.lines:
            assert wanted.names is not None, "lines have no header"
            yield from _transactions(stream, wanted.names[0], quoted_path(path), wanted.rows)
        else:
            yield from delimited_batches(stream, wanted.names, quoted_path(path))


def _transactions(stream: Any, name: str, where: str, rows: int | None) -> Iterator[pa.Table]:
    """Some lines at a time, as one column of lists."""
    done, rest, block = 0, b"", b"-"
    while block:
        block = stream.read(LINES if rows is None else 32 * rows)
        text = rest + block
        end = text.rfind(b"\n") + 1 if block else len(text)
        rest = text[end:]
        if end or not (block or done):
            yield pa.table({name: transactions(text[:end], where=where, before=done)})
        done += end


def transactions(text: bytes, *, where: str, before: int = 0) -> pa.LargeListArray:
    """Lines of whole numbers separated by blanks, as lists of numbers; so many bytes stood before them."""
    if text.translate(None, b"0123456789 \t\r\n"):
        raise DataError(f"{where} holds something other than item ids, whole numbers separated by blanks")
    if b"\r" in text and text.count(b"\r") != text.count(b"\r\n"):
        # Taken for a blank it would join records, taken for a line end it would part them.
        at = next(i for i, letter in enumerate(text) if letter == 13 and text[i + 1 : i + 2] != b"\n")
        raise DataError(f"{where} has a carriage return that ends no line, {after(before + at)}")
    if text and not text.endswith(b"\n"):
        text += b"\n"
    letters = np.frombuffer(text, np.uint8)
    digit = letters >= ord("0")
    begins = digit.copy()
    begins[1:] &= ~digit[:-1]
    tokens = np.cumsum(begins)
    ends = tokens[letters == ord("\n")]
    count = int(ends[-1]) if len(ends) else 0
    # Numbers too long for an integer become the largest one, which no block of items contains.
    ids = np.fromstring(text.decode("ascii"), np.int64, sep=" ") if count else np.empty(0, np.int64)
    return pa.LargeListArray.from_arrays(np.concatenate([[0], ends]), ids)


TEXT = file_source({".csv", ".tsv", ".txt", ".dat", ".data"}, _text)
