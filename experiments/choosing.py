"""Which mechanism for which shape: the evidence behind `mechanisms/choose.py`.

    python -m experiments.choosing [--runs 2] [--out docs/pictures]

Every mechanism that can pay for itself releases the same table for the same workload; mean and max errors against
epsilon go to choosing.csv and choosing.svg. Points that choosing.csv holds already are kept; remove it to start anew.
Needs DUALQUERY_DATA (experiments/README.md) for the real tables.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import pyplot

import dualquery
from dualquery import Accounting, Budget, Neighbours
from dualquery.errors import DualQueryError
from dualquery.example import SCHEMA, survey
from dualquery.queries.counting import true_counts
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema, read_schema

HERE = Path(__file__).parent
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
COLOURS = {"projection": "C0", "adaptive-projection": "C1", "dualquery": "C2", "mwem": "C3"}


@dataclass(frozen=True)
class Case:
    """A table, what is asked of it, and who may try under which accounting."""

    name: str
    records: Records
    workload: Workload
    accounting: Accounting
    mechanisms: tuple[str, ...]


def real(name: str, file: str) -> Records:
    folder = Path(os.environ.get("DUALQUERY_DATA", HERE.parent.parent / "shared" / "data"))
    return encode(str(folder / file), read_schema(HERE / "schemas" / f"{name}.toml"))


def cases() -> Iterator[Case]:
    schema = parse_schema(SCHEMA, origin="the example")
    people = encode(survey(), schema)
    gaussian = ("projection", "adaptive-projection", "dualquery")
    yield Case(
        "survey, all 3-way tables", people, from_spec(people.domain, "marginals:3"), Accounting.ZCDP, gaussian
    )
    adult = real("adult", "adult.csv.gz")
    asked = from_spec(adult.domain, "random:3:100000")
    yield Case("Adult, 100,000 random 3-way", adult, asked, Accounting.ZCDP, gaussian)
    nltcs = real("nltcs", "nltcs.csv.gz")
    asked = from_spec(nltcs.domain, "marginals:3")
    yield Case("NLTCS, all 3-way tables", nltcs, asked, Accounting.ZCDP, (*gaussian, "mwem"))
    yield Case("NLTCS, pure", nltcs, asked, Accounting.PURE, ("mwem", "dualquery"))
    asked = from_spec(adult.domain, "random:3:20000")
    yield Case("Adult, 20,000 random 3-way, pure", adult, asked, Accounting.PURE, ("dualquery",))


def errors(case: Case, mechanism: str, epsilon: float, seed: int) -> tuple[float, float]:
    """Mean and max error of one release."""
    delta = 0.0 if case.accounting is Accounting.PURE else 1e-6
    budget = Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE, accounting=case.accounting)
    release = dualquery.release(
        case.records,
        domain=case.records.domain,
        workload=case.workload,
        budget=budget,
        mechanism=mechanism,
        seed=seed,
    )
    assert release.records is not None
    found = np.concatenate(
        [
            np.abs(
                true_counts(group, case.records) / case.records.rows
                - true_counts(group, release.records) / release.records.rows
            )
            for group in case.workload.groups
        ]
    )
    return float(found.mean()), float(found.max())


def measure(runs: int, path: Path) -> list[dict[str, str]]:
    """All points, written after each one."""
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    known = {(row["case"], row["mechanism"], float(row["epsilon"])) for row in rows}
    for case in cases():
        for mechanism in case.mechanisms:
            for epsilon in EPSILONS:
                if (case.name, mechanism, epsilon) in known:
                    continue
                started = time.perf_counter()
                try:
                    found = [errors(case, mechanism, epsilon, seed) for seed in range(runs)]
                except DualQueryError as problem:
                    print(f"{case.name}, {mechanism}, epsilon = {epsilon:g}: {problem}", file=sys.stderr)
                    continue
                mean, most = np.mean(found, axis=0)
                seconds = (time.perf_counter() - started) / runs
                rows.append(
                    {
                        "case": case.name,
                        "mechanism": mechanism,
                        "epsilon": f"{epsilon:g}",
                        "mean_error": f"{mean:.5f}",
                        "max_error": f"{most:.4f}",
                        "seconds": f"{seconds:.1f}",
                        "runs": str(runs),
                    }
                )
                print(rows[-1], flush=True)
                with path.open("w", newline="") as file:
                    writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                    writer.writeheader()
                    writer.writerows(rows)
    return rows


def draw(rows: list[dict[str, str]], path: Path) -> None:
    names = list(dict.fromkeys(row["case"] for row in rows))
    picture, panels = pyplot.subplots(
        1, len(names), figsize=(3.4 * len(names), 3.4), sharey=True, squeeze=False
    )
    for panel, name in zip(panels[0], names, strict=True):
        for mechanism, colour in COLOURS.items():
            mine = [row for row in rows if row["case"] == name and row["mechanism"] == mechanism]
            if mine:
                x = [float(row["epsilon"]) for row in mine]
                panel.loglog(
                    x, [float(row["mean_error"]) for row in mine], "o-", color=colour, label=mechanism
                )
                panel.loglog(x, [float(row["max_error"]) for row in mine], "o:", color=colour, alpha=0.5)
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("ε")
    panels[0][0].set_ylabel("error: mean (solid), max (dotted)")
    handles = {
        label: line
        for panel in panels[0]
        for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    picture.legend(handles.values(), handles.keys(), ncols=4, loc="lower center", fontsize=9, frameon=False)
    picture.tight_layout(rect=(0, 0.06, 1, 1))
    picture.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "pictures")
    arguments = parser.parse_args()
    rows = measure(arguments.runs, arguments.out / "choosing.csv")
    draw(rows, arguments.out / "choosing.svg")


if __name__ == "__main__":
    main()
