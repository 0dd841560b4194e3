"""Schemas found privately, beside schemas made by hand and beside edges at quantiles of a range that is given.

    python -m benchmarks.drafts [--source dpsynth=DIR] [diamonds | flchain | adult | chile | births]...

Everything within ε = 1 and δ = 10⁻⁶ in all, a record is replaced; three seeds. A draft has ε = 0.3, its release 0.92
(what a ledger leaves); a schema that is free has a release of ε = 1. `tv2` as `benchmarks.numbers` has it, over all
columns of the table: a pair with a column that a schema leaves out counts as wholly wrong.

    hand-made           32 bins of equal width over a range that anybody would give; categories listed
    range given         the same range; about as many bins as a draft has, at quantiles of 1,024 noisy cells of equal
                        width (of a draft's ε)
    dpsynth             the same range and categories; edges by dpsynth's own code, which bisects at noisy medians
                        (a checkout of github.com/google/dpsynth is given by --source)
    read off            the unpaid draft: edges of the table itself, not private
    private             categories listed, everything that is a number found privately
    all private         nothing listed

Releases after a draft use its counts again; what that is worth is shown beside the same releases without.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import Figure, data_folder, show
from benchmarks.numbers import FILES, _apart, _cut
from dualquery import Budget, Categorical, Domain, Numeric, private_draft, schema_draft
from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError
from dualquery.fitting.measured import Measured
from dualquery.mechanisms.mechanism import Task, finished
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.randomness import SeededEntropy
from dualquery.releases.reuse import earlier_of
from dualquery.table.binning import gaussian_mu, number_of_bins
from dualquery.table.draft import Draft
from dualquery.table.encoding import encode
from dualquery.types import silent

DRAFT, AFTER, WHOLE, DELTA = 0.3, 0.92, 1.0, 1e-6
SEEDS = (0, 1, 2)
CELLS = 1024
GRID = 10_000_000  # dpsynth's
SOURCE: dict[str, Any] = {}  # the module of dpsynth that finds edges, where it is given
FROM_HERE_ON = 50_000  # rows: private drafts of everything are required to be good
RANGES = {
    "adult": {
        "age": (15, 95), "fnlwgt": (0, 1_500_000), "education-num": (0, 17), "capital-gain": (0, 100_000),
        "capital-loss": (0, 5_000), "hours-per-week": (0, 100),
    },
    "diamonds": {
        "carat": (0, 6), "depth": (40, 80), "table": (40, 100), "price": (0, 20_000), "x": (0, 12), "y": (0, 60),
        "z": (0, 32),
    },
    "flchain": {
        "age": (50, 105), "kappa": (0, 25), "lambda": (0, 30), "creatinine": (0, 12), "futime": (0, 6_000),
    },
    "births": {
        "mager": (10, 60), "fagecomb": (10, 100), "dbwt": (200, 7_000), "combgest": (15, 50), "pwgt_r": (50, 400),
        "dwgt_r": (50, 450), "m_ht_in": (30, 80), "cig_0": (0, 100), "cig_1": (0, 100), "cig_2": (0, 100),
        "cig_3": (0, 100), "previs": (0, 100),
    },
    "chile": {"age": (15, 75), "statusquo": (-2, 2.5)},
}  # fmt: skip
REQUIRED = {"private": 1.0, "all private": 1.1}


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(data_folder() / FILES[name], na_values=["?"])


def listed(frame: pd.DataFrame, *, numbers: bool) -> list[Categorical]:
    """Categories as a steward lists them, with numbers of few values or without."""
    drafted = schema_draft(frame).schema.domain.columns
    return [c for c in drafted if isinstance(c, Categorical) and (numbers or not c.numeric)]


def of_ranges(name: str, frame: pd.DataFrame, edges: dict[str, np.ndarray]) -> Domain:
    """Categories and few-valued numbers listed, other numbers in these bins."""
    known = {column.name: column for column in listed(frame, numbers=True)}
    for each, cuts in edges.items():
        missing = "missing" if frame[each].isna().any() else None
        whole = bool((frame[each].dropna() % 1 == 0).all())
        if whole:
            cuts = np.unique(np.ceil(cuts))
        known[each] = Numeric(each, tuple(map(float, cuts)), clamp=True, integer=whole, missing=missing)
    return Domain(tuple(known[each] for each in frame.columns if each in known))


def hand_made(name: str, frame: pd.DataFrame, seed: int) -> Domain:
    return of_ranges(name, frame, {each: np.linspace(*ends, 33) for each, ends in RANGES[name].items()})


def range_given(name: str, frame: pd.DataFrame, seed: int) -> Domain:
    """Noise of the Gaussian mechanism for all columns together; negative cells count as empty."""
    rng, bins = np.random.default_rng(seed), number_of_bins(len(frame))
    sigma = np.sqrt(2 * len(RANGES[name])) / gaussian_mu(DRAFT, DELTA)
    found = {}
    for each, ends in RANGES[name].items():
        grid = np.linspace(*ends, CELLS + 1)
        noisy = np.histogram(frame[each].dropna().clip(*ends), grid)[0] + rng.normal(0, sigma, CELLS)
        share = np.append(0, np.cumsum(np.maximum(noisy, 0)))
        inner = np.searchsorted(share / share[-1], np.arange(1, bins) / bins)
        found[each] = np.unique([ends[0], *grid[inner], ends[1]])
    return of_ranges(name, frame, found)


def dpsynth(name: str, frame: pd.DataFrame, seed: int) -> Domain:
    """As its NumericalInitializer has it: shares of ρ fall fourfold a level from the finest on, a fine grid.

    Its exponential mechanism takes a score that moves by ½ where a record comes or goes; one that is replaced
    moves it by 1, so each level has half its ε. ρ is what Gaussian noise of this budget has: more than theirs.
    """
    rng, levels = np.random.default_rng(seed), round(math.log2(number_of_bins(len(frame))))
    rho = gaussian_mu(DRAFT, DELTA) ** 2 / 2 / len(RANGES[name])
    weights = 4.0 ** np.arange(levels)[::-1]
    epsilons = np.sqrt(8 * rho * weights / weights.sum()) / 2
    found = {}
    for each, (low, high) in RANGES[name].items():
        values = frame[each].dropna().to_numpy(float)
        whole = bool((values % 1 == 0).all())
        cells = int(high - low) + 1 if whole else GRID
        step = (high - low) / (cells - 1)
        counts = np.bincount(np.rint((np.clip(values, low, high) - low) / step).astype(int), minlength=cells)
        jitter = "refine" if whole else "symmetric"
        inner = SOURCE["dpsynth"].quantiles_from_histogram(rng, counts, epsilons, jitter)
        found[each] = np.unique([low, *(low + np.array(inner) * step), high])
    return of_ranges(name, frame, found)


def read_off(name: str, frame: pd.DataFrame, seed: int) -> Domain:
    return replace(schema_draft(frame).schema, draft=False).domain


def private(name: str, frame: pd.DataFrame, seed: int) -> Draft:
    stated = Domain(tuple(listed(frame, numbers=False)))
    return private_draft(frame, budget=Budget(DRAFT, DELTA), known=stated, seed=seed)


def all_private(name: str, frame: pd.DataFrame, seed: int) -> Draft:
    return private_draft(frame, budget=Budget(DRAFT, DELTA), seed=seed)


WAYS = {
    "hand-made": (hand_made, WHOLE),
    "range given": (range_given, AFTER),
    "dpsynth": (dpsynth, AFTER),
    "read off": (read_off, WHOLE),
    "private": (private, AFTER),
    "all private": (all_private, AFTER),
}


def domain_of(found: Domain | Draft) -> Domain:
    return found.schema.domain if isinstance(found, Draft) else found


def released(frame: pd.DataFrame, found: Domain | Draft, epsilon: float, seed: int) -> pd.DataFrame:
    """As `dualquery.release` makes the rows, without error bars; what a draft has counted is used again."""
    domain = domain_of(found)
    earlier: tuple[Measured, ...] = ()
    if isinstance(found, Draft):
        earlier, _ = earlier_of(found, found.schema, Neighbours.REPLACE, ledger=None, dataset=None, seed=seed)
    records = encode(frame, domain)
    budget = Budget(epsilon, DELTA, accounting=Accounting.GAUSSIAN)
    task = Task(marginals(domain, 2), records.rows, budget, places=True, earlier=earlier)
    plan = PROJECTION.plan_for(task, {})
    entropy = SeededEntropy(seed)
    curator = Curator(MemoryCounter(records), Ledger(budget), entropy)
    made = PROJECTION.run(plan, curator, entropy.public_generator(), silent)
    return finished(made, records.rows, entropy).artefact.to_arrow().to_pandas()


def tv2(frame: pd.DataFrame, made: pd.DataFrame) -> float:
    codes = {name: _cut(frame[name], made[name]) for name in made}
    pairs = combinations(frame.columns, 2)
    return fmean(_apart(*codes[a], *codes[b]) if a in codes and b in codes else 1.0 for a, b in pairs)


def main() -> None:
    asked = sys.argv[1:]
    if "--source" in asked:
        place = asked.index("--source")
        file = Path(asked[place + 1].removeprefix("dpsynth=")) / "dpsynth" / "local_mode" / "_quantiles.py"
        spec = importlib.util.spec_from_file_location("dpsynth_quantiles", file)
        assert spec is not None
        assert spec.loader is not None
        SOURCE["dpsynth"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(SOURCE["dpsynth"])
        del asked[place : place + 2]
    ways = {way: made for way, made in WAYS.items() if way != "dpsynth" or SOURCE}
    asked = asked or list(RANGES)
    if unknown := [name for name in asked if name not in RANGES]:
        sys.exit(f"no table '{unknown[0]}'; there are {', '.join(RANGES)}")
    for name in asked:
        frame = table(name)
        runs: dict[str, list[float]] = {}
        for way, (make, epsilon) in ways.items():
            try:
                runs[way] = [tv2(frame, released(frame, make(name, frame, s), epsilon, s)) for s in SEEDS]
            except BudgetError as refused:
                print(f"{name}, {way}: {refused}")
        figures = [Figure.mean(f"tv2, {way}", found) for way, found in runs.items()]
        for way in (each for each in REQUIRED if each in runs):
            make, epsilon = WAYS[way]
            alone = [tv2(frame, released(frame, domain_of(make(name, frame, s)), epsilon, s)) for s in SEEDS]
            ratios = [found / each for found, each in zip(runs[way], alone, strict=True)]
            figures.append(Figure.mean(f"{way}, over the same without its counts", ratios))
        for way, most in REQUIRED.items():
            others = [way for way in ("hand-made", "range given", "dpsynth") if way in runs]
            least = min(fmean(runs[way]) for way in others)
            needed = way == "private" or len(frame) >= FROM_HERE_ON
            if way in runs:
                ratios = [each / least for each in runs[way]]
                words = f"{way}, over the best of {', '.join(others)}"
                figures.append(Figure.mean(words, ratios, most if needed else None))
        show(f"{name}, {len(frame):,} rows × {len(frame.columns)}", figures)


if __name__ == "__main__":
    main()
