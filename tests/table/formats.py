"""Random cells of every kind, and the ways in which a table of them can be written."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from hypothesis import strategies as st

from dualquery.table.domain import Categorical, Items, Numeric, equal_width

Row = dict[str, Any]

AWKWARD = (
    "a",
    " a",
    'say "a"',
    '"',
    "a,b",
    "x\ny",
    "x\r\ny",
    ",",
    "1",
    "1.0",
    "true",
    "é漢",
    "'",
    "\\",
    "other",
)
COLUMNS = {
    "text": Categorical("text", AWKWARD, unknown="other", missing="other"),
    "whole": Categorical("whole", ("0", "1", "2", "other"), unknown="other", missing="other"),
    "truth": Categorical("truth", ("False", "True", "none"), missing="none"),
    "money": Categorical("money", ("0.5", "2.50", "3", "other"), unknown="other", missing="other"),
    "when": Categorical("when", ("2020-01-31 12:00:00", "other"), unknown="other", missing="other"),
    "rate": equal_width("rate", 0, 1, 10, clamp=True, missing="?"),
    "count": Numeric("count", (0.0, 1.0, 5.0, 100.0), clamp=True, missing="missing", integer=True),
    "item": Items("item", 9),
}
CELLS = {
    "text": st.sampled_from([*AWKWARD, "", " ", "unlisted", "a\tb"]) | st.text('ab", \n\r\\1', max_size=5),
    "whole": st.integers(-1, 3),
    "truth": st.booleans(),
    "money": st.sampled_from(
        [Decimal("0.5"), Decimal("2.5"), Decimal("3"), Decimal("1.255"), Decimal("7.10")]
    ),
    "when": st.sampled_from(
        [datetime(2020, 1, 31, 12), datetime(2020, 1, 31), datetime(2020, 1, 31, 12, 0, 0, 7)]
    ),
    "rate": st.floats(-1, 2) | st.sampled_from([0.1, 0.3, 1.0, float("nan")]),
    "count": st.integers(-5, 200),
    "item": st.lists(st.integers(1, 9), max_size=5),
}
ARROW = {
    "text": pa.string(),
    "whole": pa.int64(),
    "truth": pa.bool_(),
    "money": pa.decimal128(9, 3),
    "when": pa.timestamp("us"),
    "rate": pa.float64(),
    "count": pa.int32(),
    "item": pa.list_(pa.int32()),
}
PLAIN = ("text", "whole", "truth", "rate", "count", "item")  # what texts and JSON can say


@dataclass(frozen=True)
class Format:
    """How rows are written, and which columns this format has."""

    write: Callable[[list[Row], list[str], Path], object]
    columns: tuple[str, ...] = tuple(COLUMNS)


def as_csv(rows: list[Row], names: list[str], *, delimiter: str = ",", ending: str = "\n") -> bytes:
    text = io.StringIO()
    minimal = csv.writer(text, delimiter=delimiter, lineterminator=ending)
    # The minimal writer leaves a carriage return unquoted, which no strict reader can accept.
    careful = csv.writer(text, delimiter=delimiter, lineterminator=ending, quoting=csv.QUOTE_ALL)
    minimal.writerow(names)
    for row in rows:
        cells = {**row, "item": " ".join(map(str, row.get("item") or []))}
        writer = careful if "\r" in str(row.get("text")) else minimal
        writer.writerow(["" if cells[name] is None else cells[name] for name in names])
    return text.getvalue().encode()


def arrow(rows: list[Row], names: list[str]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema([(name, ARROW[name]) for name in names]))


def saved(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def parquet(rows: list[Row], names: list[str], folder: Path) -> Path:
    pyarrow.parquet.write_table(arrow(rows, names), folder / "t.parquet", row_group_size=3)
    return folder / "t.parquet"


def stream(rows: list[Row], names: list[str], folder: Path) -> Path:
    table = arrow(rows, names)
    with pa.ipc.new_stream(folder / "t.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return folder / "t.arrow"


def feather(rows: list[Row], names: list[str], folder: Path) -> Path:
    pyarrow.feather.write_feather(arrow(rows, names), folder / "t.feather")
    return folder / "t.feather"


def array(rows: list[Row], names: list[str], folder: Path) -> Path:
    return saved(folder / "t.json", json.dumps(_held(rows, names)).encode())


def lines(rows: list[Row], names: list[str], folder: Path) -> Path:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _held(rows, names))
    return saved(folder / "t.jsonl.gz", gzip.compress(text.encode()))


def _held(rows: list[Row], names: list[str]) -> list[Row]:
    """An empty cell as a key that is not there, or as null where no record has the key (else it is refused)."""
    unheld = {name for name in names if all(row[name] is None for row in rows)}
    return [{name: row[name] for name in names if row[name] is not None or name in unheld} for row in rows]


def guessed_by_pandas(rows: list[Row], names: list[str], folder: Path) -> pd.DataFrame:
    # Whole numbers become floats where one is missing, decimals and times get the digits of the longest.
    return pd.DataFrame([[row[name] for name in names] for row in rows], columns=names)


def guessed_by_polars(rows: list[Row], names: list[str], folder: Path) -> pl.DataFrame:
    return pl.DataFrame({name: [row[name] for row in rows] for name in names}, strict=True)


def transactions(rows: list[Row], names: list[str], folder: Path) -> Path:
    text = "\r\n".join(" ".join(map(str, row["item"] or [])) for row in rows) + "\r\n"
    return saved(folder / "t.dat", text.encode() if rows else b"")


FORMATS = {
    "csv": Format(lambda rows, names, folder: saved(folder / "t.csv", as_csv(rows, names)), PLAIN),
    "csv.gz": Format(
        lambda rows, names, folder: saved(
            folder / "t.csv.gz", gzip.compress(as_csv(rows, names, delimiter=";", ending="\r\n"))
        ),
        PLAIN,
    ),
    "parquet": Format(parquet),
    "arrow stream": Format(stream),
    "arrow file": Format(feather),
    "json": Format(array, PLAIN),
    "ndjson": Format(lines, PLAIN),
    "transactions": Format(transactions, ("item",)),
    "arrow table": Format(lambda rows, names, folder: arrow(rows, names)),
    "pandas": Format(lambda rows, names, folder: arrow(rows, names).to_pandas()),
    "pandas, types guessed": Format(guessed_by_pandas),
    "polars": Format(lambda rows, names, folder: pl.from_arrow(arrow(rows, names))),
    "polars, types guessed": Format(guessed_by_polars, PLAIN),
}
