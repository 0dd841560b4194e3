"""A register of rare diseases that nobody has: diagnosis, district and year of birth of invented patients.

Diagnoses are few and popular or many and rare, as codes are. Only uniform numbers in [0, 1) are drawn, so a
seed gives the same patients with every version of numpy.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PATIENTS = 20_000
SEED = 1984
DISEASES, DISTRICTS = 400, 40
POPULAR = 1.1  # the exponent of the law of diagnoses

SCHEMA = """\
# The public description of the example register. No list of codes: any code of the right shape may occur.

[codes.columns]
icd = {text = 8}
district = {text = 5}
born = {from = 1900, to = 2030}
"""

LOOKUPS, WATCHED = "lookups.csv", "watched.csv"
QUESTION = "icd = C71.9 & district = 04103 & born = 1984"


def codes() -> list[str]:
    """The diagnoses, the most frequent first."""
    letters = "CDEGIJKM"
    made = [f"{letters[i % 8]}{(71 + 7 * (i // 8)) % 100:02d}.{9 - i % 10}" for i in range(DISEASES)]
    return [made[0], *sorted(set(made[1:]), key=made.index)]


def districts() -> list[str]:
    return [f"{4103 + 17 * i:05d}" for i in range(DISTRICTS)]


def register() -> pa.Table:
    """The patients."""
    rng = np.random.default_rng(SEED)
    diagnoses, places = np.array(codes()), np.array(districts())
    icd = _drawn(rng.random(PATIENTS), 1 / np.arange(1, len(diagnoses) + 1) ** POPULAR)
    district = _drawn(rng.random(PATIENTS), 1 / np.arange(1, DISTRICTS + 1))
    born = 1984 + np.floor(12 * (rng.random(PATIENTS) + rng.random(PATIENTS) - 1)).astype(np.int64)
    return pa.table({"icd": diagnoses[icd].tolist(), "district": places[district].tolist(), "born": born})


def _drawn(uniform: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.intp]:
    edges = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(edges, uniform, side="right"), len(weights) - 1)


def write_lists(folder: Path) -> None:
    """Records to look up: of the twelve first diagnoses in the first districts; and a list to watch."""
    rows = [
        (icd, place, born) for icd in codes()[:12] for place in districts()[:8] for born in range(1976, 1993)
    ]
    watched = [row for row in rows if row[0] in codes()[3:7]]
    for name, chosen in ((LOOKUPS, rows), (WATCHED, watched)):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("icd", "district", "born"), *chosen])
