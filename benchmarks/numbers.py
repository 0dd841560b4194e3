"""Numbers of a release beside those of its table: means, deviations, quantiles, correlations.

    python -m benchmarks.numbers [diamonds | flchain | adult | chile | births | slid | fair | vocab]...

Schemas are drafts of the tables as `dualquery schema draft` makes them. All 2-way tables, ε = 1, δ = 10⁻⁶, a record
is replaced; two seeds, with means inside bins (2% of the budget) and without. Per numeric column: the error of the
mean in standard deviations, the size of the log of the ratio of the deviations, the mean error of five quantiles over
the range of nine in ten numbers. tv2 is the mean total variation of all tables of two columns with numbers cut at the
table's deciles, corr the mean error of correlations, and their slope is 1 where they are as strong as in the table.
Constants were chosen while looking at diamonds, flchain, Adult, chile and slid; births, fair and vocab were looked
at afterwards.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd

from benchmarks.harness import Figure, data_folder, show
from dualquery import schema_draft
from dualquery.counting import MemoryCounter
from dualquery.mechanisms.mechanism import Task, finished
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.randomness import SeededEntropy
from dualquery.table.encoding import encode
from dualquery.types import silent

FILES = {
    "diamonds": "foreign/diamonds.csv.gz",
    "flchain": "foreign/flchain.csv.gz",
    "adult": "adult.csv.gz",
    "chile": "foreign/chile.csv.gz",
    "slid": "foreign/slid.csv.gz",
    "births": "births2014.csv.gz",
    "fair": "foreign/fair.csv.gz",
    "vocab": "foreign/vocab.csv.gz",
}
MOST_ROWS, MOST_COLUMNS = 20_000, 12  # of births
SEEDS = (0, 1)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def table(name: str) -> pd.DataFrame:
    read = pd.read_csv(Path(data_folder()) / FILES[name], na_values=["?"])
    return read if name != "births" else read.iloc[:MOST_ROWS, [0, 1, *range(16, 21), 32, 33, 34, 41, 42]]


def released(frame: pd.DataFrame, seed: int, means: float) -> pd.DataFrame:
    """As `dualquery.release` makes the rows, without error bars."""
    domain = replace(schema_draft(frame).schema, draft=False).domain
    records = encode(frame, domain)
    task = Task(
        marginals(domain, 2), records.rows, Budget(1.0, 1e-6, accounting=Accounting.GAUSSIAN), places=True
    )
    plan = PROJECTION.plan_for(task, {"means": means})
    entropy = SeededEntropy(seed)
    curator = Curator(MemoryCounter(records), Ledger(task.budget), entropy)
    made = PROJECTION.run(plan, curator, entropy.public_generator(), silent)
    return finished(made, records.rows, entropy).artefact.to_arrow().to_pandas()


def numbers_of(frame: pd.DataFrame, made: pd.DataFrame) -> list[str]:
    """The columns that are numbers in both, of more than two values."""
    kinds = pd.api.types.is_numeric_dtype
    return [c for c in made if kinds(frame[c]) and kinds(made[c]) and frame[c].nunique() > 2]


def judged(frame: pd.DataFrame, made: pd.DataFrame) -> dict[str, float]:
    names = numbers_of(frame, made)
    true, said = frame[names].astype(float), made[names].astype(float)
    spread = true.std()
    wide = (true.quantile(0.95) - true.quantile(0.05)).replace(0, np.nan)
    off = (said.mean() - true.mean()).abs() / spread
    quantiles = (said.quantile(QUANTILES) - true.quantile(QUANTILES)).abs().mean() / wide
    upper = np.triu_indices(len(names), 1)
    known, seen = true.corr().to_numpy()[upper], said.corr().to_numpy()[upper]
    return {
        "mean, median over columns, in sd": float(off.median()),
        "mean, largest, in sd": float(off.max()),
        "sd, log of the ratio, median": float(np.log(said.std() / spread).abs().median()),
        "quantiles, over the range of nine in ten": float(quantiles.mean()),
        "corr, mean error": float(np.nanmean(np.abs(seen - known))),
        "corr, slope against the table": float((known * seen).sum() / (known**2).sum()),
        "tv2": tv2(frame, made),
    }


def tv2(frame: pd.DataFrame, made: pd.DataFrame) -> float:
    codes = [_cut(frame[c], made[c]) for c in made]
    return fmean(_apart(*one, *other) for one, other in combinations(codes, 2))


def _cut(true: pd.Series, said: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Codes of both columns: numbers by the table's deciles, all else by value."""
    if pd.api.types.is_numeric_dtype(true) and pd.api.types.is_numeric_dtype(said):
        cuts = np.unique(true.quantile(np.arange(1, 10) / 10))
        found = []
        for each in (true, said):
            values = each.astype(float).to_numpy()
            found.append(
                np.where(np.isnan(values), len(cuts) + 1, np.searchsorted(cuts, values, side="right"))
            )
        return found[0], found[1]
    texts = pd.factorize(pd.concat([_texts(true), _texts(said)]))[0]
    return texts[: len(true)], texts[len(true) :]


def _texts(column: pd.Series) -> pd.Series:
    return (
        column.astype(object)
        .where(column.notna(), "(missing)")
        .map(lambda x: str(x).removesuffix(".0").lower())
    )


def _apart(a: np.ndarray, x: np.ndarray, b: np.ndarray, y: np.ndarray) -> float:
    shape = (max(a.max(), x.max()) + 1, max(b.max(), y.max()) + 1)
    tables = [
        np.bincount(np.ravel_multi_index(pair, shape), minlength=shape[0] * shape[1]) / len(pair[0])
        for pair in ((a, b), (x, y))
    ]
    return float(np.abs(tables[0] - tables[1]).sum() / 2)


def main() -> None:
    asked = sys.argv[1:] or list(FILES)
    unknown = [name for name in asked if name not in FILES]
    if unknown:
        sys.exit(f"no table '{unknown[0]}'; there are {', '.join(FILES)}")
    for name in asked:
        frame = table(name)
        for means, words in ((0.02, "means inside bins"), (0.0, "without")):
            runs = [judged(frame, released(frame, seed, means)) for seed in SEEDS]
            figures = [Figure.mean(what, [run[what] for run in runs]) for what in runs[0]]
            show(f"{name}, {len(frame):,} rows, {words}", figures)


if __name__ == "__main__":
    main()
