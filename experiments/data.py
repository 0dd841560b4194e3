"""The public data sets: what their files are called, where they can be got, and how each becomes records."""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DataError, DualQueryError
from dualquery.table.domain import Domain, Items, Numeric
from dualquery.table.draft import schema_draft
from dualquery.table.encoding import encode
from dualquery.table.records import BitItems, Records
from dualquery.table.schema import read_schema

SCHEMAS = Path(__file__).parent / "schemas"
UCI = "the UCI Machine Learning Repository"
WHERE = {
    "adult.csv.gz": f"{UCI}, Adult (doi 10.24432/C5XW20), training part",
    "adult_test.csv.gz": f"{UCI}, Adult (doi 10.24432/C5XW20), test part",
    "adult_mwem_binary.csv.gz": "the data folder of the original DualQuery program",
    "kddcup99_10percent.csv.gz": f"{UCI}, KDD Cup 1999 Data, 10 percent subset",
    "nltcs.csv.gz": "StatLib, the NLTCS extract by E. A. Erosheva",
    "mildew.csv": "the R package gRbase",
    "rochdale.csv": "the R package eMLEloglin",
    "czech_autoworkers.csv": "the R package gRbase, there called reinis",
    "blood_transfusion.csv.gz": f"{UCI}, Blood Transfusion Service Center",
    "kosarak_first100k.txt.gz": "the FIMI repository",
    **{
        f"foreign/{name}.csv.gz": "the R data sets that the Python package pydataset carries"
        for name in ("nwtco", "slid", "vocab", "chile", "ability", "flchain", "diamonds")
    },
    "foreign/fair.csv.gz": "the data sets of the Python package statsmodels",
    "births2014.csv.gz": "the repository dtkaplan/natality2014 (NCHS, public-use natality file)",
}
FILES = {
    "adult": "adult.csv.gz",
    "adult_test": "adult_test.csv.gz",
    "kddcup99": "kddcup99_10percent.csv.gz",
    "nltcs": "nltcs.csv.gz",
    "kosarak": "kosarak_first100k.txt.gz",
}
FOREIGN = {
    **{
        name: f"foreign/{name}.csv.gz"
        for name in ("nwtco", "slid", "vocab", "chile", "fair", "ability", "flchain", "diamonds")
    },
    "births2014": "births2014.csv.gz",
}  # tables that other people keep for teaching, with a schema drafted from each
CUBE = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
)
DAMAGE = (DualQueryError, OSError, EOFError, zlib.error, ValueError, LookupError)  # what a bad file may raise


class Unavailable(Exception):
    """Something that an experiment needs is not here; the message is a sentence that says what to do."""


@dataclass(frozen=True)
class Data:
    """The folder of the public data sets (experiments/README.md). What is read once is kept."""

    folder: Path

    @staticmethod
    def default_folder() -> Path:
        """The folder that DUALQUERY_DATA names, or shared/data beside the checkout."""
        beside = Path(__file__).parent.parent.parent / "shared" / "data"
        return Path(os.environ.get("DUALQUERY_DATA", beside))

    def path(self, file: str) -> Path:
        if not self.folder.is_dir():
            raise Unavailable(f"{self.folder} is no folder; --data names the folder of the public data sets")
        path = self.folder / file
        if not path.is_file():
            raise Unavailable(f"{file} is not in {self.folder}; it can be got from {WHERE[file]}")
        return path

    def records(self, name: str) -> Records:
        """A data set encoded by its schema: adult, adult_test, kddcup99, nltcs or kosarak; netflix is invented.

        A foreign table is encoded by the draft of its own schema. That reads the table: it is public here.
        """
        if name == "netflix":
            return like_netflix(*NETFLIX)
        if name in FOREIGN:
            return self._read(FOREIGN[name], lambda path: encode(str(path), schema_draft(path).schema))
        schema = read_schema(SCHEMAS / f"{name.removesuffix('_test')}.toml")
        if name.startswith("adult"):
            return self._read(FILES[name], lambda path: encode(complete_rows(path), schema))
        return self._read(FILES[name], lambda path: encode(str(path), schema))

    def numbers(self, file: str, columns: tuple[tuple[str, int, int], ...]) -> Records:
        """Columns with public limits, every integer between them a value of its own; rows with ? left out."""
        return self._read(file, lambda path: _numbers(path, columns))

    def contingency(self, file: str) -> Records:
        """A table of counts over binary attributes as records."""
        return self._read(file, _contingency)

    def binary_adult(self, width: int = 27, more: int = 0) -> Records:
        """MWEM's binarised Adult: its first attributes, or with independent ones beside it."""
        return self._read("adult_mwem_binary.csv.gz", lambda path: _patterns(path, width, more))

    def adult_cube(self) -> Records:
        """The eight categorical attributes of Adult, each with the values that its schema lists."""
        records = self.records("adult")
        names = [column.name for column in records.domain.columns]
        return only_columns(records, [names.index(name) for name in CUBE])

    def _read(self, file: str, reader: Callable[[Path], Records]) -> Records:
        path = self.path(file)
        try:
            records = reader(path)
            if not records.rows:
                raise DataError("it holds no records")
            return records
        except DAMAGE as problem:
            words = str(problem).rstrip(".") or type(problem).__name__
            raise Unavailable(
                f"{file} cannot be read ({words}); get it again from {WHERE[file]}"
            ) from problem


def complete_rows(path: Path) -> pa.Table:
    """The rows of a CSV file that hold no '?', as in the papers: a table of its own, made before any promise."""
    names, *rows = _lines(path)
    whole = [row for row in rows if "?" not in row]
    return pa.table({name: [row[i] for row in whole] for i, name in enumerate(names)})


NETFLIX = (
    480_189,
    17_770,
    209.0,
)  # records, items, and items a record on average, as the Netflix Prize published


def like_netflix(records: int, items: int, held: float, seed: int = 0) -> Records:
    """An invented table of baskets of a published shape. Nothing of Netflix' own data is in it.

    Item i is held by a share of the records that falls as a power of its rank, 1/(i + k), k so large that the first
    is held by two fifths; records are active by a log-normal law, and hold their items independently given that.
    """
    rng = np.random.default_rng(seed)
    offset = 1.0
    while held / (1 / (np.arange(items) + offset)).sum() / offset > 0.4:
        offset *= 1.05
    shares = 1 / (np.arange(items) + offset)
    holders = rng.binomial(records, held * shares / shares.sum())
    active = np.cumsum(rng.lognormal(0.0, 1.0, records))
    words = np.zeros((items, -(-records // 64)), np.uint64)
    for item, wanted in enumerate(holders.tolist()):
        found: NDArray[np.int64] = np.empty(0, np.int64)
        while len(found) < wanted:  # a record is drawn twice now and then
            more = np.searchsorted(active, rng.random(wanted - len(found)) * active[-1])
            found = np.union1d(found, more)
        held_by = np.zeros(64 * words.shape[1], np.bool_)
        held_by[found] = True
        words[item] = np.packbits(held_by, bitorder="little").view(np.uint64)
    return Records(Domain((Items("film", items),)), records, (BitItems(words),))


@lru_cache(maxsize=4)
def kept(data: Data, name: str) -> Records:
    """`data.records(name)`, kept for the points that follow."""
    return data.records(name)


def _lines(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.reader(file))


def _numbers(path: Path, columns: tuple[tuple[str, int, int], ...]) -> Records:
    header, *rows = _lines(path)
    places = [header.index(name) for name, _, _ in columns]
    codes = np.array([[int(row[place]) for place in places] for row in rows if "?" not in row])
    attributes = tuple(
        Numeric(name, tuple(float(x) for x in range(low, high + 2)), integer=True)
        for name, low, high in columns
    )
    return Records.from_rows(Domain(attributes), codes - [low for _, low, _ in columns])


def _contingency(path: Path) -> Records:
    header, *rows = _lines(path)
    width = len(header) - 1
    levels = [sorted({row[j] for row in rows}) for j in range(width)]
    codes = [[levels[j].index(row[j]) for j in range(width)] for row in rows]
    counts = [int(row[width]) for row in rows]
    return Records.from_rows(Domain((Items("x", width),)), np.repeat(np.array(codes), counts, axis=0))


def _patterns(path: Path, width: int, more: int) -> Records:
    _, *rows = _lines(path)
    codes = np.array([[int(bit) for bit in pattern] for pattern, _ in rows])[:, :width]
    codes = np.repeat(codes, [int(count) for _, count in rows], axis=0)
    rng = np.random.default_rng(0)
    added = rng.random((len(codes), more)) < rng.random(more)
    return Records.from_rows(Domain((Items("x", width + more),)), np.hstack([codes, added]))


def only_columns(records: Records, places: Sequence[int]) -> Records:
    """The table with only some of its columns, none of which is a block of items."""
    domain = Domain(tuple(records.domain.columns[j] for j in places))
    return Records.from_rows(domain, records.to_rows()[:, list(places)])
