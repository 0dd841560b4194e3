"""A small service for tests: an invented table, and a release of another one, so that many questions surprise.

A real rule pays 2% for a fire, which makes four or five of them; here fires are cheap: hundreds can be watched.
Run as a program, so that nothing of the tests is inherited: `small.py FOLDER PLACE FIRES`.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import dualquery
from dualquery import Accounting, Budget, Neighbours
from dualquery.interactive import rule
from dualquery.service.run import begin
from dualquery.service.settings import Settings

ROWS = 20_000
ATTRIBUTES = {"colour": 6, "size": 5, "shape": 4, "age": 8}
SCHEMA = "".join(
    f'[[attribute]]\nname = "{name}"\nvalues = {[f"{name[0]}{i}" for i in range(count)]}\n\n'.replace(
        "'", '"'
    )
    for name, count in ATTRIBUTES.items()
)


def table(*, seed: int, lean: float) -> pa.Table:
    """People whose values lean towards the low end, or where `lean` is negative to the high one."""
    chance = np.random.default_rng(seed)
    columns = {}
    for name, count in ATTRIBUTES.items():
        weights = np.exp(-lean * np.arange(count))
        codes = chance.choice(count, size=ROWS, p=weights / weights.sum())
        columns[name] = [f"{name[0]}{code}" for code in codes]
    return pa.table(columns)


def questions(count: int, *, seed: int) -> list[str]:
    """Conjunctions of one to three conditions, no two alike."""
    chance = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        names = sorted(chance.choice(list(ATTRIBUTES), size=chance.integers(1, 4), replace=False))
        parts = []
        for name in names:
            values = chance.choice(ATTRIBUTES[name], size=chance.integers(1, ATTRIBUTES[name]), replace=False)
            parts.append(f"{name} in {{{', '.join(f'{name[0]}{v}' for v in sorted(values))}}}")
        found[" & ".join(parts)] = None
    return list(found)


def cheap_fires(each: Fraction) -> None:
    """From now on a fire takes at most twice this share of the cap."""
    rule.EACH = each


def files(folder: Path) -> Path:
    """The table, its schema and a release of another table, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.toml").write_text(SCHEMA)
    pyarrow.csv.write_csv(table(seed=1, lean=0.5), folder / "people.csv")
    schema = dualquery.read_schema(folder / "schema.toml")
    budget = Budget(epsilon=0.2, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    stale = dualquery.release(
        table(seed=2, lean=-0.5),
        schema=schema,
        workload="marginals:2",
        budget=budget,
        seed=3,
        mechanism="projection",
    )
    stale.save(folder / "stale")
    return folder


def begun(folder: Path, *, place: str | None = None, tolerance: float | None = None) -> Settings:
    """A service over these files."""
    return begin(
        folder / "people.csv",
        schema=folder / "schema.toml",
        epsilon=1.0,
        delta=1e-6,
        out=folder / "service.toml",
        ledger=place,
        release=folder / "stale",
        tolerance=tolerance,
    )


if __name__ == "__main__":
    cheap_fires(Fraction(sys.argv[3]))
    begun(files(Path(sys.argv[1])), place=None if sys.argv[2] == "-" else sys.argv[2])
