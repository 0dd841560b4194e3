"""An invented folder of data sets: the names and formats of the public ones, a few hundred rows each.

Every record belongs to one of two kinds that prefer different values, so that attributes depend on each other
and the uniform guess is poor.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dualquery.loops import limited
from dualquery.table.domain import Categorical, Items, Numeric
from dualquery.table.schema import read_schema
from experiments.data import FILES, SCHEMAS, Data

ROWS = 2000
RANGES = {"age": (17, 90), "hours-per-week": (1, 99), "capital-loss": (0, 4356)}


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Toy loops take microseconds, and on a busy machine the threads would wait far longer for each other."""
    with limited(1):
        yield


@pytest.fixture(scope="session")
def invented_data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(5)
    kinds = rng.random(ROWS) < 0.3
    for name, more in (("adult", ()), ("kddcup99", ("label",)), ("nltcs", ()), ("adult_test", ())):
        write_table(folder / FILES[name], *columns_of(name, kinds, rng), more)
    bits = rng.random((ROWS, 27)) < np.where(kinds[:, None], 0.8, 0.15)
    patterns, counts = np.unique(bits, axis=0, return_counts=True)
    text = ["".join(map(str, pattern)) for pattern in patterns.astype(int)]
    write_rows(
        folder / "adult_mwem_binary.csv.gz", ["pattern", "count"], zip(text, counts.tolist(), strict=True)
    )
    for file, width in (("mildew.csv", 6), ("rochdale.csv", 8), ("czech_autoworkers.csv", 6)):
        cells = list(product((1, 2), repeat=width))
        drawn = rng.multinomial(500, rng.dirichlet(np.full(len(cells), 0.2)))
        header = [*(f"a{j}" for j in range(width)), "count"]
        write_rows(folder / file, header, [(*c, n) for c, n in zip(cells, drawn.tolist(), strict=True)])
    recency, frequency = rng.binomial(74, np.where(kinds, 0.7, 0.05)), 1 + rng.binomial(49, 0.1, ROWS)
    write_rows(
        folder / "blood_transfusion.csv.gz",
        ["recency_months", "frequency_times", "monetary_cc", "time_months", "donated_march_2007"],
        [(r, f, 250 * f, 50, 1) for r, f in zip(recency.tolist(), frequency.tolist(), strict=True)],
    )
    baskets = (np.flatnonzero(rng.random(40) < (0.4 if kind else 0.05)) + 1 for kind in kinds)
    lines = (" ".join(map(str, basket if len(basket) else [1])) for basket in baskets)
    with gzip.open(folder / "kosarak_first100k.txt.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    return Data(folder)


def columns_of(
    name: str, kinds: np.ndarray, rng: np.random.Generator
) -> tuple[list[str], list[Sequence[object]]]:
    """Columns of the schema: one kind of record prefers the first values, the other the last."""
    header, columns = [], []
    for column in read_schema(SCHEMAS / f"{name.removesuffix('_test')}.toml").domain.columns:
        assert not isinstance(column, Items)
        shares = rng.beta(np.where(kinds, 4.0, 0.6), np.where(kinds, 0.6, 4.0))
        header.append(column.name)
        if isinstance(column, Categorical):
            codes = np.minimum((shares * len(column.values)).astype(int), len(column.values) - 1)
            columns.append([column.values[code] for code in codes])
        else:
            assert isinstance(column, Numeric)
            low, high = RANGES.get(column.name, (int(column.edges[0]), int(column.edges[-1])))
            columns.append((low + shares * (high - low)).astype(int).tolist())
    return header, columns


def write_table(path: Path, header: list[str], columns: list[Sequence[object]], more: Sequence[str]) -> None:
    rows = zip(*columns, strict=True)
    write_rows(path, [*header, *more], ((*row, *("x" for _ in more)) for row in rows))


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
